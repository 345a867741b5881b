//! Input of map functions ([`DocumentBatch`]) and their output ([`Emissions`]), as flat buffers.

use std::cmp::Ordering;
use std::ops::{ControlFlow, Range};

use crate::{Limits, RunError, TakeRows};

/// Documents that are mapped together.
#[derive(Clone, Debug, Default)]
pub struct DocumentBatch {
    ids: String,
    text: Vec<u8>,
    documents: Vec<Slot>,
}

#[derive(Clone, Debug)]
struct Slot {
    seq: u64,
    id: Range<usize>,
    json: Range<usize>,
}

/// One document of a batch.
#[derive(Clone, Copy, Debug)]
pub struct Document<'a> {
    /// Update sequence.
    pub seq: u64,
    /// Document id as plain text.
    pub id: &'a str,
    /// Whole document as validated JSON text, `_id` and `_rev` first.
    pub json: &'a [u8],
}

impl DocumentBatch {
    /// Creates an empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes the documents and keeps the memory.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.text.clear();
        self.documents.clear();
    }

    /// Adds a document; `write` appends its JSON text, which must be valid.
    pub fn push_with<E>(
        &mut self,
        seq: u64,
        id: &str,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.text.len();
        if let Err(error) = write(&mut self.text) {
            self.text.truncate(start);
            return Err(error);
        }
        let first = self.ids.len();
        self.ids.push_str(id);
        self.documents.push(Slot { seq, id: first..self.ids.len(), json: start..self.text.len() });
        Ok(())
    }

    /// Returns the number of documents.
    #[must_use]
    pub fn len(&self) -> usize {
        self.documents.len()
    }

    /// Returns true if the batch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    /// Returns the total size of the documents in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.ids.len() + self.text.len()
    }

    /// Returns the document at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Document<'_> {
        let slot = &self.documents[index];
        Document { seq: slot.seq, id: &self.ids[slot.id.clone()], json: &self.text[slot.json.clone()] }
    }

    /// Returns the JSON text of the document at `index`.
    #[must_use]
    pub fn json(&self, index: usize) -> &[u8] {
        &self.text[self.documents[index].json.clone()]
    }

    /// Returns all documents, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Document<'_>> {
        (0..self.len()).map(|index| self.get(index))
    }
}

/// Rows of a batch, ordered by document, then by function, then by call of `emit`.
#[derive(Clone, Debug, Default)]
pub struct Emissions {
    bytes: Vec<u8>,
    rows: Vec<RowSlot>,
    /// Exceptions; their documents emitted nothing.
    pub failures: Vec<MapFailure>,
    /// Lines that functions wrote with `log`.
    pub log: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
struct RowSlot {
    document: u32,
    function: u32,
    start: usize,
    key_len: u32,
    value_len: u32,
}

impl RowSlot {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..][..self.key_len as usize]
    }

    fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start + self.key_len as usize..][..self.value_len as usize]
    }
}

fn sort_repeated_keys(
    bytes: &[u8],
    rows: &mut [RowSlot],
    order: &mut Vec<u32>,
    compare: &impl Fn(&[u8], &[u8]) -> Ordering,
) {
    // The length distinguishes most keys, so they are compared by length first.
    let key = |row: &RowSlot| (row.key_len, row.key(bytes));
    order.clear();
    order.extend(0..u32::try_from(rows.len()).expect("a batch has fewer rows"));
    order.sort_unstable_by(|&one, &other| {
        key(&rows[one as usize]).cmp(&key(&rows[other as usize])).then(one.cmp(&other))
    });
    let same = |&one: &u32, &other: &u32| key(&rows[one as usize]) == key(&rows[other as usize]);
    let repeated: Vec<&[u32]> = order.chunk_by(same).filter(|places| places.len() > 1).collect();
    for places in repeated {
        let mut sorted: Vec<RowSlot> = places.iter().map(|&place| rows[place as usize]).collect();
        sorted.sort_by(|row, other| compare(row.value(bytes), other.value(bytes)));
        places.iter().zip(sorted).for_each(|(&place, row)| rows[place as usize] = row);
    }
}

/// One emitted row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emission<'a> {
    /// Index of the document in its batch.
    pub document: u32,
    /// Index of the function in its program.
    pub function: u32,
    /// Key as JSON text.
    pub key: &'a [u8],
    /// Value as JSON text.
    pub value: &'a [u8],
}

/// An exception of a map function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFailure {
    /// Index of the document in its batch.
    pub document: u32,
    /// Index of the function in its program.
    pub function: u32,
    /// Thrown value.
    pub message: String,
}

impl Emissions {
    /// Creates an empty buffer.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes everything and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
        self.failures.clear();
        self.log.clear();
    }

    /// Returns the approximate memory size.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + self.rows.len() * size_of::<RowSlot>()
    }

    /// Returns true if the rows must be passed on because of their size.
    #[must_use]
    pub fn is_full(&self, limits: &Limits) -> bool {
        self.size_bytes() as u64 >= limits.bytes_per_part
    }

    /// Calls `take`, which must empty the buffer, if the buffer is full. Fails if `take` returns `Break`.
    pub fn hand_on(&mut self, limits: &Limits, take: &mut TakeRows<'_>) -> Result<(), RunError> {
        if !self.is_full(limits) {
            return Ok(());
        }
        match take(self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(RunError::unwanted()),
        }
    }

    /// Adds a row. Panics if the key or the value has 4 GiB or more, which the limits of programs exclude.
    pub fn push(&mut self, document: u32, function: u32, key: &[u8], value: &[u8]) {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).expect("emitted values are limited");
        let (key_len, value_len) = (len(key), len(value));
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        self.rows.push(RowSlot { document, function, start, key_len, value_len });
    }

    /// Removes the rows from index `rows` on.
    pub fn truncate(&mut self, rows: usize) {
        if let Some(row) = self.rows.get(rows) {
            self.bytes.truncate(row.start);
            self.rows.truncate(rows);
        }
    }

    /// Sorts rows and failures by document and function. The sort is stable. Rows must not be truncated afterwards.
    pub fn sort(&mut self) {
        self.rows.sort_by_key(|row| (row.document, row.function));
        self.failures.sort_by_key(|failure| (failure.document, failure.function));
    }

    /// Sorts rows of one function, document and key by their values. Rows with unique keys keep their position.
    pub fn sort_repeated_keys(&mut self, compare: impl Fn(&[u8], &[u8]) -> Ordering) {
        let Self { bytes, rows, .. } = self;
        let mut repeated = Vec::new();
        for rows in rows.chunk_by_mut(|row, next| (row.document, row.function) == (next.document, next.function)) {
            if rows.len() > 1 {
                sort_repeated_keys(bytes, rows, &mut repeated, &compare);
            }
        }
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there are no rows.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns all rows, in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Emission<'_>> {
        self.rows.iter().map(|row| Emission {
            document: row.document,
            function: row.function,
            key: row.key(&self.bytes),
            value: row.value(&self.bytes),
        })
    }
}
