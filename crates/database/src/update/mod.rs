//! Writing documents, in stages.
//!
//! 1. The caller's thread turns a [`Document`] into a [`DocUpdate`] and computes the revision hash.
//! 2. [`Database::submit`] puts the [`Work`] into the queue. The first caller to enqueue work while no leader is
//!    active becomes the leader.
//! 3. The leader takes the queued work, reads the revision trees once, applies the updates in order, and makes one
//!    commit with one sync ([`commit`], of a [`group`]). With an engine that validates inserts it skips the read for
//!    documents that are probably new.
//! 4. All callers receive their results, and subscribers are notified of the new update sequence.
//!
//! A conflict is an outcome, not an error. No step waits for a client: contents of attachments are uploaded before
//! their revision, through an [`Upload`].

mod commit;
mod contents;
mod fullness;
mod group;
mod new_attachments;
mod purge;
mod queue;
mod time;
mod touched;
mod upload;
pub(crate) mod validation;
mod writer;

use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use settee_model::json::Json;
use settee_model::{Document, Rev, RevHash, RevisionHasher};
use settee_storage::{Purpose, ShardLock};

pub use contents::Stage;
pub(crate) use fullness::Fullness;
use new_attachments::Came;
pub use new_attachments::{NewAttachment, NewAttachments};
pub use purge::Purge;
pub(crate) use purge::decode_number as decode_purge_number;
pub(crate) use queue::Queue;
pub(crate) use upload::Own as OwnUploads;
pub use upload::{Compression, Upload, Uploaded};
pub(crate) use validation::is_design_id;
pub use validation::{Precheck, Validated, ValidationBasis};
pub(crate) use writer::{Writer, load, load_writer};

use crate::attachment::{self, EncodingInfo};
use crate::{Database, DatabaseError, ReadSet, Result, StorageError, keys};

/// Approximate maximum size of the updates of one commit. An engine may refuse commits of 10 MB.
const COMMIT_BYTES: usize = if cfg!(test) { 8 << 10 } else { 4 << 20 };

/// Cost of an update in addition to its bytes, for the entries that it inserts. All concurrent writers wait for the
/// whole commit, so this makes a commit of many small documents as short as one of few large ones.
const UPDATE_BYTES: usize = if cfg!(test) { 64 } else { 2 << 10 };

/// Approximate size that the compaction of one document adds to a commit.
const COMPACTED_BYTES: usize = 4 << 10;

/// Maximum size of a deletion that counts as freeing space; a larger one counts as growth.
const DELETION_BYTES: usize = 4 << 10;

/// Maximum batching window of a group commit. The leader waits for other writes for as long as the last commit took,
/// up to this limit.
const WINDOW_MAX: Duration = Duration::from_millis(1);

/// The effect of an update on the revision tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditMode {
    /// Edit by a client (`new_edits=true`). The update must name a leaf, or no revision if the document does not
    /// exist, and creates a new revision.
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
    /// For an interactive edit, the ancestors of the replaced revision that the client named, newest first. They are
    /// visible to validation functions and not stored in the revision tree.
    named_ancestors: Vec<Rev>,
    /// Number N of the revision `0-N` that the client of a local document named.
    local_rev: u64,
    validated: Option<Validated>,
    pub(crate) attachments: NewAttachments,
    /// Size of a partition from which on an interactive edit must not make the document larger.
    partition_bytes_max: Option<u64>,
}

/// Outcome of one update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The document has this revision. A replicated revision may have existed before.
    Saved(Rev),
    /// The update does not name a leaf.
    Conflict,
    /// The update would make this document larger, and its partition is full.
    PartitionOverflow(String),
    /// Leaves that a [`Purge`] removed.
    Purged(Vec<Rev>),
    /// Nothing was written, because the validation of the update is outdated. The caller must validate the returned
    /// update again.
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
    /// Replacement of an attached record if it has the expected value. The outcome is [`UpdateOutcome::Conflict`]
    /// otherwise.
    Replace {
        /// Key of the record.
        key: Vec<u8>,
        /// Expected value.
        before: Option<Vec<u8>>,
        /// New value, or `None` to remove the record.
        value: Option<Vec<u8>>,
    },
}

/// Outcomes of the documents of a [`Work`], in order; empty for other work, except that a failed [`Work::Replace`]
/// has the outcome `Conflict`.
pub type WorkResult = Result<Vec<UpdateOutcome>>;

