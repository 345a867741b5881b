//! [`Request`]: the argument of handlers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body as _, SizeHint};
use hyper::{HeaderMap, header};
use parking_lot::Mutex;
use settee_auth::UserContext;
use settee_database::{Database, Reader};
use settee_design::{Caller, Owner};
use settee_edge::body::inbound::Inbound;
use settee_edge::body::pieces::{self, Pieces};
use settee_edge::body::read;
use settee_edge::body::timeout::ReceiveTimeout;
use settee_edge::bridge::permits::Admission;
use settee_edge::rate::Client;
use settee_model::json::Json;
use settee_service::Permission;
use settee_threads::Threads;

use crate::Error;
use crate::body;
use crate::head::RequestHead;
use crate::node::Node;
use crate::params::Query;
use crate::path::Captures;
use crate::router::{BodyKind, Router};

/// Requests with larger bodies run in the slow lane. Replicators and clients send batches of about a megabyte.
const SLOW_LANE_BYTES: u64 = 1 << 20;

pub(crate) enum RequestBody {
    Incoming(Inbound),
    Buffered(Bytes),
    /// Sent by this process. The lock only makes the value `Sync` and is never contended.
    Streamed(Mutex<settee_replication::Body>),
}

pub(crate) struct Request {
    pub(crate) node: Arc<Node>,
    pub(crate) router: Arc<Router>,
    pub(crate) head: RequestHead,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) user: UserContext,
    /// The user as a reader of the database; reads on behalf of the user must use it.
    pub(crate) reader: Reader,
    /// Instance of the database for which the request was authorized.
    pub(crate) instance: Option<u64>,
    pub(crate) captures: Captures,
    pub(crate) body: Option<RequestBody>,
    pub(crate) takes: BodyKind,
    /// Threads for blocking work, chosen by the router.
    pub(crate) threads: Threads,
}

impl Request {
    pub(crate) fn database(&self) -> Result<Arc<Database>, Error> {
        let database = self.node.database(self.captures.get("db"))?;
        // A database that was created again since then can have other readers.
        if self.instance.is_some_and(|instance| instance != database.instance()) {
            return Err(settee_database::DatabaseError::NotFound.into());
        }
        Ok(database)
    }

    pub(crate) async fn require_database_admin(&self) -> Result<(), Error> {
        Ok(self.node.access.authorize(Permission::DatabaseAdmin, &self.user, self.captures.place()).await?)
    }

    pub(crate) async fn read_body(&mut self) -> Result<Bytes, Error> {
        if let Some(RequestBody::Buffered(bytes)) = self.body.take_if(|body| matches!(body, RequestBody::Buffered(_))) {
            return Ok(bytes);
        }
        let begun_us = (self.node.operation.monotonic_us)();
        let body = self.take_body().await;
        self.head.seen.set_body_time(begun_us, (self.node.operation.monotonic_us)());
        body
    }

    async fn take_body(&mut self) -> Result<Bytes, Error> {
        // `Content-Encoding` of a request without a body describes nothing.
        if !self.has_body() {
            return Ok(Bytes::new());
        }
        let policy = self.node.policy();
        let limit = self.takes.max_bytes().min(policy.max_body_bytes);
        let timeout = ReceiveTimeout::new(policy.receive_timeout);
        let on = (&self.head.account, &self.threads);
        Ok(match self.body.take() {
            Some(RequestBody::Incoming(body)) => read(body, &self.headers, limit, timeout, on).await?,
            Some(RequestBody::Streamed(body)) => read(body.into_inner(), &self.headers, limit, timeout, on).await?,
            Some(RequestBody::Buffered(bytes)) => bytes,
            None => Bytes::new(),
        })
    }

