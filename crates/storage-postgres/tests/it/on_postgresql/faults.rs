//! Connections that are cut at any position, and a server that is restarted in between.

use settee_storage::{Batch, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Shard, Version};

use crate::proxy::Proxy;
use crate::{numbered, open, schema_of, server, step, steps, token};

/// Positions of the cut: each byte of the responses to a commit, and some in those to the next. A commit of several
/// statements, as large ones are, has about a hundred, and one of a single statement about thirty.
const CUTS: i64 = 150;

#[test]
fn a_cut_connection_neither_loses_nor_repeats_commits() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let url = server.url();
    let engine = open(&proxy.url(schema_of(&url)));
    for (shard, large, wanted) in [(Shard(1), 1 << 20, 80..CUTS), (Shard(2), 0, 25..50)] {
        let step = |version: u64| {
            let mut batch = numbered(version + 1);
            batch.put(Keyspace::Sequence, b"large", &vec![0; large]);
            let outcome = engine.commit(shard, Version(version), token(version + 1), batch, Durability::Synced);
            assert_eq!(outcome.unwrap(), Outcome::Committed(Version(version + 1)));
        };
        step(0);
        let mut cuts = 0;
        for cut in 0..CUTS {
            let version = 1 + u64::try_from(cut).unwrap();
            proxy.cut_after(cut);
            // All outcomes that were unknown after a cut are resolved.
            step(version);
            cuts += i64::from(proxy.is_cut());
        }
        println!("{cuts} connections were cut");
        assert!(wanted.contains(&cuts), "{cuts}, {large}");
        proxy.cut_after(-1);
        assert_eq!(steps(&engine, shard), 1 + u64::try_from(CUTS).unwrap());
    }
}

/// A snapshot whose connection is cut continues in another transaction while its shard is unchanged.
#[test]
fn reads_continue_after_a_cut() {
    const ENTRIES: u64 = 3_000;
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let url = server.url();
    let engine = open(&proxy.url(schema_of(&url)));
    let mut batch = Batch::new();
    for number in 0..ENTRIES {
        batch.insert(Keyspace::Sequence, &number.to_be_bytes(), b"entry");
    }
    let _ = engine.commit(Shard(1), Version(0), token(1), batch, Durability::Synced).unwrap();
    for cut in (0..60_000).step_by(4_999) {
        let snapshot = engine.snapshot(Shard(1)).unwrap();
        proxy.cut_after(cut);
        let mut cursor =
            snapshot.scan(Keyspace::Sequence, KeyRange::default(), Direction::Forward, Expect::All).unwrap();
        for number in 0..ENTRIES {
            assert_eq!(cursor.next().unwrap().unwrap().0, number.to_be_bytes(), "cut after {cut}");
        }
        assert!(cursor.next().unwrap().is_none());
        proxy.cut_after(-1);
    }
}

/// All connections end at once, as at a restart of the server.
#[test]
fn the_engine_reconnects_after_the_loss_of_all_connections() {
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = schema_of(&url);
    let engine = open(&format!("{url}&application_name={schema}"));
    for round in 0..5 {
        step(&engine, Shard(1), round, Durability::Synced);
        let snapshot = engine.snapshot(Shard(1)).unwrap();
        assert_eq!(snapshot.state().unwrap().version, Version(round + 1));
        let end = format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = '{schema}'"
        );
        assert_ne!(server.run(&end), "0");
        let last = (round + 1).to_be_bytes();
        assert!(snapshot.get(Keyspace::Bodies, &last).unwrap().is_some(), "the shard is what it was");
        engine.maintain().unwrap();
        assert_eq!(steps(&engine, Shard(1)), round + 1);
    }
    let outcome = engine.commit(Shard(1), Version(5), token(6), numbered(6), Durability::Synced).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(6)));
}
