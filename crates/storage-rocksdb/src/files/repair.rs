//! [`find`]: finds sorted files that RocksDB cannot read. If only data blocks of a file are damaged, it builds a copy
//! in which these are empty; otherwise [`take_out`] removes the file from the manifest.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

use super::block::{Handle, Rows, TRAILER};
use super::bytes::{block_checksum, context, put_varint};
use super::directory::{Directory, table_path};
use super::log;
use super::manifest::{self, TableFile};
use super::table::{GREATEST, Place, Table};
use crate::{keys, options};

pub(crate) struct Repair {
    pub(crate) name: String,
    pub(crate) column: String,
    /// Ranges of stored keys that may have lost entries: start, and exclusive end.
    pub(crate) holes: Vec<(Vec<u8>, Vec<u8>)>,
    /// Contents of the file that replaces it, if it can be repaired.
    pub(crate) repaired: Option<Vec<u8>>,
    number: u64,
    place: (u32, u64),
}

/// Finds the damaged files among the sorted files in use with these names, or among all, and all missing ones.
///
/// # Errors
/// Fails if the directory cannot be read.
pub(crate) fn find(directory: &Path, named: Option<&BTreeSet<String>>) -> io::Result<Vec<Repair>> {
    let manifest = Directory::read(directory)?.manifest()?.unwrap_or_default();
    let mut found = Vec::new();
    for (number, known) in &manifest.tables {
        let path = table_path(directory, *number);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_whole = fs::metadata(&path).is_ok_and(|metadata| metadata.len() == known.size);
        if is_whole && named.is_some_and(|named| !named.contains(&name)) {
            continue;
        }
        let column = manifest.columns.get(&known.column).cloned().unwrap_or_default();
        let fate = match fs::read(&path) {
            Ok(bytes) if is_whole => examine(bytes, known),
            _ => Fate::Lost,
        };
        let all = vec![(known.smallest.clone(), known.largest.clone())];
        let (holes, repaired) = match fate {
            Fate::Whole => continue,
            Fate::Repaired(holes, bytes) => (holes, Some(bytes)),
            Fate::Lost => (all, None),
        };
        let holes = holes.into_iter().map(|(from, through)| (from, end(&column, &through))).collect();
        found.push(Repair { name, column, holes, repaired, number: *number, place: (known.column, known.level) });
    }
    Ok(found)
}

enum Fate {
    Whole,
    Repaired(Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>),
    Lost,
}

/// Returns the exclusive end of a hole that includes `through`. A bound that consists only of a shard number is not a
/// key but the boundary between two shards, so the hole excludes the second one.
fn end(column: &str, through: &[u8]) -> Vec<u8> {
    if through.len() <= keys::PREFIX && column != options::STATE { through.to_vec() } else { after(through) }
}

fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn examine(bytes: Vec<u8>, known: &TableFile) -> Fate {
    let table = Table::open(&bytes);
    // A damaged filter can be ignored, because reads work without it.
    if table.damage.iter().any(|damage| damage.description != "filter") {
        return Fate::Lost;
    }
    let (mut holes, mut fillers) = (Vec::new(), Vec::new());
    let mut before: Option<Vec<u8>> = None;
    for stretch in &table.stretches {
        let Place::Block(handle) = stretch.place else { return Fate::Lost };
        if !table.blocks.is_whole(handle) {
            let from = before.as_deref().map_or_else(|| known.smallest.clone(), after);
            let through = stretch.through.clone().unwrap_or(GREATEST.to_vec()).min(known.largest.clone());
            // If versions of one key are on both sides, no key is between them.
            let fits = table.has_user_keys() || from < through;
            let Some(filler) = filler(&from, handle.size).filter(|_| fits) else { return Fate::Lost };
            fillers.push((handle, filler));
            holes.push((from, through));
        }
        before.clone_from(&stretch.through);
    }
    if fillers.is_empty() {
        return Fate::Whole;
    }
    let properties = table.properties();
    let (checksum, base, ..) = table.into_parts();
    let mut repaired = bytes;
    for (handle, filler) in &fillers {
        put(&mut repaired, *handle, filler, checksum, base);
    }
    match properties.and_then(|handle| count_again(&repaired, handle)) {
        Some((handle, block)) => {
            put(&mut repaired, handle, &block, checksum, base);
            Fate::Repaired(holes, repaired)
        }
        None => Fate::Lost,
    }
}

