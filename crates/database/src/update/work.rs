//! [`Work`]: units of work of the update queue, such as [`DocUpdate`].

use bytes::Bytes;
use settee_model::json::Json;
use settee_model::{Document, Rev, RevHash, RevisionHasher};
use settee_storage::Purpose;

use super::new_attachments::{NewAttachments, RevposSource};
use crate::access::Reader;
use crate::attachment::{self, EncodingInfo};
use crate::{Result, keys};

/// Approximate maximum size of the updates of one commit. An engine may refuse commits of 10 MB.
pub(super) const COMMIT_BYTES: usize = if cfg!(test) { 8 << 10 } else { 4 << 20 };

/// Cost of an update in addition to its bytes, for the entries that it inserts. All concurrent writers wait for the
/// whole commit, so this makes a commit of many small documents as short as one of few large ones.
const UPDATE_BYTES: usize = if cfg!(test) { 64 } else { 2 << 10 };

const COMPACTED_BYTES: usize = 4 << 10;

const DELETION_BYTES: usize = 4 << 10;

/// The effect of an update on the revision tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditMode {
    /// Edit by a client (`new_edits=true`). It must name a leaf, or no revision if the document does not exist.
    Interactive,
    /// Insertion of existing revisions by a replicator (`new_edits=false`).
    Replicated,
}

/// An update of one document.
#[derive(Clone, Debug)]
pub struct DocUpdate {
    pub(crate) id: String,
    pub(crate) deleted: bool,
    pub(crate) body: Json,
    pub(crate) mode: EditMode,
    /// The new revision and its known ancestors, newest first; for an interactive edit the new revision and the
    /// replaced one, if the client named it. Empty for local documents.
    pub(crate) path: Vec<Rev>,
    /// Further ancestors that the client named, newest first, which only validation functions see.
    named_ancestors: Vec<Rev>,
    pub(super) local_rev: u64,
    pub(super) validated: Option<Validated>,
    pub(crate) attachments: NewAttachments,
    pub(super) partition_bytes_max: Option<u64>,
    reader: Reader,
}

/// Outcome of one update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The document has this revision. A replicated revision may have existed before.
    Saved(Rev),
    /// The update does not name a leaf.
    Conflict,
    /// The writer does not have access to the document under its old or its new access list.
    Forbidden,
    /// The update would make this document larger, and its partition is full.
    PartitionOverflow(String),
    /// Leaves that a [`Purge`] removed.
    Purged(Vec<Rev>),
    /// Nothing was written, because the validation is outdated. The caller must validate the update again.
    Stale(Box<DocUpdate>),
}

/// A unit of work of the update queue.
#[derive(Clone, Debug)]
pub enum Work {
    /// Updates of documents and local documents, applied in order and independently.
    Documents(Vec<DocUpdate>),
    /// Purges of leaves; one outcome for each document.
    Purge(Vec<Purge>),
    /// Compaction of documents: removal of the bodies of revisions that are not leaves.
    Compact(Vec<String>),
    /// Removal of purge records up to a number.
    ForgetPurges {
        /// Number of the last record to remove.
        up_to: u64,
    },
    /// New limit of stored purge records.
    SetPurgedInfosLimit(u64),
    /// Removal of the recorded times of update sequences.
    ForgetTimes,
    /// Chunks of an attachment whose revision follows. They are durable only after the commit of the revision.
    Stage(Stage),
    /// New revision limit.
    SetRevsLimit(u64),
    /// New security object.
    SetSecurity(Json),
    /// A record that another layer attaches to the database, or its removal.
    Attach {
        /// Key of the record.
        key: Vec<u8>,
        /// Value, or `None` to remove the record.
        value: Option<Vec<u8>>,
    },
    /// Replacement of an attached record that must have the expected value, or else [`UpdateOutcome::Conflict`].
    Replace {
        /// Key of the record.
        key: Vec<u8>,
        /// Expected value.
        before: Option<Vec<u8>>,
        /// New value, or `None` to remove the record.
        value: Option<Vec<u8>>,
    },
}

/// Origin of a work. It decides if only the writer of the shard may commit it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A request of a client. The process must be the writer.
    Client,
    /// The server itself. Any process commits it; the version of the shard is its only fence.
    Server,
}

/// One outcome per document; empty for other work, except a failed [`Work::Replace`] (`Conflict`).
pub type WorkResult = Result<Vec<UpdateOutcome>>;

/// Takes the result of a [`Work`] on the leader's thread; it must return quickly.
pub type Completion = Box<dyn FnOnce(WorkResult) + Send>;

/// Thread that commits submitted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Submitted {
    /// Another thread leads.
    Queued,
    /// The caller must call [`Database::run_as_leader`](crate::Database::run_as_leader), on a thread that may block.
    Leader,
}

