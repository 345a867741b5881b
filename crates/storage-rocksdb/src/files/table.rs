//! [`Table`]: a sorted file, read without RocksDB. Blocks of a damaged index are found by their checksums.

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
const USUAL_CHECKSUM: u8 = 4;

pub(super) struct Table<'a> {
    pub(super) blocks: Blocks<'a>,
    pub(super) data_ranges: Vec<DataRange>,
    pub(super) ranges: Vec<Entry>,
    pub(super) damage: Vec<Damage>,
    column: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    pub(super) offset: usize,
    pub(super) length: usize,
    pub(super) description: &'static str,
    /// Keys that may be lost; `None` if no entries are lost.
    pub(super) keys: Option<(Vec<u8>, Vec<u8>)>,
}

impl Damage {
    pub(super) fn beside_data(offset: usize, length: usize, description: &'static str) -> Self {
        Self { offset, length, description, keys: None }
    }
}

pub(super) const MAX_KEY: [u8; 16] = [0xff; 16];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataRange {
    pub(super) location: Location,
    pub(super) through: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Location {
    Block(Handle),
    /// Start and end of a range with unknown block boundaries.
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
            data_ranges: Vec::new(),
            ranges: Vec::new(),
            damage,
            column: None,
        };
        match footer {
            Some(footer) => table.read_index(footer.metaindex),
            None => table.data_ranges.push(DataRange { location: Location::Unknown(0, end), through: None }),
        }
        table.find_blocks();
        table
    }

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
            self.data_ranges.push(DataRange { location: Location::Unknown(0, metaindex.offset), through: None });
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
        let properties = find("rocksdb.properties").and_then(|handle| self.block(handle, "properties"));
        let form = IndexForm::of(properties.as_deref());
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
            None => {
                self.data_ranges.push(DataRange { location: Location::Unknown(0, metaindex.offset), through: None });
            }
        }
    }

    fn read_partitions(&mut self, index: Handle, form: IndexForm) {
        let user_key = |key: Vec<u8>| match form.has_user_keys {
            true => key,
            false => key[..key.len().saturating_sub(8)].to_vec(),
        };
        let Some(top) = self.block(index, "index").and_then(|block| handles(&block, form.has_deltas)) else {
            self.data_ranges.push(DataRange { location: Location::Unknown(0, index.offset), through: None });
            return;
        };
        let mut next = 0;
        // Partitions of the index follow the data.
        let data_end = top.first().map_or(index.offset, |(_, handle)| handle.offset);
        for (through, partition) in top {
            let found = self.block(partition, "part of the index").and_then(|block| handles(&block, form.has_deltas));
            let Some(found) = found else {
                let location = Location::Unknown(next, data_end);
                self.data_ranges.push(DataRange { location, through: Some(user_key(through)) });
                continue;
            };
            for (through, handle) in found {
                if let Some(DataRange { location: Location::Unknown(_, end), .. }) = self.data_ranges.last_mut()
                    && *end == data_end
                {
                    *end = handle.offset;
                }
                next = handle.end().unwrap_or(next);
                self.data_ranges
                    .push(DataRange { location: Location::Block(handle), through: Some(user_key(through)) });
            }
        }
    }

    fn find_blocks(&mut self) {
        let data_ranges = std::mem::take(&mut self.data_ranges);
        for stretch in data_ranges {
            let Location::Unknown(mut at, end) = stretch.location else {
                self.data_ranges.push(stretch);
                continue;
            };
            let mut last: Option<Vec<u8>> = None;
            while let Some(handle) = self.blocks.find(at, end) {
                let found = self.blocks.read(handle).and_then(|block| entries(&block));
                // Blocks after the data do not contain entries in ascending order.
                let Some(found) = found.filter(|found| is_ascending(last.as_deref(), found)) else { break };
                last = found.last().map(|entry| entry.key.clone());
                self.data_ranges.push(DataRange { location: Location::Block(handle), through: last.clone() });
                at = handle.end().expect("it was read");
            }
            if at < end {
                self.data_ranges.push(DataRange { location: Location::Unknown(at, end), ..stretch });
            }
        }
    }

    pub(super) fn check(mut self, mut progress: impl FnMut(usize)) -> Vec<Damage> {
        let is_indexed = self.damage.is_empty();
        let mut before = Vec::new();
        for DataRange { location, through } in &self.data_ranges {
            let through = through.clone().unwrap_or(MAX_KEY.to_vec());
            let (offset, length) = match *location {
                Location::Block(handle) => (handle.offset, handle.size + TRAILER),
                Location::Unknown(offset, end) => (offset, end - offset),
            };
            progress(length);
            let is_whole = match *location {
                Location::Block(handle) => self.blocks.is_whole(handle),
                // Without an index, the last such range contains the blocks after the data.
                Location::Unknown(..) => !is_indexed && through == MAX_KEY,
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

    /// From the properties of the file; `None` if these cannot be read.
    pub(super) fn column(&self) -> Option<u32> {
        self.column
    }

    pub(super) fn into_parts(self) -> (u8, u32, Vec<DataRange>, Vec<Entry>) {
        (self.blocks.checksum, self.blocks.base, self.data_ranges, self.ranges)
    }
}

pub(super) fn read(bytes: &[u8], checksum: u8, base: u32, location: Location) -> Option<Vec<Entry>> {
    match location {
        Location::Block(handle) => entries(&Blocks { bytes, checksum, base }.read(handle)?),
        Location::Unknown(..) => None,
    }
}

impl IndexForm {
    /// Both flags are set in all files of this store, so they are the default.
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

/// The properties are in this last part of a file.
const END_BYTES: u64 = 64 << 10;

pub(super) fn session_at_end(path: &Path) -> io::Result<Option<u64>> {
    let file = File::open(path)?;
    let length = file.metadata()?.len();
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
