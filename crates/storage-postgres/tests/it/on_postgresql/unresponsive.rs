//! A network that accepts data and returns none.

use std::thread;
use std::time::{Duration, Instant};

use settee_storage::{Durability, Engine, Keyspace, Outcome, Result, Shard, Version};
use settee_storage_postgres::PostgresEngine;

use super::nodes::until;
use crate::proxy::Proxy;
use crate::{numbered, open, schema_of, server, step, steps, token};

const LIMIT: Duration = Duration::from_secs(2);

const SHARD: Shard = Shard(1);

fn commit(engine: &PostgresEngine, number: u64) -> Result<Outcome> {
    engine.commit(SHARD, Version(number), token(number + 1), numbered(number + 1), Durability::Synced)
}

/// Opens many connections and leaves them idle, `count` for each purpose.
fn fill(engine: &PostgresEngine, count: u64) {
    let snapshots: Vec<_> = (0..count).map(|_| engine.snapshot(SHARD).unwrap()).collect();
    assert!(snapshots.iter().all(|snapshot| snapshot.state().is_ok()));
    thread::scope(|scope| {
        for shard in 0..count {
            // Unsynced commits share no statement.
            scope.spawn(move || {
                step(engine, Shard(100 + shard), steps(engine, Shard(100 + shard)), Durability::Buffered);
            });
        }
    });
}

/// Runs all kinds of requests, each on its own thread, after `fault`, and returns the outcome of a commit. No
/// request may wait for long.
fn all_after(fault: impl FnOnce(), engine: &PostgresEngine, number: u64, may_fail: bool) -> Result<Outcome> {
    // Of a shard that does not change. The snapshot has a connection.
    let held = engine.snapshot(Shard(3)).unwrap();
    let is_open = held.state().is_ok();
    assert!(may_fail || is_open);
    fault();
    let started = Instant::now();
    let expect = |what: &str, result: Result<()>| {
        let took = started.elapsed();
        println!("{what} took {took:?}: {result:?}");
        assert!(took < LIMIT, "{what} took {took:?}");
        assert!(may_fail || result.is_ok(), "{what}: {result:?}");
    };
    thread::scope(|scope| {
        scope.spawn(|| expect("a poll", engine.catch_up()));
        scope.spawn(|| expect("an old snapshot", held.get(Keyspace::Bodies, b"key").map(drop)));
        scope.spawn(|| expect("a new snapshot", engine.snapshot(SHARD).and_then(|new| new.state()).map(drop)));
        scope.spawn(|| expect("a claim", engine.members().is_gone(engine.members().this()).map(drop)));
        let committing = scope.spawn(|| {
            let outcome = commit(engine, number);
            expect("a commit", outcome.clone().map(drop));
            outcome
        });
        committing.join().unwrap()
    })
}

fn is_unknown(outcome: &Result<Outcome>) -> bool {
    matches!(outcome, Err(_) | Ok(Outcome::Unknown))
}

/// Retries a commit with an unknown outcome, and checks that it is applied exactly once.
fn settle(engine: &PostgresEngine, number: u64) {
    until("the server responds again", || engine.catch_up().is_ok());
    until("the server commits again", || matches!(commit(engine, number), Ok(Outcome::Committed(_))));
    assert_eq!(steps(engine, SHARD), number + 1);
}

#[test]
fn requests_do_not_wait_for_an_unresponsive_server() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let engine = open(&proxy.url(schema_of(&server.url())));
    for round in 0..4 {
        step(&engine, SHARD, 2 * round, Durability::Synced);
        fill(&engine, 3);
        let stall_both = || {
            proxy.stall_requests(true);
            proxy.stall_responses(true);
        };
        let outcome = all_after(stall_both, &engine, 2 * round + 1, true);
        assert!(is_unknown(&outcome), "{outcome:?}");
        // The state is detected by now.
        let outcome = all_after(|| {}, &engine, 2 * round + 1, true);
        assert!(is_unknown(&outcome), "{outcome:?}");
        engine.check().unwrap_err();
        proxy.stall_requests(false);
        proxy.stall_responses(false);
        settle(&engine, 2 * round + 1);
    }
}

