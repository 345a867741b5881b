//! [`Pass`] updates an index with one scan of the changes since its last commit. Threads run the index function on
//! batches of documents, and pass the fields to the single writer. Changes are committed with their position.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_database::Layout;
use settee_design::{DesignOptions, Emissions, Language, Limits, MapSource, Program};
use settee_model::partition;
use settee_views::{ChangeBatch, ChangeSnapshot, Changes, Fill, LogSubject, PaceState, Settings, ViewError};

use super::definition::SearchIndex;
use super::fields::field;
use super::position::Position;
use super::{Result, SearchError};
use crate::{Error, Field, Writer};

/// Number of changes that one thread maps in the time that starting a second thread takes.
const CHANGES_PER_THREAD: u64 = 200;

pub(super) struct Pass<'a> {
    pub(super) settings: &'a Settings,
    pub(super) limits: Limits,
    pub(super) language: &'a Arc<dyn Language>,
    pub(super) wanted: &'a SearchIndex,
    pub(super) layout: Layout,
    pub(super) database: &'a dyn ChangeSnapshot,
    pub(super) since: Position,
    pub(super) pending: u64,
    pub(super) is_unhurried: bool,
    /// Called between batches with the size of the last one. It may wait; its error ends the pass. Completed work is
    /// lost only after [`ViewError::Cancelled`].
    pub(super) control: &'a (dyn Fn(&mut PaceState, u64) -> Result<()> + Sync),
    pub(super) progress: &'a (dyn Fn(u64) + Sync),
    pub(super) log_event: &'a (dyn Fn(LogSubject<'_>, &str) + Sync),
}

struct Scan<'a> {
    changes: Box<dyn Changes + 'a>,
    /// `None` before the first batch of a round, so that each round has at least one.
    ends_us: Option<u64>,
    last_seq: u64,
    fill: Fill,
    interrupted: Option<SearchError>,
}

struct Worker {
    program: Box<dyn Program>,
    pace_state: PaceState,
    batch: ChangeBatch,
    emissions: Emissions,
}

impl Pass<'_> {
    pub(super) fn run(&self, writer: Writer) -> Result<()> {
        let current = Position { update_seq: self.database.update_seq()?, purge_seq: self.database.purge_seq()? };
        let Position { update_seq: since, purge_seq } = self.since;
        // A purge before the first indexed change cannot have removed documents.
        let purged_since = if since == 0 { current.purge_seq } else { purge_seq };
        let threads = self.pending.div_ceil(CHANGES_PER_THREAD).clamp(1, self.settings.threads.max(1) as u64);
        let mut workers = (0..threads).map(|_| self.worker()).collect::<Result<Vec<_>>>()?;
        self.log_engine(&workers[0]);
        let writer = Mutex::new(writer);
        let mut scan = Scan {
            changes: self.database.changes(since, purged_since, self.pending)?,
            ends_us: None,
            last_seq: since,
            fill: Fill::Full,
            interrupted: None,
        };
        let done = AtomicU64::new(0);
        loop {
            scan.ends_us = None;
            scan = self.round(scan, &mut workers, &writer, &done)?;
            let interrupted = scan.interrupted.take();
            if matches!(interrupted, Some(SearchError::Build(ViewError::Cancelled))) {
                return Err(ViewError::Cancelled.into());
            }
            workers.iter_mut().for_each(|worker| self.log_bail_outs(worker));
            let is_over = scan.fill == Fill::End;
            let reached = Position { update_seq: scan.last_seq, purge_seq: purged_since };
            writer.lock().commit(&(if is_over { current } else { reached }).encode())?;
            match interrupted {
                Some(reason) => return Err(reason),
                None if is_over => return self.merge(&mut workers[0].pace_state, writer.into_inner()),
                None => {}
            }
        }
    }

    fn merge(&self, pace_state: &mut PaceState, mut writer: Writer) -> Result<()> {
        while self.is_unhurried && writer.merge()? {
            (self.control)(pace_state, 0)?;
        }
        Ok(())
    }

    fn worker(&self) -> Result<Worker> {
        let source = MapSource { functions: vec![Arc::clone(&self.wanted.function)], library: None };
        let program = self.language.index_program(self.wanted.kind, &source, self.limits)?;
        let (pace_state, emissions) = Default::default();
        // CouchDB passes conflicts to map functions of views, but not to index functions.
        let batch = ChangeBatch { hides_conflicts: true, ..ChangeBatch::default() };
        Ok(Worker { program, pace_state, batch, emissions })
    }

    fn log_engine(&self, worker: &Worker) {
        if let Some((name, reason)) = worker.program.engine(0).and_then(|engine| Some((engine.name, engine.reason?))) {
            let index = &self.wanted.name;
            (self.log_event)(
                LogSubject::Engine,
                &format!("the function of the search index {index} is run by {name}: {reason}"),
            );
        }
    }

    fn log_bail_outs(&self, worker: &mut Worker) {
        for counted in worker.program.take_bail_outs() {
            let (index, documents, reason) = (&self.wanted.name, counted.documents, counted.reason);
            let line = format!("the engine of the search index {index} bailed out on {documents} documents: {reason}");
            (self.log_event)(LogSubject::Engine, &line);
        }
    }

    fn round<'s>(
        &self,
        scan: Scan<'s>,
        workers: &mut [Worker],
        writer: &Mutex<Writer>,
        done: &AtomicU64,
    ) -> Result<Scan<'s>> {
        let scan = Mutex::new(scan);
        let failed = AtomicBool::new(false);
        let work = |worker: &mut Worker| {
            let result = self.map_batches(worker, &scan, writer, &failed, done);
            failed.fetch_or(result.is_err(), Ordering::Relaxed);
            result
        };
        let (first, others) = workers.split_first_mut().expect("there is at least one worker");
        std::thread::scope(|scope| {
            let threads: Vec<_> = others.iter_mut().map(|worker| scope.spawn(|| work(worker))).collect();
            let first = work(first);
            threads.into_iter().fold(first, |result, thread| {
                result.and(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            })
        })?;
        Ok(scan.into_inner())
    }

    fn map_batches(
        &self,
        worker: &mut Worker,
        scan: &Mutex<Scan<'_>>,
        writer: &Mutex<Writer>,
        failed: &AtomicBool,
        done: &AtomicU64,
    ) -> Result<()> {
        while !failed.load(Ordering::Relaxed) {
            // The control is called before the read, because all read changes must be mapped.
            let bytes = worker.batch.documents.size_bytes() as u64;
            if let Err(reason) = (self.control)(&mut worker.pace_state, bytes) {
                scan.lock().interrupted = Some(reason);
            }
            if !scan.lock().fill_batch(&mut worker.batch, self.settings)? {
                break;
            }
            self.map(worker, writer)?;
            let changes = worker.batch.changes;
            (self.progress)(done.fetch_add(changes, Ordering::Relaxed) + changes);
        }
        Ok(())
    }

    fn map(&self, worker: &mut Worker, writer: &Mutex<Writer>) -> Result<()> {
        let Worker { program, batch, emissions, .. } = worker;
        let mut keeping = BatchWriter { pass: self, batch, writer, has_fields: vec![false; batch.documents.len()] };
        emissions.clear();
        if !batch.documents.is_empty() {
            let mut kept = Ok(());
            let mapped = program.map_in_parts(&batch.documents, emissions, &mut |part| {
                kept = keeping.write(part);
                part.clear();
                if kept.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            kept?;
            mapped?;
            keeping.write(emissions)?;
        }
        keeping.remove_documents_without_fields()
    }
}

struct BatchWriter<'a> {
    pass: &'a Pass<'a>,
    batch: &'a ChangeBatch,
    writer: &'a Mutex<Writer>,
    has_fields: Vec<bool>,
}

