//! [`Meta`]: the record that describes an index.

use std::sync::Arc;

use settee_storage::codec::{Reader, put_bytes, put_len, put_varint};

use crate::error::Result;
use crate::tree::Root;

/// Incremented when the layout of nodes or records changes, or when the same documents have other rows or another
/// order; an index of another format is rebuilt.
const FORMAT: u64 = 6;

/// Previous format: records without [`Leftovers`].
const FORMAT_WITHOUT_LEFTOVERS: u64 = 5;

/// Format before that: records also lack the number of the load.
const FORMAT_WITHOUT_LOAD: u64 = 4;

/// Format before that: records also lack the first node.
const FORMAT_WITHOUT_FIRST_NODE: u64 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    /// Update sequence of the database that the rows show.
    pub(crate) update_seq: u64,
    pub(crate) purge_seq: u64,
    /// Nodes with smaller numbers belong to replaced trees.
    pub(crate) first_node: u64,
    /// Smallest number that no node ever had. Nodes from there on were left by a crash.
    pub(crate) next_node: u64,
    /// Number of loads: entries outside of the tree that are older than the last load are ignored.
    pub(crate) load: u64,
    /// Reduce functions, in the order of the reductions in inner nodes.
    pub(crate) reduces: Vec<Arc<str>>,
    pub(crate) rows: Option<Root>,
    /// Tree of back-pointers as written by the last load.
    pub(crate) entries: Option<Root>,
    pub(crate) leftovers: Leftovers,
}

/// The parts of the shard that may contain nodes and entries that the index does not refer to. Opening an index reads
/// only these parts, because a scan for the first stored key would skip every deleted key that the engine has not
/// compacted yet, and after a load there are as many as the index has nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// Nodes with smaller numbers are removed. Those from here to [`Meta::first_node`] may be stored.
    pub(crate) from_node: u64,
    /// Entries of earlier loads are removed. Those from this load to [`Meta::load`] may be stored.
    pub(crate) from_load: u64,
    /// Nodes from [`Meta::next_node`] on may be stored, because a writer has committed nodes without publishing yet.
    pub(crate) is_writing: bool,
}

impl Meta {
    /// Creates an index that shows the database before its first change.
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

    /// Returns true if the index is at least at `update_seq` and has the reductions of `reduces`. Without rows no
    /// reductions are needed.
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

    /// Decodes a record; `None` if it has another format or another version of collation.
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

    pub(crate) fn total_rows(&self) -> u64 {
        self.rows.as_ref().map_or(0, |root| root.node.rows)
    }

    /// Returns the bytes of ids, keys and values of the rows.
    pub(crate) fn content_bytes(&self) -> u64 {
        self.rows.as_ref().map_or(0, |root| root.node.bytes)
    }

    /// Returns the position of a reduce function among those attached.
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
        // A record of the previous format has no leftovers, so every part may contain some.
        let old = [&[5], &bytes[1..bytes.len() - 3]].concat();
        let leftovers = Leftovers { from_node: 0, from_load: 0, is_writing: true };
        assert_eq!(Meta::decode(&old).unwrap().unwrap().leftovers, leftovers);
        bytes[2] ^= 1;
        assert_eq!(Meta::decode(&bytes).unwrap(), None);
        bytes[0] ^= 8;
        assert_eq!(Meta::decode(&bytes).unwrap(), None);
    }
}
