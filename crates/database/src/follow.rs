//! [`follow`]: reads databases with subscribers again. A temporary thread merges concurrent commits.

use std::collections::HashSet;
use std::mem::take;
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use settee_storage::{Engine, Shard, Version};

use crate::notifications::NotifiedVersions;
use crate::open::OpenDatabases;
use crate::{Database, DatabaseError};

/// Subscribes `notified` and the open databases to the commits of other processes.
pub(crate) fn follow(engine: &dyn Engine, notified: &Arc<NotifiedVersions>, open: &Arc<OpenDatabases>) {
    let reader = Arc::new(NotificationReader {
        notified: Arc::clone(notified),
        open: Arc::downgrade(open),
        state: Mutex::default(),
    });
    engine.subscribe(Box::new(move |shard, version| reader.note(shard, version)));
}

struct NotificationReader {
    notified: Arc<NotifiedVersions>,
    /// The reference is weak because the engine owns its listeners and databases own their engine.
    open: Weak<OpenDatabases>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Shards with notifications that the reader has not handled.
    shards: HashSet<Shard>,
    /// True while a reader thread runs.
    has_reader: bool,
}

impl NotificationReader {
    fn note(self: &Arc<Self>, shard: Shard, version: Version) {
        if !self.notified.note(shard, version) {
            return;
        }
        let mut state = self.state.lock();
        state.shards.insert(shard);
        if std::mem::replace(&mut state.has_reader, true) {
            return;
        }
        drop(state);
        let reader = Arc::clone(self);
        if thread::Builder::new().name("notifications".to_owned()).spawn(move || reader.read()).is_err() {
            // The read must not run on this thread, which may be the only one of the engine that receives replies.
            // The next notification tries again.
            self.state.lock().has_reader = false;
        }
    }

    fn read(&self) {
        loop {
            let mut state = self.state.lock();
            let shards = take(&mut state.shards);
            let open = self.open.upgrade().filter(|_| !shards.is_empty());
            let Some(open) = open else {
                state.has_reader = false;
                return;
            };
            drop(state);
            // A database without subscribers is refreshed by its next user.
            let followed = |database: &Arc<Database>| shards.contains(&database.shard()) && database.has_subscribers();
            for database in open.all().into_iter().filter(followed) {
                if let Err(DatabaseError::NotFound) = database.refresh_cache() {
                    open.remove_if_same(&database);
                    database.close();
                }
                // After any other error the next user of the database retries.
            }
        }
    }
}
