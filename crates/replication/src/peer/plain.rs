//! Exchanges outside replications, for programs that access the same databases: complete answers, lists and downloads.

use bytes::Bytes;
use http::Method;
use settee_model::json::Json;
use tokio::sync::mpsc;

use super::documents::Put;
use super::{Ask, Peer, PeerError, Stream, channel_body};
use crate::text::{Rows, Splitter};
use crate::transport::TransportError;

/// Method of a request. Requests may be sent twice and must be idempotent: see [`Peer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `GET`
    Get,
    /// `PUT`
    Put,
    /// `POST`
    Post,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub body: Bytes,
    ask: Ask,
}

impl Reply {
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Parses the body of a successful answer.
    ///
    /// # Errors
    /// If the status is not one of success, or the body is not JSON.
    pub fn json(&self) -> Result<Json, PeerError> {
        if !self.is_success() {
            return Err(self.error());
        }
        Json::parse(&self.body).map_err(|error| self.ask.protocol(error.to_string()))
    }

    #[must_use]
    pub fn error(&self) -> PeerError {
        self.ask.status(self.status, &self.body)
    }
}

impl Peer {
    /// Sends a request for a path below the database (or the server, if the endpoint is one) and reads the complete
    /// answer, with any status.
    ///
    /// # Errors
    /// If there is no answer after all retries.
    pub async fn request(&self, verb: Verb, path: &str, body: impl Into<Bytes>) -> Result<Reply, PeerError> {
        let method = match verb {
            Verb::Get => Method::GET,
            Verb::Put => Method::PUT,
            Verb::Post => Method::POST,
        };
        let ask = Ask { method, body: body.into(), ..Ask::get(self.uri(path)) };
        let answer = self.exchange(&ask).await?;
        Ok(Reply { status: answer.status, body: answer.body, ask })
    }

    /// Writes a revision of a document unchanged, with its attachments, as a `multipart/related` body of `length` bytes
    /// that arrives in `pieces`. If the channel closes early, the request fails.
    /// Returns the reason if the server refuses it. The request is not retried, because the body cannot be sent again.
    ///
    /// # Errors
    /// If there is no answer, or one that does not concern the document. After an answer with status 401 that ends a
    /// session, a further attempt logs in again.
    pub async fn put_multipart(
        &self,
        id: &str,
        content_type: &str,
        pieces: mpsc::Receiver<Result<Bytes, TransportError>>,
        length: u64,
    ) -> Result<Option<String>, PeerError> {
        let body = channel_body(pieces, length);
        Ok(match self.put_related(id, "", content_type, body, length).await? {
            Put::Taken => None,
            Put::MissingStub => Some("an attachment is missing".to_owned()),
            Put::Refused(refused) => Some(format!("{}: {}", refused.error, refused.reason)),
        })
    }

    /// Requests a list whose rows are read one by one, such as `_changes` and `_all_docs`.
    ///
    /// # Errors
    /// If the answer has no status of success, or there is none.
    pub async fn list(&self, path: &str) -> Result<List, PeerError> {
        let download = self.download(path).await?;
        Ok(List { download, rows: Splitter::new(Rows::InArray), is_over: false })
    }

    /// Requests a body that is read piece by piece.
    ///
    /// # Errors
    /// If the answer has no status of success, or there is none.
    pub async fn download(&self, path: &str) -> Result<Download, PeerError> {
        let ask = Ask::get(self.uri(path));
        let stream = self.open_stream(&ask).await?;
        Ok(Download { ask, stream })
    }

    #[must_use]
    pub fn document_path(id: &str) -> String {
        super::document_path(id)
    }
}

pub struct Download {
    ask: Ask,
    stream: Stream,
}

impl Download {
    /// Returns the next piece.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PeerError> {
        self.stream.next().await.map_err(|error| self.ask.transport(error))
    }
}

pub struct List {
    download: Download,
    rows: Splitter,
    is_over: bool,
}

impl List {
    /// Returns the next row: an object as text that was not validated.
    ///
    /// # Errors
    /// If the connection breaks, or the answer is not a list.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PeerError> {
        loop {
            if let Some(row) = self.rows.next().map_err(|error| self.download.ask.protocol(error.to_string()))? {
                return Ok(Some(row));
            }
            if self.is_over {
                return Ok(None);
            }
            match self.download.next().await? {
                Some(bytes) => self.rows.feed(&bytes),
                None if self.rows.is_balanced() => self.is_over = true,
                None => {
                    let error = TransportError::Broken("the list ended in the middle".to_owned());
                    return Err(self.download.ask.transport(error));
                }
            }
        }
    }

    /// Returns the text around the rows: `{"total_rows":3,"rows":[]}`. Complete after the last row.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        self.rows.frame()
    }
}
