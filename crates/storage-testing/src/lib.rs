//! [`Store`]: the store on which tests of the layers above `storage` run. It is in memory, or in a schema of the
//! PostgreSQL that the variable [`VARIABLE`] names. `cargo xtask test --storage postgres` starts a PostgreSQL and sets
//! the variable. Tests of a specific engine, or of injected faults, create that engine directly.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_storage::Engine;
use settee_storage::memory::MemoryEngine;
use settee_storage_postgres::{Options, PostgresEngine};

/// URL of a PostgreSQL that is used for tests only: `postgres://user@host/database`.
pub const VARIABLE: &str = "SETTEE_TEST_STORAGE";

/// Per process. Tests hold several snapshots concurrently, and several tests run in parallel.
const CONNECTIONS: usize = 24;

pub struct Store(Place);

enum Place {
    Memory(MemoryEngine),
    Postgres(Box<Options>),
}

/// Opens a new store as its only process. Panics if the PostgreSQL cannot be used.
#[must_use]
pub fn engine() -> Arc<dyn Engine> {
    match place() {
        Place::Memory(engine) => Arc::new(engine),
        Place::Postgres(options) => Arc::new(postgres(&options)),
    }
}

impl Store {
    /// Creates an empty store. Panics if the variable is not a PostgreSQL URL.
    #[expect(clippy::new_without_default, reason = "it may end with a panic")]
    #[must_use]
    pub fn new() -> Self {
        Self(place())
    }

    /// Opens the store as another process, which observes commits of the other processes after [`Engine::catch_up`] at
    /// the latest. When its engine is dropped, the process counts as failed. Panics if the PostgreSQL cannot be used.
    #[must_use]
    pub fn process(&self) -> Arc<dyn Engine> {
        match &self.0 {
            Place::Memory(engine) => Arc::new(engine.user()),
            Place::Postgres(options) => Arc::new(postgres(options)),
        }
    }

    #[must_use]
    pub fn two(&self) -> [Arc<dyn Engine>; 2] {
        [self.process(), self.process()]
    }
}

fn place() -> Place {
    static STORES: AtomicU64 = AtomicU64::new(0);
    let Some(url) = env::var(VARIABLE).ok().filter(|url| !url.is_empty()) else {
        return Place::Memory(MemoryEngine::new());
    };
    let (sign, number) = (if url.contains('?') { '&' } else { '?' }, STORES.fetch_add(1, Ordering::Relaxed));
    let url = format!("{url}{sign}schema=t{}_{number}", std::process::id());
    let options = Options::parse(&url).unwrap_or_else(|error| panic!("{VARIABLE}: {error}"));
    Place::Postgres(Box::new(options.with_connections(CONNECTIONS)))
}

fn postgres(options: &Options) -> PostgresEngine {
    static PROCESSES: AtomicU64 = AtomicU64::new(0);
    let number = u128::from(PROCESSES.fetch_add(1, Ordering::Relaxed) + 1);
    // The process id keeps schemas of other test programs apart.
    let id = u128::from(std::process::id()) << 64 | number;
    PostgresEngine::open(options, id.to_be_bytes()).unwrap_or_else(|error| panic!("{VARIABLE}: {error}"))
}

#[cfg(test)]
mod tests {
    use settee_storage::{Batch, CommitToken, Durability, Keyspace, Outcome, Shard, Version};

    use super::*;

    #[test]
    fn processes_share_a_store_and_stores_nothing() {
        let (store, sole) = (Store::new(), engine());
        let [one, other] = store.two();
        let mut batch = Batch::new();
        batch.put(Keyspace::Local, b"key", b"value");
        let outcome = one.commit(Shard(1), Version(0), CommitToken(1), batch, Durability::Buffered);
        assert!(matches!(outcome, Ok(Outcome::Committed(Version(1)))), "{outcome:?}");
        let value = |engine: &Arc<dyn Engine>| engine.snapshot(Shard(1)).and_then(|it| it.get(Keyspace::Local, b"key"));
        let found = [&one, &other, &store.process(), &sole, &engine()].map(|engine| value(engine).ok().flatten());
        let there = Some(b"value".to_vec());
        assert_eq!(found, [there.clone(), there.clone(), there, None, None]);
        assert!(!one.members().is_sole() && one.members().this() != other.members().this());
    }
}
