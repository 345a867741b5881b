//! Several processes on one schema, and a database that fails.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::members::NodeId;
use settee_storage::{Durability, Engine, Shard, Version};
use settee_storage_postgres::PostgresEngine;

use crate::proxy::Proxy;
use crate::{open, schema_of, server, step, steps};

/// Latest versions of received notifications.
pub(crate) type Observed = Arc<Mutex<BTreeMap<Shard, Version>>>;

pub(crate) fn observe(engine: &PostgresEngine) -> Observed {
    let observed = Observed::default();
    let shared = Arc::clone(&observed);
    engine.subscribe(Box::new(move |shard, version| {
        let mut observed = shared.lock();
        let latest = observed.entry(shard).or_default();
        *latest = version.max(*latest);
    }));
    observed
}

pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < Duration::from_secs(30), "{what}");
        thread::yield_now();
    }
}

/// Commits whose transactions were running during an earlier poll, and ended in another order.
#[test]
fn long_transactions_hide_no_commits() {
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = schema_of(&url);
    let (writer, reader) = (open(&url), open(&url));
    let observed = observe(&reader);
    let long = format!(
        "BEGIN; INSERT INTO {schema}.commits (shard, version, token, node) VALUES (77, 1, '', 1); \
         SELECT pg_advisory_lock(77); COMMIT"
    );
    // The first transaction holds the lock until it is terminated.
    let keeper = "SELECT pg_advisory_lock(77); SELECT pg_sleep(60)";
    let waiting = |granted: &str, count: &str| {
        let text = format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND {granted}");
        until("a lock", || server.run(&text) == count);
    };
    thread::scope(|scope| {
        scope.spawn(|| server.try_run(keeper));
        waiting("granted", "1");
        let ending = scope.spawn(|| server.try_run(&long));
        waiting("NOT granted", "1");
        for number in 0..200 {
            step(&writer, Shard(1), number, Durability::Buffered);
            reader.catch_up().unwrap();
            assert_eq!(observed.lock().get(&Shard(1)), Some(&Version(number + 1)));
        }
        assert_eq!(observed.lock().get(&Shard(77)), None, "the transaction has not ended");
        let end =
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = 77 AND granted";
        server.run(end);
        ending.join().unwrap().unwrap();
        reader.catch_up().unwrap();
        assert_eq!(observed.lock().get(&Shard(77)), Some(&Version(1)));
    });
}

/// A new writer waits for the transactions of commits that started before its claim, also of a node that has left, and
/// ends those that take too long.
#[test]
fn a_new_writer_waits_for_earlier_commits() {
    let Some(server) = server() else { return };
    let url = server.url();
    let (old, new) = (open(&url), open(&url));
    let transaction = |node: &PostgresEngine, seconds: f64| {
        let id = node.members().this().0;
        format!("SET application_name = 'settee writer {id:032x}'; SELECT pg_sleep({seconds})")
    };
    let fence = || {
        let claim = new.members().claim("writer/0").unwrap().unwrap();
        let started = Instant::now();
        new.members().fence(&claim).unwrap();
        started.elapsed()
    };
    let is_running = || {
        server.run(
            "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%; SELECT pg_sleep%' AND pid <> pg_backend_pid()",
        ) == "1"
    };
    thread::scope(|scope| {
        for (node, seconds, is_ended) in [(&old, 0.3, false), (&new, 0.3, false), (&old, 60.0, true)] {
            let statements = transaction(node, seconds);
            let running = scope.spawn(move || server.try_run(&statements));
            until("the transaction runs", is_running);
            let waited = fence();
            assert!(!is_running(), "{seconds} s");
            assert!(waited < Duration::from_secs(2), "{seconds} s: {waited:?}");
            assert_eq!(running.join().unwrap().is_err(), is_ended, "{seconds} s");
            old.members().leave().unwrap();
        }
    });
}

/// Polls whose connections are cut at each byte of the responses.
#[test]
fn cut_connections_hide_no_commits() {
    const CUTS: i64 = 300;
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let url = server.url();
    let writer = open(&url);
    let reader = open(&proxy.url(schema_of(&url)));
    let observed = observe(&reader);
    let mut cuts = 0;
    for cut in 0..CUTS {
        let version = u64::try_from(cut).unwrap();
        proxy.cut_after(cut);
        step(&writer, Shard(1), version, Durability::Buffered);
        reader.catch_up().unwrap();
        assert_eq!(observed.lock().get(&Shard(1)), Some(&Version(version + 1)), "cut after {cut}");
        cuts += u64::from(proxy.is_cut());
    }
    println!("{cuts} connections were cut");
    assert!(cuts > 80, "{cuts}");
}

