//! [`Request`]: what a handler gets.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::{HeaderMap, header};
use settee_auth::UserContext;
use settee_database::Database;
use settee_model::json::Json;

use crate::Error;
use crate::body;
use crate::node::Node;
use crate::params::Query;
use crate::router::Captures;

/// A request that found its resource and was permitted.
pub(crate) struct Request {
    pub(crate) node: Arc<Node>,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
    pub(crate) user: UserContext,
    pub(crate) captures: Captures,
    body: Option<Incoming>,
}

impl Request {
    pub(crate) fn new(
        node: Arc<Node>,
        headers: HeaderMap,
        query: Query,
        user: UserContext,
        captures: Captures,
        body: Incoming,
    ) -> Self {
        Self { node, headers, query, user, captures, body: Some(body) }
    }

    /// The database that the path names.
    pub(crate) fn database(&self) -> Result<Arc<Database>, Error> {
        self.node.database(self.captures.get("db"))
    }

    /// The whole body.
    pub(crate) async fn read_body(&mut self) -> Result<Bytes, Error> {
        let limit = self.node.settings.number("chttpd", "max_http_request_size", 4 << 30);
        match self.body.take() {
            Some(body) => body::read(body, &self.headers, usize::try_from(limit).unwrap_or(usize::MAX)).await,
            None => Ok(Bytes::new()),
        }
    }

    /// The whole body as JSON, whatever its content type.
    pub(crate) async fn read_json(&mut self) -> Result<Json, Error> {
        let bytes = self.read_body().await?;
        body::json(&bytes)
    }

    /// The whole body as JSON, which it must be called.
    pub(crate) async fn read_called_json(&mut self) -> Result<Json, Error> {
        body::require_json(&self.headers)?;
        self.read_json().await
    }

    /// A header as text.
    pub(crate) fn header(&self, name: impl header::AsHeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    /// The address of `path` (which begins with a slash) as the client would write it.
    pub(crate) fn absolute(&self, path: &str) -> String {
        let host = self.header(header::HOST).unwrap_or("localhost");
        format!("http://{host}{path}")
    }
}
