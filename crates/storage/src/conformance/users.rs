//! Properties of a store that several processes use concurrently.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::fixture::{Generator, OpenTwice, commit, commit_at, puts, view};
use crate::{CommitToken, Durability, Engine, Keyspace, Outcome, Shard, Version};

const TIMEOUT: Duration = Duration::from_secs(30);

/// The latest version of each shard that the listener received.
#[derive(Default)]
struct Notifications {
    versions: Mutex<BTreeMap<Shard, Version>>,
    changed: Condvar,
}

impl Notifications {
    fn on(engine: &dyn Engine) -> Arc<Self> {
        let notified = Arc::new(Self::default());
        let sink = Arc::clone(&notified);
        engine.subscribe(Box::new(move |shard, version| {
            let mut versions = sink.versions.lock();
            let known = versions.entry(shard).or_default();
            *known = version.max(*known);
            sink.changed.notify_all();
        }));
        notified
    }

    fn wait_for(&self, shard: Shard, version: Version) {
        let mut versions = self.versions.lock();
        while versions.get(&shard).is_none_or(|notified| *notified < version) {
            assert!(!self.changed.wait_for(&mut versions, TIMEOUT).timed_out(), "no notification for {shard:?}");
        }
    }
}

/// Commits of the other process are readable and notified; own commits are not notified.
pub fn commits_of_others_are_notified(open: OpenTwice<'_>) {
    let engines = open();
    let notified = [0, 1].map(|user| Notifications::on(&*engines[user]));
    for round in 0..20 {
        for (user, shard) in [(0, Shard(1)), (1, Shard(2)), (0, Shard(2)), (1, Shard(1))] {
            let value = format!("{round} {user}");
            let version = commit(&*engines[user], shard, puts(Keyspace::Local, &[(b"key", value.as_bytes())]));
            notified[1 - user].wait_for(shard, version);
            let read = view(&*engines[1 - user], shard).get(Keyspace::Local, b"key").expect("get");
            assert_eq!(read.as_deref(), Some(value.as_bytes()), "what {user} wrote to {shard:?} in round {round}");
        }
    }
    let version = commit(&*engines[0], Shard(3), puts(Keyspace::Local, &[(b"key", b"value")]));
    notified[1].wait_for(Shard(3), version);
    engines[0].drop_shard(Shard(3)).expect("drop_shard");
    notified[1].wait_for(Shard(3), Version(version.0 + 1));
    // Notifications are ordered: after one of a later commit, all earlier ones of the other process have arrived.
    let version = commit(&*engines[1], Shard(4), puts(Keyspace::Local, &[(b"key", b"value")]));
    notified[0].wait_for(Shard(4), version);
    assert!(
        !notified[0].versions.lock().contains_key(&Shard(3)),
        "a process receives notifications of its own commits"
    );
}

/// After a catch-up, readers have been notified of every commit that ended before it.
pub fn commits_are_notified_before_catch_up_returns(open: OpenTwice<'_>) {
    const SHARDS: u64 = 6;
    const COMMITS: u64 = 60;
    let engines = open();
    let notified = [0, 1].map(|user| Notifications::on(&*engines[user]));
    // Last commits that have ended, by process and shard.
    let ended: [[AtomicU64; SHARDS as usize]; 2] = Default::default();
    let seed = RandomState::new().hash_one(0);
    println!("seed {seed}");
    let (engines, notified, ended) = (&engines, &notified, &ended);
    thread::scope(|scope| {
        for user in 0..2 {
            for at in 0..SHARDS {
                scope.spawn(move || {
                    let mut random = Generator::new(seed ^ at ^ ((user as u64) << 8));
                    let shard = Shard(100 * user as u64 + at);
                    for version in 0..COMMITS {
                        let token = CommitToken(u128::from(version) + 1);
                        let batch = puts(Keyspace::Local, &[(b"key", &version.to_be_bytes())]);
                        commit_at(&*engines[user], shard, Version(version), token, batch).expect("one writer");
                        ended[user][at as usize].store(version + 1, Ordering::SeqCst);
                        for _ in 0..random.below(3) {
                            thread::yield_now();
                        }
                    }
                });
            }
            for _ in 0..4 {
                scope.spawn(move || {
                    let writer = 1 - user;
                    let is_over = || ended[writer].iter().all(|last| last.load(Ordering::SeqCst) == COMMITS);
                    while !is_over() {
                        let before = ended[writer].each_ref().map(|last| last.load(Ordering::SeqCst));
                        engines[user].catch_up().expect("the engine can be read");
                        let versions = notified[user].versions.lock();
                        for (at, wanted) in (0..SHARDS).zip(before) {
                            let shard = Shard(100 * writer as u64 + at);
                            let found = versions.get(&shard).map_or(0, |version| version.0);
                            assert!(found >= wanted, "{shard:?} is at {wanted} and {found} was notified, seed {seed}");
                        }
                    }
                });
            }
        }
    });
}

pub fn one_of_two_commits_wins(open: OpenTwice<'_>) {
    const ROUNDS: u64 = 100;
    let engines = &open();
    let shard = Shard(7);
    let (begin, end) = (&Barrier::new(3), &Barrier::new(3));
    let outcomes = &Mutex::new(Vec::new());
    thread::scope(|scope| {
        for user in 0..2_u64 {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let token = CommitToken((u128::from(round) << 8) | (u128::from(user) + 1));
                    let batch = puts(Keyspace::Local, &[(b"winner", &[user as u8]), (&[user as u8], b"was here")]);
                    begin.wait();
                    let engine = &engines[user as usize];
                    let outcome = engine.commit(shard, Version(round), token, batch, Durability::Buffered);
                    outcomes.lock().push((user, token, outcome.expect("the engine can be written")));
                    end.wait();
                }
            });
        }
        for round in 0..ROUNDS {
            begin.wait();
            end.wait();
            let outcomes = std::mem::take(&mut *outcomes.lock());
            let next = Version(round + 1);
            let won: Vec<_> = outcomes.iter().filter(|(_, _, found)| *found == Outcome::Committed(next)).collect();
            let lost = outcomes.iter().filter(|(_, _, found)| *found == Outcome::Conflict(next)).count();
            assert_eq!((won.len(), lost), (1, 1), "round {round}: {outcomes:?}");
            for engine in engines {
                let snapshot = view(&**engine, shard);
                let state = snapshot.state().expect("state");
                assert_eq!((state.version, state.token), (next, won[0].1), "round {round}");
                let winner = snapshot.get(Keyspace::Local, b"winner").expect("get");
                assert_eq!(winner, Some(vec![won[0].0 as u8]), "round {round}");
            }
        }
    });
}