/// Called once with the result of a [`Work`], on the leader's thread; it must return quickly.
pub type Completion = Box<dyn FnOnce(WorkResult) + Send>;

/// The thread that commits submitted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Submitted {
    /// Another thread leads.
    Queued,
    /// The caller must call [`Database::lead`], on a thread that may block.
    Lead,
}

impl DocUpdate {
    /// Prepares the update of document `id`. Computes the revision hash, so it should be called without holding
    /// locks. Returns `None` if a replicated document has no revision. The attachments of `document` are ignored, see
    /// [`Self::prepare_with`].
    #[must_use]
    pub fn prepare(id: String, document: Document, mode: EditMode, hasher: &mut RevisionHasher) -> Option<Self> {
        Self::prepare_with(id, document, NewAttachments::none(), mode, hasher)
    }

    /// Prepares as [`Self::prepare`] does, with attachments. Those of local documents are ignored.
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

    /// Sets the size of a partition from which on the update must not make the document larger. Replicated revisions
    /// are not limited.
    #[must_use]
    pub fn within(self, partition_bytes_max: u64) -> Self {
        Self { partition_bytes_max: Some(partition_bytes_max), ..self }
    }

    /// Creates an update of an existing revision, with its ancestors in `path`.
    pub(crate) fn replicated(
        id: String,
        deleted: bool,
        body: Json,
        mode: EditMode,
        path: Vec<Rev>,
        attachments: NewAttachments,
    ) -> Self {
        let (named_ancestors, local_rev, validated, partition_bytes_max) = (Vec::new(), 0, None, None);
        Self { id, deleted, body, mode, path, named_ancestors, local_rev, validated, attachments, partition_bytes_max }
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
    /// documents. The revision of an interactive edit that recreates a deleted document changes at the commit.
    #[must_use]
    pub fn path(&self) -> &[Rev] {
        &self.path
    }

    /// Returns the revisions that validation functions see as those of the new document, newest first. As in CouchDB,
    /// for an interactive edit these are the replaced revision and its ancestors, as far as the client named them.
    pub fn seen_revisions(&self) -> impl Iterator<Item = &Rev> {
        let own = match self.mode {
            EditMode::Replicated => 0,
            EditMode::Interactive => 1,
        };
        self.path.iter().skip(own).chain(&self.named_ancestors)
    }

    /// Adds `_attachments` as the last member of the document at the end of `out`, as validation functions see it. As
    /// in CouchDB, data of an interactive edit has neither a generation nor a digest before the edit is written.
    pub fn write_seen_attachments(&self, out: &mut Vec<u8>) {
        attachment::write_members(out, &self.attachments.list, |new, out| {
            if self.mode == EditMode::Interactive && new.came == Came::Now {
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

    /// Approximate size that the update adds to a commit.
    fn size_bytes(&self) -> usize {
        self.attachments.size_bytes() + self.body.as_bytes().len() + 2 * self.id.len() + 32 * self.path.len() + 64
    }

    /// Share of [`COMMIT_BYTES`] that the update uses.
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
    /// Returns the purpose of the work. A small deletion frees space, because the next compaction removes the body.
    fn purpose(&self) -> Purpose {
        let is_small = |update: &DocUpdate| update.deleted && update.size_bytes() <= DELETION_BYTES;
        let makes_room = match self {
            Self::Documents(updates) => updates.iter().all(is_small),
            Self::Purge(_) | Self::Compact(_) | Self::ForgetPurges { .. } | Self::ForgetTimes => true,
            Self::Attach { value, .. } | Self::Replace { value, .. } => value.is_none(),
            Self::SetPurgedInfosLimit(_) | Self::Stage(_) | Self::SetRevsLimit(_) | Self::SetSecurity(_) => false,
        };
        if makes_room { Purpose::Room } else { Purpose::Growth }
    }

    /// Key of the attached record whose value must be as expected.
    fn replaced(&self) -> Option<Vec<u8>> {
        if let Self::Replace { key, .. } = self { Some(keys::prefixed(keys::ATTACHED, key)) } else { None }
    }

    fn cost_bytes(&self) -> usize {
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

impl Database {
    /// Queues `work`; `done` receives the result.
    pub fn submit(self: &Arc<Self>, work: Work, done: Completion) -> Submitted {
        self.submit_all(vec![(work, done)])
    }

    /// Queues several works of one client, in order; each completion receives the result of its work.
    pub fn submit_all(self: &Arc<Self>, works: Vec<(Work, Completion)>) -> Submitted {
        self.queue.push(works, None)
    }

    /// Queues `work`, which depends on the read set `read_set`. If that is outdated, nothing is written and the result
    /// is [`StorageError::Outdated`]. A work without changes is not validated, see [`ReadSet::is_held`].
    pub fn submit_with_read_set(self: &Arc<Self>, work: Work, read_set: &ReadSet, done: Completion) -> Submitted {
        self.queue.push(vec![(work, done)], Some(read_set))
    }

    /// Commits queued work until the queue is empty. Must be called if [`Self::submit`] returns [`Submitted::Lead`].
    ///
    /// # Panics
    /// Resumes a panic of a commit, a completion or a listener after all other queued work is done.
    pub fn lead(self: &Arc<Self>) {
        self.lead_until(|| false).end();
    }

    /// Commits queued work until the queue is empty or, checked after each commit, `is_over` returns true.
    fn lead_until(self: &Arc<Self>, mut is_over: impl FnMut() -> bool) -> Lead {
        let mut lead = Lead { panicked: Ok(()), is_left: false };
        let mut writer = self.writer.lock();
        let (mut expected, mut window) = (0, Duration::ZERO);
        loop {
            // A wait for the shard lock replaces the batching window.
            let shard_lock = match writer.locked_commits {
                0 => {
                    self.queue.collect(expected, COMMIT_BYTES, window);
                    ShardLock::default()
                }
                _ if self.queue.waiting() == 0 => ShardLock::default(),
                _ => writer.line_up(self),
            };
            let Some(works) = self.queue.take(COMMIT_BYTES) else { return lead };
            let answered = works.iter().filter(|work| work.is_last).count();
            let begun = Instant::now();
            lead.panicked = commit::commit(self, &mut writer, shard_lock, works).and(lead.panicked);
            if is_over() {
                lead.is_left = !self.queue.end_lead();
                return lead;
            }
            window = begun.elapsed().min(WINDOW_MAX);
            expected = answered + self.queue.waiting();
        }
    }

    /// Commits `work` and waits for the result.
    ///
    /// # Errors
    /// Fails if nothing was written.
    pub fn update(self: &Arc<Self>, work: Work) -> WorkResult {
        let (sender, receiver) = mpsc::sync_channel(1);
        let done = Box::new(move |result| {
            // The receiver exists for as long as this can be called.
            let _ = sender.send(result);
        });
        let mut result = None;
        if self.submit(work, done) == Submitted::Lead {
            // The stream of work of other callers may never end, so this caller leads only until its own work is
            // done.
            let lead = self.lead_until(|| match receiver.try_recv() {
                Ok(answer) => {
                    result = Some(answer);
                    true
                }
                Err(nothing) => nothing == mpsc::TryRecvError::Disconnected,
            });
            if lead.is_left {
                self.lead_elsewhere();
            }
            lead.end();
        }
        let result = result.map_or_else(|| receiver.recv(), Ok);
        result.unwrap_or_else(|_| Err(aborted()))
    }

    /// Continues to lead on a new thread, or on this one if none can be started.
    fn lead_elsewhere(self: &Arc<Self>) {
        let database = Arc::clone(self);
        if thread::Builder::new().name("commit".to_owned()).spawn(move || database.lead()).is_err() {
            self.lead();
        }
    }
}

/// Returns the error of a work whose [`Completion`] was dropped, because a thread that worked on its commit panicked.
#[must_use]
pub fn aborted() -> DatabaseError {
    StorageError::InDoubt("the commit was aborted".to_owned()).into()
}

struct Lead {
    /// The last panic of a commit, a completion or a listener.
    panicked: thread::Result<()>,
    /// True if work remains that another thread must lead.
    is_left: bool,
}

impl Lead {
    fn end(self) {
        self.panicked.unwrap_or_else(|panic| resume_unwind(panic));
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

/// Returns N of a local revision `0-N`, or 0 if it does not parse; local revisions are not compared.
fn local_number(rev: &Rev) -> u64 {
    std::str::from_utf8(rev.hash.as_bytes()).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
