//! [`Maintenance`]: schedules compactions, the events for `_db_updates`, [`Indexing`], and work of the engine.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use settee_api::Node;
use settee_database::tasks::Tasks;
use settee_database::{Catalog, Compaction, Database, DatabaseError, DatabaseEventKind, Garbage, pause_between_pieces};
use settee_settings::{compaction_daemon, global_changes, smoosh_ratio_dbs};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_blocking};

use crate::config::Configuration;
use crate::indexing::Indexing;
use settee_admin::names;

#[cfg(test)]
mod tests;

/// A database with more obsolete purge records is compacted.
const PURGES_MAX: u64 = 10_000;

const MAINTENANCE_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Maintenance {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) tasks: Tasks,
    pub(crate) configuration: Arc<Configuration>,
    pub(crate) indexing: Arc<Indexing>,
    /// Names of databases that were written since the last check for compactions.
    pub(crate) written: Mutex<BTreeSet<String>>,
    pub(crate) data: PathBuf,
}

pub(crate) struct Running {
    maintenance: Arc<Maintenance>,
    is_over: Arc<AtomicBool>,
    loops: Vec<JoinHandle<()>>,
}

/// CouchDB's channel `ratio_dbs`.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Threshold {
    /// Minimum ratio of the size of a database to its size after a compaction.
    ratio: f64,
    bytes: u64,
}

/// Open databases without garbage above a threshold.
#[derive(Default)]
struct Checked {
    threshold: Option<Threshold>,
    names: BTreeSet<String>,
}

impl Maintenance {
    pub(crate) fn start(self, node: Arc<Node>) -> Running {
        let maintenance = Arc::new(self);
        names::write(&maintenance.data, maintenance.catalog.engine().as_ref());
        let is_over = Arc::new(AtomicBool::new(false));
        let wakeup = Arc::new(Notify::new());
        let waker = Arc::clone(&wakeup);
        maintenance.catalog.context().subscribe(move || waker.notify_one());
        let mut loops = vec![
            tokio::spawn(maintain_engine(Arc::clone(&maintenance))),
            tokio::spawn(compact_periodically(Arc::clone(&maintenance), Arc::clone(&is_over))),
            tokio::spawn(keep_events(Arc::clone(&maintenance), wakeup)),
            tokio::spawn(record_history(node)),
        ];
        loops.extend(maintenance.indexing.start());
        Running { maintenance, is_over, loops }
    }

    fn check_interval(&self) -> Duration {
        Duration::from_secs(compaction_daemon::CHECK_INTERVAL.of(self.configuration.as_ref()).max(1))
    }

    fn threshold(&self) -> Threshold {
        let ratio = smoosh_ratio_dbs::MIN_PRIORITY.of(self.configuration.as_ref());
        Threshold {
            ratio: ratio.trim().parse().unwrap_or(2.0),
            bytes: smoosh_ratio_dbs::MIN_SIZE.of(self.configuration.as_ref()),
        }
    }

    /// Reads the databases that were written or opened since the last check. The others have no new garbage, and on shared
    /// storage a read of unused data costs requests.
    fn compact(&self, checked: &mut Checked, is_over: &AtomicBool) {
        let threshold = self.threshold();
        if checked.threshold != Some(threshold) {
            *checked = Checked { threshold: Some(threshold), names: BTreeSet::new() };
        }
        let open: BTreeSet<String> =
            self.catalog.open_databases().iter().map(|database| database.name().to_owned()).collect();
        checked.names.retain(|name| open.contains(name));
        let mut names = std::mem::take(&mut *self.written.lock());
        names.extend(open.difference(&checked.names).cloned());
        for name in names {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            checked.names.remove(&name);
            let database = self.catalog.database(&name);
            match database.and_then(|database| self.compact_if_due(&database, threshold, is_over)) {
                Ok(()) => _ = checked.names.insert(name),
                Err(DatabaseError::NotFound) => {}
                Err(error) => tracing::warn!(%error, database = name, "a compaction failed"),
            }
        }
    }

