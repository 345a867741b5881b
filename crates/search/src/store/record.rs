//! [`Record`]: the contents of an index. The commit that replaces it publishes the files that were written before.

use settee_storage::codec::{Reader, put_bytes, put_len, put_varint};
use settee_storage::{Keyspace, MAX_HEAD_BYTES, Request, ShardState, Snapshot, StorageError, Version};

use super::keys;
use crate::error::{Error, Result};

/// Format of records and files. An index of another format is rebuilt.
const FORMAT: u8 = 1;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) position: Option<Vec<u8>>,
    /// Smallest unused file number.
    pub(crate) next_file: u64,
    pub(crate) generation: u64,
    /// In the order of first use.
    pub(crate) slots: Vec<Slot>,
    pub(crate) segments: Vec<SegmentRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    pub(crate) name: String,
    pub(crate) kind: SlotKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SlotKind {
    Text,
    String,
    Double,
    Stored,
    Column,
    Vector,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SegmentRecord {
    pub(crate) id: String,
    /// Number of documents, including deleted ones.
    pub(crate) docs: u32,
    pub(crate) deleted: u32,
    pub(crate) deleted_at: u64,
    pub(crate) slots: u32,
    pub(crate) files: Vec<FileRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileRecord {
    pub(crate) name: String,
    pub(crate) number: u64,
    pub(crate) bytes: u64,
}

pub(crate) struct Found {
    pub(crate) state: ShardState,
    /// `None` without a record of this format.
    pub(crate) record: Option<Record>,
    /// True if the record is an entry, because it exceeds a head.
    pub(crate) is_entry: bool,
    pub(crate) is_dropped: bool,
}

impl Found {
    pub(crate) fn read(snapshot: &dyn Snapshot) -> Result<Self> {
        let requests = [Request::State, Request::Head, Request::Get(Keyspace::Catalog, keys::RECORD)];
        let replies: [_; 3] = match snapshot.read(&requests) {
            Err(StorageError::Dropped) => {
                let state = ShardState { version: Version(1), ..ShardState::default() };
                return Ok(Self { state, record: None, is_entry: false, is_dropped: true });
            }
            replies => replies?.try_into().map_err(|_| Error::Corrupt("replies".to_owned()))?,
        };
        let [state, head, entry] = replies;
        let (head, entry) = (head.into_value()?, entry.into_value()?);
        let is_entry = entry.is_some();
        let bytes = head.filter(|head| !head.is_empty()).or(entry);
        let record = bytes.map_or(Ok(None), |bytes| Record::decode(&bytes))?;
        Ok(Self { state: state.into_state()?, record, is_entry, is_dropped: false })
    }
}

impl Record {
    pub(crate) fn files(&self) -> impl Iterator<Item = &FileRecord> {
        self.segments.iter().flat_map(|segment| &segment.files)
    }

    pub(crate) fn fits_head(bytes: &[u8]) -> bool {
        bytes.len() <= MAX_HEAD_BYTES
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT, u8::from(self.position.is_some())];
        put_bytes(&mut out, self.position.as_deref().unwrap_or_default());
        put_varint(&mut out, self.next_file);
        put_varint(&mut out, self.generation);
        put_len(&mut out, self.slots.len());
        for slot in &self.slots {
            put_bytes(&mut out, slot.name.as_bytes());
            slot.kind.push(&mut out);
        }
        put_len(&mut out, self.segments.len());
        for segment in &self.segments {
            segment.push(&mut out);
        }
        let sum = crc32fast::hash(&out);
        out.extend_from_slice(&sum.to_be_bytes());
        out
    }

    /// Returns `None` for another format.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let corrupt = || Error::Corrupt("the record of the index".to_owned());
        if bytes.first() != Some(&FORMAT) {
            return Ok(None);
        }
        let (bytes, sum) = bytes.split_last_chunk::<4>().ok_or_else(corrupt)?;
        if crc32fast::hash(bytes) != u32::from_be_bytes(*sum) {
            return Err(corrupt());
        }
        let mut reader = Reader::new(&bytes[1..], "record of a search index");
        let has_position = reader.byte()? == 1;
        let position = reader.bytes()?.to_vec();
        let mut record = Self {
            position: has_position.then_some(position),
            next_file: reader.varint()?,
            generation: reader.varint()?,
            ..Self::default()
        };
        for _ in 0..reader.varint()? {
            record.slots.push(Slot { name: reader.text()?.to_owned(), kind: SlotKind::read(&mut reader)? });
        }
        for _ in 0..reader.varint()? {
            record.segments.push(SegmentRecord::read(&mut reader)?);
        }
        if reader.is_at_end() { Ok(Some(record)) } else { Err(corrupt()) }
    }
}

