//! Recorded times of update sequences, in databases with injected clocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_storage::counting::CountingEngine;
use settee_storage::memory::MemoryEngine;
use settee_storage::{Batch, CommitToken, Durability, Engine, Keyspace, Outcome, Request};

use super::{Random, Store, create, edit, engine, new, open, save, write};
use crate::time_seq::{BINS_MAX, INTERVAL_S};
use crate::{Catalog, CommitClock, Database, Purge, Work, keys};

const START_S: u64 = 1_764_288_000;

const EARLIEST_S: u64 = 1_000_000_000;

#[derive(Clone)]
struct TestClock(Arc<AtomicU64>);

impl TestClock {
    fn of(catalog: &Catalog) -> Self {
        let clock = Self(Arc::new(AtomicU64::new(START_S)));
        let time = Arc::clone(&clock.0);
        let now_s = Box::new(move || time.load(Ordering::Relaxed));
        catalog.set_clock(CommitClock { now_s, earliest_s: Box::new(|| EARLIEST_S) });
        clock
    }

    fn set(&self, time_s: u64) {
        self.0.store(time_s, Ordering::Relaxed);
    }
}

fn world() -> (Arc<Database>, TestClock) {
    let catalog = open(&engine());
    let clock = TestClock::of(&catalog);
    (create(&catalog, "db"), clock)
}

fn histogram(database: &Arc<Database>) -> Vec<(u64, u64)> {
    database.read().unwrap().changes_by_time().unwrap()
}

fn before(database: &Arc<Database>, time_s: u64) -> u64 {
    database.read().unwrap().seq_before(time_s).unwrap()
}

fn record(database: &Arc<Database>) -> Option<Vec<u8>> {
    database.read().unwrap().snapshot().get(Keyspace::Catalog, keys::TIME_SEQ).unwrap()
}

#[test]
fn changes_are_counted_by_the_time_of_their_commit() {
    let (database, clock) = world();
    assert_eq!((histogram(&database), before(&database, u64::MAX)), (vec![], 0));
    write(&database, vec![new("a", "{}"), new("b", "{}")]);
    clock.set(START_S + INTERVAL_S - 1);
    let rev = save(&database, new("c", "{}"));
    clock.set(START_S + 5 * INTERVAL_S + 7);
    save(&database, edit("c", Some(&rev), true, "{}"));
    assert_eq!(histogram(&database), [(START_S, 3), (START_S + 5 * INTERVAL_S, 1)]);
    for (time_s, expected) in [
        (0, 0),
        (START_S - 1, 0),
        (START_S, 0),
        (START_S + 5 * INTERVAL_S - 1, 0),
        (START_S + 5 * INTERVAL_S, 3),
        (START_S + 6 * INTERVAL_S, 3),
        (START_S + 6 * INTERVAL_S + 1, 4),
    ] {
        assert_eq!(before(&database, time_s), expected, "{time_s}");
    }
    // Only changes of documents have a time; a purge is one.
    clock.set(START_S + 9 * INTERVAL_S);
    save(&database, new("_local/l", "{}"));
    database.update(Work::SetRevsLimit(7)).unwrap();
    database.update(Work::Compact(vec!["a".to_owned()])).unwrap();
    assert_eq!(histogram(&database).len(), 2);
    let revs = vec![database.read().unwrap().head("a").unwrap().unwrap().rev];
    database.update(Work::Purge(vec![Purge { id: "a".to_owned(), revs }])).unwrap();
    assert_eq!(histogram(&database)[2], (START_S + 9 * INTERVAL_S, 1));
}

