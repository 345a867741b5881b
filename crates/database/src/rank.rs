//! Ranks: numbers of entries before a key. [`Counts`] is one table of counts, [`RankIndex`] the two tables of a
//! database.
//!
//! Keys are divided into buckets of a few thousand entries with one count each. The rank of a key is the sum of the
//! counts before its bucket plus a short scan inside it, so `total_rows`, `offset` and `pending` are exact without a
//! counted tree that random ids would rewrite on every insert. Each commit stores its changes of counts as one small
//! log record; the complete tables are stored occasionally.
//!
//! Deleted documents have entries that no rank counts. Buckets are divided by all their entries, so that the scan
//! inside one is short; a reader skips buckets without counted entries ([`Counts::next_counted`]).

use std::sync::Arc;

use settee_storage::codec::{Reader, put_bytes, put_varint};
use settee_storage::{Direction, ShardState, Version};

use crate::{DatabaseError, Result, keys};

pub(crate) mod table;
#[cfg(test)]
mod tests;

/// The ranks that readers may need: those of the latest commit and of the one in progress.
pub(crate) type PublishedRanks = [Arc<RankIndex>; 2];

/// Number of entries at which an append opens a new bucket; a bucket with twice as many is divided.
pub(crate) const BUCKET_ENTRIES: u32 = if cfg!(test) { 8 } else { 4096 };

#[derive(Clone, Debug)]
pub(crate) struct RankIndex {
    /// The commit of these counts. Its token distinguishes it from a commit of another node at the same version.
    pub(crate) state: ShardState,
    pub(crate) ids: Counts,
    pub(crate) seqs: Counts,
}

#[derive(Clone, Debug)]
pub(crate) struct Counts {
    /// The least key of each bucket; that of the first is empty.
    starts: Arc<Vec<Box<[u8]>>>,
    counts: Vec<u32>,
    /// Number of uncounted entries of each bucket; too low after a table of an earlier version, which lacks it.
    uncounted: Vec<u32>,
    /// Greatest key counted so far: a greater key is an append.
    greatest: Vec<u8>,
    changes: Vec<Change>,
    reshaped: bool,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    bucket: u32,
    counted: i32,
    uncounted: i32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket<'a> {
    pub(crate) start: &'a [u8],
    pub(crate) end: Option<&'a [u8]>,
    pub(crate) before: u64,
    pub(crate) count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skip<'a> {
    To(&'a [u8]),
    All,
}

/// A bucket that is too large. Its owner must scan it for the key at which [`Counts::divide`] divides it.
#[derive(Clone, Debug)]
pub(crate) struct OversizedBucket {
    pub(crate) bucket: usize,
    pub(crate) start: Box<[u8]>,
    pub(crate) end: Option<Box<[u8]>>,
}

impl RankIndex {
    pub(crate) fn new() -> Self {
        Self { state: ShardState::default(), ids: Counts::new(), seqs: Counts::new() }
    }

    pub(crate) fn reshaped(&self) -> bool {
        self.ids.reshaped || self.seqs.reshaped
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.state.version.0);
        self.ids.encode(out);
        self.seqs.encode(out);
        self.ids.uncounted.iter().for_each(|count| put_varint(out, u64::from(*count)));
    }

