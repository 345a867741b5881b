//! [`Table`]: a sorted file, read without RocksDB. If an index is damaged, the blocks that it refers to are found by
//! their checksums.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use super::block::{Blocks, Handle, Rows, TRAILER, handles};
use super::bytes::{Bytes, block_checksum, context};
use super::entry::{Entry, Kind, split_key};

const FOOTER: usize = 53;
const MAGIC: u64 = 0x88e2_41b7_85f4_cff7;
const EXTENDED_MAGIC: [u8; 4] = [0x3e, 0, 0x7a, 0];
/// Default kind of checksums.
const USUAL_CHECKSUM: u8 = 4;

pub(super) struct Table<'a> {
    pub(super) blocks: Blocks<'a>,
    /// Data blocks in order, and unreadable ranges between them.
    pub(super) stretches: Vec<Stretch>,
    pub(super) ranges: Vec<Entry>,
    /// Damage outside of data blocks.
    pub(super) damage: Vec<Damage>,
    column: Option<u32>,
    properties: Option<Handle>,
    has_user_keys: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) offset: usize,
    pub(super) length: usize,
    pub(super) description: &'static str,
    /// Range of keys that may be lost; `None` if no entries are lost.
    pub(super) keys: Option<(Vec<u8>, Vec<u8>)>,
}

impl Damage {
    pub(super) fn beside_data(offset: usize, length: usize, description: &'static str) -> Self {
        Self { offset, length, description, keys: None }
    }
}

/// Greater than all keys.
pub(super) const GREATEST: [u8; 16] = [0xff; 16];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) place: Place,
    /// Upper bound of its keys; `None` if unknown.
    pub(super) through: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Block(Handle),
    /// A range with unknown block boundaries: start, end.
    Unknown(usize, usize),
}

struct Footer {
    checksum: u8,
    base: u32,
    metaindex: Handle,
}

#[derive(Clone, Copy)]
struct IndexForm {
    has_deltas: bool,
    has_user_keys: bool,
}

impl<'a> Table<'a> {
    /// Reads the index of a file, and records damage.
    pub(super) fn open(bytes: &'a [u8]) -> Self {
        let mut damage = Vec::new();
        let end = bytes.len().saturating_sub(FOOTER);
        let footer = footer(bytes);
        let (checksum, base) = match &footer {
            Some(footer) => (footer.checksum, footer.base),
            None => {
                damage.push(Damage::beside_data(end, bytes.len() - end, "footer"));
                (USUAL_CHECKSUM, Blocks::find_base(bytes, USUAL_CHECKSUM).unwrap_or(0))
            }
        };
        let mut table = Self {
            blocks: Blocks { bytes, checksum, base },
            stretches: Vec::new(),
            ranges: Vec::new(),
            damage,
            column: None,
            properties: None,
            has_user_keys: true,
        };
        match footer {
            Some(footer) => table.read_index(footer.metaindex),
            None => table.stretches.push(Stretch { place: Place::Unknown(0, end), through: None }),
        }
        table.find_blocks();
        table
    }

    /// Reads a block outside of the data, and records damage.
    fn block(&mut self, handle: Handle, description: &'static str) -> Option<Vec<u8>> {
        let block = self.blocks.read(handle);
        if block.is_none() {
            self.damage.push(Damage::beside_data(handle.offset, handle.size + TRAILER, description));
        }
        block
    }

    fn read_index(&mut self, metaindex: Handle) {
        let Some(block) = self.block(metaindex, "list of parts") else {
            // The end of the data is unknown, but other blocks do not look like data blocks.
            self.stretches.push(Stretch { place: Place::Unknown(0, metaindex.offset), through: None });
            return;
        };
        let mut parts: Vec<(String, Handle)> = Vec::new();
        if let Some(mut rows) = Rows::new(&block) {
            while let Ok(Some((name, value))) = rows.next() {
                let name = String::from_utf8_lossy(name).into_owned();
                parts.extend(Handle::decode(&mut Bytes(value)).map(|handle| (name, handle)));
            }
        }
        let find = |wanted: &str| parts.iter().find(|(name, _)| name == wanted).map(|(_, handle)| *handle);
        self.properties = find("rocksdb.properties");
        let properties = self.properties.and_then(|handle| self.block(handle, "properties"));
        let form = IndexForm::of(properties.as_deref());
        self.has_user_keys = form.has_user_keys;
        self.column = properties.as_deref().and_then(column);
        if let Some(block) = find("rocksdb.range_del").and_then(|handle| self.block(handle, "deletions of ranges")) {
            self.ranges = entries(&block).unwrap_or_default();
        }
        for (_, handle) in parts.iter().filter(|(name, _)| name.starts_with("partitionedfilter.")) {
            if let Some(block) = self.block(*handle, "index of filters") {
                for (_, filter) in handles(&block, form.has_deltas).unwrap_or_default() {
                    if !self.blocks.is_whole(filter) {
                        self.damage.push(Damage::beside_data(filter.offset, filter.size + TRAILER, "filter"));
                    }
                }
            }
        }
        match find("rocksdb.index") {
            Some(index) => self.read_partitions(index, form),
            None => self.stretches.push(Stretch { place: Place::Unknown(0, metaindex.offset), through: None }),
        }
    }

