//! Writing documents:
//!
//! 1. The caller's thread turns a [`Document`](settee_model::Document) into a [`DocUpdate`] and computes the revision
//!    hash.
//! 2. [`Database::submit`] puts the [`Work`] into the queue. The first caller to enqueue work while no leader is active
//!    becomes the leader.
//! 3. The leader takes the queued work, reads the revision trees once, applies the updates in order, and makes one
//!    commit with one sync ([`commit`], of a [`group`]). With an engine that validates inserts it skips the read for
//!    documents that are probably new.
//! 4. All callers get their results, and subscribers are notified of the new update sequence.
//!
//! A conflict is an outcome, not an error. No step waits for a client: contents of attachments are uploaded before
//! their revision, through an [`Upload`].

mod access;
mod commit;
mod contents;
mod counted;
mod fullness;
mod group;
mod new_attachments;
mod purge;
pub(crate) mod queue;
mod time;
mod touched;
mod upload;
pub(crate) mod upload_marks;
mod uploaded;
pub(crate) mod validation;
mod work;
pub(crate) mod writer;

use std::panic::resume_unwind;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

pub use new_attachments::{NewAttachment, NewAttachments};
pub(crate) use purge::decode_number as decode_purge_number;
pub use upload::{Compression, Upload};
pub use uploaded::Uploaded;
use work::COMMIT_BYTES;
pub use work::{
    Completion, DocUpdate, EditMode, Origin, Precheck, Purge, Stage, Submitted, UpdateOutcome, Validated,
    ValidationBasis, Work, WorkResult,
};
pub(crate) use writer::load_writer;

use crate::{Database, DatabaseError, StorageError};

/// Maximum batching window. The leader waits for other writes as long as the last commit took, up to this limit.
const WINDOW_MAX: Duration = Duration::from_millis(1);

impl Database {
    /// Queues `work` of a client; `done` receives the result.
    pub fn submit(self: &Arc<Self>, work: Work, done: Completion) -> Submitted {
        self.submit_all(vec![(work, done)])
    }

    /// Queues several works of one client, in order; each completion receives the result of its work:
    /// [`StorageError::Deposed`] unless this process is the writer of the shard.
    pub fn submit_all(self: &Arc<Self>, works: Vec<(Work, Completion)>) -> Submitted {
        self.queue.push(works, Origin::Client)
    }

    /// Commits queued work until the queue is empty. Must be called if [`Self::submit`] returns [`Submitted::Leader`].
    /// Resumes a panic of a commit, a completion or a listener after all other queued work is done.
    pub fn run_as_leader(self: &Arc<Self>) {
        self.run_as_leader_until(|| false).end();
    }

    /// Stops when the queue is empty or, checked after each commit, `is_over` returns true.
    fn run_as_leader_until(self: &Arc<Self>, mut is_over: impl FnMut() -> bool) -> Leadership {
        let mut leadership = Leadership { panicked: Ok(()), work_remains: false };
        let mut writer = self.writer.lock();
        let (mut expected, mut window) = (0, Duration::ZERO);
        loop {
            self.queue.collect(expected, COMMIT_BYTES, window);
            let Some(works) = self.queue.take(COMMIT_BYTES) else { return leadership };
            let answered = works.iter().filter(|work| work.is_last).count();
            let started = Instant::now();
            leadership.panicked = commit::commit(self, &mut writer, works).and(leadership.panicked);
            if is_over() {
                leadership.work_remains = !self.queue.resign();
                return leadership;
            }
            window = started.elapsed().min(WINDOW_MAX);
            expected = answered + self.queue.waiting();
        }
    }

    /// Commits `work` of the server itself, which any process may commit, and waits for the result. After an error
    /// nothing was written, unless the error is [`StorageError::InDoubt`].
    pub fn update(self: &Arc<Self>, work: Work) -> WorkResult {
        self.update_for(Origin::Server, work)
    }

    /// As [`Self::update`], for work of any origin.
    pub fn update_for(self: &Arc<Self>, origin: Origin, work: Work) -> WorkResult {
        let (sender, receiver) = mpsc::sync_channel(1);
        let done = Box::new(move |result| {
            let _ = sender.send(result);
        });
        let mut result = None;
        if self.queue.push(vec![(work, done)], origin) == Submitted::Leader {
            // The work of other callers may never end, so this caller leads only until its own work is done.
            let leadership = self.run_as_leader_until(|| match receiver.try_recv() {
                Ok(answer) => {
                    result = Some(answer);
                    true
                }
                Err(nothing) => nothing == mpsc::TryRecvError::Disconnected,
            });
            if leadership.work_remains {
                self.spawn_leader();
            }
            leadership.end();
        }
        let result = result.map_or_else(|| receiver.recv(), Ok);
        result.unwrap_or_else(|_| Err(aborted()))
    }

    fn spawn_leader(self: &Arc<Self>) {
        let database = Arc::clone(self);
        if thread::Builder::new().name("commit".to_owned()).spawn(move || database.run_as_leader()).is_err() {
            self.run_as_leader();
        }
    }
}

/// Error of a work whose [`Completion`] was dropped, because a thread that worked on its commit panicked.
#[must_use]
pub fn aborted() -> DatabaseError {
    StorageError::InDoubt("the commit was aborted".to_owned()).into()
}

struct Leadership {
    panicked: thread::Result<()>,
    work_remains: bool,
}

impl Leadership {
    fn end(self) {
        self.panicked.unwrap_or_else(|panic| resume_unwind(panic));
    }
}
