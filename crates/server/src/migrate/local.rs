//! Local documents: copied where the source lists them, which CouchDB does since version 2. Checkpoints of replications are left
//! out: they tell of sequences of the old server.

use anyhow::Context as _;
use settee_model::json::{Json, Value, write_string};
use settee_replication::{Peer, PeerError, Verb};

/// So many are compared together …
const TOGETHER: usize = 100;

/// … unless they have more bytes than this.
const TOGETHER_BYTES: usize = 4 << 20;

/// A local document of the source.
pub(super) struct Local {
    pub(super) id: String,
    document: Json,
}

impl Local {
    /// What its user wrote: the members without `_id` and `_rev`.
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

    /// The document as it is to be written in place of `there`.
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

/// Copies those that differ; answers how many, or `None` if the source does not list any.
pub(super) async fn copy(source: &Peer, target: &Peer) -> anyhow::Result<Option<u64>> {
    let mut copied = 0;
    let listed = each(source, async |batch: &[Local]| {
        for (index, there) in differing(batch, target).await? {
            let put = target.request(Verb::Put, &Peer::document_path(&batch[index].id), batch[index].body(
                there.as_ref().map(Json::value),
            ));
            put.await?.json().with_context(|| batch[index].id.clone())?;
            copied += 1;
        }
        Ok(())
    });
    Ok(listed.await?.map(|_| copied))
}

/// Those of the source that the target lacks or has otherwise, and how many there are. `None` if the source does not list any.
pub(super) async fn compare(source: &Peer, target: &Peer) -> anyhow::Result<Option<(u64, Vec<String>)>> {
    let mut found = Vec::new();
    let listed = each(source, async |batch: &[Local]| {
        found.extend(differing(batch, target).await?.into_iter().map(|(index, _)| batch[index].id.clone()));
        Ok(())
    });
    Ok(listed.await?.map(|count| (count, found)))
}

/// Reads all that are no checkpoints, in batches; answers how many.
async fn each(
    source: &Peer,
    mut take: impl AsyncFnMut(&[Local]) -> anyhow::Result<()>,
) -> anyhow::Result<Option<u64>> {
    let mut rows = match source.list("_local_docs?include_docs=true").await {
        Ok(rows) => rows,
        // Version 1 takes the name for that of a document.
        Err(PeerError::Status { status: 400 | 404 | 405, .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let (mut batch, mut bytes, mut count) = (Vec::new(), 0, 0);
    while let Some(row) = rows.next().await? {
        bytes += row.len();
        let row = Json::parse(&row).context("a row of _local_docs is no JSON")?;
        let Some(document) = row.value().get("doc").filter(|document| document.is_object()) else { continue };
        let id = document.get("_id").map(Value::to_text).unwrap_or_default();
        if is_checkpoint(&id, document) {
            continue;
        }
        count += 1;
        batch.push(Local { id, document: Json::trusted(document.raw().to_vec()) });
        if batch.len() >= TOGETHER || bytes >= TOGETHER_BYTES {
            take(&batch).await?;
            batch.clear();
            bytes = 0;
        }
    }
    take(&batch).await?;
    Ok(Some(count))
}

/// Which of the batch the target has otherwise, and what it has.
async fn differing(batch: &[Local], target: &Peer) -> anyhow::Result<Vec<(usize, Option<Json>)>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let mut keys = b"{\"keys\":[".to_vec();
    for (index, local) in batch.iter().enumerate() {
        if index > 0 {
            keys.push(b',');
        }
        write_string(&mut keys, &local.id);
    }
    keys.extend_from_slice(b"]}");
    let answer = target.request(Verb::Post, "_local_docs?include_docs=true", keys).await?.json()?;
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

/// Whether a local document is a checkpoint of a replicator, or of a server's own.
fn is_checkpoint(id: &str, document: Value<'_>) -> bool {
    let own = ["_local/shard-sync-", "_local/purge-"].iter().any(|prefix| id.starts_with(prefix));
    own || document.get("session_id").is_some() && document.get("history").is_some()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn checkpoints_are_told_from_documents() {
        let check = |expected: bool, id: &str, text: &str| {
            let json = Json::parse(text.as_bytes()).unwrap();
            assert_eq!(is_checkpoint(id, json.value()), expected, "{id} {text}");
        };
        check(true, "_local/0123", r#"{"session_id":"x","source_last_seq":5,"history":[],"replication_id_version":4}"#);
        check(true, "_local/abc==", r#"{"session_id":"x","history":[],"replicator":"pouchdb","version":1,"last_seq":3}"#);
        check(true, "_local/shard-sync-a-b", r#"{"seq":1}"#);
        check(true, "_local/purge-mrview-1", r#"{"purge_seq":1}"#);
        check(false, "_local/settings", r#"{"session_id":"mine"}"#);
        check(false, "_local/history", r#"{"history":[]}"#);
    }

    #[test]
    fn bodies_replace_what_is_there() {
        let document = Json::parse(br#"{"_id":"_local/a","_rev":"0-7","x":1.50,"y":{"_id":2}}"#).unwrap();
        let local = Local { id: "_local/a".to_owned(), document };
        let there = Json::parse(br#"{"_id":"_local/a","_rev":"0-2","x":1}"#).unwrap();
        let body = |there| String::from_utf8(local.body(there)).unwrap();
        assert_eq!(body(None), r#"{"_id":"_local/a","x":1.50,"y":{"_id":2}}"#);
        assert_eq!(body(Some(there.value())), r#"{"_id":"_local/a","_rev":"0-2","x":1.50,"y":{"_id":2}}"#);
    }
}
