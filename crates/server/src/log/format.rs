//! [`Record`]: one event, and how it becomes a line.
//!
//! - Text is CouchDB's: `[level] time node <process> request message`, and what belongs to the message as `name=value`.
//!   Lines of the access log are CouchDB's as well: host, client, user, method, target, status, outcome, milliseconds.
//! - JSON has an object a line, with the members `time`, `level`, `node`, `request`, `message` and those of the event.
//! - For the journal there is no time, because it has its own, but a priority.
//!
//! A line is one line: control characters are escaped.

use std::fmt::Write as _;
use std::io::Write as _;

use super::Severity;
use crate::time;

/// The name of the node, as CouchDB has it.
const NODE: &str = "nonode@nohost";

/// How a record is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Text,
    Json,
    Journal,
}

impl Format {
    /// The inverse of `as u8`.
    pub(super) fn from_number(number: u8) -> Self {
        [Self::Text, Self::Json].into_iter().find(|format| *format as u8 == number).unwrap_or(Self::Journal)
    }
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Text {
    /// A number or a truth value.
    Plain(String),
    /// Any text.
    Quoted(String),
}

impl Text {
    fn as_str(&self) -> &str {
        match self {
            Self::Plain(text) | Self::Quoted(text) => text,
        }
    }
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) severity: Severity,
    pub(super) is_access: bool,
    pub(super) request: Option<String>,
    pub(super) message: String,
    pub(super) fields: Vec<(&'static str, Text)>,
}

impl Record {
    pub(super) fn new(severity: Severity, is_access: bool) -> Self {
        Self { severity, is_access, request: None, message: String::new(), fields: Vec::new() }
    }

    /// Appends the line and its end.
    pub(super) fn write(&self, out: &mut Vec<u8>, format: Format, now_us: u64) {
        match format {
            Format::Text => {
                let time = time::rfc3339(now_us);
                self.put(out, format_args!("[{}] {time} {NODE} <0.0.0> ", self.severity.name()));
                self.write_rest(out);
            }
            Format::Journal => {
                self.put(out, format_args!("<{}>", self.severity.priority()));
                self.write_rest(out);
            }
            Format::Json => self.write_json(out, now_us),
        }
        out.push(b'\n');
    }

    fn put(&self, out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
        out.write_fmt(text).expect("writing to a Vec cannot fail");
    }

    fn write_rest(&self, out: &mut Vec<u8>) {
        escape(out, self.request.as_deref().unwrap_or("--------"));
        if self.is_access {
            // In CouchDB's line there is no count of bytes.
            for (_, value) in self.fields.iter().filter(|(name, _)| *name != "bytes") {
                out.push(b' ');
                escape(out, value.as_str());
            }
            return;
        }
        out.push(b' ');
        escape(out, &self.message);
        for (name, value) in &self.fields {
            self.put(out, format_args!(" {name}="));
            escape(out, value.as_str());
        }
    }

    fn write_json(&self, out: &mut Vec<u8>, now_us: u64) {
        let (time, level) = (time::rfc3339(now_us), self.severity.name());
        self.put(out, format_args!("{{\"time\":\"{time}\",\"level\":\"{level}\",\"node\":\"{NODE}\""));
        let message = if self.is_access { "request" } else { &self.message };
        for (name, text) in [("request", self.request.as_deref()), ("message", Some(message))] {
            if let Some(text) = text {
                self.put(out, format_args!(",\"{name}\":"));
                settee_model::json::write_string(out, text);
            }
        }
        for (name, value) in &self.fields {
            self.put(out, format_args!(",\"{name}\":"));
            match value {
                Text::Plain(text) => out.extend_from_slice(text.as_bytes()),
                Text::Quoted(text) => settee_model::json::write_string(out, text),
            }
        }
        out.push(b'}');
    }
}

/// Appends text without control characters, so that nobody can write lines of his own into the log.
fn escape(out: &mut Vec<u8>, text: &str) {
    if !text.chars().any(char::is_control) {
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
