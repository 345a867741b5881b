//! [`Inbound`]: a body as it comes, and [`Leftover`]: what its reader left of it.
//!
//! A client that is refused goes on sending. If a connection were closed on it, it would not see why, and a pool of
//! connections would hand the dead one to its next request. So a short rest is read, and the connection goes on; after a
//! long one the answer says that the connection ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::timeout;

/// How much of a rest is read, and for how long, before the answer goes out. More is cheaper sent on a new connection.
const REST_BYTES: u64 = 1 << 20;
const REST_TIME: Duration = Duration::from_secs(1);

/// The body of a request.
pub(crate) struct Inbound(Source);

enum Source {
    /// It comes over a connection, to its end.
    Connection(Option<Incoming>, Leftover),
    /// It has come in a message.
    Message(Bytes),
}

/// Where a body is when its reader has dropped it. It is empty if the reader came to its end.
#[derive(Clone, Default)]
pub(crate) struct Leftover(Arc<Mutex<Rest>>);

#[derive(Default)]
struct Rest {
    body: Option<Incoming>,
    was_asked_for: bool,
}

impl Inbound {
    pub(crate) fn new(body: Incoming) -> (Self, Leftover) {
        let leftover = Leftover::default();
        (Self(Source::Connection(Some(body), leftover.clone())), leftover)
    }

    /// A body that has come in a message of several requests.
    pub(crate) fn of_message(body: Bytes) -> Self {
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
    /// Reads the rest of the body. `false` if that would take too long; then nobody should send anything more here. A client
    /// that waits to be asked for its body (`Expect: 100-continue`) is not asked for it now.
    pub(crate) async fn clear(&self, waits_to_be_asked: bool) -> bool {
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
