//! [`Meta`]: the record that describes an index.

use std::sync::Arc;

use settee_storage::codec::{Reader, put_bytes, put_len, put_varint};

use crate::error::Result;
use crate::tree::Root;

/// Changes when nodes or records get another layout, or when the same documents make other rows or put them into another
/// order; an index of another format is built anew.
const FORMAT: u64 = 6;

/// The previous format: records do not contain [`Leftovers`].
const FORMAT_WITHOUT_LEFTOVERS: u64 = 5;

/// The same, but that records do not tell the number of the load.
const FORMAT_WITHOUT_LOAD: u64 = 4;

/// The same, but that they do not tell the first node either.
const FORMAT_WITHOUT_FIRST_NODE: u64 = 3;

/// The progress of an index, and the beginnings of its trees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The rows show the database at this update sequence.
    pub(crate) update_seq: u64,
    /// Purges up to this one are seen in the rows as well.
    pub(crate) purge_seq: u64,
    /// Nodes with lesser numbers belong to trees that were replaced.
    pub(crate) first_node: u64,
    /// The least number that no node ever had. Nodes from there on are left over from a crash.
    pub(crate) next_node: u64,
    /// The number of loads: entries beside the tree that are older than the last one do not count.
    pub(crate) load: u64,
    /// The reduce functions, in the order of the reductions in inner nodes.
    pub(crate) reduces: Vec<Arc<str>>,
    /// The tree of rows.
    pub(crate) rows: Option<Root>,
    /// The tree of back-pointers as the last load wrote it.
    pub(crate) entries: Option<Root>,
    pub(crate) leftovers: Leftovers,
}

/// The parts of the shard that may contain nodes and entries that the index does not refer to. Opening an index reads these
/// parts only: a scan for the first stored key would pass over every deleted key that the engine has not compacted yet, which
/// after a load are as many as the index has nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// Nodes with lesser numbers are removed. Those from here to [`Meta::first_node`] may be stored.
    pub(crate) from_node: u64,
    /// Entries of earlier loads are removed. Those from this load to [`Meta::load`] may be stored.
    pub(crate) from_load: u64,
    /// Nodes from [`Meta::next_node`] on may be stored, because a writer has committed nodes and has not published yet.
    pub(crate) is_writing: bool,
}

impl Meta {
    /// An index that shows the database before its first change.
    pub(crate) fn new() -> Self {
        Self {
            update_seq: 0,
            purge_seq: 0,
            first_node: 0,
            next_node: 1,
            load: 0,
            reduces: Vec::new(),
            rows: None,
            entries: None,
            leftovers: Leftovers::default(),
        }
    }

    /// Whether the index is as new as `update_seq` and has the reductions of `reduces`. Without rows there are none to have.
    pub(crate) fn is_current(&self, reduces: &[Arc<str>], update_seq: u64) -> bool {
        let has = |reduce: &Arc<str>| self.aggregate(reduce).is_some() || self.rows.is_none();
        self.update_seq >= update_seq && reduces.iter().all(has)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(&mut out, FORMAT);
        put_bytes(&mut out, settee_model::collate::version().as_bytes());
        put_varint(&mut out, self.update_seq);
        put_varint(&mut out, self.purge_seq);
        put_varint(&mut out, self.first_node);
        put_varint(&mut out, self.next_node);
        put_varint(&mut out, self.load);
        put_len(&mut out, self.reduces.len());
        self.reduces.iter().for_each(|reduce| put_bytes(&mut out, reduce.as_bytes()));
        for root in [&self.rows, &self.entries] {
            put_varint(&mut out, u64::from(root.is_some()));
            if let Some(root) = root {
                root.encode(&mut out);
            }
        }
        put_varint(&mut out, self.leftovers.from_node);
        put_varint(&mut out, self.leftovers.from_load);
        put_varint(&mut out, u64::from(self.leftovers.is_writing));
        out
    }

    /// `None` if the index was written by another format or ordered by another version of collation.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Option<Self>> {
        let mut reader = Reader::new(bytes, "index record");
        let format = reader.varint()?;
        let is_known = (FORMAT_WITHOUT_FIRST_NODE..=FORMAT).contains(&format);
        if !is_known || reader.text()? != settee_model::collate::version() {
            return Ok(None);
        }
        let update_seq = reader.varint()?;
        let purge_seq = reader.varint()?;
        let first_node = if format >= FORMAT_WITHOUT_LOAD { reader.varint()? } else { 0 };
        let next_node = reader.varint()?;
        let load = if format >= FORMAT_WITHOUT_LEFTOVERS { reader.varint()? } else { 0 };
        let reduces = (0..reader.length()?).map(|_| Ok(Arc::from(reader.text()?))).collect::<Result<_>>()?;
        let rows = decode_root(&mut reader)?;
        let entries = decode_root(&mut reader)?;
        let leftovers = match format {
            FORMAT => Leftovers {
                from_node: reader.varint()?,
                from_load: reader.varint()?,
                is_writing: reader.varint()? == 1,
            },
            _ => Leftovers { is_writing: true, ..Leftovers::default() },
        };
        Ok(Some(Self { update_seq, purge_seq, first_node, next_node, load, reduces, rows, entries, leftovers }))
    }

    /// The number of rows.
    pub(crate) fn total_rows(&self) -> u64 {
        self.rows.as_ref().map_or(0, |root| root.node.rows)
    }

    /// The bytes of ids, keys and values of the rows.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.rows.as_ref().map_or(0, |root| root.node.bytes)
    }

    /// Where a reduce function stands among those attached.
    pub(crate) fn aggregate(&self, reduce: &str) -> Option<usize> {
        self.reduces.iter().position(|attached| **attached == *reduce)
    }
}

fn decode_root(reader: &mut Reader<'_>) -> Result<Option<Root>> {
    Ok(if reader.varint()? == 1 { Some(Root::decode(reader)?) } else { None })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::tree::Child;

    #[test]
    fn records_come_back_unless_their_format_is_another() {
        let node =
            Child { separator: Vec::new(), id: 9, rows: 300, bytes: 70_000, reductions: vec![vec![1, 2], vec![]] };
        let meta = Meta {
            update_seq: 1 << 40,
            purge_seq: 5,
            first_node: 40,
            next_node: 77,
            load: 3,
            reduces: vec!["_sum".into(), "function(k, v) {}".into()],
            rows: Some(Root { height: 3, node }),
            entries: None,
            leftovers: Leftovers { from_node: 17, from_load: 2, is_writing: true },
        };
        let mut bytes = meta.encode();
        assert_eq!(Meta::decode(&bytes).unwrap(), Some(meta));
        assert_eq!(Meta::decode(&Meta::new().encode()).unwrap(), Some(Meta::new()));
        for len in 0..bytes.len() {
            assert!(Meta::decode(&bytes[..len]).is_err());
        }
        // A record of the previous format ends before the leftovers, so every part may contain some.
        let old = [&[5], &bytes[1..bytes.len() - 3]].concat();
        let leftovers = Leftovers { from_node: 0, from_load: 0, is_writing: true };
        assert_eq!(Meta::decode(&old).unwrap().unwrap().leftovers, leftovers);
        bytes[2] ^= 1;
        assert_eq!(Meta::decode(&bytes).unwrap(), None);
        bytes[0] ^= 8;
        assert_eq!(Meta::decode(&bytes).unwrap(), None);
    }
}