impl BatchWriter<'_> {
    /// All fields of a document are in one part.
    fn write(&mut self, part: &Emissions) -> Result<()> {
        let Self { pass, batch, .. } = *self;
        for failure in &part.failures {
            let id = batch.documents.get(failure.document as usize).id;
            (pass.log_event)(LogSubject::Failure(id), &failure.message);
        }
        part.log.iter().for_each(|line| (pass.log_event)(LogSubject::Message, line));
        let mut rows = part.rows().peekable();
        while let Some(document) = rows.peek().map(|row| row.document) {
            let of_document = std::iter::from_fn(|| rows.next_if(|row| row.document == document));
            let fields: Vec<Result<Field, String>> = of_document.map(|row| field(pass.wanted.form, row)).collect();
            self.write_document(document as usize, fields.into_iter().collect())?;
        }
        Ok(())
    }

    /// A document that cannot be indexed is excluded, as after an exception of its function.
    fn write_document(&mut self, document: usize, fields: Result<Vec<Field>, String>) -> Result<()> {
        let Self { pass, batch, writer, .. } = *self;
        let id = batch.documents.get(document).id;
        let partition = match pass.layout {
            Layout::Partitioned => Some(partition::split(id).map_or("", |(partition, _)| partition)),
            Layout::Whole => None,
        };
        let refused = match fields {
            Ok(fields) => match writer.lock().update(id, partition, fields) {
                Ok(()) => None,
                Err(Error::BadField(reason)) => Some(reason),
                Err(error) => return Err(error.into()),
            },
            Err(reason) => Some(reason),
        };
        self.has_fields[document] = refused.is_none();
        if let Some(reason) = refused {
            (pass.log_event)(LogSubject::Failure(id), &reason);
        }
        Ok(())
    }

    /// Removes deleted documents and those without fields. A new index contains none of them.
    fn remove_documents_without_fields(self) -> Result<()> {
        let Self { pass, batch, writer, has_fields } = self;
        if pass.since.update_seq == 0 {
            return Ok(());
        }
        let without = batch.documents.iter().zip(has_fields).filter(|(_, has)| !has).map(|(document, _)| document.id);
        let mut writer = writer.lock();
        for id in without.chain(batch.removed.iter().map(String::as_str)) {
            writer.delete(id)?;
        }
        Ok(())
    }
}

impl Scan<'_> {
    fn fill_batch(&mut self, batch: &mut ChangeBatch, settings: &Settings) -> Result<bool> {
        batch.clear();
        let now_us = settings.clock.now_us();
        let is_over = self.ends_us.is_some_and(|ends_us| now_us > ends_us);
        if self.fill == Fill::End || self.interrupted.is_some() || is_over {
            return Ok(false);
        }
        let interval_us = settings.checkpoint_interval_ms.saturating_mul(1000);
        self.ends_us.get_or_insert(now_us.saturating_add(interval_us));
        self.fill = self.changes.fill(batch, DesignOptions::default())?;
        if batch.changes > 0 {
            self.last_seq = batch.last_seq;
        }
        Ok(batch.changes > 0)
    }
}
