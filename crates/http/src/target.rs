//! Request targets as people type them: `?key="a"` with its quotes, as every guide to CouchDB has it.
//!
//! The HTTP library refuses a target with characters that should have been escaped. [`Lenient`] escapes them on their way in.
//! It must know where requests begin, so it follows the framing of bodies; where it is not sure of it, it changes nothing
//! any more. It decides nothing else about requests.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How much of a header line is looked at: more than any line has that tells of framing.
const LINE_BYTES: usize = 128;

/// A connection whose request targets are escaped.
pub(crate) struct Lenient<S> {
    inner: S,
    framing: Framing,
    /// Escaped bytes that did not fit where they were read to, and how many of them were taken.
    pending: Vec<u8>,
    taken: usize,
}

/// Follows requests and escapes their targets.
#[derive(Default)]
struct Framing {
    state: State,
    /// The beginning of the current line.
    line: Vec<u8>,
    length: Option<u64>,
    is_chunked: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// In the line that has the target.
    #[default]
    Request,
    Headers,
    /// In a body that has so many bytes left.
    Body(u64),
    /// In a line that tells the size of a chunk.
    ChunkSize,
    Chunk(u64),
    /// In the line end behind a chunk.
    ChunkEnd,
    /// Behind the last chunk.
    Trailers,
    /// Nobody knows.
    Lost,
}

impl Framing {
    /// Whether `bytes` can be passed on as they are; otherwise `escaped` has what to pass on instead.
    fn follow(&mut self, bytes: &[u8], escaped: &mut Vec<u8>) -> bool {
        let mut copied = 0;
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            match &mut self.state {
                State::Lost => break,
                State::Body(left) | State::Chunk(left) => {
                    let step = (bytes.len() - at).min(usize::try_from(*left).unwrap_or(usize::MAX));
                    *left -= step as u64;
                    at += step;
                    self.body_moved();
                    continue;
                }
                State::Request if is_to_escape(byte) => {
                    escaped.extend_from_slice(&bytes[copied..at]);
                    escaped.extend_from_slice(format!("%{byte:02X}").as_bytes());
                    copied = at + 1;
                }
                _ => {}
            }
            if byte == b'\n' {
                self.line_ended();
            } else if self.line.len() < LINE_BYTES {
                self.line.push(byte);
            }
            at += 1;
        }
        if copied > 0 {
            escaped.extend_from_slice(&bytes[copied..]);
        }
        copied == 0
    }

    fn body_moved(&mut self) {
        match self.state {
            State::Body(0) => self.state = State::Request,
            State::Chunk(0) => self.state = State::ChunkEnd,
            _ => {}
        }
    }

    fn line_ended(&mut self) {
        let mut line = std::mem::take(&mut self.line);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        self.state = match self.state {
            // Some clients send an empty line before a request.
            State::Request if line.is_empty() => State::Request,
            State::Request => State::Headers,
            State::Headers if line.is_empty() => self.head_ended(),
            State::Headers => self.header(&line),
            State::ChunkSize => match chunk_size(&line) {
                Some(0) => State::Trailers,
                Some(size) => State::Chunk(size),
                None => State::Lost,
            },
            State::ChunkEnd if line.is_empty() => State::ChunkSize,
            State::Trailers if line.is_empty() => State::Request,
            State::Trailers => State::Trailers,
            State::ChunkEnd | State::Body(_) | State::Chunk(_) | State::Lost => State::Lost,
        };
        line.clear();
        self.line = line;
    }

    fn header(&mut self, line: &[u8]) -> State {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            return State::Lost;
        };
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            if length.is_none()
                || self.length.replace(length.unwrap_or_default()).is_some_and(|told| Some(told) != length)
            {
                return State::Lost;
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return State::Lost;
            }
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            return State::Lost;
        }
        State::Headers
    }

    fn head_ended(&mut self) -> State {
        match (std::mem::take(&mut self.is_chunked), self.length.take()) {
            (true, Some(_)) => State::Lost,
            (true, None) => State::ChunkSize,
            (false, None | Some(0)) => State::Request,
            (false, Some(length)) => State::Body(length),
        }
    }
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.split(|byte| *byte == b';').next()?.trim_ascii();
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

/// The characters that the library refuses and people write.
fn is_to_escape(byte: u8) -> bool {
    matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}')
}

impl<S> Lenient<S> {
    pub(crate) fn new(inner: S) -> Self {
        Self { inner, framing: Framing::default(), pending: Vec::new(), taken: 0 }
    }

    fn give_pending(&mut self, buffer: &mut ReadBuf<'_>) {
        let rest = &self.pending[self.taken..];
        let length = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..length]);
        self.taken += length;
        if self.taken == self.pending.len() {
            self.pending.clear();
            self.taken = 0;
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lenient<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.pending.is_empty() {
            let before = buffer.filled().len();
            std::task::ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
            if this.framing.follow(&buffer.filled()[before..], &mut this.pending) {
                return Poll::Ready(Ok(()));
            }
            buffer.set_filled(before);
        }
        this.give_pending(buffer);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Lenient<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    /// What comes out, if it comes in pieces of `size` bytes.
    fn pass(text: &str, size: usize) -> String {
        let mut framing = Framing::default();
        let mut out = Vec::new();
        for piece in text.as_bytes().chunks(size) {
            let mut escaped = Vec::new();
            let same = framing.follow(piece, &mut escaped);
            out.extend_from_slice(if same { piece } else { &escaped });
        }
        String::from_utf8(out).unwrap()
    }

    fn check(text: &str, expected: &str) {
        for size in [1, 2, 3, 7, 1000] {
            assert_eq!(pass(text, size), expected, "in pieces of {size}");
        }
    }

    #[test]
    fn targets_are_escaped_and_nothing_else() {
        let get = "GET /db/_all_docs?key=\"a b\"&keys=[{}] HTTP/1.1\r\nHost: \"x\"\r\nA: {\r\n\r\n";
        let escaped = "GET /db/_all_docs?key=%22a b%22&keys=[%7B%7D] HTTP/1.1\r\nHost: \"x\"\r\nA: {\r\n\r\n";
        check(get, escaped);
        let post = "POST /db?x=\"1\" HTTP/1.1\r\ncontent-LENGTH: 9\r\n\r\n{\"a\":\"b\"}";
        let posted = "POST /db?x=%221%22 HTTP/1.1\r\ncontent-LENGTH: 9\r\n\r\n{\"a\":\"b\"}";
        check(&format!("{post}{get}{post}\r\n{post}"), &format!("{posted}{escaped}{posted}\r\n{posted}"));
        let chunks =
            "PUT /db/`x` HTTP/1.1\nTransfer-Encoding: Chunked\n\n3;\"x\"\r\n{\"\n\r\n1\r\n\"\r\n0\r\nT: \"\r\n\r\n";
        let chunked = chunks.replace('`', "%60");
        check(&format!("{chunks}{get}"), &format!("{chunked}{escaped}"));
    }

    #[test]
    fn what_is_not_understood_is_left_alone() {
        for head in [
            "Content-Length: x",
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
            "Transfer-Encoding: gzip, chunked",
            "Upgrade: websocket",
            "no header",
        ] {
            let text = format!("GET / HTTP/1.1\r\n{head}\r\n\r\n\"GET /\"\r\n\r\n\"");
            check(&text, &text);
        }
        let broken = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\"\r\n\r\n\"";
        check(broken, broken);
    }
}
