//! Long-lived responses: the feed of a continuous replication keeps a connection for days. A connection of the shared
//! HTTP client holds about 25 KB of buffers; one of this module holds none while it waits. It implements the necessary
//! part of HTTP/1.1: one request, and one streamed response.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, ReadBuf};

use super::connector::{BoxedIo, Connector};
use crate::transport::{Body, TransportError};

const HEAD_BYTES_MAX: usize = 64 << 10;

const HEADERS_MAX: usize = 100;

const PIECE_BYTES: usize = 8 << 10;

pub(super) async fn exchange(
    connector: &Connector,
    request: Request<Body>,
) -> Result<Response<IncomingBody>, TransportError> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    let (mut io, proxied) = connector.open(&parts.uri).await?;
    let mut sent = write_head(&parts, body.len(), proxied)?;
    sent.extend_from_slice(&body);
    io.write_all(&sent).await.map_err(|error| broken(&error))?;
    io.flush().await.map_err(|error| broken(&error))?;
    drop((sent, body));
    let mut read = Vec::new();
    let (status, headers) = loop {
        match parse_head(&read)? {
            Some((status, _, length)) if status.is_informational() => drop(read.drain(..length)),
            Some((status, headers, length)) => {
                read.drain(..length);
                break (status, headers);
            }
            None if read.len() >= HEAD_BYTES_MAX => return Err(broken(&"the head of the answer is too long")),
            None => {
                read.reserve(1024);
                if io.read_buf(&mut read).await.map_err(|error| broken(&error))? == 0 {
                    return Err(broken(&"the connection ended before the answer"));
                }
            }
        }
    };
    let framing = Framing::of(&parts.method, status, &headers)?;
    let mut response = Response::new(IncomingBody { io, read: read.into(), framing });
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    Ok(response)
}

fn broken(label: &dyn std::fmt::Display) -> TransportError {
    TransportError::Broken(label.to_string())
}

fn write_head(parts: &Parts, length: usize, proxied: bool) -> Result<Vec<u8>, TransportError> {
    let authority =
        parts.uri.authority().ok_or_else(|| TransportError::Unusable("the URL names no host".to_owned()))?;
    let target = match proxied {
        true => parts.uri.to_string(),
        false => parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned(),
    };
    let mut head = format!("{} {target} HTTP/1.1\r\n", parts.method).into_bytes();
    let mut line = |name: &str, value: &[u8]| {
        for piece in [name.as_bytes(), b": ", value, b"\r\n"] {
            head.extend_from_slice(piece);
        }
    };
    if !parts.headers.contains_key(HOST) {
        // The user name that a URI may contain is omitted.
        line("host", authority.as_str().rsplit('@').next().unwrap_or_default().as_bytes());
    }
    for (name, value) in &parts.headers {
        if name != CONTENT_LENGTH {
            line(name.as_str(), value.as_bytes());
        }
    }
    if length > 0 || parts.method != Method::GET {
        line("content-length", length.to_string().as_bytes());
    }
    head.extend_from_slice(b"\r\n");
    Ok(head)
}

/// Also returns the length of the head; `None` if it is incomplete.
fn parse_head(read: &[u8]) -> Result<Option<(StatusCode, HeaderMap, usize)>, TransportError> {
    let mut fields = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut fields);
    let httparse::Status::Complete(length) = head.parse(read).map_err(|error| broken(&error))? else {
        return Ok(None);
    };
    let status = head.code.and_then(|code| StatusCode::from_u16(code).ok());
    let mut headers = HeaderMap::with_capacity(head.headers.len());
    for field in head.headers {
        let name = HeaderName::from_bytes(field.name.as_bytes()).map_err(|error| broken(&error))?;
        headers.append(name, HeaderValue::from_bytes(field.value).map_err(|error| broken(&error))?);
    }
    Ok(Some((status.ok_or_else(|| broken(&"the answer has no status"))?, headers, length)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(u64),
    Chunked(Chunks),
    Connection,
}

impl Framing {
    fn of(method: &Method, status: StatusCode, headers: &HeaderMap) -> Result<Self, TransportError> {
        if *method == Method::HEAD || status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
            return Ok(Self::Length(0));
        }
        if let Some(coding) = headers.get_all(TRANSFER_ENCODING).iter().next_back() {
            let last = coding.to_str().unwrap_or_default().rsplit(',').next().unwrap_or_default().trim();
            return match last.eq_ignore_ascii_case("chunked") {
                true => Ok(Self::Chunked(Chunks::Size { size: 0, digits: 0 })),
                false => Ok(Self::Connection),
            };
        }
        let Some(length) = headers.get(CONTENT_LENGTH) else { return Ok(Self::Connection) };
        let length = length.to_str().ok().and_then(|length| length.trim().parse().ok());
        length.map(Self::Length).ok_or_else(|| broken(&"the length of the response is not a number"))
    }

    fn take(&mut self, read: &mut Bytes) -> Result<Option<Bytes>, TransportError> {
        match self {
            Self::Length(left) => Ok(take(left, read)),
            Self::Chunked(chunks) => chunks.take(read),
            Self::Connection => Ok(Some(std::mem::take(read)).filter(|data| !data.is_empty())),
        }
    }

    fn is_ended(self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunks::Ended))
    }
}

