//! [`ReadAhead`]: what a [`ReadView`] read of many documents in one trip, for who then asks for one after the other.
//!
//! It holds what the last call read, and the last long revision tree; an answer is the same whether it comes from here or from the
//! engine, because both are of one snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use settee_model::rev_tree::RevTree;
use settee_storage::Keyspace;

use super::{ReadView, Taken};
use crate::record::{DocRecord, Head, Stored};
use crate::{Result, keys, pieces};

/// So many documents are best read together.
pub const DOCUMENTS_TOGETHER: usize = if cfg!(test) { 3 } else { 128 };

/// Bodies are read ahead until they have so many bytes together.
pub(crate) const BODY_BYTES: usize = if cfg!(test) { 500 } else { 4 << 20 };

/// So many are read ahead at most: of a document with more conflicts the others are left for when they are asked for.
pub const BODIES_MAX: usize = 4 * DOCUMENTS_TOGETHER;

/// Records of more than this are kept when they were decoded: who asks for thousands of conflicts of one document names it
/// each time.
const LONG_RECORD_BYTES: usize = if cfg!(test) { 200 } else { 8 << 10 };

/// Which bodies of documents are read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// None: only the revision trees.
    None,
    /// Those of the winning revisions, unless they are deletions.
    Winners,
    /// Those of all leaves.
    Leaves,
}

/// Stored bytes by where they are stored. Absent keys were not read; absent values are not there.
#[derive(Default)]
pub(crate) struct ReadAhead {
    records: HashMap<Vec<u8>, Option<Vec<u8>>>,
    /// Beginnings of bodies.
    bodies: HashMap<u64, Option<Vec<u8>>>,
    /// The memory of the bodies, as far as it is charged to a client: held until the next bodies are read.
    memory: Option<Taken>,
    /// The last long record, and its id.
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

    /// Returns the memory of the bodies that were read ahead.
    fn forget_bodies(&mut self) {
        self.bodies = HashMap::new();
        self.memory = None;
    }

    /// The first chunk of a body. It is given away: nobody reads a revision twice in a row.
    pub(crate) fn take_body(&mut self, body_seq: u64) -> Option<Option<Vec<u8>>> {
        self.bodies.remove(&body_seq)
    }
}

impl ReadView {
    /// Reads documents together that the caller is about to ask for one by one, and forgets what it read ahead before.
    /// Best with [`DOCUMENTS_TOGETHER`] of them; large bodies are left for when they are asked for.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn read_ahead(&self, ids: &[&str], bodies: Bodies) -> Result<()> {
        self.check_cancelled()?;
        // Who asks for thousands of revisions of one document names it in each batch.
        let decoded = self.ahead.lock().decoded.take();
        let again = decoded.as_ref().filter(|(known, _)| ids.contains(&known.as_str()));
        let is_new = |id: &&&str| again.is_none_or(|(known, _)| known != **id);
        let mut id_keys: Vec<&[u8]> = ids.iter().filter(is_new).map(|id| id.as_bytes()).collect();
        id_keys.sort_unstable();
        id_keys.dedup();
        let records = self.snapshot().multi_get(Keyspace::Documents, &id_keys)?;
        let mut stored = Vec::new();
        match (again, bodies) {
            (None, _) | (_, Bodies::None) => {}
            (Some((_, record)), Bodies::Winners) => stored.extend(record.head().map(|head| head.stored)),
            (Some((_, record)), Bodies::Leaves) => push_leaves(&record.tree, &mut stored),
        }
        let found = id_keys.iter().zip(&records).filter_map(|(id, record)| Some((*id, record.as_ref()?)));
        for (id, record) in found {
            match bodies {
                Bodies::None => break,
                Bodies::Winners => stored.push(Head::decode(record)?.stored),
                Bodies::Leaves if stored.len() >= BODIES_MAX => break,
                Bodies::Leaves => {
                    let record = pieces::whole(self.snapshot().as_ref(), id, record)?;
                    push_leaves(&DocRecord::decode(&record)?.tree, &mut stored);
                }
            }
        }
        stored.truncate(BODIES_MAX);
        if bodies == Bodies::Winners {
            stored.retain(|stored| !stored.deleted);
        }
        let records = id_keys.iter().map(|key| key.to_vec()).zip(records).collect();
        *self.ahead.lock() = ReadAhead { records, decoded, ..ReadAhead::default() };
        self.read_bodies_ahead(&stored)
    }

    /// As [`Self::read_ahead`], for who knows the revisions already.
    ///
    /// # Errors
    /// When the engine failed.
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
            // Each is read when it is asked for.
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
