//! Ranks, which tell the number of entries before a key: [`Counts`], and the two that a database keeps, [`Ranks`].
//!
//! Keys are divided into buckets of a few thousand entries with one count each. The rank of a key is the
//! sum of the counts before its bucket plus a short scan inside it, so `total_rows`, `offset` and
//! `pending` are exact without a counted tree that random ids would rewrite on every insert. Each commit
//! stores its changes of counts as one small log record; the whole tables are stored now and then.
//! Nothing here looks at entries: the owner scans a bucket that has to be divided.

use std::sync::Arc;

use settee_storage::codec::{Reader, put_bytes, put_varint};
use settee_storage::{ShardState, Version};

use crate::{DatabaseError, Result, keys};

pub(crate) mod table;
#[cfg(test)]
mod tests;

/// The ranks that readers may need: of the last commit, and of the one about to be made.
pub(crate) type PublishedRanks = [Arc<Ranks>; 2];

/// A bucket takes this many entries before an append opens a new one; at twice as many it is divided.
pub(crate) const BUCKET_ENTRIES: u32 = if cfg!(test) { 8 } else { 4096 };

/// The counts of a database as of one commit to its shard.
#[derive(Clone, Debug)]
pub(crate) struct Ranks {
    /// The commit after which these counts hold. Its token tells it from the one that another node may have
    /// made in its place.
    pub(crate) state: ShardState,
    /// Live documents by id.
    pub(crate) ids: Counts,
    /// Entries of the changes feed by update sequence.
    pub(crate) seqs: Counts,
}

/// Counts of entries by range of keys.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// The least key of each bucket; the first is empty.
    starts: Arc<Vec<Box<[u8]>>>,
    counts: Vec<u32>,
    /// The greatest key ever counted: a key beyond it is an append.
    greatest: Vec<u8>,
    /// Changes since the last log record, and whether the buckets themselves changed.
    changes: Vec<(u32, i32)>,
    reshaped: bool,
}

/// A range of keys with one count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket<'a> {
    /// The least key.
    pub(crate) start: &'a [u8],
    /// The least key of the next bucket.
    pub(crate) end: Option<&'a [u8]>,
    /// The number of entries that are in the buckets before.
    pub(crate) before: u64,
    /// The number of entries that are in this one.
    pub(crate) count: u64,
}

/// A bucket that its owner has to scan for the place at which [`Counts::divide`] divides it.
#[derive(Clone, Debug)]
pub(crate) struct Overfull {
    /// Its number.
    pub(crate) bucket: usize,
    /// The least key.
    pub(crate) start: Box<[u8]>,
    /// The least key of the next bucket.
    pub(crate) end: Option<Box<[u8]>>,
}

impl Ranks {
    /// No entries.
    pub(crate) fn new() -> Self {
        Self { state: ShardState::default(), ids: Counts::new(), seqs: Counts::new() }
    }

    /// Whether a log record cannot tell what changed: the whole tables must be stored.
    pub(crate) fn reshaped(&self) -> bool {
        self.ids.reshaped || self.seqs.reshaped
    }

    /// Appends the whole tables.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.state.version.0);
        self.ids.encode(out);
        self.seqs.encode(out);
    }

    /// Reads whole tables; the commit's token is not among them.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "rank table");
        let state = ShardState { version: Version(reader.varint()?), ..ShardState::default() };
        Ok(Self { state, ids: Counts::decode(&mut reader)?, seqs: Counts::decode(&mut reader)? })
    }

    /// Appends the log record of all changes since the last one.
    pub(crate) fn encode_log(&self, out: &mut Vec<u8>) {
        self.ids.encode_log(out);
        self.seqs.encode_log(out);
    }

    /// Applies a log record; records at or before the tables' version are already in them.
    pub(crate) fn replay(&mut self, version: u64, record: &[u8]) -> Result<()> {
        if version <= self.state.version.0 {
            return Ok(());
        }
        let mut reader = Reader::new(record, "rank log");
        self.ids.replay(&mut reader)?;
        self.seqs.replay(&mut reader)?;
        self.state.version = Version(version);
        Ok(())
    }

    /// Applies the log records of all commits after version `known` up to `state`, and tells their numbers. `None` if these are not all of
    /// them, as when one has stored the whole tables; they are of no use then.
    pub(crate) fn replay_all(
        &mut self,
        known: u64,
        state: ShardState,
        records: &[(Vec<u8>, Vec<u8>)],
    ) -> Option<Vec<u64>> {
        let wanted = known + 1..=state.version.0;
        if wanted.clone().count() != records.len() {
            return None;
        }
        for (version, (key, record)) in wanted.clone().zip(records) {
            let logged = keys::decode_sequence(key.get(keys::RANK_LOG.len()..)?).ok()?;
            if logged != version || self.replay(logged, record).is_err() {
                return None;
            }
        }
        self.state = state;
        Some(wanted.collect())
    }

    /// Forgets the changes that were stored.
    pub(crate) fn stored(&mut self) {
        for counts in [&mut self.ids, &mut self.seqs] {
            counts.changes.clear();
            counts.reshaped = false;
        }
    }
}

impl Counts {
    fn new() -> Self {
        Self {
            starts: Arc::new(vec![Box::default()]),
            counts: vec![0],
            greatest: Vec::new(),
            changes: Vec::new(),
            reshaped: false,
        }
    }

