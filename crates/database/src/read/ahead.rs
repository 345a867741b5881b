//! [`ReadAhead`]: documents that a [`ReadView`] has read in one round trip, for a caller that requests them one by one.
//! It contains the documents of the last call and the last long revision tree, from the snapshot of the view.

use std::collections::HashMap;
use std::sync::Arc;

use settee_model::rev_tree::RevTree;
use settee_storage::Keyspace;

use super::ReadView;
use super::client::MemoryGrant;
use crate::record::{DocRecord, Head, Stored};
use crate::{Result, keys, pieces};

/// Recommended number of documents to read together.
pub const DOCUMENTS_TOGETHER: usize = if cfg!(test) { 3 } else { 128 };

pub(crate) const BODY_BYTES: usize = if cfg!(test) { 500 } else { 4 << 20 };

/// Maximum number of bodies of a read-ahead. Further bodies of a document with more conflicts are read on demand.
pub const BODIES_MAX: usize = 4 * DOCUMENTS_TOGETHER;

/// Minimum size of a cached record: a request for thousands of conflicts of one document repeats its id.
const LONG_RECORD_BYTES: usize = if cfg!(test) { 200 } else { 8 << 10 };

/// Bodies to read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// None; only the revision trees are read.
    None,
    /// Bodies of the winning revisions, unless they are deletions.
    Winners,
    /// Bodies of all leaves.
    Leaves,
}

/// Stored bytes by key. An absent key was not read; `None` means that no entry exists for the reader.
#[derive(Default)]
pub(crate) struct ReadAhead {
    records: HashMap<Vec<u8>, Option<Vec<u8>>>,
    bodies: HashMap<u64, Option<Vec<u8>>>,
    memory: Option<MemoryGrant>,
    decoded: Option<(String, Arc<DocRecord>)>,
}

impl ReadAhead {
    pub(crate) fn record(&self, id: &str) -> Option<&Option<Vec<u8>>> {
        self.records.get(id.as_bytes())
    }

    pub(crate) fn decoded(&self, id: &str) -> Option<Arc<DocRecord>> {
        self.decoded.as_ref().filter(|(known, _)| known == id).map(|(_, record)| Arc::clone(record))
    }

    pub(crate) fn set_decoded(&mut self, id: &str, bytes: usize, record: &Arc<DocRecord>) {
        if bytes > LONG_RECORD_BYTES {
            self.decoded = Some((id.to_owned(), Arc::clone(record)));
        }
    }

    fn forget_bodies(&mut self) {
        self.bodies = HashMap::new();
        self.memory = None;
    }

    /// A revision is rarely read twice in a row, so its body is removed.
    pub(crate) fn take_body(&mut self, body_seq: u64) -> Option<Option<Vec<u8>>> {
        self.bodies.remove(&body_seq)
    }
}

impl ReadView<'_> {
    /// Reads documents that the caller is about to request one by one, and drops the previous read-ahead. Most
    /// efficient with [`DOCUMENTS_TOGETHER`] ids; large bodies are read on demand.
    pub fn read_ahead(&self, ids: &[&str], bodies: Bodies) -> Result<()> {
        self.check_cancelled()?;
        // A request for thousands of revisions of one document repeats its id in each batch.
        let decoded = self.ahead.lock().decoded.take();
        let again = decoded.as_ref().filter(|(known, _)| ids.contains(&known.as_str()));
        let is_new = |id: &&&str| again.is_none_or(|(known, _)| known != **id);
        let mut ids: Vec<&str> = ids.iter().filter(is_new).copied().collect();
        ids.sort_unstable();
        ids.dedup();
        let records = self.stored_records(&ids)?;
        let mut stored = Vec::new();
        match (again, bodies) {
            (None, _) | (_, Bodies::None) => {}
            (Some((_, record)), Bodies::Winners) => stored.extend(record.head().map(|head| head.stored)),
            (Some((_, record)), Bodies::Leaves) => push_leaves(&record.tree, &mut stored),
        }
        let found = ids.iter().zip(&records).filter_map(|(id, record)| Some((*id, record.as_ref()?)));
        for (id, record) in found {
            match bodies {
                Bodies::None => break,
                Bodies::Winners => stored.push(Head::decode(record)?.stored),
                Bodies::Leaves if stored.len() >= BODIES_MAX => break,
                Bodies::Leaves => {
                    let record = pieces::whole(self.snapshot().as_ref(), id.as_bytes(), record)?;
                    push_leaves(&DocRecord::decode(&record)?.tree, &mut stored);
                }
            }
        }
        stored.truncate(BODIES_MAX);
        if bodies == Bodies::Winners {
            stored.retain(|stored| !stored.deleted);
        }
        let records = ids.iter().map(|id| id.as_bytes().to_vec()).zip(records).collect();
        *self.ahead.lock() = ReadAhead { records, decoded, ..ReadAhead::default() };
        self.read_bodies_ahead(&stored)
    }

    /// As [`Self::read_ahead`], for a caller that has the revisions already.
    pub fn read_bodies_ahead(&self, stored: &[Stored]) -> Result<()> {
        self.check_cancelled()?;
        let mut size = 0;
        let fits = |stored: &&Stored| {
            size += stored.total_bytes().min(keys::BODY_CHUNK_BYTES);
            size <= BODY_BYTES
        };
        let mut seqs: Vec<u64> = stored.iter().take_while(fits).map(|stored| stored.body_seq).collect();
        self.ahead.lock().forget_bodies();
        let memory = match &self.client.memory {
            Some(memory) if !seqs.is_empty() => memory.take(size.min(BODY_BYTES)),
            _ => None,
        };
        if self.client.memory.is_some() && memory.is_none() {
            seqs.clear();
        }
        let body_keys: Vec<_> = seqs.iter().map(|seq| keys::body(*seq, 0)).collect();
        let body_keys: Vec<&[u8]> = body_keys.iter().map(<[u8; 10]>::as_slice).collect();
        let bodies = self.snapshot().multi_get(Keyspace::Bodies, &body_keys)?;
        let mut ahead = self.ahead.lock();
        (ahead.bodies, ahead.memory) = (seqs.into_iter().zip(bodies).collect(), memory);
        Ok(())
    }
}

fn push_leaves(tree: &RevTree<Stored>, stored: &mut Vec<Stored>) {
    let nodes = tree.nodes();
    stored.extend(tree.leaves().filter_map(|leaf| nodes[leaf as usize].value));
}