/// A commit that was applied, of which only the response is lost.
#[test]
fn commits_during_an_outage_are_made_once() {
    const ROUNDS: u64 = 4;
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let url = server.url();
    let (engine, witness) = (open(&proxy.url(schema_of(&url))), open(&url));
    let mut happened = 0;
    for round in 0..ROUNDS {
        // Other processes are notified of the first commit, over the same connection or another one, and for a moment
        // of none after it.
        step(&engine, SHARD, 3 * round, Durability::Synced);
        step(&engine, SHARD, 3 * round + 1, Durability::Synced);
        proxy.stall_responses(true);
        let started = Instant::now();
        let outcome = commit(&engine, 3 * round + 2);
        assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
        assert!(is_unknown(&outcome), "{outcome:?}");
        happened += steps(&witness, SHARD) - (3 * round + 2);
        proxy.stall_responses(false);
        settle(&engine, 3 * round + 2);
    }
    // All except those that got a connection without prepared statements.
    println!("{happened} of {ROUNDS} have happened");
    assert!(happened > 0);
}

/// All connections are lost silently, and new ones can be created: no request fails.
#[test]
fn silently_lost_connections_are_replaced() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let engine = open(&proxy.url(schema_of(&server.url())));
    let claim = engine.members().claim("work").unwrap().unwrap();
    for round in 0..4 {
        fill(&engine, 3);
        let outcome = all_after(|| proxy.drop_silently(), &engine, round, false).unwrap();
        assert_eq!(outcome, Outcome::Committed(Version(round + 1)));
        assert_eq!(steps(&engine, SHARD), round + 1);
        until("the node is live again, and its claim was never lost", || engine.members().holds(&claim));
    }
}

/// A server that cannot write heartbeats for a while but serves everything else is not considered lost, and claims are
/// kept.
#[test]
fn a_slow_server_is_not_considered_unresponsive() {
    const SLOW: Duration = Duration::from_secs(2);
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = schema_of(&url);
    let engine = open(&url);
    let claim = engine.members().claim("work").unwrap().unwrap();
    fill(&engine, 3);
    step(&engine, SHARD, 0, Durability::Synced);
    let statistic = |name: &str| engine.statistics().into_iter().find(|(found, _)| *found == name).unwrap().1;
    let replaced = || statistic("connections_made").wrapping_sub(statistic("connections"));
    let before = replaced();
    let slow = format!("BEGIN; LOCK TABLE {schema}.nodes; SELECT pg_sleep({}); COMMIT", SLOW.as_secs());
    thread::scope(|scope| {
        let slowing = scope.spawn(|| server.try_run(&slow).unwrap());
        let mut number = 1;
        while !slowing.is_finished() {
            step(&engine, SHARD, number, Durability::Synced);
            engine.catch_up().unwrap();
            number += 1;
        }
        println!("{number} commits while the table was locked");
    });
    assert_eq!(replaced(), before, "no connection was replaced");
    until("heartbeats are answered", || engine.members().holds(&claim));
}

/// Expired rows may be locked; heartbeats continue.
#[test]
fn heartbeats_do_not_wait_for_the_removal_of_expired_rows() {
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = schema_of(&url);
    let near = open(&url);
    server.run(&format!(
        "INSERT INTO {schema}.claims (key, node, epoch, since) VALUES ('old', '', 1, now() - interval '2 hours')"
    ));
    let locking =
        format!("BEGIN; SELECT FROM {schema}.claims WHERE key = 'old' FOR UPDATE; SELECT pg_sleep(3); COMMIT");
    let locked = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%{schema}.claims%' AND wait_event = 'PgSleep'"
    );
    thread::scope(|scope| {
        let locking = scope.spawn(|| server.try_run(&locking).unwrap());
        until("it is locked", || server.run(&locked) == "1");
        // The node sweeps after its second heartbeat.
        let far = open(&url);
        let claim = far.members().claim("work").unwrap().unwrap();
        while !locking.is_finished() {
            assert!(far.members().holds(&claim));
            assert_eq!(near.members().claim("work").unwrap(), None);
        }
    });
}
