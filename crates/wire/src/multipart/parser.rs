//! [`Parser`] converts bytes into [`Event`]s.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memmem::Finder;

use super::{ContentType, MAX_HEAD_BYTES, MultipartError};

/// Maximum number of white-space bytes after a boundary; a line with more is data.
const MAX_PADDING_BYTES: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    Part(Head),
    Data(Bytes),
    PartEnd,
    /// The last boundary. The parser ignores input after it.
    End,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Names in lower case, with their values.
    fields: Vec<(String, String)>,
}

impl Head {
    /// `name` must be in lower case.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    #[must_use]
    pub fn content_type(&self) -> Option<ContentType> {
        self.get("content-type").map(ContentType::parse)
    }

    #[must_use]
    pub fn filename(&self) -> Option<String> {
        ContentType::parse(self.get("content-disposition")?).parameter("filename").map(str::to_owned)
    }

    fn parse(lines: &[u8]) -> Result<Self, MultipartError> {
        let text = std::str::from_utf8(lines).map_err(|_| MultipartError::MalformedHead)?;
        let mut fields: Vec<(String, String)> = Vec::new();
        for line in text.split("\r\n").filter(|line| !line.is_empty()) {
            match (line.starts_with([' ', '\t']), fields.last_mut(), line.split_once(':')) {
                // A line that starts with white space continues the previous line.
                (true, Some((_, value)), _) => {
                    value.push(' ');
                    value.push_str(line.trim());
                }
                (false, _, Some((name, value))) => {
                    fields.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
                }
                _ => return Err(MultipartError::MalformedHead),
            }
        }
        Ok(Self { fields })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Preamble,
    /// After a boundary, whose line end is still in the buffer.
    Head,
    /// After a head. The line end of the empty line stays in the buffer, because it may be part of the next boundary.
    BodyBegins,
    Body,
    BodyEnded(Boundary),
    Ended,
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Boundary {
    Inner,
    Last,
}

enum Line {
    /// A boundary and its length in bytes, line end included.
    Boundary(Boundary, usize),
    Data,
    Unclear,
}

enum Found {
    Boundary(Boundary, usize, usize),
    /// Number of bytes in which no boundary starts.
    None(usize),
}

#[derive(Debug)]
pub struct Parser {
    buffer: BytesMut,
    /// `CRLF -- boundary`
    delimiter: Finder<'static>,
    state: State,
    complete: bool,
}

impl Parser {
    #[must_use]
    pub fn new(boundary: &str) -> Self {
        let delimiter = format!("\r\n--{boundary}").into_bytes();
        // The first boundary may be at the start of the body, where no line end precedes it.
        Self {
            buffer: BytesMut::from(&b"\r\n"[..]),
            delimiter: Finder::new(&delimiter).into_owned(),
            state: State::Preamble,
            complete: false,
        }
    }

    /// Returns [`MultipartError::NoBoundary`] if the type has no valid boundary.
    pub fn of(content_type: &ContentType) -> Result<Self, MultipartError> {
        content_type.boundary().map(Self::new)
    }

    /// The caller must take all events before it adds more input: this bounds the buffer.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.state != State::Done {
            self.buffer.extend_from_slice(bytes);
        }
    }

    pub fn finish(&mut self) {
        self.complete = true;
    }

    /// Returns `None` if more input is needed, and after the end. A malformed or truncated body is an error.
    #[expect(clippy::should_implement_trait, reason = "an iterator would end where more bytes are needed")]
    pub fn next(&mut self) -> Result<Option<Event>, MultipartError> {
        loop {
            let before = self.state;
            let event = match self.state {
                State::Preamble => self.preamble(),
                State::Head => self.head()?,
                State::BodyBegins => self.body_begins(),
                State::Body => self.body(),
                State::BodyEnded(boundary) => {
                    self.state = if boundary == Boundary::Last { State::Ended } else { State::Head };
                    Some(Event::PartEnd)
                }
                State::Ended => {
                    self.buffer.clear();
                    self.state = State::Done;
                    Some(Event::End)
                }
                State::Done => return Ok(None),
            };
            match event {
                Some(event) => return Ok(Some(event)),
                None if self.state != before => {}
                None if self.complete => return Err(MultipartError::EndedEarly),
                None => return Ok(None),
            }
        }
    }

