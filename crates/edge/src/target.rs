//! Tolerant parsing of request heads. The HTTP library refuses targets with unescaped characters, although every guide
//! to CouchDB contains `?key="a"`: [`TolerantStream`] escapes them. It also replaces malformed or oversized heads by
//! one that describes the error, so that the client receives a message. Once the framing of bodies is uncertain, it
//! changes nothing any more.

mod framing;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::header::{HeaderMap, HeaderName};
use hyper::{StatusCode, header};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use crate::Error;
use crate::stream::Prefix;
use framing::Framing;
pub use framing::HeadLimits;

/// Describes the error of a head. A client that sends this header receives that error.
const HEAD_ERROR: HeaderName = HeaderName::from_static("x-settee-refused");

/// Limits for a client that continues to send after the response: closing the connection would discard the response.
const LINGER_TIME: Duration = Duration::from_secs(10);
const LINGER_BYTES: usize = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeadError {
    BadLine,
    BadHead,
    LongTarget,
    LargeHead,
}

impl HeadError {
    const ALL: [(Self, &str); 4] =
        [(Self::BadLine, "line"), (Self::BadHead, "head"), (Self::LongTarget, "target"), (Self::LargeHead, "size")];

    fn header(self) -> String {
        let word = Self::ALL.iter().find(|(own, _)| *own == self).map_or("", |(_, word)| word);
        format!("{HEAD_ERROR}: {word}\r\n\r\n")
    }

    fn error(self) -> Error {
        let mut error = match self {
            Self::BadLine => Error::bad_request("the request line is not one of HTTP/1.1"),
            Self::BadHead => Error::bad_request("the request's headers are not those of HTTP/1.1"),
            Self::LongTarget => Error::uri_too_long(),
            Self::LargeHead => Error::new(
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
                "too_large",
                "the request's headers are too many or too large",
            ),
        };
        error.headers.push((header::CONNECTION, header::HeaderValue::from_static("close")));
        error
    }
}

/// Returns the error if these headers replace a refused head.
pub fn refused(headers: &HeaderMap) -> Option<Error> {
    let word = headers.get(HEAD_ERROR)?.as_bytes();
    HeadError::ALL.iter().find(|(_, own)| own.as_bytes() == word).map(|(refusal, _)| refusal.error())
}

pub struct TolerantStream<S> {
    inner: S,
    framing: Framing,
    pending: Prefix,
    head_time: Duration,
    head_end: Option<Pin<Box<Sleep>>>,
    linger: Option<Linger>,
}

struct Linger {
    end: Pin<Box<Sleep>>,
    left: usize,
}

impl<S> TolerantStream<S> {
    /// `head_time` is the timeout of each head that has started.
    pub fn new(inner: S, limits: HeadLimits, head_time: Duration) -> Self {
        let framing = Framing::new(limits);
        Self { inner, framing, pending: Prefix::default(), head_time, head_end: None, linger: None }
    }

    fn wait_for_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.framing.is_in_head() {
            self.head_end = None;
            return Poll::Pending;
        }
        let time = self.head_time;
        let end = self.head_end.get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        ready!(end.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the head of a request was not received before the timeout",
        )))
    }
}

impl<S: AsyncRead + Unpin> TolerantStream<S> {
    /// Discards the rest of a request that was answered. Ready at its end, or at the limit.
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let start = || Linger { end: Box::pin(tokio::time::sleep(LINGER_TIME)), left: LINGER_BYTES };
        let linger = self.linger.get_or_insert_with(start);
        let mut space = [0; 8192];
        while linger.left > 0 && linger.end.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut space);
            match ready!(Pin::new(&mut self.inner).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    linger.left = linger.left.saturating_sub(buffer.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TolerantStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.pending.is_empty() {
            if this.framing.is_refused() {
                // The response ends the connection, so no further bytes are passed on.
                return match this.poll_linger(cx) {
                    Poll::Ready(()) | Poll::Pending => Poll::Pending,
                };
            }
            let before = buffer.filled().len();
            match Pin::new(&mut this.inner).poll_read(cx, buffer) {
                Poll::Ready(read) => read?,
                Poll::Pending => return this.wait_for_head(cx),
            }
            let is_end = buffer.filled().len() == before;
            let is_same = this.framing.follow(&buffer.filled()[before..], &mut this.pending.bytes);
            if !this.framing.is_in_head() {
                this.head_end = None;
            }
            if is_end || is_same {
                return Poll::Ready(Ok(()));
            }
            buffer.set_filled(before);
        }
        this.pending.copy_to(buffer);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for TolerantStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = ready!(Pin::new(&mut self.inner).poll_shutdown(cx));
        if shut.is_ok() && (self.framing.is_refused() || self.framing.is_in_body()) {
            ready!(self.poll_linger(cx));
        }
        Poll::Ready(shut)
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
mod tests;