    /// The tables do not contain the commit's token.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "rank table");
        let state = ShardState { version: Version(reader.varint()?), ..ShardState::default() };
        let mut ids = Counts::decode(&mut reader)?;
        let seqs = Counts::decode(&mut reader)?;
        if !reader.is_at_end() {
            for count in &mut ids.uncounted {
                *count = u32::try_from(reader.varint()?).map_err(|_| DatabaseError::Corrupt("rank table"))?;
            }
        }
        Ok(Self { state, ids, seqs })
    }

    pub(crate) fn encode_log(&self, out: &mut Vec<u8>) {
        self.ids.encode_log(out);
        self.seqs.encode_log(out);
        self.ids.encode_changes(out, |change| change.uncounted);
    }

    /// Ignores a record whose version is already part of the tables.
    pub(crate) fn replay(&mut self, version: u64, record: &[u8]) -> Result<()> {
        if version <= self.state.version.0 {
            return Ok(());
        }
        let mut reader = Reader::new(record, "rank log");
        self.ids.replay(&mut reader)?;
        self.seqs.replay(&mut reader)?;
        if !reader.is_at_end() {
            self.ids.replay_uncounted(&mut reader)?;
        }
        self.state.version = Version(version);
        Ok(())
    }

    /// Applies the log records of all commits after version `known` up to `state`, and returns their numbers. Returns
    /// `None` if a record is missing, for example because a commit stored the complete tables; the tables are unusable
    /// then.
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

    /// Must be called after the changes were stored.
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
            uncounted: vec![0],
            greatest: Vec::new(),
            changes: Vec::new(),
            reshaped: false,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    #[cfg(test)]
    pub(crate) fn total_uncounted(&self) -> u64 {
        self.uncounted.iter().map(|count| u64::from(*count)).sum()
    }

    pub(crate) fn add(&mut self, key: &[u8]) {
        self.change(key, 1, 0);
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.change(key, -1, 0);
    }

    pub(crate) fn change(&mut self, key: &[u8], counted: i32, uncounted: i32) {
        let mut bucket = self.bucket(key);
        if key > self.greatest.as_slice() && counted + uncounted > 0 {
            if bucket + 1 == self.counts.len() && self.entries(bucket) >= BUCKET_ENTRIES {
                self.merge_small_buckets();
                Arc::make_mut(&mut self.starts).push(key.into());
                self.counts.push(0);
                self.uncounted.push(0);
                self.reshaped = true;
                bucket = self.counts.len() - 1;
            }
            self.greatest.clear();
            self.greatest.extend_from_slice(key);
        }
        self.counts[bucket] = self.counts[bucket].saturating_add_signed(counted);
        self.uncounted[bucket] = self.uncounted[bucket].saturating_add_signed(uncounted);
        let bucket = bucket as u32;
        match self.changes.last_mut() {
            Some(last) if last.bucket == bucket => {
                last.counted += counted;
                last.uncounted += uncounted;
            }
            _ => self.changes.push(Change { bucket, counted, uncounted }),
        }
    }

    fn entries(&self, bucket: usize) -> u32 {
        self.counts[bucket].saturating_add(self.uncounted[bucket])
    }

    pub(crate) fn overfull(&self) -> Option<OversizedBucket> {
        let bucket = (0..self.counts.len()).find(|bucket| self.entries(*bucket) > 2 * BUCKET_ENTRIES)?;
        Some(OversizedBucket { bucket, start: self.starts[bucket].clone(), end: self.starts.get(bucket + 1).cloned() })
    }

    /// `counted` and `uncounted` are the numbers of entries of `bucket` before `middle`.
    pub(crate) fn divide(&mut self, bucket: usize, middle: &[u8], counted: u32, uncounted: u32) {
        Arc::make_mut(&mut self.starts).insert(bucket + 1, middle.into());
        for (counts, before) in [(&mut self.counts, counted), (&mut self.uncounted, uncounted)] {
            let after = counts[bucket].saturating_sub(before);
            counts[bucket] = before;
            counts.insert(bucket + 1, after);
        }
        self.reshaped = true;
    }

    /// Returns the position at which a scan from `key` continues: `None` if the bucket of `key` counts entries,
    /// otherwise the edge of the next bucket in this direction that does, or the end of all keys ([`Skip::All`]).
    pub(crate) fn next_counted(&self, key: &[u8], direction: Direction) -> Option<Skip<'_>> {
        let bucket = self.bucket(key);
        if self.counts[bucket] > 0 {
            return None;
        }
        Some(match direction {
            Direction::Forward => {
                let next = (bucket + 1..self.counts.len()).find(|bucket| self.counts[*bucket] > 0);
                next.map_or(Skip::All, |next| Skip::To(&self.starts[next]))
            }
            Direction::Backward => {
                let next = (0..bucket).rfind(|bucket| self.counts[*bucket] > 0);
                next.map_or(Skip::All, |next| Skip::To(&self.starts[next + 1]))
            }
        })
    }

    pub(crate) fn edges(&self, key: &[u8]) -> (&[u8], Option<&[u8]>) {
        let bucket = self.bucket(key);
        (&self.starts[bucket], self.starts.get(bucket + 1).map(AsRef::as_ref))
    }

    /// Returns the start of the bucket of `key`, and the number of counted entries before it.
    pub(crate) fn before(&self, key: &[u8]) -> (&[u8], u64) {
        let bucket = self.bucket(key);
        (&self.starts[bucket], self.counts[..bucket].iter().map(|count| u64::from(*count)).sum())
    }

    /// Returns the bucket with the entry at `rank`, counted from 0; `None` if fewer entries exist.
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

    /// Edits leave nearly empty buckets behind in the sequence order.
    fn merge_small_buckets(&mut self) {
        let starts = Arc::make_mut(&mut self.starts);
        let mut kept = 0;
        for bucket in 1..self.counts.len() {
            let [left, right] = [kept, bucket].map(|at| self.counts[at].saturating_add(self.uncounted[at]));
            if left.saturating_add(right) <= BUCKET_ENTRIES / 2 {
                self.counts[kept] += self.counts[bucket];
                self.uncounted[kept] += self.uncounted[bucket];
            } else {
                kept += 1;
                self.counts[kept] = self.counts[bucket];
                self.uncounted[kept] = self.uncounted[bucket];
                starts.swap(kept, bucket);
            }
        }
        self.counts.truncate(kept + 1);
        self.uncounted.truncate(kept + 1);
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
        read.uncounted = vec![0; read.counts.len()];
        Ok(read)
    }

    fn encode_log(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.greatest);
        self.encode_changes(out, |change| change.counted);
    }

    fn encode_changes(&self, out: &mut Vec<u8>, of: impl Fn(&Change) -> i32) {
        let changes = self.changes.iter().filter(|change| of(change) != 0);
        put_varint(out, changes.clone().count() as u64);
        for change in changes {
            let difference = i64::from(of(change));
            put_varint(out, u64::from(change.bucket));
            put_varint(out, ((difference << 1) ^ (difference >> 63)) as u64);
        }
    }

    fn replay(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        self.greatest = reader.bytes()?.to_vec();
        replay_changes(reader, |bucket, change| {
            let count = self.counts.get_mut(bucket)?;
            *count = i64::from(*count).checked_add(change).and_then(|count| u32::try_from(count).ok())?;
            Some(())
        })
    }

    /// A change can exceed the stored count, which may be too low.
    fn replay_uncounted(&mut self, reader: &mut Reader<'_>) -> Result<()> {
        replay_changes(reader, |bucket, change| {
            let count = self.uncounted.get_mut(bucket)?;
            *count = count.saturating_add_signed(i32::try_from(change).ok()?);
            Some(())
        })
    }

    fn bucket(&self, key: &[u8]) -> usize {
        self.starts.partition_point(|start| start.as_ref() <= key) - 1
    }
}

fn replay_changes(reader: &mut Reader<'_>, mut apply: impl FnMut(usize, i64) -> Option<()>) -> Result<()> {
    for _ in 0..reader.varint()? {
        let bucket = reader.varint()? as usize;
        let zigzag = reader.varint()?;
        let change = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
        apply(bucket, change).ok_or(DatabaseError::Corrupt("rank log"))?;
    }
    Ok(())
}
