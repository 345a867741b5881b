//! Local documents, which CouchDB lists since version 2, except checkpoints of replications.

use anyhow::Context as _;
use settee_model::json::{Json, Value, write_array, write_string};
use settee_replication::{List, Peer, PeerError, RequestMethod};

pub(super) const TOGETHER: usize = 100;

const TOGETHER_BYTES: usize = 4 << 20;

pub(super) struct Local {
    pub(super) id: String,
    document: Json,
}

impl Local {
    pub(super) fn of(id: String, document: Json) -> Option<Self> {
        (!is_checkpoint(&id, document.value())).then_some(Self { id, document })
    }

    fn members(document: Value<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in document.members().filter(|(name, _)| !name.is_string("_id") && !name.is_string("_rev")) {
            out.push(b',');
            out.extend_from_slice(name.raw());
            out.push(b':');
            out.extend_from_slice(value.raw());
        }
        out
    }

    fn body(&self, there: Option<Value<'_>>) -> Vec<u8> {
        let mut out = b"{\"_id\":".to_vec();
        write_string(&mut out, &self.id);
        if let Some(rev) = there.and_then(|there| there.get("_rev")) {
            out.extend_from_slice(b",\"_rev\":");
            out.extend_from_slice(rev.raw());
        }
        out.extend_from_slice(&Self::members(self.document.value()));
        out.push(b'}');
        out
    }
}

/// Copies the local documents that differ, and returns their number; `None` if the source cannot list them.
pub(super) async fn copy(source: &Peer, target: &Peer) -> anyhow::Result<Option<u64>> {
    let Some(mut locals) = Locals::open(source).await? else { return Ok(None) };
    let mut copied = 0;
    while let Some(batch) = locals.next_batch().await? {
        copied += write(&batch, target).await?;
    }
    Ok(Some(copied))
}

pub(super) async fn write(batch: &[Local], target: &Peer) -> anyhow::Result<u64> {
    let mut written = 0;
    for (index, there) in differing(batch, target).await? {
        let local = &batch[index];
        let body = local.body(there.as_ref().map(Json::value));
        let put = target.request(RequestMethod::Put, &Peer::document_path(&local.id), body).await?;
        put.json().with_context(|| local.id.clone())?;
        written += 1;
    }
    Ok(written)
}

/// Returns the number of local documents of the source, and the ids of those that are missing or different in the
/// target; `None` if the source cannot list them.
pub(super) async fn compare(source: &Peer, target: &Peer) -> anyhow::Result<Option<(u64, Vec<String>)>> {
    let Some(mut locals) = Locals::open(source).await? else { return Ok(None) };
    let (mut count, mut found) = (0, Vec::new());
    while let Some(batch) = locals.next_batch().await? {
        count += batch.len() as u64;
        found.extend(differing(&batch, target).await?.into_iter().map(|(index, _)| batch[index].id.clone()));
    }
    Ok(Some((count, found)))
}

struct Locals {
    rows: List,
    is_over: bool,
}

impl Locals {
    async fn open(source: &Peer) -> anyhow::Result<Option<Self>> {
        match source.list("_local_docs?include_docs=true").await {
            Ok(rows) => Ok(Some(Self { rows, is_over: false })),
            // Version 1 interprets the name as that of a document.
            Err(PeerError::Status { status: 400 | 404 | 405, .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn next_batch(&mut self) -> anyhow::Result<Option<Vec<Local>>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while !self.is_over && batch.len() < TOGETHER && bytes < TOGETHER_BYTES {
            let Some(row) = self.rows.next().await? else {
                self.is_over = true;
                break;
            };
            let row = Json::parse(&row).context("a row of _local_docs is not JSON")?;
            let Some(document) = row.value().get("doc").filter(|document| document.is_object()) else { continue };
            let id = document.get("_id").map(Value::to_text).unwrap_or_default();
            if let Some(local) = Local::of(id, Json::trusted(document.raw().to_vec())) {
                bytes += document.raw().len();
                batch.push(local);
            }
        }
        Ok((!batch.is_empty()).then_some(batch))
    }
}

/// Returns the indices of the documents that differ in the target, with the target's version.
pub(super) async fn differing(batch: &[Local], target: &Peer) -> anyhow::Result<Vec<(usize, Option<Json>)>> {
    let mut keys = b"{\"keys\":".to_vec();
    write_array(&mut keys, batch, |keys, local| write_string(keys, &local.id));
    keys.push(b'}');
    let answer = target.request(RequestMethod::Post, "_local_docs?include_docs=true", keys).await?.json()?;
    let rows = answer.value().get("rows").context("_local_docs has no rows")?;
    let mut found = Vec::new();
    for (index, (local, row)) in batch.iter().zip(rows.elements()).enumerate() {
        let there = row.get("doc").filter(|document| document.is_object());
        if there.map(Local::members).as_ref() != Some(&Local::members(local.document.value())) {
            found.push((index, there.map(|there| Json::trusted(there.raw().to_vec()))));
        }
    }
    Ok(found)
}

fn is_checkpoint(id: &str, document: Value<'_>) -> bool {
    let own = ["_local/shard-sync-", "_local/purge-"].iter().any(|prefix| id.starts_with(prefix));
    own || document.get("session_id").is_some() && document.get("history").is_some()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_distinguished_from_documents() {
        let check = |expected: bool, id: &str, text: &str| {
            let json = Json::parse(text.as_bytes()).unwrap();
            assert_eq!(is_checkpoint(id, json.value()), expected, "{id} {text}");
        };
        check(true, "_local/0123", r#"{"session_id":"x","source_last_seq":5,"history":[],"replication_id_version":4}"#);
        check(
            true,
            "_local/abc==",
            r#"{"session_id":"x","history":[],"replicator":"pouchdb","version":1,"last_seq":3}"#,
        );
        check(true, "_local/shard-sync-a-b", r#"{"seq":1}"#);
        check(true, "_local/purge-mrview-1", r#"{"purge_seq":1}"#);
        check(false, "_local/settings", r#"{"session_id":"mine"}"#);
        check(false, "_local/history", r#"{"history":[]}"#);
    }

    #[test]
    fn bodies_replace_the_existing_content() {
        let document = Json::parse(br#"{"_id":"_local/a","_rev":"0-7","x":1.50,"y":{"_id":2}}"#).unwrap();
        let local = Local { id: "_local/a".to_owned(), document };
        let there = Json::parse(br#"{"_id":"_local/a","_rev":"0-2","x":1}"#).unwrap();
        let body = |there| String::from_utf8(local.body(there)).unwrap();
        assert_eq!(body(None), r#"{"_id":"_local/a","x":1.50,"y":{"_id":2}}"#);
        assert_eq!(body(Some(there.value())), r#"{"_id":"_local/a","_rev":"0-2","x":1.50,"y":{"_id":2}}"#);
    }
}