    pub(crate) async fn with_pieces<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Pieces) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let admission = self.node.admit_upload(&self.head.account);
        match self.body.take() {
            Some(RequestBody::Incoming(body)) => pieces::with_pieces(admission, body, work).await?,
            Some(RequestBody::Streamed(body)) => pieces::with_pieces(admission, body.into_inner(), work).await?,
            Some(RequestBody::Buffered(bytes)) => pieces::with_pieces(admission, Full::new(bytes), work).await?,
            None => pieces::with_pieces(admission, Full::default(), work).await?,
        }
    }

    /// Parses the body whatever its content type is. Returns an error if the client sends no body.
    pub(crate) async fn read_json(&mut self) -> Result<Json, Error> {
        self.require_body()?;
        self.read_json_or_empty().await
    }

    /// Parses the body whatever its content type is. A missing body is an empty text.
    pub(crate) async fn read_json_or_empty(&mut self) -> Result<Json, Error> {
        let bytes = self.read_body().await?;
        self.head.account.keep(bytes.len().saturating_mul(self.takes.copies())).await?;
        body::json(&self.threads, bytes).await
    }

    /// Returns an error unless the content type is JSON.
    pub(crate) async fn read_documents(&mut self) -> Result<Json, Error> {
        body::require_json(&self.headers)?;
        self.require_body()?;
        let bytes = self.read_body().await?;
        self.head.account.keep(bytes.len().saturating_mul(self.takes.copies())).await?;
        body::json_envelope(&self.threads, bytes).await
    }

    /// Returns true if the body may be large, as far as the head of the request shows.
    pub(crate) fn may_be_large(&self) -> bool {
        let size = match &self.body {
            Some(RequestBody::Incoming(body)) => body.size_hint(),
            Some(RequestBody::Buffered(bytes)) => SizeHint::with_exact(bytes.len() as u64),
            Some(RequestBody::Streamed(_)) | None => SizeHint::with_exact(0),
        };
        may_be_large(self.takes, size.upper(), self.headers.contains_key(header::CONTENT_ENCODING))
    }

    /// The client is an account, or the address of a client without one.
    pub(crate) fn caller(&self) -> Caller {
        let client = self.user.name.clone().map_or_else(|| Client::of_address(self.head.peer), Client::User);
        let hash = |named: &dyn Fn(&mut DefaultHasher)| {
            let mut hasher = DefaultHasher::new();
            named(&mut hasher);
            hasher.finish()
        };
        let owner = Owner {
            number: hash(&|hasher| client.hash(hasher)),
            rank: self.head.account.share().rank(),
            part: hash(&|hasher| self.captures.get("db").hash(hasher)),
        };
        let (cancellation, threads) = (self.head.account.cancellation().clone(), self.threads.clone());
        Caller { owner: Some(owner), cancellation, threads }
    }

    pub(crate) fn admit_response(&self) -> Admission {
        self.node.admit_response(&self.head.account)
    }

    /// Returns an error unless the content type is JSON.
    pub(crate) async fn read_called_json(&mut self) -> Result<Json, Error> {
        body::require_json(&self.headers)?;
        self.read_json().await
    }

    /// Parses the body whatever its content type is. Returns an error unless it is an object.
    pub(crate) async fn read_object(&mut self) -> Result<Json, Error> {
        let body = self.read_json().await?;
        if body.value().is_object() { Ok(body) } else { Err(Error::bad_request("Request body must be a JSON object")) }
    }

    pub(crate) fn require_body(&self) -> Result<(), Error> {
        if self.has_body() { Ok(()) } else { Err(Error::bad_request("Missing request body")) }
    }

    /// Returns true if the client sends a body, even an empty one.
    fn has_body(&self) -> bool {
        let is_announced =
            [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].iter().any(|name| self.headers.contains_key(name));
        is_announced
            || match &self.body {
                Some(RequestBody::Incoming(body)) => !body.is_end_stream(),
                Some(RequestBody::Buffered(bytes)) => !bytes.is_empty(),
                Some(RequestBody::Streamed(_)) => true,
                None => false,
            }
    }

    pub(crate) fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(crate) fn absolute(&self, path: &str) -> String {
        absolute(&self.node, &self.head, &self.headers, path)
    }
}

/// Returns true if the body may be large. A compressed body can expand by a factor of a thousand.
fn may_be_large(takes: BodyKind, bytes: Option<u64>, is_packed: bool) -> bool {
    takes.max_bytes() as u64 > SLOW_LANE_BYTES
        && bytes.is_none_or(|bytes| bytes > SLOW_LANE_BYTES || (is_packed && bytes > 0))
}

pub(crate) fn absolute(node: &Node, head: &RequestHead, headers: &HeaderMap, path: &str) -> String {
    format!("{}{path}", node.policy().forwarded.origin(headers, head.scheme))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_that_may_be_large() {
        use BodyKind::{Documents, Lists, Options};
        for (takes, bytes, is_packed, expected) in [
            (Documents, Some(0), false, false),
            (Documents, Some(0), true, false),
            (Documents, Some(1), false, false),
            (Documents, Some(1), true, true),
            (Documents, Some(SLOW_LANE_BYTES), false, false),
            (Documents, Some(SLOW_LANE_BYTES + 1), false, true),
            (Documents, None, false, true),
            (Lists, None, false, true),
            // The work that these requests start may be long, but they are refused before they are large.
            (Options, None, false, false),
            (Options, Some(1), true, false),
            (Options, Some(SLOW_LANE_BYTES + 1), false, false),
        ] {
            let found = may_be_large(takes, bytes, is_packed);
            assert_eq!(found, expected, "{:?} of {} bytes, packed: {is_packed}", bytes, takes.max_bytes());
        }
    }
}
