//! [`Meta`]: the record that describes an index.

use std::sync::Arc;

use settee_storage::codec::{Reader, put_bytes, put_len, put_varint};

use crate::error::Result;
use crate::tree::Root;

/// Format of nodes and records. It must be incremented when their layout, or the rows of a document or their order
/// change.
const FORMAT: u64 = 6;

/// Records without [`Leftovers`].
const FORMAT_WITHOUT_LEFTOVERS: u64 = 5;

/// Records also without the number of the load.
const FORMAT_WITHOUT_LOAD: u64 = 4;

/// Records also without the first node.
const FORMAT_WITHOUT_FIRST_NODE: u64 = 3;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) update_seq: u64,
    pub(crate) purge_seq: u64,
    /// Nodes with smaller numbers belong to replaced trees.
    pub(crate) first_node: u64,
    /// Smallest number that was never used. Nodes from this number on are leftovers of a crash.
    pub(crate) next_node: u64,
    /// Number of loads: entries outside of the tree that are older than the last load are ignored.
    pub(crate) load: u64,
    pub(crate) reduces: Vec<Arc<str>>,
    pub(crate) rows: Option<Root>,
    pub(crate) entries: Option<Root>,
    pub(crate) leftovers: Leftovers,
}

/// Ranges of the shard that may contain unreferenced nodes and entries. Opening an index scans only these: a scan of
/// the whole shard would skip every deleted key, and a load deletes as many keys as the index has nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leftovers {
    /// Nodes with smaller numbers are removed. Those up to [`Meta::first_node`] may be stored.
    pub(crate) from_node: u64,
    /// Entries of earlier loads are removed. Those up to [`Meta::load`] may be stored.
    pub(crate) from_load: u64,
    /// A writer has committed but not published nodes, so nodes from [`Meta::next_node`] on may be stored.
    pub(crate) is_writing: bool,
}

impl Meta {
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

    /// True if the index is at least at `update_seq` and has the reductions of `reduces`, if it has rows.
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

    /// Returns `None` for an unknown format or another version of the collation.
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

    pub(crate) fn content_bytes(&self) -> u64 {
        self.rows.as_ref().map_or(0, |root| root.node.bytes)
    }

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
        // A record of the previous format does not exclude leftovers.
        let old = [&[5], &bytes[1..bytes.len() - 3]].concat();
        let leftovers = Leftovers { from_node: 0, from_load: 0, is_writing: true };
        assert_eq!(Meta::decode(&old).unwrap().unwrap().leftovers, leftovers);
        bytes[2] ^= 1;
        assert_eq!(Meta::decode(&bytes).unwrap(), None);
        bytes[0] ^= 8;
        assert_eq!(Meta::decode(&bytes).unwrap(), None);
    }
}