    fn compact_if_due(
        &self,
        database: &Arc<Database>,
        threshold: Threshold,
        is_over: &AtomicBool,
    ) -> settee_database::Result<()> {
        let garbage = database.garbage()?;
        if !threshold.is_reached(garbage) {
            return Ok(());
        }
        let done = database.compact(&self.tasks, &mut pause_between_pieces(|| is_over.load(Ordering::Relaxed)))?;
        if done == Compaction::Done {
            tracing::info!(database = database.name(), garbage_bytes = garbage.bytes, "compacted");
        }
        Ok(())
    }

    fn keep_events(&self) {
        let events = self.catalog.context().take_events();
        let written = events.iter().filter(|(_, happened)| *happened == DatabaseEventKind::Updated);
        self.written.lock().extend(written.map(|(name, _)| name.clone()));
        self.indexing.note(&events);
        if events
            .iter()
            .any(|(_, happened)| matches!(happened, DatabaseEventKind::Created | DatabaseEventKind::Deleted))
        {
            names::write(&self.data, self.catalog.engine().as_ref());
        }
        if events.is_empty() || !global_changes::UPDATE_DB.of(self.configuration.as_ref()) {
            return;
        }
        if let Err(error) = self.catalog.keep_events(&events) {
            tracing::warn!(%error, events = events.len(), "events of databases were not stored for _db_updates");
        }
    }
}

impl Threshold {
    fn is_reached(self, garbage: Garbage) -> bool {
        let much = garbage.bytes >= self.bytes.max(1);
        let left = garbage.total_bytes.saturating_sub(garbage.bytes).max(1);
        let ratio = garbage.total_bytes as f64 / left as f64;
        much && ratio >= self.ratio || garbage.purges >= PURGES_MAX
    }
}

/// Logs when the engine starts and stops refusing writes.
async fn maintain_engine(maintenance: Arc<Maintenance>) {
    let mut reply = maintenance.catalog.engine().check().err().map(|error| error.to_string());
    loop {
        tokio::time::sleep(MAINTENANCE_INTERVAL).await;
        let engine = Arc::clone(maintenance.catalog.engine());
        let found = match spawn_blocking(move || engine.maintain()).await {
            Ok(found) => found.err().map(|error| error.to_string()),
            Err(panic) => Some(panic.to_string()),
        };
        match (&reply, &found) {
            (None, Some(reason)) => tracing::error!(reason, "writes are rejected until the cause is gone"),
            (Some(_), None) => tracing::warn!("writes are accepted again"),
            _ => {}
        }
        reply = found;
    }
}

async fn compact_periodically(maintenance: Arc<Maintenance>, is_over: Arc<AtomicBool>) {
    let checked = Arc::new(Mutex::new(Checked::default()));
    loop {
        tokio::time::sleep(maintenance.check_interval()).await;
        let (working, checked, is_over) = (Arc::clone(&maintenance), Arc::clone(&checked), Arc::clone(&is_over));
        if let Err(panic) = spawn_blocking(move || working.compact(&mut checked.lock(), &is_over)).await {
            tracing::error!(%panic, "automatic compaction panicked");
        }
    }
}

async fn record_history(node: Arc<Node>) {
    loop {
        let recording = Arc::clone(&node);
        if let Err(panic) = spawn_blocking(move || recording.record_history()).await {
            tracing::error!(%panic, "recording the history of metrics panicked");
        }
        tokio::time::sleep(Node::HISTORY_INTERVAL).await;
    }
}

async fn keep_events(maintenance: Arc<Maintenance>, wakeup: Arc<Notify>) {
    loop {
        wakeup.notified().await;
        let delay_ms = global_changes::MAX_WRITE_DELAY.of(maintenance.configuration.as_ref());
        tokio::time::sleep(Duration::from_millis(delay_ms)).await;
        let working = Arc::clone(&maintenance);
        if let Err(panic) = spawn_blocking(move || working.keep_events()).await {
            tracing::error!(%panic, "storing events for _db_updates panicked");
        }
    }
}

impl Running {
    /// An interrupted compaction resumes the next time it is due.
    pub(crate) async fn stop(self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.loops.iter().for_each(JoinHandle::abort);
        self.maintenance.indexing.stop().await;
        if let Err(panic) = spawn_blocking(move || self.maintenance.keep_events()).await {
            tracing::error!(%panic, "storing events for _db_updates panicked");
        }
    }
}