    /// Reads both levels of the index.
    fn read_partitions(&mut self, index: Handle, form: IndexForm) {
        let user_key = |key: Vec<u8>| match form.has_user_keys {
            true => key,
            false => key[..key.len().saturating_sub(8)].to_vec(),
        };
        let Some(top) = self.block(index, "index").and_then(|block| handles(&block, form.has_deltas)) else {
            self.stretches.push(Stretch { place: Place::Unknown(0, index.offset), through: None });
            return;
        };
        let mut next = 0;
        // Partitions of the index follow the data.
        let data_end = top.first().map_or(index.offset, |(_, handle)| handle.offset);
        for (through, partition) in top {
            let found = self.block(partition, "part of the index").and_then(|block| handles(&block, form.has_deltas));
            let Some(found) = found else {
                let place = Place::Unknown(next, data_end);
                self.stretches.push(Stretch { place, through: Some(user_key(through)) });
                continue;
            };
            for (through, handle) in found {
                if let Some(Stretch { place: Place::Unknown(_, end), .. }) = self.stretches.last_mut()
                    && *end == data_end
                {
                    *end = handle.offset;
                }
                next = handle.end().unwrap_or(next);
                self.stretches.push(Stretch { place: Place::Block(handle), through: Some(user_key(through)) });
            }
        }
    }

    /// Searches for blocks in ranges without an index.
    fn find_blocks(&mut self) {
        let stretches = std::mem::take(&mut self.stretches);
        for stretch in stretches {
            let Place::Unknown(mut at, end) = stretch.place else {
                self.stretches.push(stretch);
                continue;
            };
            let mut last: Option<Vec<u8>> = None;
            while let Some(handle) = self.blocks.find(at, end) {
                let found = self.blocks.read(handle).and_then(|block| entries(&block));
                // Blocks after the data do not contain entries in ascending order.
                let Some(found) = found.filter(|found| is_ascending(last.as_deref(), found)) else { break };
                last = found.last().map(|entry| entry.key.clone());
                self.stretches.push(Stretch { place: Place::Block(handle), through: last.clone() });
                at = handle.end().expect("it was read");
            }
            if at < end {
                self.stretches.push(Stretch { place: Place::Unknown(at, end), ..stretch });
            }
        }
    }

    pub(super) fn check(mut self, mut progress: impl FnMut(usize)) -> Vec<Damage> {
        let is_indexed = self.damage.is_empty();
        let mut before = Vec::new();
        for Stretch { place, through } in &self.stretches {
            let through = through.clone().unwrap_or(GREATEST.to_vec());
            let (offset, length) = match *place {
                Place::Block(handle) => (handle.offset, handle.size + TRAILER),
                Place::Unknown(offset, end) => (offset, end - offset),
            };
            progress(length);
            let is_whole = match *place {
                Place::Block(handle) => self.blocks.is_whole(handle),
                // Without an index, the last such range contains the blocks after the data.
                Place::Unknown(..) => !is_indexed && through == GREATEST,
            };
            if !is_whole {
                let keys = Some((before, through.clone()));
                self.damage.push(Damage { offset, length, description: "data", keys });
            }
            before = through;
        }
        self.damage.sort_by_key(|damage| damage.offset);
        self.damage
    }

    /// Number of the column family of the file, according to its properties.
    pub(super) fn column(&self) -> Option<u32> {
        self.column
    }

    pub(super) fn properties(&self) -> Option<Handle> {
        self.properties
    }

    /// Returns true if no two blocks contain versions of one key.
    pub(super) fn has_user_keys(&self) -> bool {
        self.has_user_keys
    }

    /// Returns the parts that are needed to read stretches later.
    pub(super) fn into_parts(self) -> (u8, u32, Vec<Stretch>, Vec<Entry>) {
        (self.blocks.checksum, self.blocks.base, self.stretches, self.ranges)
    }
}

/// Returns the entries of a stretch of a file, or `None` if it cannot be read.
pub(super) fn read(bytes: &[u8], checksum: u8, base: u32, place: Place) -> Option<Vec<Entry>> {
    match place {
        Place::Block(handle) => entries(&Blocks { bytes, checksum, base }.read(handle)?),
        Place::Unknown(..) => None,
    }
}

