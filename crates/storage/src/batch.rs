//! A [`Batch`]: the writes of one commit, kept in one buffer.

use crate::Keyspace;

/// Writes that are applied together, in their order. A later write to a key wins.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    operations: Vec<Entry>,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    space: Keyspace,
    start: usize,
    key_len: usize,
    value_len: Option<usize>,
}

/// One write of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Sets the value of a key.
    Put(Keyspace, &'a [u8], &'a [u8]),
    /// Removes a key, if it is there.
    Delete(Keyspace, &'a [u8]),
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the value of `key`.
    pub fn put(&mut self, space: Keyspace, key: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.operations.push(Entry { space, start, key_len: key.len(), value_len: Some(value.len()) });
    }

    /// Removes `key`.
    pub fn delete(&mut self, space: Keyspace, key: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.operations.push(Entry { space, start, key_len: key.len(), value_len: None });
    }

    /// The writes in their order.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        self.operations.iter().map(|entry| {
            let (key, rest) = self.bytes[entry.start..].split_at(entry.key_len);
            match entry.value_len {
                Some(len) => Operation::Put(entry.space, key, &rest[..len]),
                None => Operation::Delete(entry.space, key),
            }
        })
    }

    /// How many writes there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// How many bytes the keys and values have together.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }
}
