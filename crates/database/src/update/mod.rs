//! Writing documents, in stages.
//!
//! 1. The caller's thread turns a [`Document`] into a [`DocUpdate`]: the revision hash is computed there.
//! 2. [`Database::submit`] puts the [`Work`] into the queue. Who finds the queue without a leader leads.
//! 3. The leader takes everything that waits, reads the revision trees once, applies the updates in order,
//!    and makes one commit with one sync ([`commit`], of a [`group`]). What is probably new it does not read where that is a trip.
//! 4. Everybody gets an answer, subscribers are notified of the new update sequence.
//!
//! A conflict is an outcome, not an error. Nothing here waits for a client: bytes of attachments come in before their
//! revision, through an [`Upload`].

mod commit;
mod contents;
mod fullness;
mod group;
mod new_attachments;
mod purge;
mod queue;
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
use settee_storage::{Purpose, Turn};

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
use crate::{Database, Premise, Result, StorageError, keys};

/// About how many bytes of updates one commit takes; engines are free to refuse commits of 10 MB.
const COMMIT_BYTES: usize = if cfg!(test) { 8 << 10 } else { 4 << 20 };

/// The cost of an update beside its bytes, as if it were bytes: entries of the store, each put in its place. Whoever else commits
/// meanwhile waits for all of a commit, so this keeps one of many small documents as short as one of few large ones.
const UPDATE_BYTES: usize = if cfg!(test) { 64 } else { 2 << 10 };

/// About how many bytes the stripping of one document adds to a commit.
const COMPACTED_BYTES: usize = 4 << 10;

/// A deletion that adds more than this is taken for growth.
const DELETION_BYTES: usize = 4 << 10;

/// The batching window of a group commit: the leader waits for other writes as long as the last commit took, but never
/// longer than this.
const WINDOW_MAX: Duration = Duration::from_millis(1);

/// The effect of an update on the revision tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EditMode {
    /// A client edits: the update must name a leaf, or none of a document that is not there, and gets a new revision
    /// (`new_edits=true`).
    Interactive,
    /// A replicator brings revisions as they are (`new_edits=false`).
    Replicated,
}

/// One document on its way into the database.
#[derive(Clone, Debug)]
pub struct DocUpdate {
    pub(crate) id: String,
    pub(crate) deleted: bool,
    pub(crate) body: Json,
    pub(crate) mode: EditMode,
    /// The new revision and its known ancestors, newest first; for an interactive edit the new revision
    /// and the one it replaces, if the client named one. Empty for local documents.
    pub(crate) path: Vec<Rev>,
    /// Of an interactive edit: the ancestors of the replaced revision that the client named, newest first. Validation
    /// functions receive them; the revision tree does not.
    named_ancestors: Vec<Rev>,
    /// N of the revision `0-N` that the client of a local document named.
    local_rev: u64,
    validated: Option<Validated>,
    pub(crate) attachments: NewAttachments,
    /// An interactive edit must not let the document grow if its partition is as large as this.
    partition_bytes_max: Option<u64>,
}

/// The outcome of one update.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// The document has this revision now. For replicated revisions: it has it, perhaps since before.
    Saved(Rev),
    /// The update did not name a leaf.
    Conflict,
    /// The document of this id would grow, and its partition is full.
    PartitionOverflow(String),
    /// Of a [`Purge`]: these revisions were leaves and are gone.
    Purged(Vec<Rev>),
    /// Nothing was written: the update was validated against a state that is no more. Here it is, to be validated again.
    Stale(Box<DocUpdate>),
}

/// Something to be committed.
#[derive(Clone, Debug)]
pub enum Work {
    /// Updates of documents and local documents, applied in order, each on its own.
    Documents(Vec<DocUpdate>),
    /// Leaves to be forgotten as if they had never been; one outcome for each document.
    Purge(Vec<Purge>),
    /// Documents to be stripped of the bodies of all revisions that are no leaves.
    Compact(Vec<String>),
    /// Purges up to this number need not be remembered.
    ForgetPurges {
        /// The number of the last of them.
        up_to: u64,
    },
    /// A new number of purges to be remembered.
    SetPurgedInfosLimit(u64),
    /// Bytes of an attachment whose revision comes later. Not on disk before that is.
    Stage(Stage),
    /// A new limit of remembered revisions.
    SetRevsLimit(u64),
    /// A new security object.
    SetSecurity(Json),
    /// A record that another layer keeps beside the database, or its removal.
    Attach {
        /// Its name.
        key: Vec<u8>,
        /// Its value.
        value: Option<Vec<u8>>,
    },
    /// The same, if the record is as its author knows it. Otherwise the outcome is [`UpdateOutcome::Conflict`].
    Replace {
        /// Its name.
        key: Vec<u8>,
        /// Its value until then.
        before: Option<Vec<u8>>,
        /// Its value.
        value: Option<Vec<u8>>,
    },
}