impl IndexForm {
    /// Both flags are set in all files of this store, so they are the default for a file whose properties cannot be
    /// read.
    fn of(properties: Option<&[u8]>) -> Self {
        let Some(mut rows) = properties.and_then(Rows::new) else {
            return Self { has_deltas: true, has_user_keys: true };
        };
        let mut form = Self { has_deltas: false, has_user_keys: false };
        while let Ok(Some((name, value))) = rows.next() {
            let is_set = Bytes(value).varint().is_some_and(|number| number > 0);
            match name {
                b"rocksdb.index.key.is.user.key" => form.has_user_keys = is_set,
                b"rocksdb.index.value.is.delta.encoded" => form.has_deltas = is_set,
                _ => {}
            }
        }
        form
    }
}

fn column(properties: &[u8]) -> Option<u32> {
    let mut rows = Rows::new(properties)?;
    while let Some((name, value)) = rows.next().ok()? {
        if name == b"rocksdb.column.family.id" {
            return u32::try_from(Bytes(value).varint()?).ok();
        }
    }
    None
}

/// Bits of a session that its text and the manifest have in common.
pub(super) const SESSION: u64 = u64::MAX >> 2;

/// Size of the end of a file that contains its properties.
const END_BYTES: u64 = 64 << 10;

/// Returns the session in which a file was written, according to its properties; `None` if these cannot be read.
pub(super) fn session_at_end(path: &Path) -> io::Result<Option<u64>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    // Pages of zeros that are not accessed occupy no memory.
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let start = length.saturating_sub(END_BYTES);
    file.read_exact_at(&mut bytes[start as usize..], start)?;
    Ok(session(&bytes))
}

fn session(bytes: &[u8]) -> Option<u64> {
    let footer = footer(bytes)?;
    let blocks = Blocks { bytes, checksum: footer.checksum, base: footer.base };
    let find = |block: &[u8], wanted: &[u8]| {
        let mut rows = Rows::new(block)?;
        while let Some((name, value)) = rows.next().ok()? {
            if name == wanted {
                return Some(value.to_vec());
            }
        }
        None
    };
    let properties = find(&blocks.read(footer.metaindex)?, b"rocksdb.properties")?;
    let properties = blocks.read(Handle::decode(&mut Bytes(&properties))?)?;
    let session = find(&properties, b"rocksdb.creating.session.identity")?;
    // The last twelve digits, in base 36, contain the lower 62 bits.
    let text = std::str::from_utf8(&session).ok()?;
    u64::from_str_radix(text.get(text.len().checked_sub(12)?..)?, 36).ok().map(|lower| lower & SESSION)
}

fn footer(bytes: &[u8]) -> Option<Footer> {
    let offset = bytes.len().checked_sub(FOOTER)?;
    let whole: [u8; FOOTER] = bytes[offset..].try_into().ok()?;
    let mut rest = Bytes(&whole);
    let checksum = rest.byte()?;
    if rest.take(4)? != EXTENDED_MAGIC {
        return None;
    }
    let (stored, base, size) = (rest.fixed32()?, rest.fixed32()?, rest.fixed32()? as usize);
    rest.take(28)?;
    if rest.fixed64()? != MAGIC {
        return None;
    }
    let mut cleared = whole;
    cleared[5..9].fill(0);
    let (data, last) = cleared.split_at(FOOTER - 1);
    // A CRC over the separate last byte equals the CRC over the whole.
    let computed = block_checksum(checksum, data, last[0])?.wrapping_add(context(base, offset as u64));
    let metaindex = Handle { offset: offset.checked_sub(TRAILER)?.checked_sub(size)?, size };
    (computed == stored).then_some(Footer { checksum, base, metaindex })
}

/// Returns the entries of a block, or `None` if one is invalid.
fn entries(block: &[u8]) -> Option<Vec<Entry>> {
    let mut rows = Rows::new(block)?;
    let mut entries = Vec::new();
    while let Some((internal, value)) = rows.next().ok()? {
        let (key, seq, kind) = split_key(internal)?;
        entries.push(Entry { key: key.to_vec(), seq, kind, value: value.to_vec() });
    }
    Some(entries)
}

fn is_ascending(last: Option<&[u8]>, entries: &[Entry]) -> bool {
    let first = entries
        .first()
        .is_some_and(|first| first.kind != Kind::RangeDeletion && last.is_none_or(|last| last <= first.key.as_slice()));
    first && entries.is_sorted_by(|a, b| (&a.key, b.seq) <= (&b.key, a.seq))
}