/// A restarted server may reuse transaction numbers: commits that may be lost are reported again.
#[test]
fn commits_that_a_restart_may_lose_are_reported() {
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = schema_of(&url);
    let (writer, reader) = (open(&url), open(&format!("{url}&application_name={schema}")));
    step(&writer, Shard(1), 0, Durability::Buffered);
    step(&reader, Shard(2), 0, Durability::Buffered);
    reader.catch_up().unwrap();
    let observed = Arc::new(Mutex::new(Vec::new()));
    let shared = Arc::clone(&observed);
    reader.subscribe(Box::new(move |shard, version| shared.lock().push((shard, version))));
    reader.catch_up().unwrap();
    assert_eq!(*observed.lock(), [], "no commit is new");
    server.run(&format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{schema}'"));
    reader.catch_up().unwrap();
    let mut notified = std::mem::take(&mut *observed.lock());
    notified[..2].sort_unstable();
    let lost = |shard| (Shard(shard), Version(0));
    assert_eq!(notified, [lost(1), lost(2), (Shard(1), Version(1))], "listeners read both shards again");
}

/// A node that cannot send heartbeats considers its claims lost before another one takes them over, and returns without
/// them.
#[test]
fn an_unreachable_node_has_no_claims() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let url = server.url();
    let far = open(&proxy.url(schema_of(&url)));
    let near = open(&url);
    far.members().announce("far", "").unwrap();
    near.members().announce("near", "").unwrap();
    let claim = far.members().claim("work").unwrap().unwrap();
    let kept = far.members().claim("more work").unwrap().unwrap();
    assert_eq!(near.members().claim("work").unwrap(), None);
    proxy.stall_requests(true);
    let taken = {
        let started = Instant::now();
        loop {
            let is_held = far.members().holds(&claim);
            if let Some(taken) = near.members().claim("work").unwrap() {
                assert!(!is_held || !far.members().holds(&claim), "two nodes hold the claim");
                break taken;
            }
            assert!(started.elapsed() < Duration::from_secs(2), "the claim is not taken");
        }
    };
    assert!(taken.epoch > claim.epoch);
    until("the node is gone", || near.members().live().iter().all(|node| node.name != "far"));
    proxy.stall_requests(false);
    until("the node is back", || near.members().live().iter().any(|node| node.name == "far"));
    assert!(!far.members().holds(&claim) && !far.members().holds(&kept), "the node has claims");
    assert_eq!(far.members().claim("work").unwrap(), None);
    // Claims that were not taken over are available.
    until("the node claims again", || near.members().claim("more work").unwrap().is_some());
    assert!(near.members().holds(&taken));
}

/// The end of a process ends its connections, so others need not wait for the expiry of its heartbeat.
#[test]
fn an_ended_node_is_detected_at_once() {
    let Some(server) = server() else { return };
    let url = server.url();
    let near = open(&url);
    near.members().announce("near", "").unwrap();
    for round in 0..3 {
        let far = open(&url);
        far.members().announce("far", "").unwrap();
        let claim = far.members().claim("work").unwrap().unwrap();
        assert_eq!(near.members().claim("work").unwrap(), None);
        drop(far);
        let (started, mut taken) = (Instant::now(), None);
        until("the claim is taken over", || {
            taken = near.members().claim("work").unwrap();
            taken.is_some()
        });
        println!("taken after {:?}", started.elapsed());
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        let taken = taken.unwrap();
        assert!(taken.epoch > claim.epoch, "round {round}");
        near.members().release(&taken).unwrap();
    }
    // A process that has just started can take over the claims and the name of its predecessor.
    near.members().claim("work").unwrap().unwrap();
    drop(near);
    let started = Instant::now();
    let again = open(&url);
    again.members().announce("near", "").unwrap();
    until("the claim is taken over", || again.members().claim("work").unwrap().is_some());
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
}

/// Statements that return the connection for heartbeats of a node, and that end it and return their number.
fn of_heartbeats(node: NodeId) -> [String; 2] {
    ["pid", "count(pg_terminate_backend(pid))"].map(|what| {
        format!("SELECT {what} FROM pg_stat_activity WHERE application_name = 'settee node {:032x}'", node.0)
    })
}

