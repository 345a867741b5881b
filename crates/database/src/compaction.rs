//! Compaction: frees the space of data that can no longer be read, concurrently with reads and writes. It removes the
//! bodies of revisions that are not leaves, and purge records beyond the limit. Counters track this garbage, so a
//! database without garbage is not scanned. The work goes through the update queue in small pieces; between these a
//! callback can wait or stop the compaction.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use settee_storage::{Direction, Expect, KeyRange, Keyspace};

use crate::attempt::free_space;
use crate::record::DocRecord;
use crate::tasks::{Task, TaskKind, Tasks};
use crate::{Database, ReadView, Result, Work, pieces};

const PIECE_DOCUMENTS: usize = if cfg!(test) { 7 } else { 256 };
const PIECE_BYTES: usize = if cfg!(test) { 4 << 10 } else { 512 << 10 };
/// Bounds the time between calls of the callback.
const PIECE_SCANNED: usize = if cfg!(test) { 20 } else { 10_000 };
const PIECE_PURGES: u64 = if cfg!(test) { 3 } else { 10_000 };

/// Outcome of a compaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// All documents were scanned.
    Done,
    /// The caller stopped the compaction.
    Stopped,
    /// Another compaction was running, in this or another process.
    Running,
}

/// Space that a compaction could free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Garbage {
    /// Size of all bodies (uncompressed) and of all attachment contents.
    pub total_bytes: u64,
    /// Removable part: bodies of revisions that are not leaves, and an upper bound for their attachments.
    pub bytes: u64,
    /// Number of purge records beyond the limit.
    pub purges: u64,
}

impl Database {
    /// Returns true while a compaction is running in this process.
    #[must_use]
    pub fn is_compacting(&self) -> bool {
        self.compacting.is_running()
    }

    /// Returns the space that a compaction could free.
    pub fn garbage(self: &Arc<Self>) -> Result<Garbage> {
        garbage(&self.read()?)
    }

    /// Removes garbage and lets the engine reclaim the space. Blocks until that is done. `pause` is called after each
    /// piece of work; it may block, and may stop the compaction. After an error completed pieces stay committed.
    pub fn compact(self: &Arc<Self>, tasks: &Tasks, pause: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Compaction> {
        let Some(_running) = self.compacting.begin() else {
            return Ok(Compaction::Running);
        };
        let members = self.engine().members();
        let Some(claim) = members.claim(&format!("compact/{}", self.shard().0))? else {
            return Ok(Compaction::Running);
        };
        let compacted = self.compact_claimed(tasks, pause);
        // A claim that cannot be released ends with this process.
        let _ = members.release(&claim);
        compacted
    }

    fn compact_claimed(
        self: &Arc<Self>,
        tasks: &Tasks,
        pause: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Compaction> {
        self.collect_uploads_of_failed_nodes()?;
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
        free_space(self.engine().as_ref(), || self.engine().reclaim(self.shard()))?;
        Ok(Compaction::Done)
    }

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

fn garbage(view: &ReadView<'_>) -> Result<Garbage> {
    let counters = view.meta()?;
    let remembered = counters.purge_seq - counters.purges_forgotten;
    let old_attachments = counters.attachment_bytes.saturating_sub(counters.leaf_attachment_bytes);
    Ok(Garbage {
        total_bytes: counters.body_bytes + counters.content_bytes,
        bytes: counters.body_bytes.saturating_sub(counters.leaf_bytes) + old_attachments.min(counters.content_bytes),
        purges: remembered.saturating_sub(view.purged_infos_limit()?),
    })
}

struct Piece {
    ids: Vec<String>,
    scanned: usize,
    next: Option<Vec<u8>>,
}

fn find(view: &ReadView<'_>, start: &[u8]) -> Result<Piece> {
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

/// A piece takes about as long as the pause.
const PAUSE_DURATION: Duration = Duration::from_millis(10);

/// Returns a `pause` that leaves capacity to requests, and stops the compaction once `is_over` returns true.
pub fn pause_between_pieces(is_over: impl Fn() -> bool) -> impl FnMut() -> ControlFlow<()> {
    move || {
        std::thread::sleep(PAUSE_DURATION);
        if is_over() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
