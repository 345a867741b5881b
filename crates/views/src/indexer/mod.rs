//! Updates indexes.
//!
//! A [`Pass`] updates all indexes of a design document at the same update sequence with one scan of the changes:
//!
//! 1. Each worker thread takes the lock of the scan, fills a batch of documents, releases the lock, maps the batch, and
//!    sorts the emitted rows into its own runs ([`worker`]).
//! 2. An index that is empty, or small compared to the changes, is loaded: all runs, spilled to disk if memory is
//!    short, and the stored rows are merged into new trees. Otherwise changes are processed in rounds, and the runs of
//!    a round modify the affected leaves ([`mod@write`]).
//! 3. The last commit moves the index to the update sequence of the scanned snapshot.
//! 4. A long load writes checkpoints ([`resume`]), from which it continues after a crash.
//!
//! [`Views`](crate::Views) selects the indexes and implements the waiting.

pub(crate) mod entries;
mod merge;
mod radix;
pub(crate) mod resume;
pub(crate) mod runs;
mod slot;
mod sort;
mod sorter;
pub(crate) mod source;
mod worker;
mod write;

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_database::Layout;
use settee_design::{DesignOptions, DocumentBatch, Emissions, Language, Limits, LimitsSource, MapSource};
use settee_model::collate::Collation;
use settee_storage::Snapshot;

use crate::index::RunFile;
use entries::EntryReader;
use merge::Ranked;
use runs::RunDirectory;
use sorter::SortedRun;
use source::{ChangeSnapshot, Changes, Fill};
use worker::{Before, Target, Worker};
use write::{MappedRuns, PassPosition, WritableIndex};

use crate::clock::Clock;
use crate::error::{Result, ViewError};
use crate::index::{IndexStore, IndexWriter, Meta};
use crate::pace::PaceState;
use crate::reduce::Aggregate;
use crate::tree::aggregates::rebuild;
use crate::tree::write::NodeWriter;

/// Settings of the builds of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of threads that map documents.
    pub threads: usize,
    /// Maximum memory of sorted runs before they are spilled.
    pub memory_bytes: usize,
    /// Directory of spilled runs. Checkpoints refer to its files, so it must survive restarts.
    pub run_directory: PathBuf,
    /// Minimum interval between two checkpoints of a long build.
    pub checkpoint_interval_ms: u64,
    /// Source of the current time.
    pub clock: Clock,
    /// Source of the limits of functions, which can change.
    pub limits: LimitsSource,
    /// Random start of commit tokens.
    pub seed: u64,
}

/// Number of changes that one thread maps in the time that starting a second thread takes.
const CHANGES_PER_THREAD: u64 = 200;
const ROUND_CHANGES: u64 = 20_000;
const ROUND_BYTES: u64 = 64 << 20;
/// Maximum size of the back-pointers of an update, because its last commit contains them.
const UPDATE_ENTRY_BYTES: u64 = if cfg!(test) { 256 << 10 } else { 32 << 20 };
/// Minimum number of changed documents for a load instead of an update, and maximum number of rows per change. A load
/// takes about 1 µs per row, an update about 50 µs per change with keys in random order.
const LOAD_CHANGES: u64 = if cfg!(test) { 1_000 } else { 5_000 };
const LOAD_ROWS_PER_CHANGE: u64 = 32;
/// Limits the number of files: a later checkpoint is written only after the work has grown by this fraction.
const CHECKPOINT_PART: u64 = 16;

pub(crate) struct PassIndex<'a> {
    pub(crate) store: &'a IndexStore,
    pub(crate) collation: Collation,
    pub(crate) layout: Layout,
    pub(crate) meta: Meta,
    pub(crate) writer: IndexWriter<'a>,
    pub(crate) directory: RunDirectory,
}

pub(crate) struct Pass<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) limits: Limits,
    pub(crate) language: &'a Arc<dyn Language>,
    pub(crate) source: MapSource,
    pub(crate) options: DesignOptions,
    pub(crate) database: &'a dyn ChangeSnapshot,
    pub(crate) pending: u64,
    pub(crate) database_name: &'a str,
    /// Called between batches with the size of the last one. It may wait; its error ends the pass. Completed work is
    /// lost only after [`ViewError::Cancelled`].
    pub(crate) control: &'a (dyn Fn(&mut PaceState, u64) -> Result<()> + Sync),
    pub(crate) progress: &'a (dyn Fn(u64) + Sync),
    pub(crate) report: &'a (dyn Fn(&DocumentBatch, &Emissions) + Sync),
    pub(crate) report_engine: &'a (dyn Fn(&str) + Sync),
}

struct Scan<'a> {
    changes: Box<dyn Changes + 'a>,
    changes_left: u64,
    bytes_left: u64,
    ends_us: u64,
    last_seq: u64,
    fill: Fill,
    interrupted: Option<ViewError>,
}