/// The outcomes of the documents of a [`Work`], in order; empty for other work.
pub type WorkResult = Result<Vec<UpdateOutcome>>;

/// Called once with the result of a [`Work`], from the leader's thread: it must be quick.
pub type Completion = Box<dyn FnOnce(WorkResult) + Send>;

/// The thread that commits what was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Submitted {
    /// Somebody leads already.
    Queued,
    /// The caller must call [`Database::lead`], on a thread that may block.
    Lead,
}

impl DocUpdate {
    /// Prepares the update of document `id`. Computes the revision hash, so call it outside of any lock.
    /// `None` if a replicated document comes without a revision. The document's own attachments count for nothing: see
    /// [`Self::prepare_with`].
    #[must_use]
    pub fn prepare(id: String, document: Document, mode: EditMode, hasher: &mut RevisionHasher) -> Option<Self> {
        Self::prepare_with(id, document, NewAttachments::none(), mode, hasher)
    }

    /// As [`Self::prepare`], with attachments. Local documents have none.
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

    /// The same update, which must not let the document grow if its partition is as large as this. Replicated revisions are
    /// taken all the same.
    #[must_use]
    pub fn within(self, partition_bytes_max: u64) -> Self {
        Self { partition_bytes_max: Some(partition_bytes_max), ..self }
    }

    /// A revision as it was stored before, with its ancestors in `path`.
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

    /// The same update with another body: the revision of an edit is computed anew, that of a replicated document stays.
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

    /// Whether this brings a document that has probably never been there, with nothing that lies elsewhere.
    pub(crate) fn is_likely_new(&self) -> bool {
        self.path.len() == 1 && !self.deleted && self.attachments.list.is_empty() && self.attachments.is_complete
    }

    /// Whether the new revision is a deletion.
    #[must_use]
    pub fn is_deletion(&self) -> bool {
        self.deleted
    }

    /// The new revision and those of its ancestors that its author named, newest first; empty for local documents.
    /// An interactive edit that makes a deleted document again gets another revision when it is committed.
    #[must_use]
    pub fn path(&self) -> &[Rev] {
        &self.path
    }

    /// The revisions that validation functions see as those of the new document, newest first. As in CouchDB, an interactive
    /// edit has those that the client named: the replaced revision and its ancestors, or none.
    pub fn seen_revisions(&self) -> impl Iterator<Item = &Rev> {
        let own = match self.mode {
            EditMode::Replicated => 0,
            EditMode::Interactive => 1,
        };
        self.path.iter().skip(own).chain(&self.named_ancestors)
    }

    /// Makes `_attachments` the last member of the document at the end of `out`, as validation functions see it. As in
    /// CouchDB, data that comes with an interactive edit has neither a generation nor a digest before the edit is written.
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

    /// About how many bytes the update adds to a commit.
    fn size_bytes(&self) -> usize {
        self.attachments.size_bytes() + self.body.as_bytes().len() + 2 * self.id.len() + 32 * self.path.len() + 64
    }

    /// The bytes of a commit that the update takes.
    fn cost_bytes(&self) -> usize {
        UPDATE_BYTES + self.size_bytes()
    }

    /// Divides updates into works that fit into one commit each.
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
    /// A deletion adds a little to the revision tree and frees the body, once the database is compacted.
    fn purpose(&self) -> Purpose {
        let is_small = |update: &DocUpdate| update.deleted && update.size_bytes() <= DELETION_BYTES;
        let makes_room = match self {
            Self::Documents(updates) => updates.iter().all(is_small),
            Self::Purge(_) | Self::Compact(_) | Self::ForgetPurges { .. } => true,
            Self::Attach { value, .. } | Self::Replace { value, .. } => value.is_none(),
            Self::SetPurgedInfosLimit(_) | Self::Stage(_) | Self::SetRevsLimit(_) | Self::SetSecurity(_) => false,
        };
        if makes_room { Purpose::Room } else { Purpose::Growth }
    }

