//! [`Premise`]: what a request is judged by before it writes to a database, so that nobody has to ask the store for news first.
//!
//! Settings, users and the names of databases are in shards that are presumed unchanged, and the commit finds out whether they are. The database's own
//! shard changes all the time, but a commit to it is made only on the last version: whoever has met commits of others there since says that as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use settee_storage::Shard;

use crate::Database;
use crate::entry::CATALOG;

/// What is presumed of a database, of the catalog, and of other databases.
#[derive(Clone, Debug)]
pub struct Premise {
    database: Arc<Database>,
    besides: Vec<Arc<Database>>,
    /// What the engine knows of the shards around the database.
    around: settee_storage::Premise,
    /// The commits of others that were known of each, the database first.
    known: Vec<[u64; 2]>,
    /// A commit has found out that all of it is so.
    is_held: Arc<AtomicBool>,
}

impl Premise {
    /// What is known now. `None` if something was heard that nobody has looked at, if others have written to the database of late, or if there is no other
    /// process.
    #[must_use]
    pub fn of(database: &Arc<Database>, besides: Vec<Arc<Database>>) -> Option<Self> {
        let shards: Vec<Shard> = [CATALOG].into_iter().chain(besides.iter().map(|database| database.shard())).collect();
        // First of all: what is heard from now on may be known or not.
        let around = database.engine().premise(&shards)?;
        let (known, is_held) = (known(database, &besides), Arc::default());
        let is_stale = database.is_stale() || besides.iter().any(|database| database.is_stale());
        (!is_stale && database.may_be_presumed()).then(|| Self {
            database: Arc::clone(database),
            besides,
            around,
            known,
            is_held,
        })
    }

    /// Whether a commit has found out that all of it was so when that was made.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.is_held.load(Ordering::Acquire)
    }

    /// Whether nothing was heard since. After [`Engine::catch_up`](crate::Engine::catch_up) it is as good as [`Self::is_held`].
    #[must_use]
    pub fn is_all_that_is_heard(&self) -> bool {
        self.known == known(&self.database, &self.besides)
    }

    /// What the commit of a batch has to find out.
    pub(crate) fn around(&self) -> &settee_storage::Premise {
        &self.around
    }

    /// Whether it is known that others have written to the database since.
    pub(crate) fn is_overtaken(&self) -> bool {
        let is_overtaken = self.known[0][0] != self.database.foreign();
        if is_overtaken {
            self.database.is_not_to_be_presumed();
        }
        is_overtaken
    }

    /// It was found out.
    pub(crate) fn hold(&self) {
        self.is_held.store(true, Ordering::Release);
    }
}

/// What is known of the commits of others to a database and to the catalog, and of those to databases besides.
fn known(database: &Database, besides: &[Arc<Database>]) -> Vec<[u64; 2]> {
    let of_one = |database: &Database| [database.foreign(), database.heard_elsewhere()];
    let around = [0, database.catalog_heard()];
    [of_one(database), around].into_iter().chain(besides.iter().map(|database| of_one(database))).collect()
}