fn take(left: &mut u64, read: &mut Bytes) -> Option<Bytes> {
    let count = usize::try_from(*left).unwrap_or(usize::MAX).min(read.len());
    *left -= count as u64;
    Some(read.split_to(count)).filter(|data| !data.is_empty())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Chunks {
    Size { size: u64, digits: u8 },
    Extension(u64),
    Data(u64),
    AfterData,
    Trailer { empty: bool },
    Ended,
}

impl Chunks {
    fn take(&mut self, read: &mut Bytes) -> Result<Option<Bytes>, TransportError> {
        while !read.is_empty() && *self != Self::Ended {
            if let Self::Data(left) = self {
                let data = take(left, read);
                if *left == 0 {
                    *self = Self::AfterData;
                }
                return Ok(data);
            }
            *self = self.after(read.get_u8()).ok_or_else(|| broken(&"a chunk of the answer is malformed"))?;
        }
        Ok(None)
    }

    fn after(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Size { size, digits: digits @ 0..16 }, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = char::from(byte).to_digit(16)?;
                Some(Self::Size { size: size << 4 | u64::from(digit), digits: digits + 1 })
            }
            (Self::Size { size, digits: 1.. } | Self::Extension(size), b'\n') => Some(match size {
                0 => Self::Trailer { empty: true },
                size => Self::Data(size),
            }),
            (Self::Size { size, digits: 1.. }, b'\r' | b';' | b' ' | b'\t') => Some(Self::Extension(size)),
            (Self::Extension(size), _) => Some(Self::Extension(size)),
            (Self::AfterData, b'\r') => Some(Self::AfterData),
            (Self::AfterData, b'\n') => Some(Self::Size { size: 0, digits: 0 }),
            (Self::Trailer { empty: true }, b'\n') => Some(Self::Ended),
            (Self::Trailer { .. }, b'\n') => Some(Self::Trailer { empty: true }),
            (Self::Trailer { empty }, b'\r') => Some(Self::Trailer { empty }),
            (Self::Trailer { .. }, _) => Some(Self::Trailer { empty: false }),
            (Self::Size { .. } | Self::Data(_) | Self::AfterData | Self::Ended, _) => None,
        }
    }
}

pub(super) struct IncomingBody {
    io: BoxedIo,
    read: Bytes,
    framing: Framing,
}

impl http_body::Body for IncomingBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let this = &mut *self;
        loop {
            match this.framing.take(&mut this.read) {
                Ok(Some(data)) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Ok(None) if this.framing.is_ended() => return Poll::Ready(None),
                Ok(None) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            // A buffer on the stack needs no memory while the task waits.
            let mut space = [std::mem::MaybeUninit::uninit(); PIECE_BYTES];
            let mut space = ReadBuf::uninit(&mut space);
            match ready!(Pin::new(&mut this.io).poll_read(cx, &mut space)) {
                Err(error) => return Poll::Ready(Some(Err(broken(&error)))),
                Ok(()) if !space.filled().is_empty() => this.read = Bytes::copy_from_slice(space.filled()),
                Ok(()) if this.framing == Framing::Connection => return Poll::Ready(None),
                Ok(()) => {
                    return Poll::Ready(Some(Err(broken(&"the connection ended before the end of the response"))));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.framing.is_ended()
    }
}
