//! Changes feed of a source.

use bytes::Bytes;
use settee_model::json::{Json, Value, object};

use super::{Peer, PeerError, PeerRequest, Stream, encoded};
use crate::rows::{RowSplitter, Rows};
use crate::spec::{Filter, Spec};
use crate::transport::TransportError;

#[derive(Clone, Debug)]
pub(crate) struct ChangesQuery {
    query: String,
    body: Option<Bytes>,
    pub(crate) feed: Feed,
    leaves_out_design: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    Normal,
    Continuous,
}

/// Parameters of `_view` that are JSON; others are text.
const VIEW_PARAMETERS: [&str; 9] =
    ["key", "keys", "start_key", "startkey", "end_key", "endkey", "descending", "include_docs", "reduce"];

impl ChangesQuery {
    pub(crate) fn of(spec: &Spec) -> Self {
        let feed = if spec.continuous { Feed::Continuous } else { Feed::Normal };
        let name = if spec.continuous { "continuous" } else { "normal" };
        let style = if spec.winning_revs_only { "main_only" } else { "all_docs" };
        // Three heartbeats fit into the timeout of an unresponsive connection.
        let heartbeat_ms = (spec.tuning.connection_timeout_ms / 3).max(1);
        let mut query = format!("feed={name}&style={style}&heartbeat={heartbeat_ms}");
        let mut body = None;
        match &spec.filter {
            Filter::All | Filter::AllButDesign => {}
            Filter::Function { design, name } => {
                query.push_str(&format!("&filter={}", encoded(&format!("{design}/{name}"))));
            }
            Filter::BuiltIn(name) => query.push_str(&format!("&filter={}", encoded(name))),
            Filter::DocIds(ids) => {
                query.push_str("&filter=_doc_ids");
                body = Some(Bytes::from(object(|body| {
                    body.strings("doc_ids", ids);
                })));
            }
            Filter::Selector(selector) => {
                query.push_str("&filter=_selector");
                body = Some(Bytes::from(object(|body| {
                    body.json("selector", selector.as_bytes());
                })));
            }
        }
        if let (Some(parameters), Filter::Function { .. } | Filter::BuiltIn(_)) = (&spec.query_params, &spec.filter) {
            query.push_str(&filter_parameters(parameters.value(), spec.filter == Filter::BuiltIn("_view".to_owned())));
        }
        Self { query, body, feed, leaves_out_design: spec.filter == Filter::AllButDesign }
    }

    pub(crate) fn keeps(&self, row: &[u8]) -> bool {
        !self.leaves_out_design || Value::trusted(row).get("id").is_none_or(|id| !id.raw().starts_with(b"\"_design/"))
    }
}

fn filter_parameters(parameters: Value<'_>, of_view: bool) -> String {
    const TAKEN: [&str; 7] = ["feed", "style", "heartbeat", "since", "filter", "timeout", "limit"];
    let mut query = String::new();
    for (name, value) in parameters.members() {
        let Some(name) = name.as_str() else { continue };
        if TAKEN.contains(&name.as_ref()) {
            continue;
        }
        let raw = || String::from_utf8_lossy(value.raw()).into_owned();
        let text = match value.as_str() {
            Some(text) if !(of_view && VIEW_PARAMETERS.contains(&name.as_ref())) => text.into_owned(),
            _ => raw(),
        };
        query.push_str(&format!("&{}={}", encoded(&name), encoded(&text)));
    }
    query
}

/// A string is not quoted, any other value is JSON.
pub(super) fn since_parameter(since: &Json) -> String {
    encoded(&since.value().to_text())
}

pub(crate) struct ChangesFeed {
    peer_request: PeerRequest,
    stream: Stream,
    rows: RowSplitter,
    alive: bool,
    ended: bool,
}

impl Peer {
    pub(crate) async fn changes(&self, query: &ChangesQuery, since: &Json) -> Result<ChangesFeed, PeerError> {
        let uri = self.uri(&format!("_changes?{}&since={}", query.query, since_parameter(since)));
        let mut peer_request = match &query.body {
            Some(body) => PeerRequest::post(uri, body.clone()),
            None => PeerRequest::get(uri),
        };
        peer_request.lasts = query.feed == Feed::Continuous;
        let stream = self.open_stream(&peer_request).await?;
        let rows = match query.feed {
            Feed::Normal => Rows::InArray,
            Feed::Continuous => Rows::Lines,
        };
        Ok(ChangesFeed { peer_request, stream, rows: RowSplitter::new(rows), alive: false, ended: false })
    }
}

impl ChangesFeed {
    /// Returns the next row, a complete JSON object that was not validated; `None` at the end of the feed.
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, PeerError> {
        loop {
            if let Some(row) = self.rows.next().map_err(|error| self.peer_request.protocol(error.to_string()))? {
                return Ok(Some(row));
            }
            if self.ended {
                return Ok(None);
            }
            match self.stream.next().await.map_err(|error| self.peer_request.transport(error))? {
                Some(bytes) => {
                    self.alive = true;
                    self.rows.feed(&bytes);
                }
                None if self.rows.is_balanced() => self.ended = true,
                None => {
                    let error = TransportError::Broken("the changes feed ended within a row".to_owned());
                    return Err(self.peer_request.transport(error));
                }
            }
        }
    }

    /// Returns true if bytes arrived and the feed did not end within a row.
    pub(crate) fn ended_alive(&self) -> bool {
        self.alive && self.rows.is_balanced()
    }

    pub(crate) fn ended(&self) -> PeerError {
        self.peer_request.transport(TransportError::Broken("the feed of changes ended".to_owned()))
    }

    /// Returns `last_seq` and `pending`, which follow the last row of a normal feed.
    pub(crate) fn end(&self) -> Result<(Json, Option<u64>), PeerError> {
        let json = Json::parse(self.rows.frame()).map_err(|error| self.peer_request.protocol(error.to_string()))?;
        let value = json.value();
        match value.get("last_seq") {
            Some(last) => Ok((Json::trusted(last.raw().to_vec()), value.get("pending").and_then(Value::as_u64))),
            None if value.get("error").is_some() => Err(self.peer_request.status(500, json.as_bytes())),
            None => Err(self.peer_request.protocol("it contains no `last_seq`")),
        }
    }
}
