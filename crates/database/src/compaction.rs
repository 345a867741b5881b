//! Compaction: gives back the space of what readers cannot miss, while everybody goes on.
//!
//! The bodies of revisions that are no leaves go, and what is remembered of purges beyond the limit. Counters tell
//! whether there is anything of that kind, so a database without garbage is not scanned. The work goes through the
//! update queue in small pieces; between these the caller is asked, who may wait or end it.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use settee_storage::{Direction, Expect, KeyRange, Keyspace};

use crate::attempt::make_room;
use crate::record::DocRecord;
use crate::tasks::{Task, TaskKind, Tasks};
use crate::{Database, ReadView, Result, Work, pieces};

/// One piece has the records of at most so many documents …
const PIECE_DOCUMENTS: usize = if cfg!(test) { 7 } else { 256 };
/// … or about so many bytes of them; what is deleted is in proportion.
const PIECE_BYTES: usize = if cfg!(test) { 4 << 10 } else { 512 << 10 };
/// So many documents are looked at for one piece, so that the caller is asked often.
const PIECE_SCANNED: usize = if cfg!(test) { 20 } else { 10_000 };
/// So many purges are forgotten in one commit.
const PIECE_PURGES: u64 = if cfg!(test) { 3 } else { 10_000 };

/// The end of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// Everything was looked at.
    Done,
    /// The caller ended it.
    Stopped,
    /// Another one was running, here or in another process.
    Running,
}

/// The bytes that a compaction could give back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Bytes of all bodies, uncompressed, and of all attachments, each content once.
    pub total_bytes: u64,
    /// Those of them that a compaction may remove: bodies of revisions that are no leaves, and at most the attachments
    /// of these, which leaves may have as well.
    pub bytes: u64,
    /// Purges that are remembered beyond the limit.
    pub purges: u64,
}

/// Whether a compaction runs.
#[derive(Debug, Default)]
pub(crate) struct Compacting(AtomicBool);

/// Ends with the compaction.
struct Running<'a>(&'a Compacting);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl Compacting {
    fn begin(&self) -> Option<Running<'_>> {
        let is_idle = !self.0.swap(true, Ordering::AcqRel);
        is_idle.then(|| Running(self))
    }
}

impl Database {
    /// Whether a compaction is running.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.compacting.0.load(Ordering::Acquire)
    }

    /// The bytes that a compaction could give back.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn garbage(self: &Arc<Self>) -> Result<Garbage> {
        garbage(&self.read()?)
    }

    /// Removes garbage and lets the engine give back its space. Blocks until that is done; `pause` is called after
    /// each piece of work, may wait, and may end the compaction.
    ///
    /// # Errors
    /// When the database was deleted meanwhile or the engine failed. What was done until then stays.
    pub fn compact(self: &Arc<Self>, tasks: &Tasks, pause: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Compaction> {
        let Some(_running) = self.compacting.begin() else {
            return Ok(Compaction::Running);
        };
        let members = self.engine().members();
        let Some(claim) = members.claim(&format!("compact/{}", self.shard().0))? else {
            return Ok(Compaction::Running);
        };
        let compacted = self.compact_claimed(tasks, pause);
        // What is not given back ends with this process.
        let _ = members.release(&claim);
        compacted
    }

    fn compact_claimed(
        self: &Arc<Self>,
        tasks: &Tasks,
        pause: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Compaction> {
        self.collect_uploads_of_the_dead()?;
        let view = self.read()?;
        let garbage = garbage(&view)?;
        let (live, deleted) = view.counts()?;
        drop(view);
        let kind = TaskKind::DatabaseCompaction { database: self.name().to_owned() };
        let task = tasks.start(kind, live + deleted);
        let stripped = match garbage.bytes {
            0 => ControlFlow::Continue(()),
            _ => self.strip(&task, live + deleted, pause)?,
        };
        if stripped.is_break() || self.forget_purges(pause)?.is_break() {
            return Ok(Compaction::Stopped);
        }
        make_room(self.engine().as_ref(), || self.engine().reclaim(self.shard()))?;
        Ok(Compaction::Done)
    }

    /// Removes the bodies of revisions that are no leaves, document by document.
    fn strip(
        self: &Arc<Self>,
        task: &Task,
        total: u64,
        pause: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let mut done = 0;
        let mut next = Some(Vec::new());
        while let Some(start) = next {
            let piece = find(&self.read()?, &start)?;
            done += piece.scanned as u64;
            next = piece.next;
            if !piece.ids.is_empty() {
                self.update(Work::Compact(piece.ids))?;
            }
            task.update(done, total);
            if pause().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn forget_purges(self: &Arc<Self>, pause: &mut dyn FnMut() -> ControlFlow<()>) -> Result<ControlFlow<()>> {
        loop {
            let view = self.read()?;
            let superfluous = garbage(&view)?.purges;
            if superfluous == 0 {
                return Ok(ControlFlow::Continue(()));
            }
            let up_to = view.purges_forgotten()? + superfluous.min(PIECE_PURGES);
            self.update(Work::ForgetPurges { up_to })?;
            if pause().is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
    }
}

fn garbage(view: &ReadView) -> Result<Garbage> {
    let counters = view.meta()?;
    let remembered = counters.purge_seq - counters.purges_forgotten;
    let old_attachments = counters.attachment_bytes.saturating_sub(counters.leaf_attachment_bytes);
    Ok(Garbage {
        total_bytes: counters.body_bytes + counters.content_bytes,
        bytes: counters.body_bytes.saturating_sub(counters.leaf_bytes) + old_attachments.min(counters.content_bytes),
        purges: remembered.saturating_sub(view.purged_infos_limit()?),
    })
}

/// Documents with garbage.
struct Piece {
    ids: Vec<String>,
    scanned: usize,
    /// Where to go on, if there is more.
    next: Option<Vec<u8>>,
}

/// Looks for documents with garbage from the id `start` on.
fn find(view: &ReadView, start: &[u8]) -> Result<Piece> {
    let mut piece = Piece { ids: Vec::new(), scanned: 0, next: None };
    let mut bytes = 0;
    let range = KeyRange { start: Some(start), end: None };
    let mut cursor =
        view.snapshot().scan(Keyspace::Documents, range, Direction::Forward, Expect::Rows(PIECE_SCANNED))?;
    while let Some((id, record)) = cursor.next()? {
        if piece.scanned == PIECE_SCANNED || piece.ids.len() == PIECE_DOCUMENTS || bytes > PIECE_BYTES {
            piece.next = Some(id.to_vec());
            break;
        }
        piece.scanned += 1;
        let record = pieces::whole(view.snapshot().as_ref(), id, record)?;
        if DocRecord::has_stored_branches(&record)? {
            bytes += record.len();
            piece.ids.push(crate::keys::decode_id(id)?.to_owned());
        }
    }
    Ok(piece)
}

/// The time that a throttled compaction rests between two pieces; a piece takes about as long.
const REST: Duration = Duration::from_millis(10);

/// The pause that [`Database::compact`] makes between pieces to leave others their share of the machine, until
/// `is_over` says that the compaction shall end.
pub fn throttled(is_over: impl Fn() -> bool) -> impl FnMut() -> ControlFlow<()> {
    move || {
        std::thread::sleep(REST);
        if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
