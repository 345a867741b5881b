//! Writes a batch by `_bulk_docs` and counts the result of each document.

use std::collections::HashMap;

use anyhow::{Context as _, bail};
use settee_model::json::{Json, Value, write_array, write_string};
use settee_replication::{Peer, RequestMethod};

use super::reader::{Batch, Document};
use super::refused::RejectedRows;
use super::tally::Tally;

/// Documents that the server refuses are recorded. Any other error ends the import.
pub(super) async fn write(
    target: &Peer,
    batch: Batch,
    tally: &Tally,
    rejected_rows: &RejectedRows,
) -> anyhow::Result<()> {
    let mut parts = vec![&batch.documents[..]];
    while let Some(part) = parts.pop() {
        let reply = target.request(RequestMethod::Post, "_bulk_docs", body(part, batch.is_replicated)).await?;
        match reply.status {
            200..300 | 417 => {
                let answer = Json::parse(&reply.body).context("the response of _bulk_docs is not JSON")?;
                settle(target, part, batch.is_replicated, &answer, tally, rejected_rows).await?;
            }
            // A single document fails the whole request, so the batch is split.
            400 | 403 | 412 | 413 if part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            400 | 403 | 412 | 413 => {
                let why = reply.error().to_string();
                refuse(&part[0], why.split_once(": ").map_or(&*why, |(_, why)| why), tally, rejected_rows)?;
            }
            _ => bail!("documents cannot be written: {}", reply.error()),
        }
    }
    tally.close(batch.first);
    Ok(())
}

fn body(documents: &[Document], is_replicated: bool) -> Vec<u8> {
    let length: usize = documents.iter().map(|document| document.text.len() + 1).sum();
    let mut body = Vec::with_capacity(length + 40);
    body.extend_from_slice(if is_replicated { b"{\"new_edits\":false,\"docs\":[" } else { b"{\"docs\":[" });
    for (index, document) in documents.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&document.text);
    }
    body.extend_from_slice(b"]}");
    body
}

/// For replicated documents the response lists only refused ones, otherwise all documents in order.
async fn settle(
    target: &Peer,
    documents: &[Document],
    is_replicated: bool,
    answer: &Json,
    tally: &Tally,
    rejected_rows: &RejectedRows,
) -> anyhow::Result<()> {
    let mut conflicts = Vec::new();
    let mut refused = 0;
    let by_id: HashMap<&str, usize> = match is_replicated {
        true => documents.iter().enumerate().map(|(index, document)| (&*document.id, index)).collect(),
        false => HashMap::new(),
    };
    for (index, row) in answer.value().elements().enumerate() {
        let Some(error) = row.get("error") else { continue };
        let id = row.get("id").map(Value::to_text).unwrap_or_default();
        let index = if is_replicated { by_id.get(&*id).copied() } else { Some(index) };
        let document = index
            .and_then(|index| documents.get(index))
            .context("the response of _bulk_docs contains an unknown document")?;
        if error.is_string("conflict") {
            conflicts.push(document);
            continue;
        }
        refused += 1;
        let reason = row.get("reason").map(Value::to_text).unwrap_or_default();
        refuse(document, &format!("{}: {reason}", error.to_text()), tally, rejected_rows)?;
    }
    let present = compare(target, &conflicts, tally, rejected_rows).await?;
    let written = documents.len() as u64 - refused - conflicts.len() as u64;
    tally.add(written, present);
    Ok(())
}

/// Counts conflicting documents that an earlier attempt has stored exactly as in the file. The others are refused.
async fn compare(
    target: &Peer,
    conflicts: &[&Document],
    tally: &Tally,
    rejected_rows: &RejectedRows,
) -> anyhow::Result<u64> {
    if conflicts.is_empty() {
        return Ok(0);
    }
    let mut keys = b"{\"keys\":".to_vec();
    write_array(&mut keys, conflicts, |keys, document| write_string(keys, &document.id));
    keys.push(b'}');
    let answer =
        target.request(RequestMethod::Post, "_all_docs?include_docs=true&attachments=true", keys).await?.json()?;
    let rows = answer.value().get("rows").context("_all_docs has no rows")?;
    let mut present = 0;
    for (document, row) in conflicts.iter().zip(rows.elements()) {
        let ours = Json::trusted(document.text.clone());
        if row.get("doc").is_some_and(|there| content(there) == content(ours.value())) {
            present += 1;
        } else {
            refuse(document, "conflict: there is another document with this _id", tally, rejected_rows)?;
        }
    }
    Ok(present)
}

fn content(document: Value<'_>) -> Vec<(&[u8], &[u8])> {
    let mut found = Vec::new();
    for (name, value) in document.members() {
        if name.is_string("_attachments") {
            for (name, attachment) in value.members() {
                found.push((name.raw(), attachment.get("data").map_or(&b""[..], Value::raw)));
            }
        } else if !name.raw().starts_with(b"\"_") {
            found.push((name.raw(), value.raw()));
        }
    }
    found
}

fn refuse(document: &Document, why: &str, tally: &Tally, rejected_rows: &RejectedRows) -> anyhow::Result<()> {
    tally.refuse();
    let id = &document.id;
    rejected_rows.add(document.line, &format!("{id}: {why}"), Some(&document.text))
}
