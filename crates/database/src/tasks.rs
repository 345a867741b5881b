//! Running tasks of the server: the entries of `_active_tasks`. Long-running work registers a [`Task`] and updates its
//! counters; dropping the task removes the entry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Kind of a task and its object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskKind {
    /// Update of the view index of a design document.
    Indexer {
        /// The database.
        database: String,
        /// The id of the design document, `_design/` included.
        design_document: String,
    },
    /// Update of a search index.
    SearchIndexer {
        /// The database.
        database: String,
        /// The id of the design document, `_design/` included.
        design_document: String,
        /// The name of the index.
        index: String,
    },
    /// Compaction of a database.
    DatabaseCompaction {
        /// The database.
        database: String,
    },
}

/// The current state of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskState {
    /// Id that no other task of this process has.
    pub id: u64,
    /// Kind of the task.
    pub kind: TaskKind,
    /// Number of processed changes.
    pub changes_done: u64,
    /// Total number of changes; an estimate.
    pub total_changes: u64,
    /// Start time, in seconds of the Unix epoch.
    pub started_on: u64,
    /// Time of the last update of the counters, in seconds of the Unix epoch.
    pub updated_on: u64,
}

/// Minimum duration for an estimate, because the clock has a resolution of one second.
const ETA_AFTER_S: u64 = 2;

impl TaskState {
    /// Completed share in percent.
    #[must_use]
    pub fn progress(&self) -> u64 {
        (self.changes_done * 100).checked_div(self.total_changes).map_or(100, |percent| percent.min(100))
    }

    /// Estimated remaining time in seconds at the average speed. `None` during the first seconds.
    #[must_use]
    pub fn eta_s(&self) -> Option<u64> {
        let seconds = self.updated_on.saturating_sub(self.started_on);
        let left = self.total_changes.saturating_sub(self.changes_done);
        let eta_s = u128::from(left) * u128::from(seconds) / u128::from(self.changes_done.max(1));
        (seconds >= ETA_AFTER_S && self.changes_done > 0).then(|| u64::try_from(eta_s).unwrap_or(u64::MAX))
    }
}

/// All running tasks. Clones share them.
#[derive(Clone)]
pub struct Tasks {
    running: Arc<Mutex<BTreeMap<u64, Arc<Entry>>>>,
    next: Arc<AtomicU64>,
    clock: Arc<dyn Fn() -> u64 + Send + Sync>,
}

struct Entry {
    kind: TaskKind,
    started_on: u64,
    updated_on: AtomicU64,
    changes_done: AtomicU64,
    total_changes: AtomicU64,
}

/// A running task, which ends when it is dropped.
pub struct Task {
    tasks: Tasks,
    id: u64,
    entry: Arc<Entry>,
}

impl Tasks {
    /// Creates an empty list. `clock` returns the seconds of the Unix epoch.
    pub fn new(clock: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self { running: Arc::default(), next: Arc::default(), clock: Arc::new(clock) }
    }

    /// Registers a task with `total_changes` changes.
    #[must_use]
    pub fn start(&self, kind: TaskKind, total_changes: u64) -> Task {
        let now = (self.clock)();
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Arc::new(Entry {
            kind,
            started_on: now,
            updated_on: AtomicU64::new(now),
            changes_done: AtomicU64::new(0),
            total_changes: AtomicU64::new(total_changes),
        });
        self.running.lock().insert(id, Arc::clone(&entry));
        Task { tasks: self.clone(), id, entry }
    }

    /// All running tasks, oldest first.
    #[must_use]
    pub fn list(&self) -> Vec<TaskState> {
        let running = self.running.lock();
        running
            .iter()
            .map(|(id, entry)| TaskState {
                id: *id,
                kind: entry.kind.clone(),
                changes_done: entry.changes_done.load(Ordering::Relaxed),
                total_changes: entry.total_changes.load(Ordering::Relaxed),
                started_on: entry.started_on,
                updated_on: entry.updated_on.load(Ordering::Relaxed),
            })
            .collect()
    }
}

impl Task {
    /// Sets the counters.
    pub fn update(&self, changes_done: u64, total_changes: u64) {
        self.entry.changes_done.store(changes_done, Ordering::Relaxed);
        self.entry.total_changes.store(total_changes, Ordering::Relaxed);
        self.entry.updated_on.store((self.tasks.clock)(), Ordering::Relaxed);
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.tasks.running.lock().remove(&self.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_listed_while_they_run() {
        let clock = Arc::new(AtomicU64::new(100));
        let seconds = Arc::clone(&clock);
        let tasks = Tasks::new(move || seconds.load(Ordering::Relaxed));
        let kind = |database: &str| TaskKind::DatabaseCompaction { database: database.to_owned() };
        let first = tasks.start(kind("a"), 40);
        let second = tasks.clone().start(kind("b"), 0);
        clock.store(105, Ordering::Relaxed);
        first.update(10, 40);
        let list = tasks.list();
        let seen: Vec<_> =
            list.iter().map(|task| (&task.kind, task.progress(), task.started_on, task.updated_on)).collect();
        assert_eq!(seen, [(&kind("a"), 25, 100, 105), (&kind("b"), 100, 100, 100)]);
        assert_ne!(list[0].id, list[1].id);
        assert_eq!(list.iter().map(TaskState::eta_s).collect::<Vec<_>>(), [Some(15), None]);
        first.update(50, 40);
        assert_eq!(tasks.list()[0].progress(), 100);
        drop(first);
        assert_eq!(tasks.list().len(), 1);
        drop(second);
        assert_eq!(tasks.list(), []);
    }
}
