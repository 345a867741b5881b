//! [`Ini`]: one configuration file in CouchDB's syntax, parsed into lines so that changes preserve comments, order and
//! line ends.
//!
//! - `[section]` opens a section. Lines before the first section, and lines of any other form, are ignored.
//! - `key = value`. The first ` = ` separates, so that a key may contain `=`; without one the first `=` does.
//! - An empty value removes the value of earlier files.
//! - `;` starts a comment at the start of a line, and after a space or tab within one.

use std::fmt;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ini {
    lines: Vec<Line>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    text: String,
    /// Original line end; empty only at the end of a file.
    end: &'static str,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// A comment, an empty line, or an invalid line.
    Other,
    Section(String),
    Entry {
        section: String,
        key: String,
        value: Option<String>,
    },
}

/// The texts are CouchDB's `reason`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEntry {
    #[error("Invalid configuration section")]
    Section,
    #[error("Invalid configuration key")]
    Key,
    #[error("Invalid configuration value")]
    Value,
}

/// Rejects control characters and brackets, as CouchDB does, and sections and keys that would be read back as others.
/// Accepts a value that contains ` ;`, as CouchDB does: it is in force until the file is read again, and then ends at
/// the comment.
pub fn check_entry(section: &str, key: &str, value: &str) -> Result<(), InvalidEntry> {
    let printable = |text: &str| !text.chars().any(|c| c.is_control() && c != '\t');
    let bracket = |text: &str| text.contains(['[', ']']);
    if section.is_empty() || !printable(section) || bracket(section) {
        return Err(InvalidEntry::Section);
    }
    if key.is_empty() || !printable(key) || bracket(key) {
        return Err(InvalidEntry::Key);
    }
    if !printable(value) {
        return Err(InvalidEntry::Value);
    }
    let read_back = |value: &str| {
        let mut ini = Ini::default();
        ini.set(section, key, value);
        let stored = strip_comment(value).trim();
        Ini::parse(&ini.to_string()).entries().eq([(section, key, Some(stored).filter(|text| !text.is_empty()))])
    };
    match (read_back("x"), read_back(value)) {
        (true, true) => Ok(()),
        (true, false) => Err(InvalidEntry::Value),
        (false, _) if strip_comment(section).trim() != section => Err(InvalidEntry::Section),
        (false, _) => Err(InvalidEntry::Key),
    }
}

impl Ini {
    /// Every text is a configuration: invalid lines are preserved and ignored.
    pub fn parse(text: &str) -> Ini {
        let mut section = String::new();
        let mut lines = Vec::new();
        for (text, end) in split_lines(text) {
            let content = parse_line(text, &section);
            if let Content::Section(name) = &content {
                section.clone_from(name);
            }
            lines.push(Line { text: text.to_owned(), end, content });
        }
        Ini { lines }
    }

