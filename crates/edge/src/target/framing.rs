//! [`Framing`]: locates the start and end of requests in the bytes of a client, and validates their heads.

use super::HeadError;

/// Maximum stored length of a line of a chunked body. The rest of a longer one is an extension or a trailer.
const LINE_BYTES: usize = 128;

/// Limit of the HTTP library.
const TARGET_BYTES: usize = 65_000;

#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    pub bytes: usize,
    pub headers: usize,
}

/// Follows requests and escapes their targets. Replaces the rest of an invalid head by a header that names the error,
/// to which a handler responds, and then passes on nothing more.
pub(super) struct Framing {
    state: State,
    limits: HeadLimits,
    held: Vec<u8>,
    head_bytes: usize,
    headers: usize,
    line: Vec<u8>,
    length: Option<u64>,
    is_chunked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Request,
    Headers,
    /// Number of bytes left.
    Body(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    /// The framing is uncertain, or the protocol changes: all bytes are passed on unchanged.
    Lost,
    Refused,
}

enum Passed {
    AsItIs,
    Escaped(Vec<u8>),
}

impl Framing {
    pub(super) fn new(limits: HeadLimits) -> Self {
        Self {
            state: State::default(),
            limits,
            held: Vec::new(),
            head_bytes: 0,
            headers: 0,
            line: Vec::new(),
            length: None,
            is_chunked: false,
        }
    }

    /// Returns true if `bytes` can be passed on unchanged; otherwise `out` contains the replacement, which may be
    /// empty.
    pub(super) fn follow(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> bool {
        let (mut copied, mut at) = (0, 0);
        while at < bytes.len() {
            let rest = &bytes[at..];
            match &mut self.state {
                State::Lost => break,
                State::Refused => {
                    out.extend_from_slice(&bytes[copied..at]);
                    return false;
                }
                State::Body(left) | State::Chunk(left) => {
                    let step = rest.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= step as u64;
                    at += step;
                    self.body_moved();
                }
                State::Request | State::Headers => {
                    let end = rest.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
                    let step = end.unwrap_or(rest.len());
                    let is_changed = !self.held.is_empty() || end.is_none();
                    let passed = self.head_piece(&rest[..step], end.is_some());
                    if is_changed || !matches!(passed, Ok(Some(Passed::AsItIs))) {
                        out.extend_from_slice(&bytes[copied..at]);
                        copied = at + step;
                        self.write(passed, &rest[..step], out);
                    }
                    at += step;
                }
                State::ChunkSize | State::ChunkEnd | State::Trailers => {
                    if rest[0] == b'\n' {
                        self.chunk_line_ended();
                    } else if self.line.len() < LINE_BYTES {
                        self.line.push(rest[0]);
                    }
                    at += 1;
                }
            }
        }
        if copied > 0 {
            out.extend_from_slice(&bytes[copied..]);
        }
        copied == 0
    }

    pub(super) fn is_in_head(&self) -> bool {
        match self.state {
            State::Request => !self.held.is_empty(),
            State::Headers => true,
            _ => false,
        }
    }

    pub(super) fn is_in_body(&self) -> bool {
        use State::{Body, Chunk, ChunkEnd, ChunkSize, Trailers};
        matches!(self.state, Body(_) | Chunk(_) | ChunkSize | ChunkEnd | Trailers)
    }

    pub(super) fn is_refused(&self) -> bool {
        self.state == State::Refused
    }

    fn head_piece(&mut self, piece: &[u8], is_end: bool) -> Result<Option<Passed>, HeadError> {
        self.head_bytes += piece.len();
        if self.head_bytes > self.limits.bytes {
            let in_target = self.state == State::Request;
            return Err(if in_target { HeadError::LongTarget } else { HeadError::LargeHead });
        }
        if !is_end {
            self.held.extend_from_slice(piece);
            return Ok(None);
        }
        if self.held.is_empty() {
            return self.head_line(piece).map(Some);
        }
        let mut line = std::mem::take(&mut self.held);
        line.extend_from_slice(piece);
        let passed = self.head_line(&line)?;
        Ok(Some(match passed {
            Passed::AsItIs => Passed::Escaped(line),
            escaped @ Passed::Escaped(_) => escaped,
        }))
    }

    fn write(&mut self, passed: Result<Option<Passed>, HeadError>, line: &[u8], out: &mut Vec<u8>) {
        match passed {
            Ok(None) => {}
            Ok(Some(Passed::AsItIs)) => out.extend_from_slice(line),
            Ok(Some(Passed::Escaped(line))) => out.extend_from_slice(&line),
            Err(refusal) => {
                if self.state == State::Request {
                    out.extend_from_slice(b"GET / HTTP/1.1\r\n");
                }
                out.extend_from_slice(refusal.header().as_bytes());
                self.held = Vec::new();
                self.state = State::Refused;
            }
        }
    }

    fn head_line(&mut self, whole: &[u8]) -> Result<Passed, HeadError> {
        let line = whole.strip_suffix(b"\n").unwrap_or(whole);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match self.state {
            // Some clients send an empty line before a request.
            State::Request if line.is_empty() => Ok(Passed::AsItIs),
            State::Request => {
                let target = target(line)?;
                self.state = State::Headers;
                Ok(if target.iter().any(|byte| is_to_escape(*byte)) { escape(whole) } else { Passed::AsItIs })
            }
            _ if line.is_empty() => {
                self.state = self.head_ended();
                Ok(Passed::AsItIs)
            }
            _ => {
                self.headers += 1;
                if self.headers > self.limits.headers {
                    return Err(HeadError::LargeHead);
                }
                self.header(line).map(|()| Passed::AsItIs)
            }
        }
    }

    fn header(&mut self, line: &[u8]) -> Result<(), HeadError> {
        let colon = line.iter().position(|byte| *byte == b':').ok_or(HeadError::BadHead)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) || value.iter().any(|byte| is_control(*byte)) {
            return Err(HeadError::BadHead);
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = number(value, 10).ok_or(HeadError::BadHead)?;
            if self.length.replace(length).is_some_and(|earlier| earlier != length) {
                return Err(HeadError::BadHead);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                self.state = State::Lost;
            }
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            self.state = State::Lost;
        }
        Ok(())
    }

