//! Full scan, when no index is suitable.
//!
//! Bodies are stored in the order of updates, so reading all documents by id is a random read for each, while reading
//! them in the order of updates is two sequential scans. The query starts in the order of ids, because it may reach its
//! limit soon. If not, several threads scan the rest in the order of updates. They keep the first ids that match; these
//! documents are then read in order.

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

/// Number of documents that are read by id before the access path is decided.
const SAMPLE: u64 = if cfg!(test) { 5 } else { 2_000 };

/// Cost of reading a document by id, in documents of a scan.
const READ_COST: u64 = 16;

/// Maximum number of ids that a thread keeps.
const MAX_WANTED: u64 = 10_000;

/// Number of sequences that a thread takes at once.
const STRETCH: u64 = if cfg!(test) { 7 } else { 20_000 };

/// Maximum number of threads; more do not read faster.
const MAX_THREADS: usize = 4;

/// Returns true if a scan can answer the query: its limit is small, and it needs nothing of other revisions.
pub(super) fn is_possible(collector: &Collector<'_>) -> bool {
    collector.wanted() <= MAX_WANTED && !collector.options.conflicts && !collector.options.execution_stats
}

/// Processes all documents of `ranges`, which must exclude nothing but design documents.
pub(super) fn run(view: &ReadView, ranges: &[IdRange], collector: &mut Collector<'_>) -> Result<()> {
    let (documents, _) = view.counts()?;
    let wanted = collector.wanted();
    let is_scan_better = |collector: &Collector<'_>| {
        let examined = collector.stats.keys_examined;
        let matched = wanted - collector.wanted();
        // The expected number of documents, extrapolated from those examined so far.
        let rest = examined.saturating_mul(collector.wanted()).checked_div(matched).unwrap_or(u64::MAX);
        examined.is_multiple_of(SAMPLE) && rest > documents / READ_COST
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
    let stretches = Stretches {
        view,
        selector: &collector.options.selector,
        direction,
        after,
        wanted: usize::try_from(collector.wanted()).unwrap_or(usize::MAX),
        update_seq: view.update_seq()?,
        next: AtomicU64::new(0),
    };
    let (ids, examined) = stretches.scan()?;
    collector.stats.keys_examined += examined;
    // Those that are read again were already counted.
    collector.count(examined - ids.len() as u64);
    batch::offer_all(view, ids.iter().map(String::as_str), collector)
}

struct Stretches<'a> {
    view: &'a ReadView,
    selector: &'a Selector,
    direction: Direction,
    /// Ids up to this one were processed.
    after: &'a str,
    wanted: usize,
    update_seq: u64,
    /// Start of the next stretch.
    next: AtomicU64,
}

/// Result of a thread: ids in the requested order, and the number of tested documents.
#[derive(Default)]
struct Found {
    ids: BTreeSet<String>,
    examined: u64,
}

impl Stretches<'_> {
    /// Returns the first ids that match, in the requested order.
    fn scan(&self) -> Result<(Vec<String>, u64)> {
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        let results: Vec<Result<Found>> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| self.work())).collect();
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
            Direction::Forward => ids.take(self.wanted).collect(),
            Direction::Backward => ids.rev().take(self.wanted).collect(),
        };
        Ok((ids, all.examined))
    }

    fn work(&self) -> Result<Found> {
        let mut found = Found::default();
        let mut document = Vec::new();
        loop {
            let since = self.next.fetch_add(STRETCH, Ordering::Relaxed);
            if since >= self.update_seq {
                return Ok(found);
            }
            self.stretch(since, &mut found, &mut document)?;
        }
    }

    fn stretch(&self, since: u64, found: &mut Found, document: &mut Vec<u8>) -> Result<(), MangoError> {
        let mut changes = self.view.changes(since, Direction::Forward)?;
        while let Some(change) = changes.next()? {
            if change.seq > since + STRETCH {
                break;
            }
            if change.stored.deleted || change.id.starts_with("_design/") || !self.is_wanted(change.id, &found.ids) {
                continue;
            }
            let id = change.id.to_owned();
            found.examined += 1;
            document.clear();
            changes.write_document(document, |_| {})?;
            if self.selector.matches(Value::trusted(document)) {
                found.ids.insert(id);
                if found.ids.len() > self.wanted {
                    match self.direction {
                        Direction::Forward => found.ids.pop_last(),
                        Direction::Backward => found.ids.pop_first(),
                    };
                }
            }
        }
        Ok(())
    }

    /// Returns true if an id was not processed yet and is before the last one found, or fewer than needed were found.
    fn is_wanted(&self, id: &str, ids: &BTreeSet<String>) -> bool {
        let is_full = ids.len() >= self.wanted;
        match self.direction {
            Direction::Forward => id > self.after && !(is_full && ids.last().is_some_and(|last| id > last.as_str())),
            Direction::Backward => {
                id < self.after && !(is_full && ids.first().is_some_and(|first| id < first.as_str()))
            }
        }
    }
}
