//! Comparison of the contents of leaf revisions: members, deletion, and attachments by their digests.
//! Digests cover the stored bytes, which two servers may compress differently; then the contents are compared.

use std::collections::HashMap;

use anyhow::Context as _;
use settee_model::json::{Json, Value, write_string};
use settee_replication::{Peer, PeerError, RequestMethod};
use sha2::{Digest as _, Sha256};

use super::{Leaves, Report};
use crate::bulk_get;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Content {
    members: [u8; 32],
    pub(super) attachments: Vec<Attachment>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attachment {
    pub(super) name: String,
    pub(super) content_type: String,
    pub(super) digest: String,
}

impl Content {
    pub(super) fn has_members_of(&self, other: &Self) -> bool {
        self.members == other.members
    }

    pub(super) fn of(document: Value<'_>) -> Self {
        let mut hasher = Sha256::new();
        hasher.update([u8::from(document.get("_deleted").and_then(Value::as_bool) == Some(true))]);
        for (name, value) in document.members() {
            if name.string_bytes().is_some_and(|name| name.starts_with(b"_")) {
                continue;
            }
            for part in [name.raw(), value.raw()] {
                hasher.update((part.len() as u64).to_le_bytes());
                hasher.update(part);
            }
        }
        let stubs = document.get("_attachments").into_iter().flat_map(Value::members);
        let mut attachments: Vec<Attachment> = stubs
            .map(|(name, stub)| {
                let text = |name| stub.get(name).map(Value::to_text).unwrap_or_default();
                Attachment { name: name.to_text(), content_type: text("content_type"), digest: text("digest") }
            })
            .collect();
        attachments.sort_unstable();
        Self { members: hasher.finalize().into(), attachments }
    }
}

pub(super) type Found = HashMap<(String, String), Content>;

pub(super) async fn compare(source: &Peer, target: &Peer, batch: &[Leaves], report: &mut Report) -> anyhow::Result<()> {
    if batch.is_empty() {
        return Ok(());
    }
    let (here, there) = tokio::join!(read(source, batch), read(target, batch));
    let (here, mut there) = (here.context("the source")?, there.context("the target")?);
    let mut wanted = Vec::new();
    for leaves in batch {
        wanted.extend(leaves.revs.iter().map(|rev| (leaves.id.clone(), rev.clone())));
    }
    for key in wanted {
        let (id, rev) = (&key.0, &key.1);
        match (here.get(&key), there.remove(&key)) {
            (None, _) => report.differs(format!("{id} {rev}: the source does not have it any more")),
            (Some(_), None) => report.differs(format!("{id} {rev} is not at the target")),
            (Some(here), Some(there)) => {
                report.attachments += here.attachments.len() as u64;
                if let Some(label) = difference(source, target, &key, here, &there).await? {
                    report.differs(format!("{id} {rev}: {label}"));
                }
            }
        }
    }
    Ok(())
}

async fn difference(
    source: &Peer,
    target: &Peer,
    (id, rev): &(String, String),
    here: &Content,
    there: &Content,
) -> anyhow::Result<Option<String>> {
    if here.members != there.members {
        return Ok(Some("its members are not the same".to_owned()));
    }
    if here.attachments.len() != there.attachments.len() {
        return Ok(Some("it does not have the same attachments".to_owned()));
    }
    for (one, other) in here.attachments.iter().zip(&there.attachments) {
        if (&one.name, &one.content_type) != (&other.name, &other.content_type) {
            return Ok(Some(format!("the attachment {} is not the same", one.name)));
        }
        if one.digest == other.digest {
            continue;
        }
        let name = Peer::document_path(&one.name);
        let path = format!("{}/{name}?rev={rev}", Peer::document_path(id));
        let (here, there) = tokio::join!(hash(source, &path), hash(target, &path));
        if here? != there? {
            return Ok(Some(format!("the attachment {} does not have the same bytes", one.name)));
        }
    }
    Ok(None)
}

async fn hash(peer: &Peer, path: &str) -> Result<[u8; 32], PeerError> {
    let mut body = peer.download(path).await?;
    let mut hasher = Sha256::new();
    while let Some(piece) = body.next().await? {
        hasher.update(&piece);
    }
    Ok(hasher.finalize().into())
}

pub(super) async fn read(peer: &Peer, batch: &[Leaves]) -> anyhow::Result<Found> {
    let mut found = Found::new();
    let mut halves = vec![batch];
    while let Some(batch) = halves.pop() {
        match read_together(peer, batch, &mut found).await {
            Ok(true) => {}
            Ok(false) => {
                for leaves in batch {
                    read_alone(peer, leaves, &mut found).await?;
                }
            }
            // The response may be too long, so the batch is split.
            Err(PeerError::Transport { .. }) if batch.len() > 1 => {
                let (first, second) = batch.split_at(batch.len() / 2);
                halves.extend([second, first]);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// Reads by `_bulk_get`. Returns false if the server lacks it, as before version 2.
async fn read_together(peer: &Peer, batch: &[Leaves], found: &mut Found) -> Result<bool, PeerError> {
    let wanted = batch.iter().flat_map(|leaves| leaves.revs.iter().map(|rev| (leaves.id.as_str(), rev.as_str())));
    let reply = peer.request(RequestMethod::Post, "_bulk_get", bulk_get::body(wanted)).await?;
    if matches!(reply.status, 400 | 404 | 405 | 406 | 415 | 501) {
        return Ok(false);
    }
    let json = reply.json()?;
    for result in json.value().get("results").into_iter().flat_map(Value::elements) {
        for doc in result.get("docs").into_iter().flat_map(Value::elements) {
            take(doc.get("ok"), found);
        }
    }
    Ok(true)
}

/// Reads by `open_revs`, which all versions support.
async fn read_alone(peer: &Peer, leaves: &Leaves, found: &mut Found) -> anyhow::Result<()> {
    let mut revs = Vec::new();
    for rev in &leaves.revs {
        revs.push(if revs.is_empty() { b'[' } else { b',' });
        write_string(&mut revs, rev);
    }
    revs.push(b']');
    let revs = Peer::document_path(&String::from_utf8_lossy(&revs));
    let path = format!("{}?open_revs={revs}", Peer::document_path(&leaves.id));
    let json: Json = peer.request(RequestMethod::Get, &path, "").await?.json()?;
    json.value().elements().for_each(|row| take(row.get("ok"), found));
    Ok(())
}

fn take(document: Option<Value<'_>>, found: &mut Found) {
    let Some(document) = document else { return };
    let text = |name| document.get(name).map(Value::to_text).unwrap_or_default();
    found.insert((text("_id"), text("_rev")), Content::of(document));
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn of(text: &str) -> Content {
        let json = Json::parse(text.as_bytes()).unwrap();
        Content::of(json.value())
    }

    #[test]
    fn contents_equal_the_written_documents() {
        let one = of(r#"{"_id":"a","_rev":"1-a","x":1.50,"_attachments":{"b":{"digest":"2"},"a":{"digest":"1"}}}"#);
        assert_eq!(
            one,
            of(r#"{ "x":1.50, "_attachments":{"a":{"digest":"1","stub":true},"b":{"digest":"2"}},"_id":"a"}"#)
        );
        for other in [
            r#"{"x":1.5,"_attachments":{"b":{"digest":"2"},"a":{"digest":"1"}}}"#,
            r#"{"x":1.50,"_attachments":{"b":{"digest":"2"},"a":{"digest":"3"}}}"#,
            r#"{"x":1.50,"_attachments":{"b":{"digest":"2"}}}"#,
            r#"{"x":1.50,"_deleted":true,"_attachments":{"b":{"digest":"2"},"a":{"digest":"1"}}}"#,
            r#"{"x":1.50,"y":null,"_attachments":{"b":{"digest":"2"},"a":{"digest":"1"}}}"#,
        ] {
            assert_ne!(of(other), one, "{other}");
        }
    }
}