/// Only the first commit of an interval writes the record, and reads it if it may exist.
#[test]
fn most_commits_neither_read_nor_write_the_record() {
    let engine = Arc::new(CountingEngine::new(Arc::new(MemoryEngine::new())));
    let catalog = open(&(Arc::clone(&engine) as Arc<dyn Engine>));
    let clock = TestClock::of(&catalog);
    let database = create(&catalog, "db");
    let mut number = 0;
    let mut cost = || {
        let calls = engine.calls();
        let _ = engine.take_largest();
        number += 1;
        save(&database, new(&format!("{number}"), "{}"));
        (engine.calls().since(calls).reads, engine.take_largest().writes)
    };
    let (reads, with_record) = cost();
    assert_eq!(reads, 0);
    let without = cost();
    assert_eq!(without, (0, with_record - 1));
    for step in 1..3 {
        clock.set(START_S + step * INTERVAL_S);
        assert_eq!(cost(), (1, with_record), "{step}");
        clock.set(START_S);
        assert_eq!(cost(), without);
        clock.set(START_S + (step + 1) * INTERVAL_S - 1);
        assert_eq!(cost(), without);
    }
    drop(catalog);
    let catalog = open(&(Arc::clone(&engine) as Arc<dyn Engine>));
    TestClock::of(&catalog).set(EARLIEST_S - 1);
    let database = create(&catalog, "other");
    for id in ["a", "b"] {
        save(&database, new(id, "{}"));
    }
    assert_eq!((record(&database), histogram(&database)), (None, vec![]));
}

#[test]
fn a_database_that_is_opened_again_continues_its_record() {
    let store = Store::new();
    let mut expected = Vec::new();
    for round in 0..80 {
        let engine = store.process();
        let catalog = open(&engine);
        let clock = TestClock::of(&catalog);
        let database = if round == 0 { create(&catalog, "db") } else { catalog.database("db").unwrap() };
        assert_eq!(histogram(&database), expected);
        clock.set(START_S + round * INTERVAL_S);
        write(&database, vec![new(&format!("{round}"), "{}"), new(&format!("{round}+"), "{}")]);
        expected.push((START_S + round * INTERVAL_S, 2));
        let recorded = histogram(&database);
        if round < BINS_MAX as u64 {
            assert_eq!(recorded, expected);
        }
        assert!(recorded.len() <= BINS_MAX);
        assert_eq!(recorded.iter().map(|(_, changes)| changes).sum::<u64>(), 2 * (round + 1));
        expected = recorded;
    }
    assert_eq!(expected[0], (START_S, 4), "the oldest bins are merged");
}

/// Commits without a clock precede and follow recorded ones, as those of a program that does not record times.
#[test]
fn changes_of_unknown_times_are_not_left_out() {
    let engine = engine();
    let reopened = |now_s: Option<u64>| {
        let catalog = open(&engine);
        if let Some(now_s) = now_s {
            TestClock::of(&catalog).set(now_s);
        }
        catalog
    };
    let database = create(&reopened(None), "db");
    save(&database, new("first", "{}"));
    assert_eq!((histogram(&database), before(&database, u64::MAX)), (vec![], 0));
    drop(database);
    let second = START_S + INTERVAL_S;
    for id in ["second", "third"] {
        let database = reopened(Some(START_S + 60)).database("db").unwrap();
        save(&database, new(id, "{}"));
        assert_eq!(before(&database, START_S + 61), 0);
    }
    let database = reopened(None).database("db").unwrap();
    assert_eq!(histogram(&database), [(0, 1), (second, 2)]);
    assert_eq!([second - 1, second, u64::MAX].map(|time_s| before(&database, time_s)), [0, 1, 3]);
    save(&database, new("fourth", "{}"));
    assert_eq!(histogram(&database), [(0, 1), (second, 3)]);
    assert_eq!(before(&database, u64::MAX), 1, "the fourth change may be the latest one");
    drop(database);
    let database = reopened(Some(7)).database("db").unwrap();
    save(&database, new("fifth", "{}"));
    assert_eq!(before(&database, u64::MAX), 1);
    drop(database);
    let database = reopened(Some(second)).database("db").unwrap();
    save(&database, new("sixth", "{}"));
    assert_eq!(histogram(&database), [(0, 1), (second, 4), (second + INTERVAL_S, 1)]);
    assert_eq!([second, second + INTERVAL_S, u64::MAX].map(|time_s| before(&database, time_s)), [1, 5, 6]);
}

