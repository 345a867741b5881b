//! B-trees: [`Walk`] visits the entries of a tree in ascending order of their keys. A node is a chunk with a pair of
//! its kind and its entries. An entry of an inner node (`kp_node`) is a pair of the last key of a child and a tuple
//! that starts with the position of the child. An entry of a leaf (`kv_node`) is a pair of key and value. A walk ends
//! and returns no key twice, even in a damaged file: children must precede their parents, their keys must be within the
//! range that the parent states, and the nodes together must not exceed the size of the file. An unreadable node is
//! reported as [`LostRange`], and the walk continues after it.

use std::fmt;
use std::sync::Arc;

use crate::compress::decode;
use crate::error::FileError;
use crate::source::{Source, read_chunk};
use crate::term::{MAX_TERM_LEN, Tape, Term};

/// Trees of 10^12 entries have less than 20 levels.
const MAX_LEVELS: usize = 64;

/// CouchDB splits nodes of more than about 1,300 bytes.
const MAX_CHILDREN: usize = 1 << 16;

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Key {
    Number(u64),
    Text(Vec<u8>),
}

impl Key {
    fn of(term: Term<'_>) -> Option<Key> {
        term.unsigned().map(Key::Number).or_else(|| term.binary().map(|text| Key::Text(text.to_vec())))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Number(number) => number.fmt(f),
            Key::Text(text) => String::from_utf8_lossy(text).fmt(f),
        }
    }
}

#[derive(Debug)]
pub struct LostRange {
    /// Exclusive lower bound of the lost keys.
    pub after: Option<Key>,
    /// Inclusive upper bound of the lost keys.
    pub up_to: Option<Key>,
    pub error: FileError,
}

impl fmt::Display for LostRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.after, &self.up_to) {
            (None, None) => f.write_str("all entries")?,
            (Some(after), None) => write!(f, "all entries after {after}")?,
            (None, Some(up_to)) => write!(f, "the entries up to {up_to}")?,
            (Some(after), Some(up_to)) => write!(f, "the entries after {after} up to {up_to}")?,
        }
        write!(f, ": {}", self.error)
    }
}

pub(crate) struct Entry {
    pub(crate) key: Key,
    node: Arc<Tape>,
    value: usize,
}

impl Entry {
    pub(crate) fn value(&self) -> Term<'_> {
        self.node.at(self.value)
    }
}

pub(crate) struct Walk<'s> {
    source: &'s dyn Source,
    levels: Vec<Level>,
    last: Option<Key>,
    pending: Option<u64>,
    limit: u64,
    /// Maximum number of bytes of nodes to be read, which ends a walk in a damaged file.
    budget: u64,
}

enum Level {
    Inner { position: u64, children: std::vec::IntoIter<(Key, u64)>, visited: Option<Key> },
    Leaf { node: Arc<Tape>, entries: std::vec::IntoIter<(Key, usize)> },
}

impl<'s> Walk<'s> {
    /// Visits the entries with keys greater than `after`. All nodes must precede the position `limit`.
    pub(crate) fn new(source: &'s dyn Source, root: Option<u64>, limit: u64, after: Option<Key>) -> Walk<'s> {
        Walk { source, levels: Vec::new(), last: after, pending: root, limit, budget: source.size() }
    }

    fn pass(&mut self, key: Option<Key>) {
        if key > self.last {
            self.last = key;
        }
    }

    /// The keys of the node must be greater than the last one, and at most `up_to`.
    fn descend(&mut self, position: u64, parent: u64, up_to: Option<&Key>) -> Result<(), FileError> {
        if position >= parent || self.levels.len() >= MAX_LEVELS {
            return Err(FileError::Structure { position, expected: "a node of a tree" });
        }
        let chunk = read_chunk(self.source, position, MAX_TERM_LEN as u64)?;
        let budget = self.budget.checked_sub(chunk.len() as u64);
        self.budget =
            budget.ok_or(FileError::Structure { position, expected: "a node that was not visited before" })?;
        let tape = decode(chunk, position)?;
        let level = self.level(tape, position, up_to);
        self.levels.push(level.ok_or(FileError::Structure { position, expected: "a node of a tree" })?);
        Ok(())
    }

    fn level(&self, tape: Tape, position: u64, up_to: Option<&Key>) -> Option<Level> {
        let [kind, entries] = tape.root().array()?;
        let is_leaf = kind.is_atom("kv_node");
        if !is_leaf && !kind.is_atom("kp_node") {
            return None;
        }
        let mut children = Vec::new();
        let mut values = Vec::new();
        let mut previous: Option<Key> = None;
        for entry in entries.list()? {
            let [key, value] = entry.array()?;
            let key = Key::of(key)?;
            let is_in_order = previous.as_ref().is_none_or(|previous| *previous < key);
            if !is_in_order || up_to.is_some_and(|up_to| key > *up_to) {
                return None;
            }
            if self.last.as_ref().is_none_or(|last| key > *last) {
                match is_leaf {
                    true => values.push((key.clone(), value.index())),
                    false => children.push((key.clone(), value.tuple()?.next()?.unsigned()?)),
                }
            }
            previous = Some(key);
        }
        if children.len() > MAX_CHILDREN {
            return None;
        }
        Some(match is_leaf {
            true => Level::Leaf { node: Arc::new(tape), entries: values.into_iter() },
            false => Level::Inner { position, children: children.into_iter(), visited: None },
        })
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Entry, LostRange>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(root) = self.pending.take()
            && let Err(error) = self.descend(root, self.limit, None)
        {
            return Some(Err(LostRange { after: self.last.clone(), up_to: None, error }));
        }
        loop {
            match self.levels.last_mut()? {
                Level::Leaf { node, entries } => {
                    if let Some((key, value)) = entries.next() {
                        self.last = Some(key.clone());
                        return Some(Ok(Entry { key, node: Arc::clone(node), value }));
                    }
                    self.levels.pop();
                }
                Level::Inner { position, children, visited } => {
                    let (parent, next) = (*position, children.next());
                    let passed = std::mem::replace(visited, next.as_ref().map(|(key, _)| key.clone()));
                    self.pass(passed);
                    let Some((key, child)) = next else {
                        self.levels.pop();
                        continue;
                    };
                    if let Err(error) = self.descend(child, parent, Some(&key)) {
                        return Some(Err(LostRange { after: self.last.clone(), up_to: Some(key), error }));
                    }
                }
            }
        }
    }
}
