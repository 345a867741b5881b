//! Properties of a store that several processes use at the same time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{commit, puts, view};
use crate::{Engine, Keyspace, Shard, Version};

/// Opens one store for two processes.
pub type OpenTwice<'a> = &'a dyn Fn() -> [Arc<dyn Engine>; 2];

/// The time for which there may be no news at all.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The latest version of each shard that a listener was told.
#[derive(Default)]
struct Heard {
    versions: Mutex<BTreeMap<Shard, Version>>,
    changed: Condvar,
}

impl Heard {
    fn on(engine: &dyn Engine) -> Arc<Self> {
        let heard = Arc::new(Self::default());
        let telling = Arc::clone(&heard);
        engine.subscribe(Box::new(move |shard, version| {
            let mut versions = telling.versions.lock();
            let known = versions.entry(shard).or_default();
            *known = version.max(*known);
            telling.changed.notify_all();
        }));
        heard
    }

    fn wait_for(&self, shard: Shard, version: Version) {
        let mut versions = self.versions.lock();
        while versions.get(&shard).is_none_or(|heard| *heard < version) {
            assert!(!self.changed.wait_for(&mut versions, TIMEOUT).timed_out(), "nobody was told of {shard:?}");
        }
    }
}

/// A commit of one process can be read by the other, which is notified of it; nobody is notified of his own commits.
pub fn commits_of_others_are_told(open: OpenTwice<'_>) {
    let engines = open();
    let heard = [0, 1].map(|user| Heard::on(&*engines[user]));
    for round in 0..20 {
        for (user, shard) in [(0, Shard(1)), (1, Shard(2)), (0, Shard(2)), (1, Shard(1))] {
            let value = format!("{round} {user}");
            let version = commit(&*engines[user], shard, puts(Keyspace::Local, &[(b"key", value.as_bytes())]));
            heard[1 - user].wait_for(shard, version);
            let read = view(&*engines[1 - user], shard).get(Keyspace::Local, b"key").expect("get");
            assert_eq!(read.as_deref(), Some(value.as_bytes()), "what {user} wrote to {shard:?} in round {round}");
        }
    }
    let version = commit(&*engines[0], Shard(3), puts(Keyspace::Local, &[(b"key", b"value")]));
    heard[1].wait_for(Shard(3), version);
    engines[0].drop_shard(Shard(3)).expect("drop_shard");
    heard[1].wait_for(Shard(3), Version(version.0 + 1));
    // Whatever was on its way to the first has arrived when it is notified of a later commit of the other.
    let version = commit(&*engines[1], Shard(4), puts(Keyspace::Local, &[(b"key", b"value")]));
    heard[0].wait_for(Shard(4), version);
    assert!(!heard[0].versions.lock().contains_key(&Shard(3)), "a process is told of its own commits");
}
