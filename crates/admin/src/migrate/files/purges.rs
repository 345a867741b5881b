//! Purge records of the files, which the target lists under `_purged_infos`: [`write()`].

use std::sync::Arc;

use settee_couch_files::Purge;
use settee_model::json::{Value, object, write_array};
use settee_replication::{Peer, RequestMethod};

use super::shard::Shard;

/// Documents of one request: the default of `[purge] max_document_id_number`.
const TOGETHER: usize = 100;

/// Must be called before the first document is written. A target that contains documents receives no record, because a
/// purge would remove revisions that were written again after it.
pub(super) async fn write(target: &Peer, shards: &[Arc<Shard>], notes: &mut Vec<String>) -> anyhow::Result<()> {
    let purges = read(shards, notes);
    if purges.is_empty() {
        return Ok(());
    }
    let info = target.request(RequestMethod::Get, "", "").await?.json()?;
    let count = |name: &str| info.value().get(name).and_then(Value::as_u64);
    if count("doc_count") != Some(0) || count("doc_del_count") != Some(0) {
        return Ok(());
    }
    for batch in batches(&purges) {
        let body = object(|object| {
            for purge in batch {
                write_array(object.name(&purge.id), &purge.revs, |out, rev| rev.write_json(out));
            }
        });
        let reply = target.request(RequestMethod::Post, "_purge", body).await?;
        if !reply.is_success() {
            notes.push(format!("the records of its purges were not written: {}", reply.error()));
            return Ok(());
        }
    }
    Ok(())
}

fn read(shards: &[Arc<Shard>], notes: &mut Vec<String>) -> Vec<Purge> {
    let mut purges = Vec::new();
    for shard in shards {
        let path = shard.path.display();
        match shard.database.purges() {
            Err(error) => notes.push(format!("{path}: the records of its purges cannot be read: {error}")),
            Ok(found) => {
                for purge in found {
                    match purge {
                        Ok(purge) => purges.push(purge),
                        Err(lost) => notes.push(format!("{path}: {lost}")),
                    }
                }
            }
        }
    }
    purges
}

/// Splits the records so that each document occurs once per batch, because a batch is an object with the ids as names.
fn batches(purges: &[Purge]) -> Vec<&[Purge]> {
    let (mut batches, mut start) = (Vec::new(), 0);
    for (index, purge) in purges.iter().enumerate() {
        let batch = &purges[start..index];
        if batch.len() == TOGETHER || batch.iter().any(|other| other.id == purge.id) {
            batches.push(batch);
            start = index;
        }
    }
    batches.push(&purges[start..]);
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_names_each_document_once() {
        let purge = |id: &str| Purge { seq: 1, id: id.to_owned(), revs: Vec::new() };
        let many: Vec<Purge> = (0..250).map(|number| purge(&number.to_string())).collect();
        assert_eq!(batches(&many).iter().map(|batch| batch.len()).collect::<Vec<_>>(), [100, 100, 50]);
        let again = ["a", "b", "a", "c", "c"].map(purge);
        assert_eq!(batches(&again).iter().map(|batch| batch.len()).collect::<Vec<_>>(), [2, 2, 1]);
    }
}
