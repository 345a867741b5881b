//! Follows `_replicator` databases: one task per database reads its changes from the start.

use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use http::StatusCode;
use http_body_util::BodyExt;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use settee_model::json::{Json, Value};

use super::{is_replicator_database, store};
use crate::replicator::Replicator;
use crate::transport::{Body, empty_body};

const REOPEN_WAIT: Duration = Duration::from_secs(1);

const ROW_BYTES_MAX: usize = 64 << 20;

impl Replicator {
    /// Follows a `_replicator` database. Must be called for new databases, and for all at the start of the server.
    pub fn database_found(self: &Arc<Self>, name: &str) {
        if !is_replicator_database(name) {
            return;
        }
        let name: Arc<str> = name.into();
        let mut state = self.state.lock();
        if state.documents.watched.get(&name).is_some_and(|watch| !watch.is_finished()) {
            return;
        }
        let watch = tokio::spawn(follow(Arc::clone(self), Arc::clone(&name)));
        state.documents.watched.insert(name, watch.abort_handle());
    }

    pub fn database_deleted(&self, name: &str) {
        if !is_replicator_database(name) {
            return;
        }
        let name: Arc<str> = name.into();
        if let Some(watch) = self.state.lock().documents.watched.remove(&name) {
            watch.abort();
        }
        self.documents_removed(&name);
    }
}

enum End {
    Deleted,
    Broken(String),
}

async fn follow(replicator: Arc<Replicator>, name: Arc<str>) {
    let mut since = "0".to_owned();
    loop {
        match read(&replicator, &name, &mut since).await {
            End::Deleted => {
                replicator.documents_removed(&name);
                return;
            }
            End::Broken(error) => tracing::debug!(database = &*name, error, "the feed of a replicator database ended"),
        }
        tokio::time::sleep(REOPEN_WAIT).await;
    }
}

async fn read(replicator: &Arc<Replicator>, name: &Arc<str>, since: &mut String) -> End {
    let transport = match store::connect(replicator, name) {
        Ok(transport) => transport,
        Err(error) => return End::Broken(error),
    };
    let database = utf8_percent_encode(name, NON_ALPHANUMERIC);
    let since_text = utf8_percent_encode(since, NON_ALPHANUMERIC);
    let uri = format!("/{database}/_changes?feed=continuous&include_docs=true&heartbeat=60000&since={since_text}");
    let request = match http::Request::get(uri).body(empty_body()) {
        Ok(request) => request,
        Err(error) => return End::Broken(error.to_string()),
    };
    match transport.call(request).await {
        Ok(response) if response.status() == StatusCode::NOT_FOUND => End::Deleted,
        Ok(response) if response.status().is_success() => rows(replicator, name, since, response.into_body()).await,
        Ok(response) => End::Broken(response.status().to_string()),
        Err(error) => End::Broken(error.to_string()),
    }
}

async fn rows(replicator: &Arc<Replicator>, name: &Arc<str>, since: &mut String, mut body: Body) -> End {
    let mut buffer = BytesMut::new();
    while let Some(frame) = body.frame().await {
        match frame.map(http_body::Frame::into_data) {
            Ok(Ok(piece)) => buffer.extend_from_slice(&piece),
            Ok(Err(_)) => continue,
            Err(error) => return End::Broken(error.to_string()),
        }
        while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(end + 1);
            if let Some(seq) = row(replicator, name, &line) {
                *since = seq;
            }
        }
        if buffer.len() > ROW_BYTES_MAX {
            return End::Broken("a row is too long".to_owned());
        }
    }
    End::Broken("the feed is over".to_owned())
}

fn row(replicator: &Arc<Replicator>, name: &Arc<str>, line: &[u8]) -> Option<String> {
    let line = line.trim_ascii();
    if line.is_empty() {
        return None;
    }
    let row = Json::parse(line).ok()?;
    let row = row.value();
    let id = row.get("id").and_then(Value::as_str)?;
    match row.get("doc").filter(|_| row.get("deleted").is_none()) {
        Some(document) => replicator.document_changed(name, &id, document),
        None => replicator.document_removed(name, &Arc::from(&*id)),
    }
    Some(row.get("seq")?.to_text())
}
