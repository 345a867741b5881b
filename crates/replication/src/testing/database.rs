//! One database of the model.

use std::collections::BTreeMap;

use settee_model::json::Json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sequences {
    /// CouchDB 1.x, PouchDB.
    Numbers,
    /// CouchDB 2 and later.
    Strings,
    /// BigCouch.
    Arrays,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Leaf {
    pub(crate) history: Vec<String>,
    pub(crate) deleted: bool,
    /// Members without underscores, as text of an object.
    pub(crate) body: String,
    /// Content type, generation of origin, and bytes, by name.
    pub(crate) attachments: BTreeMap<String, (String, u64, Vec<u8>)>,
}

impl Leaf {
    pub(crate) fn new(history: &[&str], body: &str) -> Self {
        Self {
            history: history.iter().map(|rev| (*rev).to_owned()).collect(),
            deleted: false,
            body: body.to_owned(),
            attachments: BTreeMap::new(),
        }
    }

    pub(crate) fn with(mut self, name: &str, generation: u64, bytes: &[u8]) -> Self {
        self.attachments.insert(name.to_owned(), ("image/png".to_owned(), generation, bytes.to_vec()));
        self
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Database {
    pub(crate) instance: u64,
    pub(crate) seq: u64,
    pub(crate) documents: BTreeMap<String, (u64, BTreeMap<String, Leaf>)>,
    pub(crate) locals: BTreeMap<String, (u64, Json)>,
    /// Documents and revisions that the feed lists although they do not exist.
    pub(crate) phantoms: Vec<(String, String)>,
    pub(crate) writes: BTreeMap<(String, String), u64>,
}

fn generation(rev: &str) -> u64 {
    rev.split('-').next().and_then(|generation| generation.parse().ok()).unwrap()
}

impl Database {
    pub(crate) fn write(&mut self, id: &str, leaf: Leaf) {
        let (seq, leaves) = self.documents.entry(id.to_owned()).or_default();
        let rev = leaf.history[0].clone();
        if leaves.values().any(|other| other.history.contains(&rev)) {
            return;
        }
        leaves.retain(|other, _| !leaf.history.contains(other));
        leaves.insert(rev.clone(), leaf);
        self.seq += 1;
        *seq = self.seq;
        *self.writes.entry((id.to_owned(), rev)).or_default() += 1;
    }

    pub(crate) fn leaf(&self, id: &str, rev: &str) -> Option<&Leaf> {
        self.documents.get(id)?.1.values().find(|leaf| leaf.history.iter().any(|other| other == rev))
    }

    pub(crate) fn has(&self, id: &str, rev: &str) -> bool {
        self.leaf(id, rev).is_some()
    }

    pub(crate) fn possible_ancestors(&self, id: &str, rev: &str) -> Vec<String> {
        let Some((_, leaves)) = self.documents.get(id) else { return Vec::new() };
        leaves.keys().filter(|leaf| generation(leaf) < generation(rev)).cloned().collect()
    }

    pub(crate) fn leaves(&self, id: &str) -> Vec<&Leaf> {
        let mut leaves: Vec<&Leaf> =
            self.documents.get(id).into_iter().flat_map(|(_, leaves)| leaves.values()).collect();
        let rank = |leaf: &Leaf| (!leaf.deleted, generation(&leaf.history[0]), leaf.history[0].clone());
        leaves.sort_by_key(|leaf| std::cmp::Reverse(rank(leaf)));
        leaves
    }

    pub(crate) fn state(&self) -> BTreeMap<String, Vec<Leaf>> {
        self.documents.keys().map(|id| (id.clone(), self.leaves(id).into_iter().cloned().collect())).collect()
    }
}

impl Sequences {
    pub(crate) fn write(self, seq: u64) -> String {
        match self {
            Self::Numbers => seq.to_string(),
            Self::Strings => format!("\"{seq}-g1AAAA\""),
            Self::Arrays => format!("[{seq},\"g1AAAA\"]"),
        }
    }

    pub(crate) fn read(self, text: &str) -> u64 {
        let digits = match self {
            Self::Numbers => text,
            Self::Strings => text.split('-').next().unwrap(),
            Self::Arrays => text.trim_start_matches('[').split(',').next().unwrap(),
        };
        digits.parse().unwrap_or_else(|_| panic!("the sequence `{text}` was changed on its way"))
    }
}