/// Consecutive chunks of an upload.
#[derive(Clone, Debug)]
pub struct Stage {
    pub(crate) blob: u64,
    pub(crate) first: u32,
    pub(crate) chunks: Vec<Bytes>,
}

impl Stage {
    pub(super) fn size_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len() + 32).sum()
    }
}

/// The purge of one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge {
    /// Id of the document.
    pub id: String,
    /// Revisions to remove. Revisions that are not leaves are kept.
    pub revs: Vec<Rev>,
}

impl Purge {
    pub(super) fn size_bytes(&self) -> usize {
        2 * self.id.len() + 64 * self.revs.len() + 256
    }
}

/// The state against which an update was validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validated {
    /// Latest change of a design document at the validation, see [`ReadView::design_seq`](crate::ReadView::design_seq).
    pub design_seq: u64,
    /// State of the document.
    pub basis: ValidationBasis,
}

/// State of a document at its validation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValidationBasis {
    /// Not read, because no validation function exists.
    Unvalidated,
    /// State that functions received or would have received.
    Seen(Precheck),
}

/// Expected effect of an update on a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precheck {
    /// None: the update does not name a leaf.
    Conflict,
    /// None: the revision is stored.
    Known,
    /// A new revision.
    New {
        /// Newest stored ancestor, which functions receive as the old document.
        old: Option<Rev>,
    },
}

impl DocUpdate {
    /// Prepares the update of document `id`. Computes the revision hash, so it should be called without locks. Returns
    /// `None` if a replicated document has no revision. Ignores the attachments of `document`, see
    /// [`Self::prepare_with`].
    #[must_use]
    pub fn prepare(id: String, document: Document, mode: EditMode, hasher: &mut RevisionHasher) -> Option<Self> {
        Self::prepare_with(id, document, NewAttachments::none(), mode, hasher)
    }

    /// As [`Self::prepare`], with attachments. Those of local documents are ignored.
    #[must_use]
    pub fn prepare_with(
        id: String,
        document: Document,
        attachments: NewAttachments,
        mode: EditMode,
        hasher: &mut RevisionHasher,
    ) -> Option<Self> {
        let Document { rev, deleted, body, revisions, .. } = document;
        if id.starts_with("_local/") {
            if mode == EditMode::Replicated && rev.is_none() {
                return None;
            }
            let local_rev = rev.as_ref().map_or(0, local_number);
            let (path, attachments) = (Vec::new(), NewAttachments::none());
            return Some(Self { local_rev, ..Self::replicated(id, deleted, body, mode, path, attachments) });
        }
        let given: Vec<Rev> = match revisions {
            Some(revisions) => revisions.path(),
            None => rev.into_iter().collect(),
        };
        match mode {
            EditMode::Replicated if given.is_empty() => None,
            EditMode::Replicated => Some(Self::replicated(id, deleted, body, mode, given, attachments)),
            EditMode::Interactive => {
                let mut named = given.into_iter();
                let parent = named.next();
                let new = next_rev(hasher, deleted, parent.as_ref(), &body, &attachments);
                let path = std::iter::once(new).chain(parent).collect();
                let update = Self::replicated(id, deleted, body, mode, path, attachments);
                Some(Self { named_ancestors: named.collect(), ..update })
            }
        }
    }

    /// Limits the size of the partition: beyond it the update must not make the document larger.
    #[must_use]
    pub fn within(self, partition_bytes_max: u64) -> Self {
        Self { partition_bytes_max: Some(partition_bytes_max), ..self }
    }

    /// Sets the user on whose behalf the document is written. Without it the update is that of an administrator.
    pub fn set_reader(&mut self, reader: Reader) {
        self.reader = reader;
    }

    pub(crate) fn reader(&self) -> &Reader {
        &self.reader
    }

    pub(crate) fn replicated(
        id: String,
        deleted: bool,
        body: Json,
        mode: EditMode,
        path: Vec<Rev>,
        attachments: NewAttachments,
    ) -> Self {
        Self {
            id,
            deleted,
            body,
            mode,
            path,
            named_ancestors: Vec::new(),
            local_rev: 0,
            validated: None,
            attachments,
            partition_bytes_max: None,
            reader: Reader::Administrator,
        }
    }

    /// Replaces the body. The revision of an edit is computed again, that of a replicated document is kept.
    #[must_use]
    pub fn with_body(mut self, body: Json, hasher: &mut RevisionHasher) -> Self {
        self.body = body;
        if let (EditMode::Interactive, Some((newest, parents))) = (self.mode, self.path.split_first_mut()) {
            *newest = next_rev(hasher, self.deleted, parents.first(), &self.body, &self.attachments);
        }
        self
    }

    /// The document id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns true if the update probably creates a document and refers to no other stored data.
    pub(crate) fn is_likely_new(&self) -> bool {
        self.path.len() == 1 && !self.deleted && self.attachments.list.is_empty() && self.attachments.is_complete
    }

