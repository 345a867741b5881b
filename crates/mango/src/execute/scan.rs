//! Full scan. Bodies are stored in the order of updates: reading them by id is random access. The query starts in the
//! order of ids, because it may reach its limit soon. If not, several threads scan the rest in the order of updates and
//! keep the first ids that match, whose documents are then read in order.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use settee_database::{Direction, IdRange, ReadView};
use settee_model::json::Value;

use super::batch;
use super::collector::Collector;
use super::primary::{self, direction, last_id};
use crate::error::{MangoError, Result};
use crate::selector::Selector;

/// Number of documents that are read by id before the decision.
const SAMPLE_DOCUMENTS: u64 = if cfg!(test) { 5 } else { 2_000 };

/// Cost of reading a document by id, in documents of a scan.
const READ_COST: u64 = 16;

const MAX_REMAINING: u64 = 10_000;

/// Number of sequences that a thread takes at once.
const CHUNK_SEQUENCES: u64 = if cfg!(test) { 7 } else { 20_000 };

const MAX_THREADS: usize = 4;

/// True if the limit is small and the query needs no data of other revisions.
pub(super) fn is_possible(collector: &Collector<'_>) -> bool {
    collector.remaining() <= MAX_REMAINING && !collector.options.conflicts && !collector.options.execution_stats
}

/// `ranges` must exclude only design documents.
pub(super) fn run(view: &ReadView<'_>, ranges: &[IdRange], collector: &mut Collector<'_>) -> Result<()> {
    let documents = view.doc_count()?;
    let remaining = collector.remaining();
    let is_scan_better = |collector: &Collector<'_>| {
        let examined = collector.stats.keys_examined;
        let matched = remaining - collector.remaining();
        // The expected number of documents, extrapolated from the examined ones.
        let rest = examined.saturating_mul(collector.remaining()).checked_div(matched).unwrap_or(u64::MAX);
        examined.is_multiple_of(SAMPLE_DOCUMENTS) && rest > documents / READ_COST
    };
    let Some(last) = primary::run_until(view, ranges, is_scan_better, collector)? else {
        return Ok(());
    };
    let direction = direction(collector.options);
    let after = match (last_id(collector.options), direction) {
        (Some(first), Direction::Forward) => last.as_str().max(first),
        (Some(first), Direction::Backward) => last.as_str().min(first),
        (None, _) => &last,
    };
    let parallel_scan = ParallelScan {
        view,
        selector: &collector.options.selector,
        direction,
        after,
        remaining: usize::try_from(collector.remaining()).unwrap_or(usize::MAX),
        update_seq: view.update_seq()?,
        next: AtomicU64::new(0),
    };
    let (ids, examined) = parallel_scan.scan()?;
    collector.stats.keys_examined += examined;
    // The documents that are read again were already counted.
    collector.count(examined - ids.len() as u64);
    batch::process_all(view, ids.iter().map(String::as_str), collector)
}

struct ParallelScan<'a> {
    view: &'a ReadView<'a>,
    selector: &'a Selector,
    direction: Direction,
    after: &'a str,
    remaining: usize,
    update_seq: u64,
    next: AtomicU64,
}

#[derive(Default)]
struct Found {
    ids: BTreeSet<String>,
    examined: u64,
}

impl ParallelScan<'_> {
    fn scan(&self) -> Result<(Vec<String>, u64)> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        let results: Vec<Result<Found>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.run_worker())).collect();
            let join = |worker: thread::ScopedJoinHandle<'_, Result<Found>>| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            };
            workers.into_iter().map(join).collect()
        });
        let mut all = Found::default();
        for found in results {
            let found = found?;
            all.examined += found.examined;
            all.ids.extend(found.ids);
        }
        let ids = all.ids.into_iter();
        let ids = match self.direction {
            Direction::Forward => ids.take(self.remaining).collect(),
            Direction::Backward => ids.rev().take(self.remaining).collect(),
        };
        Ok((ids, all.examined))
    }

    fn run_worker(&self) -> Result<Found> {
        let mut found = Found::default();
        let mut document = Vec::new();
        loop {
            let since = self.next.fetch_add(CHUNK_SEQUENCES, Ordering::Relaxed);
            if since >= self.update_seq {
                return Ok(found);
            }
            self.scan_chunk(since, &mut found, &mut document)?;
        }
    }

    fn scan_chunk(&self, since: u64, found: &mut Found, document: &mut Vec<u8>) -> Result<(), MangoError> {
        let mut changes = self.view.changes(since, Direction::Forward)?;
        while let Some(change) = changes.next()? {
            if change.seq > since + CHUNK_SEQUENCES {
                break;
            }
            if change.stored.deleted
                || change.id.starts_with("_design/")
                || !self.may_be_in_result(change.id, &found.ids)
            {
                continue;
            }
            let id = change.id.to_owned();
            found.examined += 1;
            document.clear();
            changes.write_document(document, |_| {})?;
            if self.selector.matches(Value::trusted(document)) {
                found.ids.insert(id);
                if found.ids.len() > self.remaining {
                    match self.direction {
                        Direction::Forward => found.ids.pop_last(),
                        Direction::Backward => found.ids.pop_first(),
                    };
                }
            }
        }
        Ok(())
    }

    /// True if the id was not processed and fewer than `remaining` ids precede it.
    fn may_be_in_result(&self, id: &str, ids: &BTreeSet<String>) -> bool {
        let is_full = ids.len() >= self.remaining;
        match self.direction {
            Direction::Forward => id > self.after && !(is_full && ids.last().is_some_and(|last| id > last.as_str())),
            Direction::Backward => {
                id < self.after && !(is_full && ids.first().is_some_and(|first| id < first.as_str()))
            }
        }
    }
}
