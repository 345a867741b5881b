//! Reads of a possibly damaged database without opening it, for [`crate::verify`] and [`crate::salvage`].

use std::sync::Arc;

use settee_model::Rev;
use settee_storage::{Cursor, Direction, Engine, Expect, KeyRange, Keyspace, Shard, Snapshot};

use crate::attachment::{Attachment, Content};
use crate::entry::{CATALOG, Entry, OWNED_SHARDS};
use crate::read::revision::Revision;
use crate::record::{DocRecord, SequenceEntry, Stored};
use crate::{DatabaseError, Result, keys, pieces};

#[derive(Clone)]
pub(crate) struct StoredDatabase {
    pub(crate) snapshot: Arc<dyn Snapshot>,
    pub(crate) shard: Shard,
}

pub(crate) struct StoredChange {
    pub(crate) seq: u64,
    pub(crate) id: String,
    pub(crate) rev: Rev,
    pub(crate) stored: Stored,
}

impl StoredDatabase {
    pub(crate) fn open(engine: &dyn Engine, shard: Shard) -> Result<Self> {
        Ok(Self { snapshot: engine.snapshot(shard)?, shard })
    }

    pub(crate) fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.snapshot.get(space, key)?)
    }

    pub(crate) fn scan(&self, space: Keyspace) -> Result<Box<dyn Cursor + '_>> {
        Ok(self.snapshot.scan(space, KeyRange::default(), Direction::Forward, Expect::All)?)
    }

    pub(crate) fn record(&self, id: &str) -> Result<Option<DocRecord>> {
        self.get(Keyspace::Documents, id.as_bytes())?.map(|bytes| self.decode_record(id.as_bytes(), &bytes)).transpose()
    }

    pub(crate) fn decode_record(&self, id: &[u8], stored: &[u8]) -> Result<DocRecord> {
        DocRecord::decode(&pieces::whole(self.snapshot.as_ref(), id, stored)?)
    }

    pub(crate) fn change(&self, seq: u64) -> Result<Option<StoredChange>> {
        let bytes = self.get(Keyspace::Sequence, &keys::sequence(seq))?;
        bytes.map(|bytes| StoredChange::decode(seq, &bytes)).transpose()
    }

    pub(crate) fn revision(&self, stored: Stored) -> Result<Revision> {
        let size = stored.total_bytes();
        let mut bytes = Vec::with_capacity(size);
        for chunk in 0..size.div_ceil(keys::BODY_CHUNK_BYTES).max(1) {
            let found = self.get(Keyspace::Bodies, &keys::body(stored.body_seq, chunk as u16))?;
            bytes.extend_from_slice(&found.ok_or(DatabaseError::Corrupt("body"))?);
        }
        if bytes.len() != size {
            return Err(DatabaseError::Corrupt("body"));
        }
        Revision::decode(stored, bytes)
    }

    pub(crate) fn content(&self, attachment: &Attachment) -> Result<Content<'static>> {
        Content::open(&self.snapshot, attachment)
    }

    pub(crate) fn owned_shards(&self) -> Result<Vec<(Vec<u8>, Shard)>> {
        Ok(self.owned_records()?.into_iter().map(|(key, shard, _)| (key, shard)).collect())
    }

    pub(crate) fn owned_records(&self) -> Result<Vec<OwnedRecord>> {
        let records = attached_with_prefix(self.snapshot.as_ref(), OWNED_SHARDS)?;
        let owned = records.into_iter().map(|(key, record)| {
            let (number, rest) = record.split_first_chunk().ok_or(DatabaseError::Corrupt("owned shard"))?;
            Ok((key, Shard(u64::from_be_bytes(*number)), rest.to_vec()))
        });
        owned.collect()
    }
}

/// Key of the record that names the shard, the shard, and the remaining bytes.
type OwnedRecord = (Vec<u8>, Shard, Vec<u8>);

impl StoredChange {
    pub(crate) fn decode(seq: u64, bytes: &[u8]) -> Result<Self> {
        let SequenceEntry { id, rev, stored, .. } = SequenceEntry::decode(seq, bytes)?;
        Ok(Self { seq, id: id.to_owned(), rev, stored })
    }
}

pub(crate) fn databases(engine: &dyn Engine) -> (Vec<(String, Entry)>, Result<()>) {
    let mut found = Vec::new();
    let read = read_databases(engine, &mut found);
    (found, read)
}

fn read_databases(engine: &dyn Engine, found: &mut Vec<(String, Entry)>) -> Result<()> {
    let end = keys::after_prefix(keys::DATABASE);
    let range = KeyRange { start: Some(keys::DATABASE), end: Some(&end) };
    let snapshot = engine.snapshot(CATALOG)?;
    let mut cursor = snapshot.scan(Keyspace::Catalog, range, Direction::Forward, Expect::All)?;
    while let Some((key, value)) = cursor.next()? {
        let name = std::str::from_utf8(&key[keys::DATABASE.len()..]);
        let name = name.map_err(|_| DatabaseError::Corrupt("database name"))?.to_owned();
        found.push((name, Entry::decode(value)?));
    }
    Ok(())
}

pub(crate) fn attached_with_prefix(snapshot: &dyn Snapshot, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let start = keys::prefixed(keys::ATTACHED, prefix);
    let end = keys::after_prefix(&start);
    let range = KeyRange { start: Some(&start), end: Some(&end) };
    let mut cursor = snapshot.scan(Keyspace::Catalog, range, Direction::Forward, Expect::Few)?;
    let mut found = Vec::new();
    while let Some((key, value)) = cursor.next()? {
        found.push((key[keys::ATTACHED.len()..].to_vec(), value.to_vec()));
    }
    Ok(found)
}
