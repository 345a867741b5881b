//! [`Manifest`]: the files in use according to the readable part of the manifest.

use std::collections::{BTreeMap, BTreeSet};

use super::bytes::Bytes;
use super::log::{Item, Log};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) columns: BTreeMap<u32, String>,
    pub(super) tables: BTreeMap<u64, TableFile>,
    /// RocksDB removes created blob files without references from tables.
    pub(super) blobs: BTreeMap<u64, BlobFile>,
    pub(super) gone: BTreeSet<u64>,
    pub(super) min_log: u64,
    pub(super) last_sequence: u64,
    /// Column families with a recorded first log. If one is absent, the manifest is truncated.
    pub(super) logged: BTreeSet<u32>,
    pub(super) identity: Option<String>,
    pub(super) damage: Vec<(usize, usize)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableFile {
    pub(super) column: u32,
    pub(super) size: u64,
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
    pub(super) oldest_blob: Option<u64>,
    pub(super) session: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlobFile {
    pub(super) column: u32,
    pub(super) values: u64,
    pub(super) garbage: u64,
    pub(super) bytes: u64,
}

impl Manifest {
    /// Returns the blob files that the store needs: those from the oldest one that a table of the same column family
    /// refers to, except those whose values are all garbage.
    pub(super) fn needed_blobs(&self) -> impl Iterator<Item = (u64, BlobFile)> {
        let mut oldest: BTreeMap<u32, u64> = BTreeMap::new();
        for table in self.tables.values() {
            if let Some(blob) = table.oldest_blob {
                oldest.entry(table.column).and_modify(|least| *least = (*least).min(blob)).or_insert(blob);
            }
        }
        let is_needed = move |number: u64, blob: &BlobFile| {
            oldest.get(&blob.column).is_some_and(|least| *least <= number) && blob.garbage < blob.values
        };
        self.blobs.iter().map(|(number, blob)| (*number, *blob)).filter(move |(number, blob)| is_needed(*number, blob))
    }

    /// A manifest that ends within a record was interrupted by a crash, or is being written.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut manifest = Self::default();
        manifest.columns.insert(0, "default".to_owned());
        for item in Log::new(bytes) {
            match item {
                Item::Record(offset, record) => {
                    if manifest.apply(&record).is_none() {
                        manifest.damage.push((offset, record.len()));
                    }
                }
                Item::Damage { offset, length, .. } => manifest.damage.push((offset, length)),
            }
        }
        manifest
    }

    fn apply(&mut self, record: &[u8]) -> Option<()> {
        let edit = Edit::decode(record)?;
        for number in edit.deleted {
            self.tables.remove(&number);
            self.gone.insert(number);
        }
        for (number, mut file) in edit.added {
            file.column = edit.column;
            self.gone.remove(&number);
            self.tables.insert(number, file);
        }
        for (number, blob) in edit.blobs {
            self.blobs.insert(number, BlobFile { column: edit.column, ..blob });
        }
        for (number, count) in edit.garbage {
            if let Some(blob) = self.blobs.get_mut(&number) {
                blob.garbage += count;
            }
        }
        if edit.has_log {
            self.logged.insert(edit.column);
        }
        self.last_sequence = self.last_sequence.max(edit.last_sequence.unwrap_or(0));
        self.identity = edit.identity.or(self.identity.take());
        if let Some(name) = edit.column_added {
            self.columns.insert(edit.column, name);
        }
        self.min_log = self.min_log.max(edit.min_log.unwrap_or(0));
        Some(())
    }
}

#[derive(Default)]
struct Edit {
    column: u32,
    column_added: Option<String>,
    deleted: Vec<u64>,
    added: Vec<(u64, TableFile)>,
    blobs: Vec<(u64, BlobFile)>,
    garbage: Vec<(u64, u64)>,
    min_log: Option<u64>,
    last_sequence: Option<u64>,
    has_log: bool,
    identity: Option<String>,
}

/// Tags from here on may be skipped, because their length follows.
const SKIPPABLE: u64 = 1 << 13;
const IDENTITY: u64 = SKIPPABLE + 1;

impl Edit {
    fn decode(record: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(record);
        let mut edit = Self::default();
        while !bytes.is_empty() {
            match bytes.varint()? {
                1 => drop(bytes.prefixed()?),
                2 => {
                    bytes.varint()?;
                    edit.has_log = true;
                }
                4 => edit.last_sequence = Some(bytes.varint()?),
                3 | 9 | 203 => drop(bytes.varint()?),
                5 => {
                    bytes.varint()?;
                    bytes.prefixed()?;
                }
                6 => {
                    bytes.varint()?;
                    edit.deleted.push(bytes.varint()?);
                }
                10 => edit.min_log = Some(bytes.varint()?),
                103 => {
                    let added = edit.table(&mut bytes)?;
                    edit.added.push(added);
                }
                200 => edit.column = u32::try_from(bytes.varint()?).ok()?,
                201 => edit.column_added = Some(String::from_utf8(bytes.prefixed()?.to_vec()).ok()?),
                202 => {}
                300 => drop(bytes.varint()?),
                400 => edit.blobs.push(blob(&mut bytes)?),
                401 => {
                    edit.garbage.push((bytes.varint()?, bytes.varint()?));
                    bytes.varint()?;
                    fields(&mut bytes, 0, |_, _| Some(()))?;
                }
                IDENTITY => edit.identity = Some(String::from_utf8_lossy(bytes.prefixed()?).into_owned()),
                tag if tag >= SKIPPABLE => drop(bytes.prefixed()?),
                _ => return None,
            }
        }
        Some(edit)
    }

    fn table(&mut self, bytes: &mut Bytes<'_>) -> Option<(u64, TableFile)> {
        bytes.varint()?;
        let (number, size) = (bytes.varint()?, bytes.varint()?);
        let user_key = |key: &[u8]| Some(key.split_last_chunk::<8>()?.0.to_vec());
        let (smallest, largest) = (user_key(bytes.prefixed()?)?, user_key(bytes.prefixed()?)?);
        bytes.varint()?;
        bytes.varint()?;
        let (mut oldest_blob, mut session) = (None, None);
        fields(bytes, 1, |tag, field| {
            match tag {
                // The minimum log number is an attribute of the file.
                3 => self.min_log = Some(u64::from_le_bytes(field.try_into().ok()?)),
                4 => oldest_blob = Some(Bytes(field).varint()?),
                12 => {
                    session = field.first_chunk::<8>().map(|half| u64::from_le_bytes(*half)).filter(|half| *half != 0);
                }
                _ => {}
            }
            Some(())
        })?;
        Some((number, TableFile { column: 0, size, smallest, largest, oldest_blob, session }))
    }
}

fn blob(bytes: &mut Bytes<'_>) -> Option<(u64, BlobFile)> {
    let (number, values, total) = (bytes.varint()?, bytes.varint()?, bytes.varint()?);
    bytes.prefixed()?;
    bytes.prefixed()?;
    fields(bytes, 0, |_, _| Some(()))?;
    Some((number, BlobFile { column: 0, values, garbage: 0, bytes: total }))
}

fn fields(bytes: &mut Bytes<'_>, end: u64, mut each: impl FnMut(u64, &[u8]) -> Option<()>) -> Option<()> {
    loop {
        let tag = bytes.varint()?;
        if tag == end {
            return Some(());
        }
        each(tag, bytes.prefixed()?)?;
    }
}
