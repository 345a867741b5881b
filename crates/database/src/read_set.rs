//! [`ReadSet`]: the read set of a request that writes to a database. It avoids a round trip for commit notifications
//! before the request is validated.
//!
//! Settings, users and the names of databases are in shards that are assumed to be unchanged; the commit validates
//! this. The database's own shard changes often, but a commit to it applies only at the expected version: a writer
//! that has observed foreign commits there since reports the read set as outdated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use settee_storage::Shard;

use crate::Database;
use crate::entry::CATALOG;

/// A read set: the observed state of a database, of the catalog, and of other databases.
#[derive(Clone, Debug)]
pub struct ReadSet {
    database: Arc<Database>,
    besides: Vec<Arc<Database>>,
    /// The engine's read set for the shards of the catalog and of `besides`.
    around: settee_storage::ReadSet,
    /// Observed foreign commits of each shard, the database first.
    known: Vec<[u64; 2]>,
    /// True once a commit has validated the read set.
    is_held: Arc<AtomicBool>,
}

impl ReadSet {
    /// Captures the current state. Returns `None` if a commit notification was not handled yet, if other processes
    /// have written to the database recently, or if no other process uses the store.
    #[must_use]
    pub fn of(database: &Arc<Database>, besides: Vec<Arc<Database>>) -> Option<Self> {
        let shards: Vec<Shard> = [CATALOG].into_iter().chain(besides.iter().map(|database| database.shard())).collect();
        // The engine's read set is captured first, so that `known` is at least as recent.
        let around = database.engine().read_set(&shards)?;
        let (known, is_held) = (known(database, &besides), Arc::default());
        let is_stale = database.is_stale() || besides.iter().any(|database| database.is_stale());
        (!is_stale && database.may_use_read_set()).then(|| Self {
            database: Arc::clone(database),
            besides,
            around,
            known,
            is_held,
        })
    }

    /// Returns true if a commit has validated the read set.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// Returns true if no commit notification has arrived since. After [`Engine::catch_up`](crate::Engine::catch_up)
    /// this is equivalent to [`Self::is_held`].
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.known == known(&self.database, &self.besides)
    }

    /// The part of the read set that a commit must validate.
    pub(crate) fn around(&self) -> &settee_storage::ReadSet {
        &self.around
    }

    /// Returns true if commits of other processes to the database were observed since. The database then suspends read
    /// sets, because they would probably fail again.
    pub(crate) fn is_overtaken(&self) -> bool {
        let is_overtaken = self.known[0][0] != self.database.foreign();
        if is_overtaken {
            self.database.suspend_read_sets();
        }
        is_overtaken
    }

    /// Marks the read set as validated.
    pub(crate) fn hold(&self) {
        self.is_held.store(true, Ordering::Release);
    }
}

/// Returns the observed foreign commits of the database, of the catalog and of the other databases.
fn known(database: &Database, besides: &[Arc<Database>]) -> Vec<[u64; 2]> {
    let of_one = |database: &Database| [database.foreign(), database.foreign_version()];
    let around = [0, database.notified_catalog_version()];
    [of_one(database), around].into_iter().chain(besides.iter().map(|database| of_one(database))).collect()
}
