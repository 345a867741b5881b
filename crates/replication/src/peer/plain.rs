//! Exchanges that are no part of a replication, for programs that look at the same databases: whole answers, lists and downloads.

use bytes::Bytes;
use http::Method;
use settee_model::json::Json;

use super::{Ask, Peer, PeerError, Stream};
use crate::text::{Rows, Splitter};
use crate::transport::TransportError;

/// The method of a request. Whatever is asked may be asked twice: see [`Peer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// `GET`
    Get,
    /// `PUT`
    Put,
    /// `POST`
    Post,
}

/// A whole answer.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: Bytes,
    ask: Ask,
}

impl Reply {
    /// Whether the status is one of success.
    #[must_use]
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The body of a success.
    ///
    /// # Errors
    /// With another status, or if the body is no JSON.
    pub fn json(&self) -> Result<Json, PeerError> {
        if !self.is_success() {
            return Err(self.error());
        }
        Json::parse(&self.body).map_err(|error| self.ask.protocol(error.to_string()))
    }

    /// The answer as an error.
    #[must_use]
    pub fn error(&self) -> PeerError {
        self.ask.status(self.status, &self.body)
    }
}

impl Peer {
    /// Asks for something below the database (or the server, if the endpoint is one) and reads the whole answer, whatever its
    /// status is.
    ///
    /// # Errors
    /// If there is no answer after all tries.
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

    /// Asks for a list whose rows are taken one by one, such as `_changes` and `_all_docs`.
    ///
    /// # Errors
    /// If the answer is no success, or there is none.
    pub async fn list(&self, path: &str) -> Result<List, PeerError> {
        let download = self.download(path).await?;
        Ok(List { download, rows: Splitter::new(Rows::InArray), is_over: false })
    }

    /// Asks for something that is taken piece by piece.
    ///
    /// # Errors
    /// If the answer is no success, or there is none.
    pub async fn download(&self, path: &str) -> Result<Download, PeerError> {
        let ask = Ask::get(self.uri(path));
        let stream = self.open_stream(&ask).await?;
        Ok(Download { ask, stream })
    }

    /// The path of a document below its database.
    #[must_use]
    pub fn document_path(id: &str) -> String {
        super::document_path(id)
    }
}

/// A body that arrives.
pub struct Download {
    ask: Ask,
    stream: Stream,
}

impl Download {
    /// The next piece.
    ///
    /// # Errors
    /// If the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>, PeerError> {
        self.stream.next().await.map_err(|error| self.ask.transport(error))
    }
}

/// The rows of a list that arrives.
pub struct List {
    download: Download,
    rows: Splitter,
    is_over: bool,
}

impl List {
    /// The next row: an object as text that was not checked.
    ///
    /// # Errors
    /// If the connection breaks, or the answer is no list.
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

    /// The text around the rows: `{"total_rows":3,"rows":[]}`. Known after the last one.
    #[must_use]
    pub fn frame(&self) -> &[u8] {
        self.rows.frame()
    }
}