    /// The key of the attached record that must be what the author thinks.
    fn replaced(&self) -> Option<Vec<u8>> {
        if let Self::Replace { key, .. } = self { Some(keys::prefixed(keys::ATTACHED, key)) } else { None }
    }

    fn cost_bytes(&self) -> usize {
        match self {
            Self::Documents(updates) => updates.iter().map(DocUpdate::cost_bytes).sum(),
            Self::Purge(purges) => purges.iter().map(Purge::size_bytes).sum(),
            Self::Compact(ids) => ids.len() * COMPACTED_BYTES,
            Self::SetRevsLimit(_) | Self::SetPurgedInfosLimit(_) | Self::ForgetPurges { .. } => 0,
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

    /// Queues the works of one client, in order; each completion receives the result of its work.
    pub fn submit_all(self: &Arc<Self>, works: Vec<(Work, Completion)>) -> Submitted {
        self.queue.push(works, None)
    }

    /// Queues `work`, which was judged by `premise`: if that does not hold any more, nothing is written, and the result is
    /// [`StorageError::Outdated`]. Where there is nothing to write, nothing finds out: see [`Premise::is_held`].
    pub fn submit_presuming(self: &Arc<Self>, work: Work, premise: &Premise, done: Completion) -> Submitted {
        self.queue.push(vec![(work, done)], Some(premise))
    }

    /// Commits what is queued until nothing is left. Call it when [`Self::submit`] says so.
    ///
    /// # Panics
    /// When a commit, a completion or a listener panicked, but only after everything else that waited was done.
    pub fn lead(self: &Arc<Self>) {
        self.lead_until(|| false).end();
    }

    /// Commits what is queued until nothing is left or, after a commit, `is_over`.
    fn lead_until(self: &Arc<Self>, mut is_over: impl FnMut() -> bool) -> Lead {
        let mut lead = Lead { panicked: Ok(()), is_left: false };
        let mut writer = self.writer.lock();
        let (mut expected, mut window) = (0, Duration::ZERO);
        loop {
            // Who waits for a turn meets those whom it would wait for here.
            let turn = match writer.crowd {
                0 => {
                    self.queue.collect(expected, COMMIT_BYTES, window);
                    Turn::default()
                }
                _ if self.queue.waiting() == 0 => Turn::default(),
                _ => writer.line_up(self),
            };
            let Some(works) = self.queue.take(COMMIT_BYTES) else { return lead };
            let answered = works.iter().filter(|work| work.is_last).count();
            let begun = Instant::now();
            lead.panicked = commit::commit(self, &mut writer, turn, works).and(lead.panicked);
            if is_over() {
                lead.is_left = !self.queue.end_lead();
                return lead;
            }
            window = begun.elapsed().min(WINDOW_MAX);
            expected = answered + self.queue.waiting();
        }
    }

    /// Commits `work` and waits for it.
    ///
    /// # Errors
    /// When nothing was written.
    pub fn update(self: &Arc<Self>, work: Work) -> WorkResult {
        let (sender, receiver) = mpsc::sync_channel(1);
        let done = Box::new(move |result| {
            // The receiver waits below for as long as this can be called.
            let _ = sender.send(result);
        });
        let mut result = None;
        if self.submit(work, done) == Submitted::Lead {
            // What others submit meanwhile may never end, and is no reason to keep this caller.
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
        result.unwrap_or_else(|_| Err(StorageError::Io("the commit was given up".to_owned()).into()))
    }

    /// Goes on leading in a thread of its own, or here if there can be none.
    fn lead_elsewhere(self: &Arc<Self>) {
        let database = Arc::clone(self);
        if thread::Builder::new().name("commit".to_owned()).spawn(move || database.lead()).is_err() {
            self.lead();
        }
    }
}

/// The end of a lead.
struct Lead {
    /// The last panic of a commit, a completion or a listener.
    panicked: thread::Result<()>,
    /// Whether work is left that somebody must lead.
    is_left: bool,
}

impl Lead {
    fn end(self) {
        self.panicked.unwrap_or_else(|panic| resume_unwind(panic));
    }
}

/// The revision of an edit of `parent`.
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

/// N of a local revision `0-N`; what does not parse counts as 0, as nobody compares it.
fn local_number(rev: &Rev) -> u64 {
    std::str::from_utf8(rev.hash.as_bytes()).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
