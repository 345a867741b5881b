//! [`DocInfo`]: a document and its revisions, as an entry of the tree by id.
//!
//! The value of an entry is a tuple: update sequence, 1 if the document is deleted or 0, sizes (missing in early files
//! of version 6), and the revision trees. The tree by sequence contains the same with id and sequence exchanged; in
//! CouchDB 1 it lists leaves only.
//!
//! A revision tree is a pair of the generation of its root and the root; a node is a tuple of the hash, the value and
//! the list of children. The value of a revision without a body is the empty list. Otherwise it is a tuple: 1 if the
//! revision is a deletion or 0, the position of its body, its update sequence, and since version 6 sizes and
//! attachments. Hashes are binaries of 16 bytes, or other texts that a replication brought.

use settee_model::{Rev, RevHash};

use crate::btree::Key;
use crate::error::DocumentError;
use crate::term::{Kind, Term};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DocInfo {
    pub id: String,
    pub update_seq: u64,
    /// A parent precedes its children.
    pub revisions: Vec<Revision>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revision {
    pub rev: Rev,
    pub parent: Option<u32>,
    pub is_leaf: bool,
    pub is_deleted: bool,
    /// Position of the body. Ancestors have one until the file is compacted.
    pub(crate) body: Option<u64>,
}

impl DocInfo {
    pub(crate) fn by_id(key: &Key, value: Term<'_>) -> Result<DocInfo, LostDocument> {
        let id = LostDocument::id_of(key)?;
        let fields: Vec<Term<'_>> = value.tuple().into_iter().flatten().take(5).collect();
        let parsed = match fields[..] {
            [seq, _, trees] | [seq, _, _, trees] => seq.unsigned().zip(parse_trees(trees)),
            _ => None,
        };
        match parsed {
            Some((update_seq, revisions)) => Ok(DocInfo { id, update_seq, revisions }),
            None => Err(LostDocument::structure(id)),
        }
    }

    pub(crate) fn by_seq(key: &Key, value: Term<'_>) -> Result<DocInfo, LostDocument> {
        let fields: Vec<Term<'_>> = value.tuple().into_iter().flatten().take(5).collect();
        let id = fields.first().and_then(|id| id.binary()).map(|id| Key::Text(id.to_vec()));
        let id = id.ok_or_else(|| LostDocument::structure(format!("the change {key}")))?;
        let id = LostDocument::id_of(&id)?;
        let Key::Number(update_seq) = *key else { return Err(LostDocument::structure(id)) };
        let trees = match fields[..] {
            [_, deleted, trees] if deleted.unsigned().is_some() => parse_trees(trees),
            [_, _, _, trees] => parse_trees(trees),
            // CouchDB 1 lists the leaves without their histories.
            [_, _, _] => return Err(LostDocument { id, rev: None, error: DocumentError::NoHistory }),
            _ => None,
        };
        match trees {
            Some(revisions) => Ok(DocInfo { id, update_seq, revisions }),
            None => Err(LostDocument::structure(id)),
        }
    }

    pub fn leaves(&self) -> impl Iterator<Item = &Revision> {
        self.revisions.iter().filter(|revision| revision.is_leaf)
    }

    /// Returns the winner: the leaf with the greatest revision id, preferring leaves that are not deleted.
    pub fn winner(&self) -> Option<&Revision> {
        self.leaves().max_by_key(|leaf| (!leaf.is_deleted, &leaf.rev))
    }

    pub fn path<'d>(&'d self, revision: &'d Revision) -> impl Iterator<Item = &'d RevHash> {
        let parent = |revision: &&'d Revision| revision.parent.and_then(|parent| self.revisions.get(parent as usize));
        std::iter::successors(Some(revision), parent).map(|revision| &revision.rev.hash)
    }
}

#[derive(Debug)]
pub struct LostDocument {
    pub id: String,
    /// `None` if the whole document is lost.
    pub rev: Option<Rev>,
    pub error: DocumentError,
}

impl LostDocument {
    fn structure(id: String) -> LostDocument {
        LostDocument { id, rev: None, error: DocumentError::Malformed }
    }

    fn id_of(key: &Key) -> Result<String, LostDocument> {
        let id = match key {
            Key::Text(id) => String::from_utf8(id.clone()).ok(),
            Key::Number(_) => None,
        };
        id.ok_or_else(|| LostDocument { id: key.to_string(), rev: None, error: DocumentError::NotUtf8 })
    }
}

impl std::fmt::Display for LostDocument {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.rev {
            Some(rev) => write!(f, "{}, revision {rev}: {}", self.id, self.error),
            None => write!(f, "{}: {}", self.id, self.error),
        }
    }
}

fn parse_trees(trees: Term<'_>) -> Option<Vec<Revision>> {
    let mut revisions: Vec<Revision> = Vec::new();
    let mut open = Vec::new();
    for tree in trees.list()? {
        let [generation, node] = tree.array()?;
        open.push((node, generation.unsigned()?, None));
        while let Some((node, generation, parent)) = open.pop() {
            let [hash, value, children] = node.array()?;
            let children = children.list()?;
            let index = u32::try_from(revisions.len()).ok()?;
            let stored = Stored::parse(value)?;
            revisions.push(Revision {
                rev: Rev::new(generation, parse_hash(hash)?),
                parent,
                is_leaf: children.len() == 0,
                is_deleted: stored.is_deleted,
                body: stored.body,
            });
            let next = generation.checked_add(1)?;
            let first = open.len();
            open.extend(children.map(|child| (child, next, Some(index))));
            open[first..].reverse();
        }
    }
    (!revisions.is_empty()).then_some(revisions)
}

pub(crate) fn parse_hash(hash: Term<'_>) -> Option<RevHash> {
    match hash.kind() {
        Kind::Binary(bytes) => Some(RevHash::from_bytes(bytes)),
        Kind::Bytes(text) => Some(RevHash::from_bytes(text)),
        Kind::Integer(number) => Some(RevHash::from_bytes(number.to_string().as_bytes())),
        _ => None,
    }
}

struct Stored {
    is_deleted: bool,
    body: Option<u64>,
}

impl Stored {
    fn parse(value: Term<'_>) -> Option<Stored> {
        if value.list().is_some_and(|list| list.len() == 0) {
            return Some(Stored { is_deleted: false, body: None });
        }
        let mut fields = value.tuple()?;
        let is_deleted = match fields.next()?.kind() {
            Kind::Integer(number) => number != 0,
            Kind::Atom(flag) => flag == b"true",
            _ => return None,
        };
        Some(Stored { is_deleted, body: fields.next()?.unsigned() })
    }
}
