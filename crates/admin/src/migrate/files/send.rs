//! Writes leaves into a database of the target: batches by `_bulk_docs`, leaves with attachments one by one.

use std::sync::Arc;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use settee_couch_files::DocumentError;
use settee_model::json::{Json, Value};
use settee_replication::{Peer, PeerError, RequestMethod, TransportError};
use settee_wire::multipart::{Attached, Writer};
use tokio::sync::mpsc;

use super::shard::{Leaf, Shard};
use crate::environment;

const MAX_ATTEMPTS: u32 = 3;

#[derive(Debug, Default)]
pub(super) struct Written {
    pub(super) count: u64,
    pub(super) refused: Vec<String>,
    pub(super) lost: Vec<String>,
}

pub(super) async fn batch(target: &Peer, leaves: &[Leaf]) -> anyhow::Result<Written> {
    let mut written = Written::default();
    let mut parts = vec![leaves];
    while let Some(part) = parts.pop() {
        if part.is_empty() {
            continue;
        }
        let reply = target.request(RequestMethod::Post, "_bulk_docs", body(part)).await?;
        match reply.status {
            200..300 | 417 => {
                let answer = Json::parse(&reply.body).context("the response of _bulk_docs is not JSON")?;
                let refused = answer.value().elements().filter(|row| row.get("error").is_some());
                let text = |row: Value<'_>, name| row.get(name).map(Value::to_text).unwrap_or_default();
                let refused: Vec<String> = refused
                    .map(|row| format!("{} {}: {}", text(row, "id"), text(row, "rev"), text(row, "reason")))
                    .collect();
                written.count += (part.len() - refused.len().min(part.len())) as u64;
                written.refused.extend(refused);
            }
            // A single document fails the whole request, so the batch is split.
            400 | 403 | 412 | 413 if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            400 | 403 | 412 | 413 => {
                written.refused.push(format!("{} {}: {}", part[0].id, part[0].rev, reply.error()));
            }
            _ => bail!("documents cannot be written: {}", reply.error()),
        }
    }
    Ok(written)
}

fn body(leaves: &[Leaf]) -> Vec<u8> {
    const HEAD: &[u8] = b"{\"new_edits\":false,\"docs\":[";
    let length: usize = leaves.iter().map(|leaf| leaf.text.len() + 1).sum();
    let mut body = Vec::with_capacity(HEAD.len() + length + 2);
    body.extend_from_slice(HEAD);
    for (index, leaf) in leaves.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&leaf.text);
    }
    body.extend_from_slice(b"]}");
    body
}

pub(super) async fn related(target: &Peer, shard: &Arc<Shard>, leaf: &Arc<Leaf>) -> anyhow::Result<Written> {
    let boundary = format!("{:016x}{:016x}", environment::random_u64(), environment::random_u64());
    let body = Arc::new(Related::new(leaf, boundary));
    for attempt in 1.. {
        let (sender, pieces) = mpsc::channel(4);
        let reading = {
            let (shard, leaf, body) = (Arc::clone(shard), Arc::clone(leaf), Arc::clone(&body));
            tokio::task::spawn_blocking(move || body.write(&shard, &leaf, &sender))
        };
        let put = target.put_multipart(&leaf.id, &body.content_type, pieces, body.length).await;
        if let Err(Stop::Lost(error)) = reading.await? {
            return Ok(Written { lost: vec![format!("{} {}: {error}", leaf.id, leaf.rev)], ..Written::default() });
        }
        match put {
            Ok(None) => return Ok(Written { count: 1, ..Written::default() }),
            Ok(Some(why)) => {
                return Ok(Written { refused: vec![format!("{} {}: {why}", leaf.id, leaf.rev)], ..Written::default() });
            }
            Err(PeerError::Transport { .. }) if attempt < MAX_ATTEMPTS => {}
            Err(error) => return Err(error).with_context(|| leaf.id.clone()),
        }
    }
    bail!("{} was not written", leaf.id)
}

struct Related {
    content_type: String,
    heads: Vec<Bytes>,
    end: Bytes,
    length: u64,
}

enum Stop {
    Unwanted,
    Lost(DocumentError),
}

impl From<DocumentError> for Stop {
    fn from(error: DocumentError) -> Self {
        Self::Lost(error)
    }
}

impl Related {
    fn new(leaf: &Leaf, boundary: String) -> Self {
        let writer = Writer::new(boundary);
        let mut head = Vec::with_capacity(leaf.text.len() + 256);
        writer.begin(&mut head);
        writer.part(&mut head, [("Content-Type", "application/json")]);
        head.extend_from_slice(&leaf.text);
        let mut heads = Vec::new();
        for attachment in &leaf.attachments {
            writer.part_end(&mut head);
            writer.attachment(
                &mut head,
                Attached {
                    name: &attachment.name,
                    content_type: &attachment.content_type,
                    length: attachment.stored_len,
                    encoding: attachment.is_gzip.then_some("gzip"),
                },
            );
            heads.push(Bytes::from(std::mem::take(&mut head)));
        }
        let mut end = Vec::new();
        writer.part_end(&mut end);
        writer.end(&mut end);
        let text = heads.iter().map(Bytes::len).sum::<usize>() + end.len();
        let length = text as u64 + leaf.attachments.iter().map(|attachment| attachment.stored_len).sum::<u64>();
        Self { content_type: writer.content_type("multipart/related"), heads, end: end.into(), length }
    }

    /// If an attachment cannot be read, the body breaks off.
    fn write(
        &self,
        shard: &Shard,
        leaf: &Leaf,
        pieces: &mpsc::Sender<Result<Bytes, TransportError>>,
    ) -> Result<(), Stop> {
        let send = |bytes: Bytes| pieces.blocking_send(Ok(bytes)).map_err(|_| Stop::Unwanted);
        for (head, attachment) in self.heads.iter().zip(&leaf.attachments) {
            send(head.clone())?;
            let read = shard.database.attachment(attachment, |chunk| send(chunk.into()));
            if let Err(Stop::Lost(error)) = read {
                let _ = pieces.blocking_send(Err(TransportError::Broken(error.to_string())));
                return Err(Stop::Lost(error));
            }
            read?;
        }
        send(self.end.clone())
    }
}
