//! [`Store`]: where tests of the layers above `storage` have their data. In memory, or, where the variable [`VARIABLE`] names a
//! PostgreSQL, there, in a schema for each store. `cargo xtask test --storage postgres` starts one and sets it.
//!
//! Only tests use this crate. Tests of what an engine does by itself, or of faults that an engine is told to have, name that engine.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_storage::Engine;
use settee_storage::memory::MemoryEngine;
use settee_storage_postgres::{Options, PostgresEngine};

/// The environment variable with the URL of a PostgreSQL that is nobody's: `postgres://user@host/database`.
pub const VARIABLE: &str = "SETTEE_TEST_STORAGE";

/// Connections of each process. Tests hold some snapshots at a time, and several tests run beside each other.
const CONNECTIONS: usize = 24;

/// A store that nobody used before.
pub struct Store(Place);

enum Place {
    Memory(MemoryEngine),
    Postgres(Box<Options>),
}

/// The only process on a store of its own.
///
/// # Panics
/// When the PostgreSQL that is named cannot be used.
#[must_use]
pub fn engine() -> Arc<dyn Engine> {
    match place() {
        Place::Memory(engine) => Arc::new(engine),
        Place::Postgres(options) => Arc::new(postgres(&options)),
    }
}

impl Store {
    /// An empty store.
    ///
    /// # Panics
    /// When the variable names no PostgreSQL.
    #[expect(clippy::new_without_default, reason = "it may end with a panic")]
    #[must_use]
    pub fn new() -> Self {
        Self(place())
    }

    /// Another process on it: it hears of what the others commit after [`Engine::catch_up`] at the latest, and it has died, perhaps
    /// without a word, when nobody has the engine any more.
    ///
    /// # Panics
    /// When the PostgreSQL that is named cannot be used.
    #[must_use]
    pub fn process(&self) -> Arc<dyn Engine> {
        match &self.0 {
            Place::Memory(engine) => Arc::new(engine.user()),
            Place::Postgres(options) => Arc::new(postgres(options)),
        }
    }

    /// Two processes on it.
    ///
    /// # Panics
    /// When the PostgreSQL that is named cannot be used.
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
    // Another test program has others.
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
