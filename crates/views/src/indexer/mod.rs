//! Brings indexes up to date.
//!
//! A [`Pass`] takes all indexes of a design document that stand at the same update sequence through the changes since then,
//! once:
//!
//! 1. Each worker thread takes the lock of the scan, fills a batch of documents, gives the lock back, runs the map
//!    functions on the batch, and sorts what they emitted into runs of its own ([`worker`]).
//! 2. An index that is empty, or has little compared to what changed, is loaded: all runs, spilled to disk where memory is
//!    short, and what is stored are merged into new trees. Otherwise changes are taken in rounds, and the runs of a round
//!    change the leaves that they touch ([`mod@write`]).
//! 3. The last commit moves the index to the update sequence of the snapshot that was scanned.
//!
//! Which indexes lag, who may write them, and who waits is not decided here, but by [`Views`](crate::Views).

pub(crate) mod entries;
mod merge;
mod sorter;
pub(crate) mod source;
mod worker;
mod write;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_database::Layout;
use settee_design::{DesignOptions, DocumentBatch, Emissions, Language, Limits, MapSource};
use settee_model::collate::Collation;

use entries::EntryReader;
use source::{ChangeSnapshot, Changes, Fill};
use worker::{Spilling, Target, Worker};
use write::{Found, Reached, Writing};

use crate::error::{Result, ViewError};
use crate::index::{IndexStore, IndexWriter, Meta};
use crate::reduce::Column;
use crate::tree::columns::rebuild;
use crate::tree::write::NodeWriter;

/// How indexes are built.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How many threads map documents.
    pub threads: usize,
    /// How much memory sorted runs may take before they are spilled.
    pub memory_bytes: usize,
    /// Where they are spilled to.
    pub temporary_directory: PathBuf,
    /// What functions may use.
    pub limits: Limits,
    /// A random number.
    pub seed: u64,
}

/// Changes that one thread maps faster than a second one is made ready.
const CHANGES_PER_THREAD: u64 = 200;
/// An update takes so many changes, or so many bytes of documents, in one round.
const ROUND_CHANGES: u64 = 20_000;
const ROUND_BYTES: u64 = 64 << 20;
/// An index is loaded rather than updated if at least so many documents changed, and for each of them there are no more
/// than so many rows: reading a row in order costs about a thousandth of finding its leaf.
const LOAD_CHANGES: u64 = 5_000;
const LOAD_ROWS_PER_CHANGE: u64 = 8;

/// An index that takes part in a pass.
pub(crate) struct PassIndex<'a> {
    pub(crate) store: &'a IndexStore,
    pub(crate) collation: Collation,
    pub(crate) layout: Layout,
    pub(crate) meta: Meta,
    pub(crate) writer: IndexWriter<'a>,
}

/// What the functions of a pass see and may use.
pub(crate) struct Pass<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) language: &'a Arc<dyn Language>,
    /// The map functions, in the order of the indexes.
    pub(crate) source: MapSource,
    pub(crate) options: DesignOptions,
    pub(crate) database: &'a dyn ChangeSnapshot,
    /// Set when the work must end early.
    pub(crate) stop: &'a AtomicBool,
    /// Told how many changes are done.
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
    /// Sees what functions threw and logged.
    pub(crate) report: &'a (dyn Fn(&DocumentBatch, &Emissions) + Sync),
}

/// The scan that the workers share.
struct Scan<'a> {
    changes: Box<dyn Changes + 'a>,
    /// What may still be taken in this round.
    changes_left: u64,
    bytes_left: u64,
    last_seq: u64,
    fill: Fill,
}

