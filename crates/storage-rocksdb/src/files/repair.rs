//! [`find`]: sorted files that RocksDB cannot read, each with what is to be done about it: a copy in which damaged blocks of
//! data are empty, or, if more than data is damaged, none, and [`take_out`] takes the file out of the manifest.

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

/// A sorted file that is damaged.
pub(crate) struct Repair {
    /// Its name in the directory.
    pub(crate) name: String,
    /// The column family.
    pub(crate) column: String,
    /// Stored keys that may have lost entries: from, and up to.
    pub(crate) holes: Vec<(Vec<u8>, Vec<u8>)>,
    /// The file that is to take its place.
    pub(crate) mended: Option<Vec<u8>>,
    number: u64,
    place: (u32, u64),
}

/// The damaged ones among the sorted files in use that are called like this, or among all, and all that are missing.
///
/// # Errors
/// When the directory cannot be read.
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
        let (holes, mended) = match fate {
            Fate::Whole => continue,
            Fate::Mended(holes, bytes) => (holes, Some(bytes)),
            Fate::Lost => (all, None),
        };
        let holes = holes.into_iter().map(|(from, through)| (from, end(&column, &through))).collect();
        found.push(Repair { name, column, holes, mended, number: *number, place: (known.column, known.level) });
    }
    Ok(found)
}

enum Fate {
    Whole,
    Mended(Vec<(Vec<u8>, Vec<u8>)>, Vec<u8>),
    Lost,
}

/// The end of a hole that goes up to `through`. What has only the number of a shard is no key, but stands between two shards:
/// the next one loses nothing.
fn end(column: &str, through: &[u8]) -> Vec<u8> {
    if through.len() <= keys::PREFIX && column != options::STATE { through.to_vec() } else { after(through) }
}

fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

fn examine(bytes: Vec<u8>, known: &TableFile) -> Fate {
    let table = Table::open(&bytes);
    // Reads do without a filter.
    if table.damage.iter().any(|damage| damage.what != "filter") {
        return Fate::Lost;
    }
    let (mut holes, mut fillers) = (Vec::new(), Vec::new());
    let mut before: Option<Vec<u8>> = None;
    for stretch in &table.stretches {
        let Place::Block(handle) = stretch.place else { return Fate::Lost };
        if !table.blocks.is_whole(handle) {
            let from = before.as_deref().map_or_else(|| known.smallest.clone(), after);
            let through = stretch.through.clone().unwrap_or(GREATEST.to_vec()).min(known.largest.clone());
            // Versions of one key on both sides have no key between them.
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
    let mut mended = bytes;
    for (handle, filler) in &fillers {
        put(&mut mended, *handle, filler, checksum, base);
    }
    match properties.and_then(|handle| count_again(&mended, handle)) {
        Some((handle, block)) => {
            put(&mut mended, handle, &block, checksum, base);
            Fate::Mended(holes, mended)
        }
        None => Fate::Lost,
    }
}

/// A block of this size that holds nothing but the deletion of `key` by the oldest write there can be. Padding are restart
/// points, all at the one entry.
fn filler(key: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut block = vec![0];
    put_varint(&mut block, key.len() as u64 + 8);
    let rest = size.checked_sub(block.len() + 1 + key.len() + 8 + 4)?;
    // A length of no bytes, itself in as many bytes as are left over.
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

/// Writes a block that is not compressed over another one of the same size.
fn put(bytes: &mut [u8], handle: Handle, block: &[u8], checksum: u8, base: u32) {
    let sum = block_checksum(checksum, block, 0).unwrap_or_default();
    let sum = sum.wrapping_add(context(base, handle.offset as u64));
    let end = handle.offset + handle.size;
    bytes[handle.offset..end].copy_from_slice(block);
    bytes[end] = 0;
    bytes[end + 1..end + TRAILER].copy_from_slice(&sum.to_le_bytes());
}

/// The properties of a file with the number of entries that it has: compactions count what they read.
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

/// Takes a file out of the manifest.
///
/// # Errors
/// When that is not durable, or the manifest does not end as it should.
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
