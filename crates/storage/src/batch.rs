//! A [`Batch`]: the writes of one commit, kept in one buffer.

use crate::{
    Keyspace, MAX_COMMIT_BYTES, MAX_HEAD_BYTES, MAX_KEY_BYTES, MAX_VALUE_BYTES, Premise, Result, StorageError,
};

/// Writes that are applied together, in their order. A later write to a key wins.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    purpose: Purpose,
    operations: Vec<Entry>,
    bytes: Vec<u8>,
    head: Option<Vec<u8>>,
    premise: Option<Premise>,
    longest_key: usize,
    longest_value: usize,
}

/// The purpose of a batch: where room is scarce, engines keep what is left for those that make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// It gets larger.
    #[default]
    Growth,
    /// It gets smaller, now or by what follows: deletions and compactions.
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
    /// Sets the value of a key that has none: engines need not look for an old one.
    Insert(Keyspace, &'a [u8], &'a [u8]),
    /// Removes a key, if it is there.
    Delete(Keyspace, &'a [u8]),
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the head of the shard, which stays as it was otherwise: see [`Snapshot::head`](crate::Snapshot::head).
    ///
    /// # Panics
    /// When it has more than [`MAX_HEAD_BYTES`].
    pub fn set_head(&mut self, head: &[u8]) {
        assert!(head.len() <= MAX_HEAD_BYTES, "a head of {} bytes", head.len());
        self.head = Some(head.to_vec());
    }

    /// The new head, if it is to change.
    #[must_use]
    pub fn head(&self) -> Option<&[u8]> {
        self.head.as_deref()
    }

    /// Has the commit fail with [`StorageError::Outdated`], and write nothing, unless `premise` still holds when it is made. Engines may give up a commit
    /// that cannot find out.
    pub fn presume(&mut self, premise: Premise) {
        self.premise = Some(premise);
    }

    /// What must hold.
    #[must_use]
    pub fn premise(&self) -> Option<&Premise> {
        self.premise.as_ref()
    }

    /// An empty batch for a purpose. The owner of one that is to make room sees to it that it does.
    #[must_use]
    pub fn of(purpose: Purpose) -> Self {
        Self { purpose, ..Self::default() }
    }

    /// The purpose of the batch.
    #[must_use]
    pub fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, space: Keyspace, key: &[u8], value: &[u8]) {
        self.push(space, key, value, Kind::Put { value_len: value.len() });
    }

    /// Sets the value of `key`, which has none as yet, neither in the shard nor by this batch. If it has one, the engine
    /// refuses the commit ([`Engine::refuses_present`](crate::Engine::refuses_present)), or behaves as for [`Self::put`].
    pub fn insert(&mut self, space: Keyspace, key: &[u8], value: &[u8]) {
        self.push(space, key, value, Kind::Insert { value_len: value.len() });
    }

    /// Removes `key`.
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

    /// Whether everything is within the limits of all engines. What may be longer is divided by who writes it; engines
    /// refuse what was not.
    ///
    /// # Errors
    /// [`StorageError::TooLarge`].
    pub fn check(&self) -> Result<()> {
        let limits = [
            ("key", self.longest_key, MAX_KEY_BYTES),
            ("value", self.longest_value, MAX_VALUE_BYTES),
            ("commit", self.bytes.len(), MAX_COMMIT_BYTES),
        ];
        for (what, size, limit) in limits {
            if size > limit {
                return Err(StorageError::TooLarge(format!("a {what} of {size} bytes; the limit is {limit}")));
            }
        }
        Ok(())
    }

    /// The writes in their order.
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

    /// The number of writes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty() && self.head.is_none()
    }

    /// The number of bytes that the longest value has.
    #[must_use]
    pub fn longest_value(&self) -> usize {
        self.longest_value
    }

    /// The number of bytes that the keys and values have together.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}
