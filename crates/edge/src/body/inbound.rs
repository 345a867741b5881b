//! [`Inbound`]: a request body, and [`Leftover`]: the part of it that its reader did not read.
//!
//! A client whose request is refused continues to send. If the server closed the connection, the client would
//! not receive the response, and a connection pool would use the closed connection for its next request. A
//! short rest is therefore read and the connection stays open; after a long one the response announces that
//! the connection is closed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

/// Size of the rest that is read, and the time limit, before the response is sent. For a longer rest a new
/// connection is cheaper.
const REST_BYTES: u64 = 1 << 20;
const REST_TIME: Duration = Duration::from_secs(1);

pub struct Inbound(Source);

enum Source {
    /// Received over a connection.
    Connection(Option<Incoming>, Leftover),
    Message(Bytes),
}

/// The unread rest of a body after its reader is dropped. It is empty if the reader has read the whole body.
#[derive(Clone, Default)]
pub struct Leftover(Arc<Mutex<Rest>>);

#[derive(Default)]
struct Rest {
    body: Option<Incoming>,
    was_asked_for: bool,
}

impl Inbound {
    pub fn new(body: Incoming) -> (Self, Leftover) {
        let leftover = Leftover::default();
        (Self(Source::Connection(Some(body), leftover.clone())), leftover)
    }

    /// Creates a body that was received in a message of several requests.
    pub fn of_message(body: Bytes) -> Self {
        Self(Source::Message(body))
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let (body, leftover) = match &mut self.get_mut().0 {
            Source::Connection(body, leftover) => (body, leftover),
            Source::Message(body) => {
                let whole = (!body.is_empty()).then(|| std::mem::take(body));
                return Poll::Ready(whole.map(|whole| Ok(Frame::data(whole))));
            }
        };
        let Some(incoming) = body else { return Poll::Ready(None) };
        let frame = Pin::new(incoming).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            *body = None;
        } else {
            leftover.0.lock().was_asked_for = true;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Source::Connection(body, _) => body.as_ref().is_none_or(Body::is_end_stream),
            Source::Message(body) => body.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Source::Connection(body, _) => body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint),
            Source::Message(body) => SizeHint::with_exact(body.len() as u64),
        }
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        let Source::Connection(body, leftover) = &mut self.0 else { return };
        if let Some(body) = body.take().filter(|body| !body.is_end_stream()) {
            leftover.0.lock().body = Some(body);
        }
    }
}

impl Leftover {
    /// Reads the rest of the body. Returns false if that would take too long; the connection must then not be
    /// reused. A client that waits for "100 Continue" is not asked for its body.
    pub async fn clear(&self, waits_to_be_asked: bool) -> bool {
        let (body, was_asked_for) = {
            let mut rest = self.0.lock();
            (rest.body.take(), rest.was_asked_for)
        };
        let Some(mut body) = body else { return true };
        if (waits_to_be_asked && !was_asked_for) || body.size_hint().lower() > REST_BYTES {
            return false;
        }
        let mut left = REST_BYTES;
        let read = async {
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len) as u64;
                match left.checked_sub(length) {
                    Some(rest) => left = rest,
                    None => return false,
                }
            }
            true
        };
        timeout(REST_TIME, read).await.unwrap_or(false)
    }
}