    /// The number of entries.
    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Counts an entry in. An append that finds the last bucket full opens a new one.
    pub(crate) fn add(&mut self, key: &[u8]) {
        let mut bucket = self.bucket(key);
        if key > self.greatest.as_slice() {
            if bucket + 1 == self.counts.len() && self.counts[bucket] >= BUCKET_ENTRIES {
                self.join_small();
                Arc::make_mut(&mut self.starts).push(key.into());
                self.counts.push(0);
                self.reshaped = true;
                bucket = self.counts.len() - 1;
            }
            self.greatest.clear();
            self.greatest.extend_from_slice(key);
        }
        self.counts[bucket] += 1;
        self.note(bucket, 1);
    }

    /// Counts an entry out.
    pub(crate) fn remove(&mut self, key: &[u8]) {
        let bucket = self.bucket(key);
        self.counts[bucket] = self.counts[bucket].saturating_sub(1);
        self.note(bucket, -1);
    }

    /// A bucket that should be divided.
    pub(crate) fn overfull(&self) -> Option<Overfull> {
        let bucket = self.counts.iter().position(|count| *count > 2 * BUCKET_ENTRIES)?;
        Some(Overfull { bucket, start: self.starts[bucket].clone(), end: self.starts.get(bucket + 1).cloned() })
    }

    /// Divides `bucket` at `middle`, before which lie `before` of its entries.
    pub(crate) fn divide(&mut self, bucket: usize, middle: &[u8], before: u32) {
        let after = self.counts[bucket].saturating_sub(before);
        Arc::make_mut(&mut self.starts).insert(bucket + 1, middle.into());
        self.counts[bucket] = before;
        self.counts.insert(bucket + 1, after);
        self.reshaped = true;
    }

    /// The least key of the bucket that `key` belongs to, and how many entries are in the buckets before.
    pub(crate) fn before(&self, key: &[u8]) -> (&[u8], u64) {
        let bucket = self.bucket(key);
        (&self.starts[bucket], self.counts[..bucket].iter().map(|count| u64::from(*count)).sum())
    }

    /// The bucket that holds the entry of `rank`, counted from 0. `None` if there are not that many entries.
    pub(crate) fn at(&self, rank: u64) -> Option<Bucket<'_>> {
        let mut before = 0;
        for (index, count) in self.counts.iter().enumerate() {
            let count = u64::from(*count);
            if rank < before + count {
                let end = self.starts.get(index + 1).map(AsRef::as_ref);
                return Some(Bucket { start: &self.starts[index], end, before, count });
            }
            before += count;
        }
        None
    }

    /// Joins neighbours that are nearly empty, as edits leave them behind in the order of sequences.
    fn join_small(&mut self) {
        let starts = Arc::make_mut(&mut self.starts);
        let mut kept = 0;
        for bucket in 1..self.counts.len() {
            if self.counts[kept] + self.counts[bucket] <= BUCKET_ENTRIES / 2 {
                self.counts[kept] += self.counts[bucket];
            } else {
                kept += 1;
                self.counts[kept] = self.counts[bucket];
                starts.swap(kept, bucket);
            }
        }
        self.counts.truncate(kept + 1);
        starts.truncate(kept + 1);
    }

    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.greatest);
        put_varint(out, self.counts.len() as u64);
        for (start, count) in self.starts.iter().zip(&self.counts) {
            put_bytes(out, start);
            put_varint(out, u64::from(*count));
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let mut read = Self { starts: Arc::default(), counts: Vec::new(), ..Self::new() };
        read.greatest = reader.bytes()?.to_vec();
        let starts = Arc::make_mut(&mut read.starts);
        for _ in 0..reader.varint()? {
            starts.push(reader.bytes()?.into());
            read.counts.push(u32::try_from(reader.varint()?).map_err(|_| DatabaseError::Corrupt("rank table"))?);
        }
        let ascends = starts.first().is_some_and(|first| first.is_empty()) && starts.is_sorted_by(|a, b| a < b);
        if !ascends {
            return Err(DatabaseError::Corrupt("rank table"));
        }
        Ok(read)
    }

    fn encode_log(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.greatest);
        put_varint(out, self.changes.len() as u64);
        for (bucket, change) in &self.changes {
            let change = i64::from(*change);
            put_varint(out, u64::from(*bucket));
            put_varint(out, ((change << 1) ^ (change >> 63)) as u64);
        }
    }

    fn replay(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        self.greatest = reader.bytes()?.to_vec();
        for _ in 0..reader.varint()? {
            let bucket = reader.varint()? as usize;
            let zigzag = reader.varint()?;
            let change = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            let count = self.counts.get_mut(bucket).ok_or(DatabaseError::Corrupt("rank log"))?;
            let changed = i64::from(*count).checked_add(change).and_then(|count| u32::try_from(count).ok());
            *count = changed.ok_or(DatabaseError::Corrupt("rank log"))?;
        }
        Ok(())
    }

    fn bucket(&self, key: &[u8]) -> usize {
        self.starts.partition_point(|start| start.as_ref() <= key) - 1
    }

    fn note(&mut self, bucket: usize, change: i32) {
        let bucket = bucket as u32;
        match self.changes.last_mut() {
            Some((last, sum)) if *last == bucket => *sum += change,
            _ => self.changes.push((bucket, change)),
        }
    }
}
