//! Stored records of a document: [`DocRecord`] under its id, and [`SequenceEntry`] under its update sequence.

use settee_model::rev_tree::{Node, RevTree};
use settee_model::{Rev, RevHash};
use settee_storage::codec::{Reader, put_bytes, put_varint};

use crate::{DatabaseError, Result};

#[cfg(test)]
mod tests;

const DELETED: u8 = 1;
const CONFLICTS: u8 = 2;
const HAS_VALUE: u8 = 4;
const OWN_SEQUENCE: u8 = 8;
const HAS_ATTACHMENTS: u8 = 16;
pub(crate) const IN_PIECES: u8 = 32;
const HAS_ACCESS: u8 = 64;

/// The record of one revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// True if the revision is a deletion.
    pub deleted: bool,
    /// Number of its body: the update sequence that wrote it, or `keys::body_number` for further bodies.
    pub body_seq: u64,
    /// Size of the body in bytes.
    pub size: u32,
    /// Size of the attachments record in bytes; 0 without attachments.
    pub attachments_size: u32,
    /// Total stored size of the attachments in bytes.
    pub attachments_length: u64,
    /// Number of its access list; 0 for the empty list, and in databases without per-document access.
    pub access: u32,
}

impl Stored {
    pub(crate) fn total_bytes(&self) -> usize {
        self.attachments_size as usize + self.size as usize
    }

    fn flags(&self) -> u8 {
        let deleted = if self.deleted { DELETED } else { 0 };
        let access = if self.access > 0 { HAS_ACCESS } else { 0 };
        if self.attachments_size > 0 { deleted | access | HAS_ATTACHMENTS } else { deleted | access }
    }
}

/// The winning revision of a document, readable without decoding the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The update sequence of the document's last change.
    pub seq: u64,
    /// The winning revision.
    pub rev: Rev,
    /// Stored record of the winning revision.
    pub stored: Stored,
    /// True if the document has other leaves.
    pub has_conflicts: bool,
}

/// A document's revisions.
#[derive(Clone, Debug)]
pub struct DocRecord {
    /// The update sequence of the last change.
    pub seq: u64,
    /// All stored revisions.
    pub tree: RevTree<Stored>,
}

impl DocRecord {
    /// Creates the record of a document that was never written.
    #[must_use]
    pub fn empty() -> Self {
        Self { seq: 0, tree: RevTree::new() }
    }

    /// Appends `_conflicts` and `_deleted_conflicts`, each after a comma: the leaves other than the winner, in order of
    /// precedence. Appends nothing if the winner is the only leaf.
    pub fn write_conflicts(&self, out: &mut Vec<u8>) {
        let leaves = self.tree.leaves_by_rank(|stored| stored.deleted);
        for (name, deleted) in [("_conflicts", false), ("_deleted_conflicts", true)] {
            let leaves = leaves.iter().skip(1).map(|&leaf| self.tree.node(leaf));
            let wanted = leaves.filter(|leaf| leaf.value.is_some_and(|stored| stored.deleted == deleted));
            let mut is_first = true;
            for leaf in wanted {
                if std::mem::take(&mut is_first) {
                    out.extend_from_slice(format!(",\"{name}\":[").as_bytes());
                } else {
                    out.push(b',');
                }
                leaf.rev.write_json(out);
            }
            if !is_first {
                out.push(b']');
            }
        }
    }

    /// Returns the winning revision, or `None` for a document without revisions.
    #[must_use]
    pub fn head(&self) -> Option<Head> {
        let winner = self.tree.winner(|stored| stored.deleted)?;
        let node = &self.tree.nodes()[winner as usize];
        let has_conflicts = self.tree.leaves().nth(1).is_some();
        Some(Head { seq: self.seq, rev: node.rev.clone(), stored: node.value?, has_conflicts })
    }

    /// Returns the length of the stored head. `head` must be that of this record, which must have revisions.
    pub(crate) fn encode(&self, head: &Head, out: &mut Vec<u8>) -> usize {
        let start = out.len();
        let mut flags = head.stored.flags();
        if head.has_conflicts {
            flags |= CONFLICTS;
        }
        out.push(flags);
        put_varint(out, self.seq);
        put_rev(out, &head.rev);
        put_stored(out, head.stored);
        put_varint(out, self.tree.nodes().len() as u64);
        let head_bytes = out.len() - start;
        for (index, node) in self.tree.nodes().iter().enumerate() {
            encode_node(out, index, node);
        }
        head_bytes
    }

    /// Returns true if revisions that are not leaves have stored bodies. A record with one revision is not decoded.
    pub(crate) fn has_stored_branches(bytes: &[u8]) -> Result<bool> {
        let mut reader = Reader::new(bytes, "document record");
        decode_head(&mut reader)?;
        if reader.varint()? == 1 {
            return Ok(false);
        }
        let tree = Self::decode(bytes)?.tree;
        Ok((0..).zip(tree.nodes()).any(|(index, node)| node.value.is_some() && !tree.is_leaf(index)))
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.first().is_some_and(|flags| flags & IN_PIECES != 0) {
            return Err(DatabaseError::Corrupt("document record"));
        }
        let mut reader = Reader::new(bytes, "document record");
        let head = decode_head(&mut reader)?;
        let count = reader.varint()?;
        let mut nodes: Vec<Node<Stored>> = Vec::with_capacity(count.min(1 << 16) as usize);
        for index in 0..count {
            let node = decode_node(&mut reader, index, &nodes)?;
            nodes.push(node);
        }
        let tree = RevTree::from_nodes(nodes).map_err(|_| DatabaseError::Corrupt("revision tree"))?;
        Ok(Self { seq: head.seq, tree })
    }
}

