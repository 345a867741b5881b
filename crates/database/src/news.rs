//! [`follow`]: what other processes commit reaches the databases that are open in this one: feeds that wait, what is kept of
//! security objects and design documents, and that a database is gone.
//!
//! The engine's thread only notes the shard. A thread that lives for as long as there are any looks at them: many commits in
//! between are one look. Writers need none of this, because their commits conflict.

use std::collections::HashSet;
use std::mem::take;
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::Mutex;
use settee_storage::{Engine, Shard};

use crate::DatabaseError;
use crate::open::OpenDatabases;

/// Has the open databases look at their shards whenever another process has committed to them.
pub(crate) fn follow(engine: &dyn Engine, open: &Arc<OpenDatabases>) {
    let news = Arc::new(News { open: Arc::downgrade(open), state: Mutex::default() });
    engine.subscribe(Box::new(move |shard, _| news.note(shard)));
}

struct News {
    /// The engine keeps its listeners, and databases keep their engine.
    open: Weak<OpenDatabases>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The shards that nobody has looked at since.
    shards: HashSet<Shard>,
    /// Whether somebody will.
    has_reader: bool,
}

impl News {
    fn note(self: &Arc<Self>, shard: Shard) {
        let mut state = self.state.lock();
        state.shards.insert(shard);
        if std::mem::replace(&mut state.has_reader, true) {
            return;
        }
        drop(state);
        let news = Arc::clone(self);
        if thread::Builder::new().name("news".to_owned()).spawn(move || news.read()).is_err() {
            self.read();
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
            for database in open.all().into_iter().filter(|database| shards.contains(&database.shard())) {
                if let Err(DatabaseError::NotFound) = database.look() {
                    open.remove_this(&database);
                    database.close();
                }
                // After any other error the next commit is noticed.
            }
        }
    }
}