/// Builds a block of this size whose only entry is a deletion of `key` with the lowest sequence number. It is padded
/// with restart points that all refer to this entry.
fn filler(key: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut block = vec![0];
    put_varint(&mut block, key.len() as u64 + 8);
    let rest = size.checked_sub(block.len() + 1 + key.len() + 8 + 4)?;
    // Encodes the length 0 in as many additional bytes as the alignment requires.
    block.extend(std::iter::repeat_n(0x80, rest % 4));
    block.push(0);
    block.extend_from_slice(key);
    block.extend_from_slice(&[0; 8]);
    let restarts = u32::try_from(rest / 4).ok().filter(|restarts| *restarts > 0)?;
    block.extend(std::iter::repeat_n(0, rest / 4 * 4));
    block.extend_from_slice(&restarts.to_le_bytes());
    debug_assert_eq!(block.len(), size);
    Some(block)
}

/// Replaces a block by an uncompressed one of the same size.
fn put(bytes: &mut [u8], handle: Handle, block: &[u8], checksum: u8, base: u32) {
    let sum = block_checksum(checksum, block, 0).unwrap_or_default();
    let sum = sum.wrapping_add(context(base, handle.offset as u64));
    let end = handle.offset + handle.size;
    bytes[handle.offset..end].copy_from_slice(block);
    bytes[end] = 0;
    bytes[end + 1..end + TRAILER].copy_from_slice(&sum.to_le_bytes());
}

/// Updates the number of entries in the properties of a file, because compactions verify it.
fn count_again(bytes: &[u8], properties: Handle) -> Option<(Handle, Vec<u8>)> {
    let table = Table::open(bytes);
    let mut entries = table.ranges.len() as u64;
    for stretch in &table.stretches {
        let Place::Block(handle) = stretch.place else { return None };
        let block = table.blocks.read(handle)?;
        let mut rows = Rows::new(&block)?;
        while rows.next().ok()?.is_some() {
            entries += 1;
        }
    }
    let mut block = table.blocks.read(properties)?;
    if block.len() != properties.size {
        return None;
    }
    let place = {
        let mut rows = Rows::new(&block)?;
        let length = rows.left();
        loop {
            let (name, value) = rows.next().ok()??;
            let (is_found, value) = (name == b"rocksdb.num.entries", value.len());
            if is_found {
                let end = length - rows.left();
                break end - value..end;
            }
        }
    };
    let number = &mut block[place];
    let last = number.len().checked_sub(1)?;
    for byte in &mut number[..last] {
        *byte = entries as u8 | 0x80;
        entries >>= 7;
    }
    number[last] = u8::try_from(entries).ok().filter(|byte| *byte < 0x80)?;
    Some((properties, block))
}

/// Removes a file from the manifest.
///
/// # Errors
/// Fails if the change is not durable, or if the manifest is damaged.
pub(crate) fn take_out(directory: &Path, repair: &Repair) -> io::Result<()> {
    let path = Directory::read(directory)?.current.map_err(io::Error::other)?;
    let mut file = OpenOptions::new().append(true).open(&path)?;
    let bytes = fs::read(&path)?;
    if log::Log::new(&bytes).any(|item| matches!(item, log::Item::Damage { .. })) {
        return Err(io::Error::other(format!("{} is damaged", path.display())));
    }
    let (column, level) = repair.place;
    let edit = manifest::without(column, level, repair.number);
    file.write_all(&log::append(bytes.len(), &edit))?;
    file.sync_all()?;
    match manifest::Manifest::read(&fs::read(&path)?).tables.contains_key(&repair.number) {
        true => Err(io::Error::other(format!("{} cannot be written on", path.display()))),
        false => Ok(()),
    }
}