/// A node that was unreachable for a while takes over the claims of a failed one as soon as others can, because the
/// server stores all heartbeats.
#[test]
fn an_unreachable_node_detects_an_end_at_once() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let url = server.url();
    let near = open(&proxy.url(schema_of(&url)));
    near.members().announce("near", "").unwrap();
    let [pid, end] = of_heartbeats(near.members().this());
    for is_long in [false, true, false] {
        let far = open(&url);
        far.members().announce("far", "").unwrap();
        far.members().claim("work").unwrap().unwrap();
        let own = near.members().claim("own work").unwrap().unwrap();
        let before = server.run(&pid);
        if is_long {
            proxy.stall_requests(true);
            until("the node loses its claims", || !near.members().holds(&own));
            proxy.stall_requests(false);
        } else {
            assert_eq!(server.run(&end), "1");
            until("the node has another connection", || {
                let now = server.run(&pid);
                !now.is_empty() && now != before
            });
        }
        until("the node claims again", || near.members().claim("own work").unwrap().is_some());
        assert_eq!(near.members().claim("work").unwrap(), None, "the other node is live");
        drop(far);
        let started = Instant::now();
        until("the claim is taken over", || near.members().claim("work").unwrap().is_some());
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}, long: {is_long}", started.elapsed());
        for key in ["work", "own work"] {
            let claim = near.members().claim(key).unwrap().unwrap();
            near.members().release(&claim).unwrap();
        }
    }
}

/// A short loss of the connection costs no claim, and a longer one costs it here before others take it over.
#[test]
fn a_disconnected_node_loses_its_claims_soon() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let url = server.url();
    let far = open(&proxy.url(schema_of(&url)));
    let near = open(&url);
    let claim = far.members().claim("work").unwrap().unwrap();
    let [pid, end] = of_heartbeats(far.members().this());
    for _ in 0..3 {
        let before = server.run(&pid);
        assert_eq!(server.run(&end), "1");
        until("the node has another connection", || {
            assert_eq!(near.members().claim("work").unwrap(), None);
            let now = server.run(&pid);
            !now.is_empty() && now != before
        });
        assert!(far.members().holds(&claim), "the connection was lost for a moment only");
    }
    proxy.set_down(true);
    let started = Instant::now();
    until("the claim is taken over", || {
        let is_held = far.members().holds(&claim);
        let taken = near.members().claim("work").unwrap();
        assert!(taken.is_none() || !is_held, "two nodes hold the claim");
        taken.is_some()
    });
    assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    proxy.set_down(false);
    until("the node is back", || !server.run(&pid).is_empty());
    // The node has lost the claim, even if it considered it valid.
    until("the node detects the loss", || far.members().claim("other work").unwrap().is_some());
    assert!(!far.members().holds(&claim));
}

#[test]
fn expired_entries_are_removed() {
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = schema_of(&url);
    let gone = open(&url);
    gone.members().claim("work").unwrap().unwrap();
    drop(gone);
    server.run(&format!(
        "UPDATE {schema}.nodes SET heartbeat = now() - interval '1 hour'; UPDATE {schema}.claims SET since = now() - interval '2 hours'"
    ));
    let engine = open(&url);
    engine.maintain().unwrap();
    let count = |table: &str| server.run(&format!("SELECT count(*) FROM {schema}.{table}"));
    until("expired rows are removed", || [count("nodes"), count("claims")] == ["1", "0"]);
}

/// Many processes write to many shards, and all of them are notified of all commits.
#[test]
fn many_processes_notify_each_other() {
    const PROCESSES: u64 = 4;
    const COMMITS: u64 = 50;
    let Some(server) = server() else { return };
    let url = server.url();
    let engines: Vec<_> = (0..PROCESSES).map(|_| open(&url)).collect();
    let observed: Vec<_> = engines.iter().map(|engine| observe(engine)).collect();
    thread::scope(|scope| {
        for (shard, engine) in (0..).zip(&engines) {
            scope.spawn(move || {
                (0..COMMITS).for_each(|number| step(engine, Shard(shard), number, Durability::Buffered));
            });
        }
    });
    for (at, (engine, observed)) in (0..).zip(engines.iter().zip(&observed)) {
        engine.catch_up().unwrap();
        let wanted: Vec<_> =
            (0..PROCESSES).filter(|shard| *shard != at).map(|shard| (Shard(shard), Version(COMMITS))).collect();
        assert_eq!(observed.lock().iter().map(|(shard, version)| (*shard, *version)).collect::<Vec<_>>(), wanted);
        assert_eq!(steps(engine, Shard((at + 1) % PROCESSES)), COMMITS);
    }
}

