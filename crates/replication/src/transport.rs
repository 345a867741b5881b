//! [`Transport`]: one exchange with a peer at any location. A transport neither retries nor interprets statuses: a
//! response of 500 is a response.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;

use crate::endpoint::Endpoint;
use crate::tuning::Tuning;

pub type Body = UnsyncBoxBody<Bytes, TransportError>;

pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Extension of a request whose response is long-lived and mostly idle.
#[derive(Clone, Copy, Debug)]
pub struct LongLived;

/// Extension of a request whose response is returned even if it is a redirect.
#[derive(Clone, Copy, Debug)]
pub struct Direct;

pub trait Transport: Send + Sync + 'static {
    /// Sends a request and returns when the head of the response has arrived. The URI is absolute for remote endpoints,
    /// without credentials, and a path for local ones. Dropping the future or the body ends the exchange.
    fn call(&self, request: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>>;
}

/// Opens transports to endpoints. Transports to one host may share connections.
pub trait Connect: Send + Sync + 'static {
    /// Sends no request. Fails for options that cannot be used, such as an unknown kind of proxy.
    fn connect(&self, endpoint: &Endpoint, tuning: &Tuning) -> Result<Arc<dyn Transport>, TransportError>;
}

/// The messages never contain credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    #[error("the peer did not answer in time")]
    Timeout,
    /// The connection could not be opened: the name has no address, no server listens, or a proxy refused.
    #[error("no connection: {0}")]
    Refused(String),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("TLS: {0}")]
    Tls(String),
    #[error("{0}")]
    Unusable(String),
}

#[must_use]
pub fn empty_body() -> Body {
    full_body(Bytes::new())
}

#[must_use]
pub fn full_body(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

#[must_use]
pub fn foreign_body<B>(body: B) -> Body
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: fmt::Display,
{
    body.map_err(|error| TransportError::Broken(error.to_string())).boxed_unsync()
}

/// Converts a body for an HTTP library that requires `Sync` bodies.
pub fn shared_body<E: 'static>(
    body: Body,
    explain: fn(TransportError) -> E,
) -> impl http_body::Body<Data = Bytes, Error = E> + Send + Sync + 'static {
    Shared { body: Mutex::new(body), explain }
}

struct Shared<E> {
    body: Mutex<Body>,
    explain: fn(TransportError) -> E,
}

impl<E> http_body::Body for Shared<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        let explain = self.explain;
        Pin::new(self.body.get_mut()).poll_frame(context).map_err(explain)
    }

    fn is_end_stream(&self) -> bool {
        self.body.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.lock().size_hint()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use http_body::Body as _;

    use super::*;

    struct Pieces(Vec<Result<&'static str, &'static str>>);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = &'static str;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
            let next = (!self.0.is_empty()).then(|| self.0.remove(0));
            Poll::Ready(next.map(|piece| piece.map(|text| Frame::data(Bytes::from(text)))))
        }
    }

    #[tokio::test]
    async fn bodies_of_other_clients_pass_with_their_errors() {
        let whole = foreign_body(Pieces(vec![Ok("one "), Ok("two")]));
        assert_eq!(whole.collect().await.unwrap().to_bytes(), "one two");
        let broken = foreign_body(Pieces(vec![Ok("one"), Err("cut off")]));
        assert_eq!(broken.collect().await.unwrap_err(), TransportError::Broken("cut off".to_owned()));

        let explain: fn(TransportError) -> String = |error| error.to_string();
        let whole = shared_body(full_body("text"), explain);
        assert_eq!((whole.size_hint().exact(), whole.is_end_stream()), (Some(4), false));
        assert_eq!(whole.collect().await.unwrap().to_bytes(), "text");
        assert!(shared_body(empty_body(), explain).is_end_stream());
        let broken = shared_body(foreign_body(Pieces(vec![Err("cut off")])), explain);
        assert_eq!(broken.collect().await.unwrap_err(), "the connection broke: cut off");
    }
}
