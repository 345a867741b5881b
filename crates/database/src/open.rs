//! [`OpenDatabases`]: the open databases. Beyond a limit, databases without users are closed, least recently used
//! first; the next request opens them again.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::Database;

pub(crate) struct OpenDatabases {
    state: RwLock<State>,
    /// Number of opens, the clock of the LRU order. Other requests only read it, so they do not contend for it.
    openings: AtomicU64,
}

struct State {
    by_name: HashMap<String, Open>,
    limit: usize,
    threshold: usize,
}

struct Open {
    database: Arc<Database>,
    used: AtomicU64,
}

impl OpenDatabases {
    pub(crate) fn new() -> Self {
        let state = State { by_name: HashMap::new(), limit: usize::MAX, threshold: usize::MAX };
        Self { state: RwLock::new(state), openings: AtomicU64::new(0) }
    }

    pub(crate) fn set_limit(&self, limit: usize) {
        let mut state = self.state.write();
        state.limit = limit;
        let closed = state.close_idle();
        drop(state);
        drop(closed);
    }

    pub(crate) fn get(&self, name: &str) -> Option<Arc<Database>> {
        let state = self.state.read();
        let open = state.by_name.get(name)?;
        let now = self.openings.load(Ordering::Relaxed);
        if open.used.load(Ordering::Relaxed) != now {
            open.used.store(now, Ordering::Relaxed);
        }
        Some(Arc::clone(&open.database))
    }

    pub(crate) fn insert(&self, database: &Arc<Database>) {
        let used = AtomicU64::new(self.openings.fetch_add(1, Ordering::Relaxed) + 1);
        let open = Open { database: Arc::clone(database), used };
        let mut state = self.state.write();
        state.by_name.insert(database.name().to_owned(), open);
        let closed = if state.by_name.len() > state.threshold { state.close_idle() } else { Vec::new() };
        drop(state);
        drop(closed);
    }

    pub(crate) fn remove(&self, name: &str) -> Option<Arc<Database>> {
        self.state.write().by_name.remove(name).map(|open| open.database)
    }

    pub(crate) fn remove_if_same(&self, database: &Arc<Database>) {
        let mut state = self.state.write();
        if state.by_name.get(database.name()).is_some_and(|open| Arc::ptr_eq(&open.database, database)) {
            state.by_name.remove(database.name());
        }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Database>> {
        self.state.read().by_name.values().map(|open| Arc::clone(&open.database)).collect()
    }
}

impl State {
    /// Removes and returns databases without users while the limit is exceeded. Guarantee: they cannot gain a user
    /// concurrently, because references come only from this map, which is locked, or from existing users.
    fn close_idle(&mut self) -> Vec<Arc<Database>> {
        // Closing more than needed avoids a scan of all databases for every open.
        let slack = self.limit / 8;
        let mut closed = Vec::new();
        if self.by_name.len() > self.limit {
            let idle = self.by_name.iter().filter(|(_, open)| Arc::strong_count(&open.database) == 1);
            let mut idle: Vec<(u64, String)> =
                idle.map(|(name, open)| (open.used.load(Ordering::Relaxed), name.clone())).collect();
            let surplus = (self.by_name.len() - self.limit + slack).min(idle.len());
            if surplus < idle.len() {
                idle.select_nth_unstable(surplus);
            }
            closed.extend(idle.iter().take(surplus).filter_map(|(_, name)| self.by_name.remove(name)));
        }
        let left = self.by_name.len();
        self.threshold = if left < self.limit { self.limit } else { left.saturating_add(left / 8 + 1) };
        closed.into_iter().map(|open| open.database).collect()
    }
}