    fn preamble(&mut self) -> Option<Event> {
        let (boundary, at, length) = match self.find() {
            Found::Boundary(boundary, at, length) => (boundary, at, length),
            Found::None(until) => {
                self.buffer.advance(until);
                return None;
            }
        };
        self.buffer.advance(at + length);
        self.state = if boundary == Boundary::Last { State::Ended } else { State::Head };
        None
    }

    fn head(&mut self) -> Result<Option<Event>, MultipartError> {
        let end = memchr::memmem::find(&self.buffer, b"\r\n\r\n");
        if end.unwrap_or(self.buffer.len()) > MAX_HEAD_BYTES {
            return Err(MultipartError::HeadTooLong);
        }
        let Some(end) = end else { return Ok(None) };
        let head = Head::parse(&self.buffer[..end])?;
        self.buffer.advance(end + 2);
        self.state = State::BodyBegins;
        Ok(Some(Event::Part(head)))
    }

    /// A part without data may have a single line end between its head and the next boundary.
    fn body_begins(&mut self) -> Option<Event> {
        let needle = self.delimiter.needle();
        let compared = needle.len().min(self.buffer.len());
        let line = if self.buffer[..compared] != needle[..compared] {
            Line::Data
        } else if compared < needle.len() {
            if self.complete { Line::Data } else { Line::Unclear }
        } else {
            self.line(0)
        };
        match line {
            Line::Unclear => {}
            Line::Data => {
                self.buffer.advance(2);
                self.state = State::Body;
            }
            Line::Boundary(boundary, length) => {
                self.buffer.advance(length);
                self.state = State::BodyEnded(boundary);
            }
        }
        None
    }

    fn body(&mut self) -> Option<Event> {
        let until = match self.find() {
            Found::None(until) => until,
            Found::Boundary(boundary, at, length) => {
                let data = self.buffer.split_to(at).freeze();
                self.buffer.advance(length);
                self.state = State::BodyEnded(boundary);
                return (!data.is_empty()).then_some(Event::Data(data));
            }
        };
        (until > 0).then(|| Event::Data(self.buffer.split_to(until).freeze()))
    }

    fn find(&self) -> Found {
        let mut from = 0;
        while let Some(at) = self.delimiter.find(&self.buffer[from..]).map(|at| from + at) {
            match self.line(at) {
                Line::Boundary(boundary, length) => return Found::Boundary(boundary, at, length),
                Line::Data => from = at + 1,
                Line::Unclear => return Found::None(at),
            }
        }
        // The end of the buffer may be the start of a boundary.
        let kept = self.delimiter.needle().len() - 1;
        Found::None(self.buffer.len().saturating_sub(kept).max(from))
    }

    /// Classifies the line at `at`, where the delimiter was found. The line end after an inner boundary belongs to the
    /// next head.
    fn line(&self, at: usize) -> Line {
        let behind = at + self.delimiter.needle().len();
        let rest = &self.buffer[behind..];
        if rest.starts_with(b"--") {
            return Line::Boundary(Boundary::Last, behind + 2 - at);
        }
        let padding = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        match &rest[padding..] {
            _ if padding > MAX_PADDING_BYTES => Line::Data,
            [b'\r', b'\n', ..] => Line::Boundary(Boundary::Inner, behind + padding - at),
            [] | [b'\r'] if !self.complete => Line::Unclear,
            [b'-'] if padding == 0 && !self.complete => Line::Unclear,
            _ => Line::Data,
        }
    }
}
