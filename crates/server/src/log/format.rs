//! [`Record`]: one event, and its representations as a line.
//!
//! - Text is CouchDB's: `[level] time node <process> request message`, and the fields of the message as `name=value`.
//!   Lines of the access log are CouchDB's as well: host, client, user, method, target, status, outcome, milliseconds.
//! - JSON has one object per line, with the members `time`, `level`, `node`, `request`, `message` and those of the
//!   event.
//! - The journal format has a priority but no time, because the journal adds its own; the syslog format has both.
//!
//! A record is always one line: control characters are escaped.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::Range;

use super::Severity;
use settee_admin::time;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
    Journal,
    Syslog,
}

impl Format {
    pub(super) fn from_number(number: u8) -> Self {
        let others = [Self::Text, Self::Json, Self::Syslog];
        others.into_iter().find(|format| *format as u8 == number).unwrap_or(Self::Journal)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Quoted,
}

/// The texts of a record are in one buffer to avoid allocations, because every request has a record.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) severity: Severity,
    pub(super) is_access: bool,
    texts: String,
    request: Option<Range<usize>>,
    message: Range<usize>,
    fields: Vec<(&'static str, Kind, Range<usize>)>,
}

impl Record {
    pub(super) fn new(severity: Severity, is_access: bool) -> Self {
        let (texts, fields) = (String::with_capacity(256), Vec::with_capacity(10));
        Self { severity, is_access, texts, request: None, message: 0..0, fields }
    }

    /// `message` and `request` are not fields but parts of the line.
    pub(super) fn add(&mut self, name: &'static str, kind: Kind, write: impl FnOnce(&mut String)) {
        let start = self.texts.len();
        write(&mut self.texts);
        let range = start..self.texts.len();
        match name {
            "message" => self.message = range,
            "request" => self.request = Some(range),
            name => self.fields.push((name, kind, range)),
        }
    }

    fn fields(&self) -> impl Iterator<Item = (&'static str, Kind, &str)> {
        self.fields.iter().map(|(name, kind, range)| (*name, *kind, &self.texts[range.clone()]))
    }

    fn message(&self) -> &str {
        &self.texts[self.message.clone()]
    }

    fn request(&self) -> Option<&str> {
        self.request.clone().map(|range| &self.texts[range])
    }

    /// The name of the node must not contain characters that need escapes.
    pub(super) fn write(&self, out: &mut Vec<u8>, format: Format, node: &str, now_us: u64) {
        match format {
            Format::Text => {
                out.push(b'[');
                out.extend_from_slice(self.severity.name().as_bytes());
                out.extend_from_slice(b"] ");
                out.extend_from_slice(&time::rfc3339_ascii(now_us));
                out.push(b' ');
                out.extend_from_slice(node.as_bytes());
                out.extend_from_slice(b" <0.0.0> ");
                self.write_rest(out);
            }
            Format::Journal => {
                self.put(out, format_args!("<{}>", self.severity.priority()));
                self.write_rest(out);
            }
            Format::Syslog => {
                let time = time::rfc3339(now_us);
                self.put(out, format_args!("<{}>{time} ", self.severity.priority()));
                self.write_rest(out);
            }
            Format::Json => self.write_json(out, node, now_us),
        }
        out.push(b'\n');
    }

    fn put(&self, out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
        out.write_fmt(text).expect("writing to a Vec cannot fail");
    }

    fn write_rest(&self, out: &mut Vec<u8>) {
        escape(out, self.request().unwrap_or("--------"));
        if self.is_access {
            // CouchDB's line has no count of bytes.
            for (_, _, value) in self.fields().filter(|(name, ..)| *name != "bytes") {
                out.push(b' ');
                escape(out, value);
            }
            return;
        }
        out.push(b' ');
        escape(out, self.message());
        for (name, _, value) in self.fields() {
            self.put(out, format_args!(" {name}="));
            escape(out, value);
        }
    }

    fn write_json(&self, out: &mut Vec<u8>, node: &str, now_us: u64) {
        let (time, level) = (time::rfc3339(now_us), self.severity.name());
        self.put(out, format_args!("{{\"time\":\"{time}\",\"level\":\"{level}\",\"node\":\"{node}\""));
        let message = if self.is_access { "request" } else { self.message() };
        for (name, text) in [("request", self.request()), ("message", Some(message))] {
            if let Some(text) = text {
                self.put(out, format_args!(",\"{name}\":"));
                settee_model::json::write_string(out, text);
            }
        }
        for (name, kind, value) in self.fields() {
            self.put(out, format_args!(",\"{name}\":"));
            match kind {
                Kind::Plain => out.extend_from_slice(value.as_bytes()),
                Kind::Quoted => settee_model::json::write_string(out, value),
            }
        }
        out.push(b'}');
    }
}

/// Escapes control characters, so that clients cannot inject lines into the log.
fn escape(out: &mut Vec<u8>, text: &str) {
    let is_harmless = |byte: u8| byte >= b' ' && byte != 0x7f && byte != 0xc2;
    if text.bytes().all(is_harmless) {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\r' => escaped.push_str("\\r"),
            '\t' => escaped.push_str("\\t"),
            other if other.is_control() => {
                let _ = write!(escaped, "\\u{{{:x}}}", other as u32);
            }
            other => escaped.push(other),
        }
    }
    out.extend_from_slice(escaped.as_bytes());
}