impl Head {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        decode_head(&mut Reader::new(bytes, "document record"))
    }

    pub(crate) fn is_deleted(bytes: &[u8]) -> bool {
        bytes.first().is_some_and(|flags| flags & DELETED != 0)
    }
}

fn decode_head(reader: &mut Reader<'_>) -> Result<Head> {
    let flags = reader.byte()?;
    let seq = reader.varint()?;
    let rev = read_rev(reader)?;
    let stored = read_stored(reader, flags)?;
    Ok(Head { seq, rev, stored, has_conflicts: flags & CONFLICTS != 0 })
}

fn encode_node(out: &mut Vec<u8>, index: usize, node: &Node<Stored>) {
    let mut flags = 0;
    if let Some(stored) = node.value {
        flags |= HAS_VALUE | stored.flags();
    }
    out.push(flags);
    match node.parent {
        Some(parent) => put_varint(out, (index - parent as usize) as u64),
        None => {
            put_varint(out, 0);
            put_varint(out, node.rev.generation);
        }
    }
    put_bytes(out, node.rev.hash.as_bytes());
    if let Some(stored) = node.value {
        put_stored(out, stored);
    }
}

fn decode_node(reader: &mut Reader<'_>, index: u64, nodes: &[Node<Stored>]) -> Result<Node<Stored>> {
    let flags = reader.byte()?;
    let distance = reader.varint()?;
    let (parent, generation) = if distance == 0 {
        (None, reader.varint()?)
    } else {
        let parent = index.checked_sub(distance).ok_or(DatabaseError::Corrupt("revision tree"))?;
        let generation = nodes[parent as usize].rev.generation.checked_add(1);
        (Some(parent as u32), generation.ok_or(DatabaseError::Corrupt("revision tree"))?)
    };
    let hash = RevHash::from_bytes(reader.bytes()?);
    let value = if flags & HAS_VALUE != 0 { Some(read_stored(reader, flags)?) } else { None };
    Ok(Node { rev: Rev { generation, hash }, parent, value })
}

fn put_rev(out: &mut Vec<u8>, rev: &Rev) {
    put_varint(out, rev.generation);
    put_bytes(out, rev.hash.as_bytes());
}

fn read_rev(reader: &mut Reader<'_>) -> Result<Rev> {
    let generation = reader.varint()?;
    Ok(Rev { generation, hash: RevHash::from_bytes(reader.bytes()?) })
}

fn put_stored(out: &mut Vec<u8>, stored: Stored) {
    put_varint(out, stored.body_seq);
    put_sizes(out, stored);
}

fn put_sizes(out: &mut Vec<u8>, stored: Stored) {
    put_varint(out, u64::from(stored.size));
    if stored.attachments_size > 0 {
        put_varint(out, u64::from(stored.attachments_size));
        put_varint(out, stored.attachments_length);
    }
    if stored.access > 0 {
        put_varint(out, u64::from(stored.access));
    }
}

fn read_stored(reader: &mut Reader<'_>, flags: u8) -> Result<Stored> {
    let body_seq = reader.varint()?;
    read_sizes(reader, flags, body_seq)
}

fn read_sizes(reader: &mut Reader<'_>, flags: u8, body_seq: u64) -> Result<Stored> {
    let mut size = || u32::try_from(reader.varint()?).map_err(|_| DatabaseError::Corrupt("body size"));
    let deleted = flags & DELETED != 0;
    let mut stored = Stored { deleted, body_seq, size: size()?, ..Stored::default() };
    if flags & HAS_ATTACHMENTS != 0 {
        stored.attachments_size = size()?;
        stored.attachments_length = reader.varint()?;
    }
    if flags & HAS_ACCESS != 0 {
        stored.access = u32::try_from(reader.varint()?).map_err(|_| DatabaseError::Corrupt("access list"))?;
    }
    Ok(stored)
}

#[derive(Clone, Debug)]
pub(crate) struct SequenceEntry<'a> {
    pub(crate) id: &'a str,
    pub(crate) rev: Rev,
    pub(crate) stored: Stored,
    pub(crate) has_conflicts: bool,
}

impl<'a> SequenceEntry<'a> {
    pub(crate) fn encode(out: &mut Vec<u8>, id: &str, head: &Head) {
        let own = head.stored.body_seq == head.seq;
        let mut flags = head.stored.flags();
        if head.has_conflicts {
            flags |= CONFLICTS;
        }
        if own {
            flags |= OWN_SEQUENCE;
        }
        out.push(flags);
        put_bytes(out, id.as_bytes());
        put_rev(out, &head.rev);
        put_sizes(out, head.stored);
        if !own {
            put_varint(out, head.stored.body_seq);
        }
    }

    pub(crate) fn decode(seq: u64, bytes: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "sequence entry");
        let flags = reader.byte()?;
        let id = reader.text()?;
        let rev = read_rev(&mut reader)?;
        let mut stored = read_sizes(&mut reader, flags, seq)?;
        if flags & OWN_SEQUENCE == 0 {
            stored.body_seq = reader.varint()?;
        }
        Ok(Self { id, rev, stored, has_conflicts: flags & CONFLICTS != 0 })
    }
}