    fn head_ended(&mut self) -> State {
        (self.head_bytes, self.headers) = (0, 0);
        match (std::mem::take(&mut self.is_chunked), self.length.take()) {
            (true, Some(_)) => State::Lost,
            (true, None) => State::ChunkSize,
            (false, None | Some(0)) => State::Request,
            (false, Some(length)) => State::Body(length),
        }
    }

    fn body_moved(&mut self) {
        match self.state {
            State::Body(0) => self.state = State::Request,
            State::Chunk(0) => self.state = State::ChunkEnd,
            _ => {}
        }
    }

    fn chunk_line_ended(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        self.state = match self.state {
            State::ChunkSize => match chunk_size(&line) {
                Some(0) => State::Trailers,
                Some(size) => State::Chunk(size),
                None => State::Lost,
            },
            State::ChunkEnd if line.is_empty() => State::ChunkSize,
            State::Trailers if line.is_empty() => State::Request,
            State::Trailers => State::Trailers,
            _ => State::Lost,
        };
        line.clear();
        self.line = line;
    }
}

fn target(line: &[u8]) -> Result<&[u8], HeadError> {
    let first = line.iter().position(|byte| *byte == b' ').ok_or(HeadError::BadLine)?;
    let last = line.iter().rposition(|byte| *byte == b' ').ok_or(HeadError::BadLine)?;
    let (method, target, version) = (&line[..first], line.get(first + 1..last).unwrap_or_default(), &line[last + 1..]);
    if target.len() > TARGET_BYTES {
        return Err(HeadError::LongTarget);
    }
    let is_method = !method.is_empty() && method.iter().all(|byte| is_token(*byte));
    let is_target =
        !target.is_empty() && !target.iter().any(|byte| *byte == b' ' || *byte == b'\t' || is_control(*byte));
    if is_method && is_target && matches!(version, b"HTTP/1.1" | b"HTTP/1.0") {
        Ok(target)
    } else {
        Err(HeadError::BadLine)
    }
}

fn escape(line: &[u8]) -> Passed {
    let mut escaped = Vec::with_capacity(line.len() + 64);
    for byte in line {
        if is_to_escape(*byte) {
            escaped.extend_from_slice(format!("%{byte:02X}").as_bytes());
        } else {
            escaped.push(*byte);
        }
    }
    Passed::Escaped(escaped)
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    number(line.split(|byte| *byte == b';').next()?.trim_ascii(), 16)
}

/// Like the HTTP library, it accepts no sign.
fn number(digits: &[u8], radix: u32) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?;
    if text.chars().all(|digit| digit.is_digit(radix)) { u64::from_str_radix(text, radix).ok() } else { None }
}

/// Users write these characters unescaped, and the library refuses them.
fn is_to_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_control(byte: u8) -> bool {
    (byte < 0x20 && byte != b'\t') || byte == 0x7f
}
