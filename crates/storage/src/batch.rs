//! A [`Batch`]: the writes of one commit, kept in one buffer.

use crate::members::Claim;
use crate::{Keyspace, MAX_COMMIT_BYTES, MAX_HEAD_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, Result, StorageError};

/// Writes that are applied in order: a later write to a key wins.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    purpose: Purpose,
    operations: Vec<Entry>,
    bytes: Vec<u8>,
    head: Option<Vec<u8>>,
    claim: Option<Claim>,
    longest_key: usize,
    longest_value: usize,
}

/// Reason for a batch. When space is scarce, engines reserve the remaining space for batches that free space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// The store grows.
    #[default]
    Growth,
    /// The store shrinks, by this batch or by later steps: deletions and compactions.
    Room,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    space: Keyspace,
    start: usize,
    key_len: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Put { value_len: usize },
    Insert { value_len: usize },
    Delete,
}

/// One write of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Sets the value of a key.
    Put(Keyspace, &'a [u8], &'a [u8]),
    /// Sets the value of a key that has none. Engines need not read an old value.
    Insert(Keyspace, &'a [u8], &'a [u8]),
    /// Removes a key, if present.
    Delete(Keyspace, &'a [u8]),
}

impl Batch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the head of the shard, which otherwise stays unchanged: see [`Snapshot::head`](crate::Snapshot::head).
    /// Panics if `head` has more than [`MAX_HEAD_BYTES`].
    pub fn set_head(&mut self, head: &[u8]) {
        assert!(head.len() <= MAX_HEAD_BYTES, "a head of {} bytes", head.len());
        self.head = Some(head.to_vec());
    }

    /// Returns the new head, if the batch sets one.
    #[must_use]
    pub fn head(&self) -> Option<&[u8]> {
        self.head.as_deref()
    }

    /// Makes the commit conditional on a claim of this process: it fails with [`StorageError::Deposed`] and writes
    /// nothing if the store shows another holder or a later epoch.
    pub fn set_claim(&mut self, claim: Claim) {
        self.claim = Some(claim);
    }

    /// Returns the claim on which the commit depends.
    #[must_use]
    pub fn claim(&self) -> Option<&Claim> {
        self.claim.as_ref()
    }

    /// Creates an empty batch for a purpose. A batch for [`Purpose::Room`] must free space.
    #[must_use]
    pub fn of(purpose: Purpose) -> Self {
        Self { purpose, ..Self::default() }
    }

    /// Returns the purpose of the batch.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Sets the value of `key`, present or not.
    pub fn put(&mut self, space: Keyspace, key: &[u8], value: &[u8]) {
        self.push(space, key, value, Kind::Put { value_len: value.len() });
    }

    /// Sets the value of `key`, which must not have a value yet, neither in the shard nor by this batch. If it has one,
    /// the engine rejects the commit ([`Engine::refuses_present`](crate::Engine::refuses_present)), or behaves as for
    /// [`Self::put`].
    pub fn insert(&mut self, space: Keyspace, key: &[u8], value: &[u8]) {
        self.push(space, key, value, Kind::Insert { value_len: value.len() });
    }

    /// Removes `key`, if present.
    pub fn delete(&mut self, space: Keyspace, key: &[u8]) {
        self.push(space, key, &[], Kind::Delete);
    }

    fn push(&mut self, space: Keyspace, key: &[u8], value: &[u8], kind: Kind) {
        self.longest_key = self.longest_key.max(key.len());
        self.longest_value = self.longest_value.max(value.len());
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.operations.push(Entry { space, start, key_len: key.len(), kind });
    }

    /// Returns [`StorageError::TooLarge`] if the batch exceeds a limit that all engines enforce. Callers must split
    /// larger data.
    pub fn check(&self) -> Result<()> {
        let limits = [
            ("key", self.longest_key, MAX_KEY_BYTES),
            ("value", self.longest_value, MAX_VALUE_BYTES),
            ("commit", self.bytes.len(), MAX_COMMIT_BYTES),
        ];
        for (label, size, limit) in limits {
            if size > limit {
                return Err(StorageError::TooLarge(format!("a {label} of {size} bytes; the limit is {limit}")));
            }
        }
        Ok(())
    }

    /// Returns the writes in order.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.operations.iter().map(|entry| {
            let (key, rest) = self.bytes[entry.start..].split_at(entry.key_len);
            match entry.kind {
                Kind::Put { value_len } => Operation::Put(entry.space, key, &rest[..value_len]),
                Kind::Insert { value_len } => Operation::Insert(entry.space, key, &rest[..value_len]),
                Kind::Delete => Operation::Delete(entry.space, key),
            }
        })
    }

    /// Returns the number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns true if there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.head.is_none()
    }

    /// Returns the length of the longest value in bytes.
    #[must_use]
    pub fn longest_value(&self) -> usize {
        self.longest_value
    }

    /// Returns the total length of all keys and values in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}
