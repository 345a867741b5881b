//! [`Inbound`]: a request body, and [`Leftover`]: the part of it that its reader did not read. A client whose request
//! is refused continues to send. If the server closed the connection, the client would not receive the response. A
//! short rest is therefore read; after a long one the response announces that the connection is closed.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

/// A rest of at most this size is read within this time. For a longer rest a new connection is cheaper.
const DRAINED_BYTES_MAX: u64 = 1 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

pub struct Inbound(Option<Incoming>, Leftover);

/// The unread rest of a body after its reader was dropped. Empty if the reader has read the whole body.
#[derive(Clone, Default)]
pub struct Leftover(Arc<Mutex<UnreadBody>>);

#[derive(Default)]
struct UnreadBody {
    body: Option<Incoming>,
    was_asked_for: bool,
}

impl Inbound {
    pub fn new(body: Incoming) -> (Self, Leftover) {
        let leftover = Leftover::default();
        (Self(Some(body), leftover.clone()), leftover)
    }
}

impl Body for Inbound {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let Self(body, leftover) = self.get_mut();
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
        self.0.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Inbound {
    fn drop(&mut self) {
        let Self(body, leftover) = self;
        if let Some(body) = body.take().filter(|body| !body.is_end_stream()) {
            leftover.0.lock().body = Some(body);
        }
    }
}

impl Leftover {
    /// Reads the rest of the body. Returns false if that would take too long; the connection must then not be reused.
    pub async fn clear(&self, waits_to_be_asked: bool) -> bool {
        let (body, was_asked_for) = {
            let mut rest = self.0.lock();
            (rest.body.take(), rest.was_asked_for)
        };
        let Some(mut body) = body else { return true };
        if (waits_to_be_asked && !was_asked_for) || body.size_hint().lower() > DRAINED_BYTES_MAX {
            return false;
        }
        let mut left = DRAINED_BYTES_MAX;
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
        timeout(DRAIN_TIMEOUT, read).await.unwrap_or(false)
    }
}
