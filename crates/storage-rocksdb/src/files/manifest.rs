//! [`Manifest`]: which files are in use, as far as the manifest can be read.

use std::collections::{BTreeMap, BTreeSet};

use super::bytes::{Bytes, put_varint};
use super::log::{Item, Log};

/// The state that the manifest describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    /// Names of column families by number.
    pub(super) columns: BTreeMap<u32, String>,
    /// Sorted files in use, by number.
    pub(super) tables: BTreeMap<u64, TableFile>,
    /// Blob files that were made. Those that nothing refers to any more are removed without a word.
    pub(super) blobs: BTreeSet<u64>,
    /// Files that were in use.
    pub(super) gone: BTreeSet<u64>,
    /// Logs with lesser numbers are not needed.
    pub(super) min_log: u64,
    /// Places that cannot be read: offset and length.
    pub(super) damage: Vec<(usize, usize)>,
}

/// A sorted file in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TableFile {
    pub(super) column: u32,
    pub(super) level: u64,
    pub(super) size: u64,
    /// The least and the greatest key.
    pub(super) smallest: Vec<u8>,
    pub(super) largest: Vec<u8>,
}

impl Manifest {
    /// Reads a manifest. One that ends within a record was not finished by a crash, or is being written.
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

    /// Applies one edit; `None` if it cannot be understood.
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
        self.blobs.extend(edit.blobs);
        if let Some(name) = edit.column_added {
            self.columns.insert(edit.column, name);
        }
        self.min_log = self.min_log.max(edit.min_log.unwrap_or(0));
        Some(())
    }
}

/// The record of an edit that takes out a sorted file.
pub(super) fn without(column: u32, level: u64, number: u64) -> Vec<u8> {
    let mut record = Vec::new();
    for value in [200, u64::from(column), 6, level, number] {
        put_varint(&mut record, value);
    }
    record
}

#[derive(Default)]
struct Edit {
    column: u32,
    column_added: Option<String>,
    deleted: Vec<u64>,
    added: Vec<(u64, TableFile)>,
    blobs: Vec<u64>,
    min_log: Option<u64>,
}

/// Tags from here on may be skipped: their length follows.
const SKIPPABLE: u64 = 1 << 13;

impl Edit {
    fn decode(record: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(record);
        let mut edit = Self::default();
        while !bytes.is_empty() {
            match bytes.varint()? {
                // Name of the comparator.
                1 => drop(bytes.prefixed()?),
                // Numbers of the log, the next file, the last write, the log before.
                2..=4 | 9 | 203 => drop(bytes.varint()?),
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
                    bytes.varint()?;
                    bytes.varint()?;
                    bytes.varint()?;
                    fields(&mut bytes, 0, |_, _| Some(()))?;
                }
                tag if tag >= SKIPPABLE => drop(bytes.prefixed()?),
                _ => return None,
            }
        }
        Some(edit)
    }

    fn table(&mut self, bytes: &mut Bytes<'_>) -> Option<(u64, TableFile)> {
        let level = bytes.varint()?;
        let (number, size) = (bytes.varint()?, bytes.varint()?);
        let user_key = |key: &[u8]| Some(key.split_last_chunk::<8>()?.0.to_vec());
        let (smallest, largest) = (user_key(bytes.prefixed()?)?, user_key(bytes.prefixed()?)?);
        bytes.varint()?;
        bytes.varint()?;
        fields(bytes, 1, |tag, field| {
            // The least log that is needed travels with a file.
            if tag == 3 {
                self.min_log = Some(u64::from_le_bytes(field.try_into().ok()?));
            }
            Some(())
        })?;
        Some((number, TableFile { column: 0, level, size, smallest, largest }))
    }
}

fn blob(bytes: &mut Bytes<'_>) -> Option<u64> {
    let number = bytes.varint()?;
    bytes.varint()?;
    bytes.varint()?;
    bytes.prefixed()?;
    bytes.prefixed()?;
    fields(bytes, 0, |_, _| Some(()))?;
    Some(number)
}

/// Fields with their tags, up to the tag `end`.
fn fields(bytes: &mut Bytes<'_>, end: u64, mut each: impl FnMut(u64, &[u8]) -> Option<()>) -> Option<()> {
    loop {
        let tag = bytes.varint()?;
        if tag == end {
            return Some(());
        }
        each(tag, bytes.prefixed()?)?;
    }
}