/// Of two hosts only one is reachable, and then none: commits in between are observed, and errors are returned soon.
#[test]
fn the_engine_fails_over_to_another_host() {
    let Some(server) = server() else { return };
    let proxies = [Proxy::start(server.socket()), Proxy::start(server.socket())];
    let url = server.url();
    let schema = schema_of(&url);
    let hosts = proxies.each_ref().map(|proxy| format!("127.0.0.1:{}", proxy.port)).join(",");
    let writer = open(&url);
    let engine = open(&format!("postgres://settee@{hosts}/postgres?schema={schema}&sslmode=disable"));
    engine.members().announce("moving", "").unwrap();
    let claim = engine.members().claim("work").unwrap().unwrap();
    let observed = observe(&engine);
    for round in 0..6 {
        proxies[round % 2].set_down(false);
        proxies[1 - round % 2].set_down(true);
        let (started, number) = (Instant::now(), round as u64);
        step(&writer, Shard(1), number, Durability::Buffered);
        engine.catch_up().unwrap();
        assert_eq!(observed.lock().get(&Shard(1)), Some(&Version(number + 1)), "round {round}");
        step(&engine, Shard(2), number, Durability::Buffered);
        assert_eq!(steps(&engine, Shard(2)), number + 1);
        assert!(started.elapsed() < Duration::from_secs(2), "{:?} in round {round}", started.elapsed());
    }
    assert!(engine.members().holds(&claim), "the node was never disconnected for long");
    proxies.iter().for_each(|proxy| proxy.set_down(true));
    for _ in 0..3 {
        let started = Instant::now();
        engine.catch_up().unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
    }
    step(&writer, Shard(1), 6, Durability::Buffered);
    until("the node loses its claims", || !engine.members().holds(&claim));
    proxies[0].set_down(false);
    until("the server responds again", || engine.catch_up().is_ok());
    assert_eq!(observed.lock().get(&Shard(1)), Some(&Version(7)));
    until("the node claims again", || engine.members().claim("work").unwrap().is_some());
}

/// A host becomes unresponsive, as if its machine was switched off, while another one is already the server.
#[test]
fn an_unresponsive_host_is_replaced() {
    let Some(server) = server() else { return };
    let proxies = [Proxy::start(server.socket()), Proxy::start(server.socket())];
    let url = server.url();
    let schema = schema_of(&url);
    let hosts = proxies.each_ref().map(|proxy| format!("127.0.0.1:{}", proxy.port)).join(",");
    let engine = open(&format!("postgres://settee@{hosts}/postgres?schema={schema}&sslmode=disable"));
    for round in 0..6_u64 {
        let (silent, other) = (usize::from(round % 2 == 1), usize::from(round % 2 == 0));
        proxies[other].stall_requests(false);
        let (started, longest) = (Instant::now(), Mutex::new(Duration::ZERO));
        proxies[silent].stall_requests(true);
        thread::scope(|scope| {
            for shard in 0..2 {
                let (engine, longest) = (&engine, &longest);
                scope.spawn(move || {
                    let started = Instant::now();
                    step(engine, Shard(1 + shard), round, Durability::Synced);
                    engine.catch_up().unwrap();
                    let mut longest = longest.lock();
                    *longest = started.elapsed().max(*longest);
                });
            }
        });
        println!("the longest wait was {:?}", longest.into_inner());
        assert!(started.elapsed() < Duration::from_secs(3), "{:?}", started.elapsed());
    }
    proxies.iter().for_each(|proxy| proxy.stall_requests(false));
}

/// A server that accepts requests and answers none.
#[test]
fn requests_to_a_hanging_server_fail() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let url = server.url();
    let engine = open(&proxy.url(schema_of(&url)));
    proxy.stall_requests(true);
    let started = Instant::now();
    engine.catch_up().unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    proxy.stall_requests(false);
    until("the server responds again", || engine.catch_up().is_ok());
    step(&engine, Shard(1), 0, Durability::Buffered);
}