#[test]
fn discarded_times_are_recorded_again() {
    let (database, clock) = world();
    let discard = || assert_eq!(database.update(Work::ForgetTimes).unwrap(), []);
    discard();
    save(&database, new("a", "{}"));
    discard();
    discard();
    assert_eq!((record(&database), histogram(&database)), (None, vec![]));
    assert_eq!([before(&database, 0), before(&database, u64::MAX)], [0, 0]);
    // A date in the future is the reason why an administrator discards the times.
    clock.set(START_S + 1000 * INTERVAL_S);
    save(&database, new("b", "{}"));
    clock.set(START_S);
    save(&database, new("c", "{}"));
    assert_eq!(histogram(&database), [(0, 1), (START_S + 1001 * INTERVAL_S, 2)]);
    discard();
    save(&database, new("d", "{}"));
    // The discarded changes may belong to the current interval.
    assert_eq!(histogram(&database), [(0, 3), (START_S + INTERVAL_S, 1)]);
    clock.set(START_S + INTERVAL_S);
    let works = vec![Work::Documents(vec![new("e", "{}")]), Work::ForgetTimes, Work::Documents(vec![new("f", "{}")])];
    let works = works.into_iter().map(|work| (work, Box::new(|result: crate::WorkResult| drop(result.unwrap())) as _));
    let commits = database.counters().commits.get();
    if database.submit_all(works.collect()) == crate::Submitted::Leader {
        database.run_as_leader();
    }
    assert_eq!(database.counters().commits.get(), commits + 1);
    assert_eq!(histogram(&database), [(0, 4), (START_S + 2 * INTERVAL_S, 2)]);
    let bare = create(&open(&engine()), "db");
    save(&bare, new("a", "{}"));
    bare.update(Work::ForgetTimes).unwrap();
    assert_eq!(record(&bare), None);
}

#[test]
fn a_damaged_record_is_replaced() {
    let (database, clock) = world();
    save(&database, new("a", "{}"));
    let mut batch = Batch::new();
    batch.put(Keyspace::Catalog, keys::TIME_SEQ, b"\xff");
    let snapshot = database.engine().snapshot(database.shard()).unwrap();
    let state = snapshot.state().unwrap();
    let head = snapshot.read(&[Request::Head]).unwrap().remove(0).into_value().unwrap().unwrap();
    batch.set_head(&head);
    let outcome = database.engine().commit(database.shard(), state.version, CommitToken(7), batch, Durability::Synced);
    assert!(matches!(outcome, Ok(Outcome::Committed(_))));
    let error = database.read().unwrap().changes_by_time().unwrap_err();
    assert_eq!(error.to_string(), "stored times of update sequences does not decode");
    assert!(database.read().unwrap().seq_before(START_S).is_err());
    save(&database, new("b", "{}"));
    clock.set(START_S + INTERVAL_S);
    save(&database, new("c", "{}"));
    assert_eq!(histogram(&database), [(0, 2), (START_S + INTERVAL_S, 1)]);
}

#[test]
fn no_node_leaves_out_changes_of_another_one() {
    let mut random = Random::new();
    for _ in 0..4 {
        let store = Store::new();
        let engines = store.two();
        let catalogs = engines.each_ref().map(open);
        let clocks = catalogs.each_ref().map(TestClock::of);
        create(&catalogs[0], "db");
        let mut commits: Vec<(u64, u64)> = Vec::new();
        let mut times = [START_S, START_S + random.below(20 * INTERVAL_S)];
        for number in 0..120 {
            let node = random.below(2_usize);
            times[node] = match random.below(20) {
                0 => times[node] - random.below(5 * INTERVAL_S),
                _ => times[node] + random.below(INTERVAL_S),
            };
            clocks[node].set(times[node]);
            engines[node].catch_up().unwrap();
            let database = catalogs[node].database("db").unwrap();
            let seq = database.read().unwrap().update_seq().unwrap();
            save(&database, new(&format!("{number}"), "{}"));
            commits.push((times[node], seq + 1));
            let time_s = random.pick(&commits).0 + random.below(INTERVAL_S) - random.below(INTERVAL_S);
            let first = commits.iter().filter(|(time, _)| *time >= time_s).map(|(_, seq)| *seq).min();
            for (engine, catalog) in engines.iter().zip(&catalogs) {
                engine.catch_up().unwrap();
                let found = before(&catalog.database("db").unwrap(), time_s);
                assert!(found < first.unwrap_or(u64::MAX), "{found} {first:?}");
            }
        }
        let all = histogram(&catalogs[0].database("db").unwrap());
        assert_eq!(all.iter().map(|(_, changes)| changes).sum::<u64>(), 120);
        assert!(all.is_sorted() && all.len() > 5);
        assert_eq!(histogram(&catalogs[1].database("db").unwrap()), all);
    }
}