    /// Returns true if the new revision is a deletion.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        self.deleted
    }

    /// Returns the new revision and those of its ancestors that the client named, newest first; empty for local
    /// documents. The commit changes the revision of an interactive edit that recreates a deleted document.
    #[must_use]
    pub fn path(&self) -> &[Rev] {
        &self.path
    }

    /// Returns the revisions that validation functions see, newest first. As in CouchDB, for an interactive edit these
    /// are the replaced revision and its ancestors, as far as the client named them.
    pub fn seen_revisions(&self) -> impl Iterator<Item = &Rev> {
        let own = match self.mode {
            EditMode::Replicated => 0,
            EditMode::Interactive => 1,
        };
        self.path.iter().skip(own).chain(&self.named_ancestors)
    }

    /// Adds `_attachments` as validation functions see it to the document at the end of `out`. As in CouchDB, data of
    /// an interactive edit has neither a generation nor a digest before the edit is written.
    pub fn write_seen_attachments(&self, out: &mut Vec<u8>) {
        attachment::write_members(out, &self.attachments.list, |new, out| {
            if self.mode == EditMode::Interactive && new.revpos_source == RevposSource::Revision {
                new.attachment.write_unwritten_beginning(out);
            } else {
                new.attachment.write_beginning(out);
            }
            new.attachment.write_mark("stub", out);
            new.attachment.write_end(EncodingInfo::Hidden, out);
        });
    }

    /// The body of the new revision.
    #[must_use]
    pub fn body(&self) -> &Json {
        &self.body
    }

    fn size_bytes(&self) -> usize {
        self.attachments.size_bytes() + self.body.as_bytes().len() + 2 * self.id.len() + 32 * self.path.len() + 64
    }

    fn cost_bytes(&self) -> usize {
        UPDATE_BYTES + self.size_bytes()
    }

    /// Divides updates into works that each fit into one commit.
    #[must_use]
    pub fn into_works(updates: Vec<Self>) -> Vec<Work> {
        let mut works = Vec::new();
        let mut part = Vec::new();
        let mut size = 0;
        for update in updates {
            size += update.cost_bytes();
            part.push(update);
            if size >= COMMIT_BYTES {
                works.push(Work::Documents(std::mem::take(&mut part)));
                size = 0;
            }
        }
        if !part.is_empty() {
            works.push(Work::Documents(part));
        }
        works
    }
}

impl Work {
    /// A small deletion frees space, because the next compaction removes the body.
    pub(super) fn purpose(&self) -> Purpose {
        let is_small = |update: &DocUpdate| update.deleted && update.size_bytes() <= DELETION_BYTES;
        let makes_room = match self {
            Self::Documents(updates) => updates.iter().all(is_small),
            Self::Purge(_) | Self::Compact(_) | Self::ForgetPurges { .. } | Self::ForgetTimes => true,
            Self::Attach { value, .. } | Self::Replace { value, .. } => value.is_none(),
            Self::SetPurgedInfosLimit(_) | Self::Stage(_) | Self::SetRevsLimit(_) | Self::SetSecurity(_) => false,
        };
        if makes_room { Purpose::Room } else { Purpose::Growth }
    }

    pub(super) fn replaced(&self) -> Option<Vec<u8>> {
        if let Self::Replace { key, .. } = self { Some(keys::prefixed(keys::ATTACHED, key)) } else { None }
    }

    pub(super) fn cost_bytes(&self) -> usize {
        match self {
            Self::Documents(updates) => updates.iter().map(DocUpdate::cost_bytes).sum(),
            Self::Purge(purges) => purges.iter().map(Purge::size_bytes).sum(),
            Self::Compact(ids) => ids.len() * COMPACTED_BYTES,
            Self::SetRevsLimit(_) | Self::SetPurgedInfosLimit(_) | Self::ForgetPurges { .. } | Self::ForgetTimes => 0,
            Self::Stage(stage) => stage.size_bytes(),
            Self::SetSecurity(security) => security.as_bytes().len(),
            Self::Attach { value, .. } | Self::Replace { value, .. } => value.as_ref().map_or(0, Vec::len),
        }
    }
}

fn next_rev(
    hasher: &mut RevisionHasher,
    deleted: bool,
    parent: Option<&Rev>,
    body: &Json,
    attachments: &NewAttachments,
) -> Rev {
    let hash = hasher.hash(deleted, parent, body.value(), &attachments.hashed());
    Rev { generation: parent.map_or(0, |rev| rev.generation) + 1, hash: RevHash::from_bytes(&hash) }
}

/// Returns N of a local revision `0-N`, or 0 if it does not parse, because local revisions are not compared.
fn local_number(rev: &Rev) -> u64 {
    std::str::from_utf8(rev.hash.as_bytes()).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
