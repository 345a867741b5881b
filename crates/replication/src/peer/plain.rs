//! Exchanges outside replications, for programs that access the same databases.

use bytes::Bytes;
use http::Method;
use settee_model::json::Json;
use tokio::sync::mpsc;

use super::documents::PutOutcome;
use super::{Peer, PeerError, PeerRequest, Stream, channel_body};
use crate::rows::{RowSplitter, Rows};
use crate::transport::TransportError;

/// Requests may be sent twice and must be idempotent: see [`Peer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestMethod {
    Get,
    Put,
    Post,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub body: Bytes,
    peer_request: PeerRequest,
}

impl Reply {
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Fails unless the status is one of success and the body is JSON.
    pub fn json(&self) -> Result<Json, PeerError> {
        if !self.is_success() {
            return Err(self.error());
        }
        Json::parse(&self.body).map_err(|error| self.peer_request.protocol(error.to_string()))
    }

    #[must_use]
    pub fn error(&self) -> PeerError {
        self.peer_request.status(self.status, &self.body)
    }
}

impl Peer {
    /// `path` is below the database, or below the server. Returns a response of any status, after retries.
    pub async fn request(&self, verb: RequestMethod, path: &str, body: impl Into<Bytes>) -> Result<Reply, PeerError> {
        let method = match verb {
            RequestMethod::Get => Method::GET,
            RequestMethod::Put => Method::PUT,
            RequestMethod::Post => Method::POST,
        };
        let peer_request = PeerRequest { method, body: body.into(), ..PeerRequest::get(self.uri(path)) };
        let answer = self.exchange(&peer_request).await?;
        Ok(Reply { status: answer.status, body: answer.body, peer_request })
    }

    /// Writes a revision unchanged, with its attachments, as a `multipart/related` body of `length` bytes that arrives
    /// in `pieces`. Returns the reason if the server refuses it. Fails if the channel closes early. The request is not
    /// retried, because the body cannot be sent again; after a status of 401 that ends a session, a further call logs
    /// in again.
    pub async fn put_multipart(
        &self,
        id: &str,
        content_type: &str,
        pieces: mpsc::Receiver<Result<Bytes, TransportError>>,
        length: u64,
    ) -> Result<Option<String>, PeerError> {
        let body = channel_body(pieces, length);
        Ok(match self.put_related(id, "", content_type, body, length).await? {
            PutOutcome::Accepted => None,
            PutOutcome::MissingStub => Some("an attachment is missing".to_owned()),
            PutOutcome::Rejected(rejected) => Some(format!("{}: {}", rejected.error, rejected.reason)),
        })
    }

    /// Requests rows that are read one by one, as of `_changes`. Fails unless the status is one of success.
    pub async fn list(&self, path: &str) -> Result<List, PeerError> {
        let download = self.download(path).await?;
        Ok(List { download, rows: RowSplitter::new(Rows::InArray), is_over: false })
    }

    pub async fn download(&self, path: &str) -> Result<Download, PeerError> {
        let peer_request = PeerRequest::get(self.uri(path));
        let stream = self.open_stream(&peer_request).await?;
        Ok(Download { peer_request, stream })
    }

    #[must_use]
    pub fn document_path(id: &str) -> String {
        super::document_path(id)
    }
}

pub struct Download {
    peer_request: PeerRequest,
    stream: Stream,
}

impl Download {
    pub async fn next(&mut self) -> Result<Option<Bytes>, PeerError> {
        self.stream.next().await.map_err(|error| self.peer_request.transport(error))
    }
}

pub struct List {
    download: Download,
    rows: RowSplitter,
    is_over: bool,
}

impl List {
    /// Returns the next row as text that was not validated. Fails if the connection breaks or no list arrives.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PeerError> {
        loop {
            if let Some(row) =
                self.rows.next().map_err(|error| self.download.peer_request.protocol(error.to_string()))?
            {
                return Ok(Some(row));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.download.next().await? {
                Some(bytes) => self.rows.feed(&bytes),
                None if self.rows.is_balanced() => self.is_over = true,
                None => {
                    let error = TransportError::Broken("the list ended within a row".to_owned());
                    return Err(self.download.peer_request.transport(error));
                }
            }
        }
    }

    /// Returns the text around the rows, `{"total_rows":3,"rows":[]}`, which is complete after the last row.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        self.rows.frame()
    }
}
