//! [`Tree`]: a sorted map whose entries are stored in chunks. A copy of a tree copies one pointer, and a write to a
//! copied tree copies the list of chunks and the chunks that it modifies.

use std::sync::Arc;

/// Full chunks are split. Writes copy at most this many pointers per modified chunk.
const MAX_CHUNK: usize = 256;
/// Adjacent chunks are merged if they have at most this many entries together.
const MAX_JOINED: usize = 64;

pub(super) type Entry = (Arc<[u8]>, Arc<[u8]>);
pub(super) type Chunk = Vec<Entry>;

/// A boundary between entries: chunk, and index within it, of the entry that follows. The index is always inside its
/// chunk, except that the end is `(number of chunks, 0)`, so that positions can be compared.
pub(super) type Position = (usize, usize);

#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    chunks: Arc<Vec<Arc<Chunk>>>,
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl Tree {
    /// Before the first entry whose key is not less than `key`.
    pub(super) fn before(&self, key: &[u8]) -> Position {
        self.partition(|candidate| candidate < key)
    }

    /// Before the first entry whose key is greater than `key`.
    pub(super) fn after(&self, key: &[u8]) -> Position {
        self.partition(|candidate| candidate <= key)
    }

    pub(super) fn end(&self) -> Position {
        (self.chunks.len(), 0)
    }

    fn partition(&self, less: impl Fn(&[u8]) -> bool) -> Position {
        let chunk = self.chunks.partition_point(|chunk| less(&chunk[0].0)).saturating_sub(1);
        let Some(entries) = self.chunks.get(chunk) else {
            return self.end();
        };
        let index = entries.partition_point(|entry| less(&entry.0));
        if index == entries.len() { (chunk + 1, 0) } else { (chunk, index) }
    }

    /// Returns the entry after `position`, which must not be the end, and the position after it.
    pub(super) fn following(&self, (chunk, index): Position) -> ((&[u8], &[u8]), Position) {
        let entries = &self.chunks[chunk];
        let next = if index + 1 == entries.len() { (chunk + 1, 0) } else { (chunk, index + 1) };
        ((&entries[index].0, &entries[index].1), next)
    }

    /// Returns the entry before `position`, which must not be the start, and the position before it.
    pub(super) fn preceding(&self, (chunk, index): Position) -> ((&[u8], &[u8]), Position) {
        let (chunk, index) = if index > 0 { (chunk, index - 1) } else { (chunk - 1, self.chunks[chunk - 1].len() - 1) };
        let entry = &self.chunks[chunk][index];
        ((&entry.0, &entry.1), (chunk, index))
    }

    pub(super) fn get(&self, key: &[u8]) -> Option<&[u8]> {
        let position = self.before(key);
        if position == self.end() {
            return None;
        }
        let ((found, value), _) = self.following(position);
        (found == key).then_some(value)
    }

    pub(super) fn put(&mut self, key: &[u8], value: &[u8]) {
        let chunks = Arc::make_mut(&mut self.chunks);
        let at = chunks.partition_point(|chunk| *chunk[0].0 <= *key).saturating_sub(1);
        let Some(shared) = chunks.get_mut(at) else {
            chunks.push(Arc::new(vec![(key.into(), value.into())]));
            self.entries += 1;
            self.bytes += (key.len() + value.len()) as u64;
            return;
        };
        let chunk = Arc::make_mut(shared);
        match chunk.binary_search_by(|entry| (*entry.0).cmp(key)) {
            Ok(index) => {
                self.bytes -= chunk[index].1.len() as u64;
                self.bytes += value.len() as u64;
                chunk[index].1 = value.into();
            }
            Err(index) => {
                chunk.insert(index, (key.into(), value.into()));
                self.entries += 1;
                self.bytes += (key.len() + value.len()) as u64;
                if chunk.len() > MAX_CHUNK {
                    // A split at the end leaves full chunks behind ascending inserts.
                    let middle = if index + 1 == chunk.len() { index } else { MAX_CHUNK / 2 };
                    let upper = chunk.split_off(middle);
                    chunks.insert(at + 1, Arc::new(upper));
                }
            }
        }
    }

    pub(super) fn delete(&mut self, key: &[u8]) {
        let (at, index) = self.before(key);
        match self.chunks.get(at) {
            Some(chunk) if *chunk[index].0 == *key => {}
            Some(_) | None => return,
        }
        let chunks = Arc::make_mut(&mut self.chunks);
        let chunk = Arc::make_mut(&mut chunks[at]);
        let (key, value) = chunk.remove(index);
        self.entries -= 1;
        self.bytes -= (key.len() + value.len()) as u64;
        if chunk.is_empty() {
            chunks.remove(at);
            return;
        }
        let len = chunk.len();
        if at + 1 < chunks.len() && len + chunks[at + 1].len() <= MAX_JOINED {
            let upper = chunks.remove(at + 1);
            Arc::make_mut(&mut chunks[at]).extend(upper.iter().cloned());
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(|(key, value)| (&**key, &**value)))
    }

    #[cfg(test)]
    pub(super) fn chunk_addresses(&self) -> std::collections::HashSet<*const Chunk> {
        self.chunks.iter().map(Arc::as_ptr).collect()
    }
}