impl Pass<'_> {
    /// Brings indexes that stand at the same update sequence to that of the database snapshot.
    pub(crate) fn run(&self, indexes: Vec<PassIndex<'_>>) -> Result<()> {
        let since = indexes.first().map_or(0, |index| index.meta.update_seq);
        // Indexes that were interrupted may have seen different purges. Seeing one again does no harm.
        let purged_since = indexes.iter().map(|index| index.meta.purge_seq).min().unwrap_or(0);
        let update_seq = self.database.update_seq()?;
        let pending = self.database.count_after(since)?;
        let threads = pending.div_ceil(CHANGES_PER_THREAD).clamp(1, self.settings.threads.max(1) as u64);
        let mut workers = (0..threads)
            .map(|_| Ok(Worker::new(self.language.program(&self.source, self.settings.limits)?, indexes.len())))
            .collect::<Result<Vec<_>>>()?;

        let snapshots = indexes.iter().map(|index| index.store.snapshot()).collect::<Result<Vec<_>>>()?;
        let targets: Vec<Target<'_>> = indexes
            .iter()
            .zip(&snapshots)
            .map(|(index, snapshot)| Target {
                collation: index.collation,
                layout: index.layout,
                before: index
                    .meta
                    .rows
                    .is_some()
                    .then(|| EntryReader { tree: index.store.tree(&**snapshot), root: index.meta.entries.clone() }),
            })
            .collect();
        let rows = indexes.iter().map(|index| index.meta.total_rows()).max().unwrap_or(0);
        let is_load = rows == 0 || pending >= LOAD_CHANGES && pending.saturating_mul(LOAD_ROWS_PER_CHANGE) >= rows;
        let mut writings = indexes.into_iter().map(|index| self.writing(index)).collect::<Result<Vec<_>>>()?;

        let mut scan = Scan {
            changes: self.database.changes(since, purged_since)?,
            changes_left: 0,
            bytes_left: 0,
            last_seq: since,
            fill: Fill::Full,
        };
        let done = AtomicU64::new(0);
        while scan.fill == Fill::Full {
            (scan.changes_left, scan.bytes_left) =
                if is_load { (u64::MAX, u64::MAX) } else { (ROUND_CHANGES, ROUND_BYTES) };
            scan = self.map(scan, &mut workers, &targets, &done)?;
            let reached = match scan.fill {
                Fill::End => Reached { update_seq, purge_seq: self.database.purge_seq()? },
                Fill::Full => Reached { update_seq: scan.last_seq, purge_seq: purged_since },
            };
            self.check_stop()?;
            self.write(&mut writings, &mut workers, reached, if is_load { write::load } else { write::update })?;
        }
        Ok(())
    }

    fn writing<'a>(&self, index: PassIndex<'a>) -> Result<Writing<'a>> {
        let PassIndex { store, meta, writer, .. } = index;
        let open = |reduce: &Arc<str>| Column::open(reduce, self.language, self.settings.limits);
        let columns = meta.reduces.iter().map(open).collect::<Result<_>>()?;
        Ok(Writing { store, writer, meta, columns })
    }

    /// Maps documents on all workers until the round or the scan is at its end.
    fn map<'s>(
        &self,
        scan: Scan<'s>,
        workers: &mut [Worker],
        targets: &[Target<'_>],
        done: &AtomicU64,
    ) -> Result<Scan<'s>> {
        let scan = Mutex::new(scan);
        let failed = AtomicBool::new(false);
        let memory_bytes = self.settings.memory_bytes / workers.len();
        let work = |worker: &mut Worker| {
            let spilling = Spilling { directory: &self.settings.temporary_directory, memory_bytes };
            let result = self.map_batches(worker, &scan, targets, spilling, &failed, done);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            worker.seal();
            result
        };
        let (first, others) = workers.split_first_mut().expect("there is at least one worker");
        let results: Vec<Result<()>> = std::thread::scope(|scope| {
            let threads: Vec<_> = others.iter_mut().map(|worker| scope.spawn(|| work(worker))).collect();
            let mut results = vec![work(first)];
            for thread in threads {
                results.push(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
            }
            results
        });
        results.into_iter().collect::<Result<()>>()?;
        Ok(scan.into_inner())
    }

    fn map_batches(
        &self,
        worker: &mut Worker,
        scan: &Mutex<Scan<'_>>,
        targets: &[Target<'_>],
        spilling: Spilling<'_>,
        failed: &AtomicBool,
        done: &AtomicU64,
    ) -> Result<()> {
        while !failed.load(Ordering::Relaxed) && scan.lock().fill_batch(worker, self.options)? {
            self.check_stop()?;
            worker.map(targets, spilling, self.report)?;
            let changes = worker.batch.changes;
            (self.progress)(done.fetch_add(changes, Ordering::Relaxed) + changes);
        }
        Ok(())
    }

    /// Brings what the workers found into the indexes, several at a time.
    fn write(
        &self,
        writings: &mut [Writing<'_>],
        workers: &mut [Worker],
        reached: Reached,
        write: fn(&mut Writing<'_>, Found) -> Result<()>,
    ) -> Result<()> {
        let found = (0..writings.len()).map(|index| take_found(workers, index, reached)).collect::<Result<Vec<_>>>()?;
        let threads = workers.len().min(writings.len());
        let queue = Mutex::new(writings.iter_mut().zip(found));
        let work = || {
            loop {
                let next = queue.lock().next();
                let Some((writing, found)) = next else { return Ok(()) };
                write(writing, found)?;
                let mut said = Emissions::new();
                said.log.extend(writing.columns.iter_mut().flat_map(Column::take_log));
                if !said.log.is_empty() {
                    (self.report)(&DocumentBatch::new(), &said);
                }
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let first = work();
            others.into_iter().fold(first, |result, thread| {
                result.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })
    }

    fn check_stop(&self) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) { Err(ViewError::Stopped) } else { Ok(()) }
    }
}

impl Scan<'_> {
    /// Whether there is anything in the batch now.
    fn fill_batch(&mut self, worker: &mut Worker, options: DesignOptions) -> Result<bool> {
        worker.batch.clear();
        if self.fill == Fill::End || self.changes_left == 0 || self.bytes_left == 0 {
            return Ok(false);
        }
        self.fill = self.changes.fill(&mut worker.batch, options)?;
        self.changes_left = self.changes_left.saturating_sub(worker.batch.changes);
        self.bytes_left = self.bytes_left.saturating_sub(worker.batch.documents.size_bytes() as u64);
        if worker.batch.changes > 0 {
            self.last_seq = worker.batch.last_seq;
        }
        Ok(worker.batch.changes > 0)
    }
}

fn take_found(workers: &mut [Worker], index: usize, reached: Reached) -> Result<Found> {
    let mut found = Found { rows: Vec::new(), entries: Vec::new(), reached };
    for worker in workers {
        let output = &mut worker.outputs[index];
        found.rows.extend(output.rows.take_sources()?);
        found.entries.extend(output.entries.take_sources()?);
    }
    Ok(found)
}

/// Gives an index the reduce functions `reduces`. Those that it has are not computed anew.
pub(crate) fn attach(
    index: PassIndex<'_>,
    reduces: Vec<Arc<str>>,
    language: &Arc<dyn Language>,
    limits: Limits,
) -> Result<()> {
    let PassIndex { store, meta, mut writer, .. } = index;
    let snapshot = store.snapshot()?;
    let mut columns =
        reduces.iter().map(|reduce| Column::open(reduce, language, limits)).collect::<Result<Vec<_>>>()?;
    let known: Vec<Option<usize>> = reduces.iter().map(|reduce| meta.column(reduce)).collect();
    let mut nodes = NodeWriter::new(&mut writer, meta.next_node);
    let rebuilt = match &meta.rows {
        Some(root) => Some(rebuild(store.tree(&*snapshot), root, &mut columns, &known, &mut nodes)?),
        None => None,
    };
    let (mut batch, next_node) = nodes.finish();
    for id in rebuilt.iter().flat_map(|rebuilt| &rebuilt.obsolete) {
        batch.delete(settee_storage::Keyspace::IndexNodes, &crate::keys::node(*id));
    }
    let rows = rebuilt.map(|rebuilt| rebuilt.root);
    writer.publish(batch, &Meta { next_node, reduces, rows, ..meta })
}