impl SlotKind {
    fn push(self, out: &mut Vec<u8>) {
        match self {
            Self::Text => out.push(0),
            Self::String => out.push(1),
            Self::Double => out.push(2),
            Self::Stored => out.push(3),
            Self::Column => out.push(4),
            Self::Vector => out.push(5),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(match reader.byte()? {
            0 => Self::Text,
            1 => Self::String,
            2 => Self::Double,
            3 => Self::Stored,
            4 => Self::Column,
            5 => Self::Vector,
            kind => return Err(Error::Corrupt(format!("a field of kind {kind}"))),
        })
    }
}

impl SegmentRecord {
    fn push(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.id.as_bytes());
        for number in [u64::from(self.docs), u64::from(self.deleted), self.deleted_at, u64::from(self.slots)] {
            put_varint(out, number);
        }
        put_len(out, self.files.len());
        for file in &self.files {
            put_bytes(out, file.name.as_bytes());
            put_varint(out, file.number);
            put_varint(out, file.bytes);
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let mut segment = Self {
            id: reader.text()?.to_owned(),
            docs: small(reader)?,
            deleted: small(reader)?,
            deleted_at: reader.varint()?,
            slots: small(reader)?,
            files: Vec::new(),
        };
        for _ in 0..reader.varint()? {
            segment.files.push(FileRecord {
                name: reader.text()?.to_owned(),
                number: reader.varint()?,
                bytes: reader.varint()?,
            });
        }
        Ok(segment)
    }

    pub(crate) fn alive(&self) -> u32 {
        self.docs - self.deleted
    }
}

fn small(reader: &mut Reader<'_>) -> Result<u32> {
    u32::try_from(reader.varint()?).map_err(|_| Error::Corrupt("a number of a segment".to_owned()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_broken_ones_are_noticed() {
        let file = |name: &str, number| FileRecord { name: name.to_owned(), number, bytes: number * 1000 };
        let (text, string, double) = (SlotKind::Text, SlotKind::String, SlotKind::Double);
        let kinds = [text, string, double, SlotKind::Stored, SlotKind::Column, SlotKind::Vector];
        let slots = kinds.iter().map(|&kind| Slot { name: format!("{kind:?}"), kind }).collect();
        let segment = SegmentRecord {
            id: "0123456789abcdef0123456789abcdef".to_owned(),
            docs: 1_000_000,
            deleted: 7,
            deleted_at: 12,
            slots: 3,
            files: vec![file("a.idx", 1), file("a.pos", 300)],
        };
        for position in [None, Some(vec![]), Some(vec![1, 2, 3])] {
            let segments = vec![segment.clone(), segment.clone()];
            let record = Record { position, next_file: 301, generation: 99, slots: Vec::clone(&slots), segments };
            let bytes = record.encode();
            assert_eq!(Record::decode(&bytes).unwrap(), Some(record));
            for at in 1..bytes.len() {
                let mut broken = bytes.clone();
                broken[at] ^= 1;
                assert!(Record::decode(&broken).is_err(), "{at}");
                assert!(Record::decode(&bytes[..at]).is_err(), "{at}");
            }
            assert_eq!(Record::decode(&[&[FORMAT + 1], &bytes[1..]].concat()).unwrap(), None);
        }
    }
}