    /// Returns section, key and value of all entries in the order of the file. Later ones take precedence; an empty
    /// value is `None`.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &str, Option<&str>)> {
        self.lines.iter().filter_map(|line| match &line.content {
            Content::Entry { section, key, value } => Some((section.as_str(), key.as_str(), value.as_deref())),
            Content::Other | Content::Section(_) => None,
        })
    }

    pub fn numbered(&self) -> impl Iterator<Item = (usize, &str, &str, Option<&str>)> {
        (1..).zip(&self.lines).filter_map(|(number, line)| match &line.content {
            Content::Entry { section, key, value } => Some((number, section.as_str(), key.as_str(), value.as_deref())),
            Content::Other | Content::Section(_) => None,
        })
    }

    pub fn invalid_lines(&self) -> impl Iterator<Item = usize> {
        let is_invalid =
            |line: &Line| line.content == Content::Other && !strip_comment(line.text.trim()).trim().is_empty();
        (1..).zip(&self.lines).filter(move |(_, line)| is_invalid(line)).map(|(number, _)| number)
    }

    /// Replaces the value in the line that holds the key, whose comment is preserved. Otherwise adds a line after the
    /// last entry of the section, or a new section at the end.
    pub fn set(&mut self, section: &str, key: &str, value: &str) {
        let content = Content::Entry {
            section: section.to_owned(),
            key: key.to_owned(),
            value: Some(value.to_owned()).filter(|text| !text.is_empty()),
        };
        let text = format!("{key} = {value}");
        if let Some(at) = self.lines.iter().rposition(|line| line.holds(section, key)) {
            let line = &mut self.lines[at];
            let comment = if line.has_value_like_comment() { "" } else { comment_of(&line.text) };
            line.text = text + comment;
            line.content = content;
            return;
        }
        let last = self.lines.iter().rposition(|line| line.belongs_to(section));
        let at = last.map_or(self.lines.len(), |last| last + 1);
        self.end_line_before(at);
        let end = self.line_end();
        if last.is_some() {
            self.lines.insert(at, Line { text, end, content });
            return;
        }
        if !self.lines.is_empty() {
            self.lines.push(Line { text: String::new(), end, content: Content::Other });
        }
        self.lines.push(Line { text: format!("[{section}]"), end, content: Content::Section(section.to_owned()) });
        self.lines.push(Line { text, end, content });
    }

    /// Removes all lines that hold the key. Returns true if any existed.
    pub fn remove(&mut self, section: &str, key: &str) -> bool {
        let before = self.lines.len();
        self.lines.retain(|line| !line.holds(section, key));
        self.lines.len() < before
    }

    /// Replaces the values of `section` for which `rewrite` returns another one. Returns true if it replaced any.
    pub fn rewrite(&mut self, section: &str, rewrite: impl Fn(&str) -> Option<String>) -> bool {
        let mut rewritten = false;
        for line in &mut self.lines {
            if let Content::Entry { section: s, key, value: Some(value) } = &mut line.content
                && s == section
                && let Some(text) = rewrite(value)
            {
                line.text = format!("{key} = {text}{}", comment_of(&line.text));
                *value = text;
                rewritten = true;
            }
        }
        rewritten
    }

    fn end_line_before(&mut self, at: usize) {
        let end = self.line_end();
        if let Some(line) = at.checked_sub(1).and_then(|before| self.lines.get_mut(before))
            && line.end.is_empty()
        {
            line.end = end;
        }
    }

    fn line_end(&self) -> &'static str {
        self.lines.first().map(|line| line.end).filter(|end| !end.is_empty()).unwrap_or("\n")
    }
}

impl fmt::Display for Ini {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| write!(formatter, "{}{}", line.text, line.end))
    }
}

impl Line {
    fn holds(&self, section: &str, key: &str) -> bool {
        matches!(&self.content, Content::Entry { section: s, key: k, .. } if s == section && k == key)
    }

    /// Returns true if [`Ini::set`] was given a value that contains the start of a comment.
    fn has_value_like_comment(&self) -> bool {
        matches!(&self.content, Content::Entry { value: Some(value), .. } if !comment_of(value).is_empty())
    }

    fn belongs_to(&self, section: &str) -> bool {
        match &self.content {
            Content::Section(name) | Content::Entry { section: name, .. } => name == section,
            Content::Other => false,
        }
    }
}

/// Line ends as in CouchDB; the last one is Ctrl-Z.
const LINE_ENDS: [&str; 4] = ["\r\n", "\n", "\r", "\u{1a}"];

fn split_lines(mut text: &str) -> Vec<(&str, &'static str)> {
    let mut lines = Vec::new();
    while !text.is_empty() {
        let length = text.find(['\r', '\n', '\u{1a}']).unwrap_or(text.len());
        let (line, rest) = text.split_at(length);
        let end = LINE_ENDS.into_iter().find(|end| rest.starts_with(end)).unwrap_or("");
        lines.push((line, end));
        text = &rest[end.len()..];
    }
    lines
}

fn parse_line(line: &str, section: &str) -> Content {
    let line = strip_comment(line.trim()).trim();
    if let Some(rest) = line.strip_prefix('[') {
        return match rest.split_once(']') {
            Some((name, "")) if !name.is_empty() => Content::Section(name.to_owned()),
            _ => Content::Other,
        };
    }
    let Some((key, value)) = line.split_once(" = ").or_else(|| line.split_once('=')) else {
        return Content::Other;
    };
    let (key, value) = (key.trim(), value.trim());
    if section.is_empty() || key.is_empty() {
        return Content::Other;
    }
    Content::Entry {
        section: section.to_owned(),
        key: key.to_owned(),
        value: Some(value.to_owned()).filter(|text| !text.is_empty()),
    }
}

fn strip_comment(line: &str) -> &str {
    &line[..line.len() - comment_of(line).len()]
}

fn comment_of(line: &str) -> &str {
    if line.trim_start().starts_with(';') {
        return line;
    }
    let start = [" ;", "\t;"].into_iter().filter_map(|mark| line.find(mark)).min();
    start.map_or("", |start| &line[start..])
}

#[cfg(test)]
mod tests;