impl Pass<'_> {
    /// Updates the indexes to the update sequence of the snapshot. Either none or all of them must be at its start.
    pub(crate) fn run(&self, mut indexes: Vec<PassIndex<'_>>) -> Result<()> {
        let since = indexes.iter().map(|index| index.meta.update_seq).min().unwrap_or(0);
        // Processing a purge again is harmless. A purge before the first indexed change cannot have removed rows.
        let purged_since = match since {
            0 => self.database.purge_seq()?,
            _ => indexes.iter().map(|index| index.meta.purge_seq).min().unwrap_or(0),
        };
        let update_seq = self.database.update_seq()?;
        let pending = self.pending;
        let threads = pending.div_ceil(CHANGES_PER_THREAD).clamp(1, self.settings.threads.max(1) as u64);
        let mut workers = (0..threads)
            .map(|_| Ok(Worker::new(self.language.program(&self.source, self.limits)?, indexes.len())))
            .collect::<Result<Vec<_>>>()?;

        workers[0].engines().for_each(|line| (self.report_engine)(&line));
        let memory_bytes = self.settings.memory_bytes / workers.len();
        workers.iter_mut().for_each(|worker| worker.expect(pending / threads * 9 / 8, memory_bytes));

        let snapshots = indexes.iter().map(|index| index.writer.snapshot()).collect::<Result<Vec<_>>>()?;
        let rows = indexes.iter().map(|index| index.meta.total_rows()).max().unwrap_or(0);
        let is_load = rows == 0 || pending >= LOAD_CHANGES && pending.saturating_mul(LOAD_ROWS_PER_CHANGE) >= rows;
        let (mut writables, mut targets) = (Vec::new(), Vec::new());
        let directories: Vec<RunDirectory> = indexes.iter_mut().map(PassIndex::take_directory).collect();
        for ((index, snapshot), directory) in indexes.into_iter().zip(&snapshots).zip(&directories) {
            targets.push(index.target(&**snapshot, directory, is_load));
            writables.push(self.writable(index)?);
        }

        let started_us = self.settings.clock.now_us();
        let mut scan = Scan {
            changes: self.database.changes(since, purged_since, pending)?,
            changes_left: 0,
            bytes_left: 0,
            ends_us: started_us,
            last_seq: since,
            fill: Fill::Full,
            interrupted: None,
        };
        let done = AtomicU64::new(0);
        while scan.fill == Fill::Full {
            self.start_round(&mut scan, is_load, started_us);
            scan = self.map(scan, &mut workers, &targets, &done)?;
            let interrupted = scan.interrupted.take();
            if matches!(interrupted, Some(ViewError::Cancelled)) {
                return Err(ViewError::Cancelled);
            }
            workers.iter_mut().flat_map(Worker::take_bail_outs).for_each(|line| (self.report_engine)(&line));
            let reached = match scan.fill {
                Fill::End => PassPosition { update_seq, purge_seq: self.database.purge_seq()? },
                Fill::Full => PassPosition { update_seq: scan.last_seq, purge_seq: purged_since },
            };
            // A long load also writes a checkpoint before its trees, because writing them takes long.
            let is_long = writables.iter().any(|writable| !writable.checkpointed.is_empty());
            if is_load && (scan.fill == Fill::Full || interrupted.is_some() || is_long) {
                self.make_checkpoint(&mut writables, &mut workers, &targets, reached)?;
            }
            if !is_load || scan.fill == Fill::End && interrupted.is_none() {
                self.write(&mut writables, &mut workers, &targets, reached, is_load)?;
            }
            if let Some(reason) = interrupted {
                return Err(reason);
            }
        }
        Ok(())
    }

    fn start_round(&self, scan: &mut Scan<'_>, is_load: bool, started_us: u64) {
        if is_load {
            let now_us = self.settings.clock.now_us();
            let interval_us = self.settings.checkpoint_interval_ms.saturating_mul(1000);
            let round_us = interval_us.max(now_us.saturating_sub(started_us) / CHECKPOINT_PART);
            (scan.changes_left, scan.bytes_left, scan.ends_us) = (u64::MAX, u64::MAX, now_us.saturating_add(round_us));
        } else {
            (scan.changes_left, scan.bytes_left, scan.ends_us) = (ROUND_CHANGES, ROUND_BYTES, u64::MAX);
        }
    }

    fn writable<'a>(&self, index: PassIndex<'a>) -> Result<WritableIndex<'a>> {
        let PassIndex { store, meta, writer, .. } = index;
        let open = |reduce: &Arc<str>| Aggregate::open(reduce, self.language, self.limits);
        let aggregates = meta.reduces.iter().map(open).collect::<Result<_>>()?;
        Ok(WritableIndex { store, writer, meta, aggregates, checkpointed: HashSet::new() })
    }

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
            let result = self.map_batches(worker, &scan, targets, memory_bytes, &failed, done);
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
        memory_bytes: usize,
        failed: &AtomicBool,
        done: &AtomicU64,
    ) -> Result<()> {
        while !failed.load(Ordering::Relaxed) {
            // The control is called before the read, because all read changes must be mapped.
            let bytes = worker.batch.documents.size_bytes() as u64;
            if let Err(reason) = (self.control)(&mut worker.pace_state, bytes) {
                scan.lock().interrupted = Some(reason);
            }
            if !scan.lock().fill_batch(worker, self.options, &self.settings.clock)? {
                break;
            }
            worker.map(targets, memory_bytes, self.report)?;
            let changes = worker.batch.changes;
            (self.progress)(done.fetch_add(changes, Ordering::Relaxed) + changes);
        }
        Ok(())
    }

    fn write(
        &self,
        writables: &mut [WritableIndex<'_>],
        workers: &mut [Worker],
        targets: &[Target<'_>],
        reached: PassPosition,
        is_load: bool,
    ) -> Result<()> {
        let mut mapped = Vec::new();
        for (index, target) in targets.iter().enumerate() {
            mapped.push(take_mapped(workers, index, target.directory, reached)?);
        }
        let threads = workers.len().min(writables.len());
        let memory_bytes = self.settings.memory_bytes / threads.max(1);
        let queue = Mutex::new(writables.iter_mut().zip(mapped).zip(targets));
        let work = || -> Result<()> {
            loop {
                let next = queue.lock().next();
                let Some(((writable, mapped), target)) = next else { return Ok(()) };
                match is_load || mapped.entry_bytes > UPDATE_ENTRY_BYTES {
                    true => write::load(writable, mapped, target.directory, memory_bytes)?,
                    false => write::update(writable, mapped)?,
                }
                let mut message = Emissions::new();
                message.log.extend(writable.aggregates.iter_mut().flat_map(Aggregate::take_log));
                if !message.log.is_empty() {
                    (self.report)(&DocumentBatch::new(), &message);
                }
            }
        };
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
            let first = work();
            others.into_iter().fold(first, |result, thread| {
                result.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })?;
        resume::clear_runs(writables, targets.iter().map(|target| target.directory))
    }
}

impl<'a> PassIndex<'a> {
    fn take_directory(&mut self) -> RunDirectory {
        std::mem::take(&mut self.directory)
    }

    fn target<'s>(&self, snapshot: &'s dyn Snapshot, directory: &'s RunDirectory, is_load: bool) -> Target<'s>
    where
        'a: 's,
    {
        let reader =
            || EntryReader { tree: self.store.tree(snapshot), root: self.meta.entries.clone(), load: self.meta.load };
        let before = match &self.meta.rows {
            None => Before::Nothing,
            Some(_) if is_load => Before::Merged,
            Some(_) => Before::LookedUp(reader()),
        };
        Target { collation: self.collation, layout: self.layout, before, directory }
    }
}

impl Scan<'_> {
    fn fill_batch(&mut self, worker: &mut Worker, options: DesignOptions, clock: &Clock) -> Result<bool> {
        worker.batch.clear();
        let is_over = self.fill == Fill::End || self.changes_left == 0 || self.bytes_left == 0;
        if is_over || self.interrupted.is_some() || clock.now_us() > self.ends_us {
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

fn take_mapped(
    workers: &mut [Worker],
    index: usize,
    directory: &RunDirectory,
    reached: PassPosition,
) -> Result<MappedRuns> {
    let entry_bytes = workers.iter().map(|worker| worker.outputs[index].entries.sorted_bytes()).sum();
    let rows = open(workers.iter_mut().map(|worker| worker.outputs[index].rows.take()), directory)?;
    let entries = open(workers.iter_mut().map(|worker| worker.outputs[index].entries.take()), directory)?;
    Ok(MappedRuns { rows, entries, entry_bytes, reached })
}

fn open(
    runs: impl Iterator<Item = (Vec<SortedRun>, Vec<RunFile>)>,
    directory: &RunDirectory,
) -> Result<Vec<Ranked<'static>>> {
    let (sorted, spilled): (Vec<_>, Vec<_>) = runs.unzip();
    let mut sources = runs::open(directory, spilled.into_iter().flatten().collect())?;
    sources.extend(sorted.into_iter().flatten().map(Ranked::run));
    Ok(sources)
}

pub(crate) fn attach(
    index: PassIndex<'_>,
    reduces: Vec<Arc<str>>,
    language: &Arc<dyn Language>,
    limits: Limits,
) -> Result<()> {
    let PassIndex { store, meta, mut writer, .. } = index;
    let snapshot = writer.snapshot()?;
    let mut aggregates =
        reduces.iter().map(|reduce| Aggregate::open(reduce, language, limits)).collect::<Result<Vec<_>>>()?;
    let known: Vec<Option<usize>> = reduces.iter().map(|reduce| meta.aggregate(reduce)).collect();
    let mut nodes = NodeWriter::new(&mut writer, meta.next_node);
    let rebuilt = match &meta.rows {
        Some(root) => Some(rebuild(store.tree(&*snapshot), root, &mut aggregates, &known, &mut nodes)?),
        None => None,
    };
    let (mut batch, next_node) = nodes.finish();
    for id in rebuilt.iter().flat_map(|rebuilt| &rebuilt.obsolete) {
        batch.delete(settee_storage::Keyspace::IndexNodes, &crate::keys::node(*id));
    }
    let rows = rebuilt.map(|rebuilt| rebuilt.root);
    writer.publish(batch, &Meta { next_node, reduces, rows, ..meta })
}
