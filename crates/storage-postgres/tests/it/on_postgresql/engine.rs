//! The contract of engines, and additional properties of this one.

use std::sync::Arc;
use std::thread;

use settee_storage::conformance::{self, Generator};
use settee_storage::{
    Batch, Cursor, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, PageRange, Reply, Request,
    Shard, Snapshot, StorageError, Version,
};

use crate::scratch::Scratch;
use crate::{numbered, open, open_with, options, schema_of, server, step, steps, token};

#[test]
fn conforms() {
    let Some(server) = server() else { return };
    // More concurrent snapshots than a server normally has.
    conformance::run_all(&|| open_with(&server.url(), 120));
}

#[test]
fn two_engines_conform() {
    let Some(server) = server() else { return };
    conformance::run_all_of_two(&|| {
        let url = server.url();
        [open_with(&url, 20), open_with(&url, 20)]
    });
}

#[test]
fn entries_survive_reopening() {
    let Some(server) = server() else { return };
    let url = server.url();
    for round in 0..3 {
        let engine = open(&url);
        for shard in 0..3 {
            assert_eq!(steps(&engine, Shard(shard)), round * 150);
            for number in round * 150..(round + 1) * 150 {
                let durability = if number % 3 == 0 { Durability::Synced } else { Durability::Buffered };
                step(&engine, Shard(shard), number, durability);
            }
        }
        engine.sync().unwrap();
    }
    let engine = open(&url);
    assert_eq!(steps(&engine, Shard(2)), 450);
}

/// Other processes cache what they read under the version of a commit. If a standby without this commit were promoted,
/// the next commit would get the same version with other contents.
#[test]
fn a_visible_commit_is_durable() {
    let Some(server) = Scratch::start("-c synchronous_commit=on -c wal_writer_delay=10s") else { return };
    let engine = open(&server.url());
    let flushed = (0..20).filter(|number| {
        step(&engine, Shard(1), *number, Durability::Buffered);
        server.run("SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()") == "t"
    });
    // Heartbeats are written between the commits and are not flushed, so a part of the comparisons fails.
    assert!(flushed.count() > 10);
}

/// Keys around the maximum length that is stored unchanged: the same prefix with different rests, and adjacent keys.
fn long_keys() -> Vec<Vec<u8>> {
    let mut random = Generator::new(5);
    let mut keys = vec![b"a".to_vec(), vec![b'k'; 2_399], vec![b'k'; 2_400], b"z".to_vec()];
    for _ in 0..150 {
        let length = 1 + random.below(300);
        keys.push([vec![b'k'; 2_400], random.bytes(length)].concat());
    }
    keys.push([vec![b'k'; 2_399], b"l".to_vec()].concat());
    keys.push(vec![b'k'; 10_000]);
    keys.sort();
    keys.dedup();
    keys
}

#[test]
fn long_keys_keep_their_order() {
    let Some(server) = server() else { return };
    let engine = open(&server.url());
    let keys = long_keys();
    let mut batch = Batch::new();
    for key in &keys {
        batch.put(Keyspace::Documents, key, &key[key.len() - 1..]);
    }
    let outcome = engine.commit(Shard(1), Version(0), token(1), batch, Durability::Synced).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(1)));
    let snapshot = engine.snapshot(Shard(1)).unwrap();
    let asked: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let wanted: Vec<_> = keys.iter().map(|key| Some(key[key.len() - 1..].to_vec())).collect();
    assert_eq!(snapshot.multi_get(Keyspace::Documents, &asked).unwrap(), wanted);
    let mut random = Generator::new(6);
    for round in 0..60 {
        let mut bound = || (random.below(4) > 0).then(|| keys[random.below(keys.len())].clone());
        let (start, end) = (bound(), bound());
        let range = KeyRange { start: start.as_deref(), end: end.as_deref() };
        for direction in [Direction::Forward, Direction::Backward] {
            let mut wanted: Vec<_> = keys
                .iter()
                .filter(|key| {
                    start.as_ref().is_none_or(|start| start <= *key) && end.as_ref().is_none_or(|end| *key < end)
                })
                .collect();
            if direction == Direction::Backward {
                wanted.reverse();
            }
            let mut cursor = snapshot.scan(Keyspace::Documents, range, direction, Expect::Rows(3)).unwrap();
            for key in &wanted {
                let (found, value) = cursor.next().unwrap().expect("more entries");
                assert!(found == key.as_slice() && value == &key[key.len() - 1..], "round {round}, {direction:?}");
            }
            assert!(cursor.next().unwrap().is_none(), "round {round}, {direction:?}");
            if let Some(middle) = wanted.get(wanted.len() / 2) {
                cursor.seek(middle).unwrap();
                assert_eq!(cursor.next().unwrap().unwrap().0, middle.as_slice(), "round {round}, {direction:?}");
            }
            let rows = 1 + round % 7;
            let page = PageRange { space: Keyspace::Documents, range, direction, rows };
            let Reply::Page(page) = snapshot.read(&[Request::Page(page)]).unwrap().remove(0) else { panic!("no page") };
            assert!(page.rows.iter().map(|(key, _)| key).eq(wanted.iter().take(rows).copied()), "round {round}");
            assert_eq!(page.is_last, wanted.len() <= rows, "round {round}, {direction:?}");
        }
    }
    let mut batch = Batch::new();
    keys.iter().for_each(|key| batch.delete(Keyspace::Documents, key));
    let outcome = engine.commit(Shard(1), Version(1), token(2), batch, Durability::Synced).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(2)));
    let left = engine.snapshot(Shard(1)).unwrap().multi_get(Keyspace::Documents, &asked).unwrap();
    assert!(left.iter().all(Option::is_none));
}

/// A scan over many pages, with values of all sizes.
#[test]
fn long_scans_return_all_entries() {
    const ENTRIES: u64 = 30_000;
    let Some(server) = server() else { return };
    let engine = open(&server.url());
    let mut batch = Batch::new();
    let length = |number: u64| if number.is_multiple_of(5_000) { 300_000 } else { number as usize % 50 };
    for number in 0..ENTRIES {
        batch.insert(Keyspace::Sequence, &number.to_be_bytes(), &vec![1; length(number)]);
    }
    let outcome = engine.commit(Shard(1), Version(0), token(1), batch, Durability::Buffered).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(1)));
    let snapshot = engine.snapshot(Shard(1)).unwrap();
    for expect in [Expect::Few, Expect::Rows(10), Expect::All] {
        for direction in [Direction::Forward, Direction::Backward] {
            let mut cursor = snapshot.scan(Keyspace::Sequence, KeyRange::default(), direction, expect).unwrap();
            for place in 0..ENTRIES {
                let number = if direction == Direction::Forward { place } else { ENTRIES - 1 - place };
                let (key, value) = cursor.next().unwrap().expect("more entries");
                assert_eq!((key, value.len()), (&number.to_be_bytes()[..], length(number)), "{expect:?} {direction:?}");
            }
            assert!(cursor.next().unwrap().is_none());
            cursor.seek(&100_u64.to_be_bytes()).unwrap();
            assert_eq!(cursor.next().unwrap().unwrap().0, 100_u64.to_be_bytes());
        }
    }
}

/// With more snapshots than connections, idle ones lose theirs. They continue if their shard is unchanged, and report
/// an interruption otherwise.
#[test]
fn snapshots_share_few_connections() {
    const SNAPSHOTS: u64 = 20;
    let Some(server) = server() else { return };
    let engine = open_with(&server.url(), 8);
    for shard in 0..SNAPSHOTS {
        step(&engine, Shard(shard), 0, Durability::Buffered);
    }
    let snapshots: Vec<Arc<dyn Snapshot>> =
        (0..SNAPSHOTS).map(|shard| engine.snapshot(Shard(shard)).unwrap()).collect();
    for _ in 0..2 {
        for snapshot in &snapshots {
            assert_eq!(snapshot.get(Keyspace::Bodies, &1_u64.to_be_bytes()).unwrap(), Some(vec![1]));
        }
    }
    step(&engine, Shard(0), 1, Durability::Buffered);
    let error = snapshots[0].get(Keyspace::Bodies, &1_u64.to_be_bytes()).unwrap_err();
    assert!(matches!(error, StorageError::Interrupted(_)), "{error}");
    assert_eq!(snapshots[0].state().unwrap().version, Version(1), "the state is cached");
    let taken = engine.statistics().into_iter().find(|(name, _)| *name == "snapshots_interrupted").unwrap().1;
    assert!(taken >= SNAPSHOTS - 6, "{taken}");
}

/// Readers that each need a second snapshot while they hold all connections.
#[test]
fn readers_of_two_shards_do_not_deadlock() {
    let Some(server) = server() else { return };
    let engine = &*open_with(&server.url(), 8);
    for shard in 0..2 {
        step(engine, Shard(shard), 0, Durability::Buffered);
    }
    thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                let outer = engine.snapshot(Shard(0)).unwrap();
                assert_eq!(outer.state().unwrap().version, Version(1));
                let inner = engine.snapshot(Shard(1)).unwrap();
                assert_eq!(inner.state().unwrap().version, Version(1));
                assert!(outer.get(Keyspace::Bodies, &1_u64.to_be_bytes()).unwrap().is_some());
            });
        }
    });
}

#[test]
fn entries_of_dropped_shards_are_deleted() {
    let Some(server) = server() else { return };
    let url = server.url();
    let schema = schema_of(&url);
    let engine = open(&url);
    let mut batch = Batch::new();
    for number in 0..5_000_u64 {
        batch.insert(Keyspace::Bodies, &number.to_be_bytes(), b"body");
        batch.insert(Keyspace::IndexNodes, &number.to_be_bytes(), b"node");
    }
    let _ = engine.commit(Shard(1), Version(0), token(1), batch, Durability::Buffered).unwrap();
    step(&engine, Shard(2), 0, Durability::Buffered);
    assert!(engine.approximate_size(Shard(1)) > 100_000);
    engine.drop_shard(Shard(1)).unwrap();
    assert_eq!(engine.approximate_size(Shard(1)), 0);
    let left = || server.run(&format!("SELECT count(*) FROM {schema}.dropped"));
    while left() != "0" {
        thread::yield_now();
    }
    let count = |table: &str| server.run(&format!("SELECT count(*) FROM {schema}.{table}"));
    assert_eq!([count("kv_bodies"), count("kv_index_nodes")], ["1", "0"]);
    assert_eq!(steps(&engine, Shard(2)), 1);
}

/// Only the requested entries are read, also in tables without statistics.
#[test]
fn only_requested_entries_are_read() {
    let Some(server) = server() else { return };
    for durability in [Durability::Buffered, Durability::Synced] {
        count_rows_read(server, durability);
    }
}

fn count_rows_read(server: &Scratch, durability: Durability) {
    const ENTRIES: u64 = 4_000;
    const ROUNDS: u64 = 20;
    let url = server.url();
    let schema = schema_of(&url);
    let url = format!("{url}&application_name={schema}");
    // The statistics of a connection are updated when it ends.
    let rows_read = || {
        let open = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{schema}'");
        while server.run(&open) != "0" {
            thread::yield_now();
        }
        let text =
            format!("SELECT sum(idx_tup_fetch + seq_tup_read) FROM pg_stat_user_tables WHERE schemaname = '{schema}'");
        server.run(&text).parse::<u64>().unwrap()
    };
    let key = |number: u64| number.to_be_bytes();
    let engine = open(&url);
    let mut batch = Batch::new();
    for number in 0..ENTRIES {
        batch.insert(Keyspace::Bodies, &key(number), b"body");
    }
    let _ = engine.commit(Shard(1), Version(0), token(1), batch, Durability::Buffered).unwrap();
    drop(engine);
    let before = rows_read();
    let engine = open(&url);
    for round in 0..ROUNDS {
        let keys: Vec<_> = (0..10).map(|at| key(ENTRIES - 1 - at * ROUNDS - round)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        let found = engine.snapshot(Shard(1)).unwrap().multi_get(Keyspace::Bodies, &keys).unwrap();
        assert!(found.iter().all(Option::is_some));
        let mut batch = Batch::new();
        batch.delete(Keyspace::Bodies, keys[0]);
        batch.put(Keyspace::Bodies, keys[1], b"changed");
        let outcome = engine.commit(Shard(1), Version(1 + round), token(2 + round), batch, durability).unwrap();
        assert_eq!(outcome, Outcome::Committed(Version(2 + round)));
        let snapshot = engine.snapshot(Shard(1)).unwrap();
        let range = KeyRange { start: Some(keys[2]), end: None };
        let mut cursor = snapshot.scan(Keyspace::Bodies, range, Direction::Backward, Expect::Rows(1)).unwrap();
        assert!(cursor.next().unwrap().is_some());
    }
    drop(engine);
    let rows = rows_read() - before;
    println!("{rows} rows were read in {ROUNDS} rounds");
    assert!(rows < ROUNDS * 40, "{rows} rows in {ROUNDS} rounds");
}

/// Old commits are removed, except the last one of a shard; a writer with an unknown outcome still finds its commit.
#[test]
fn commits_are_pruned() {
    let Some(server) = server() else { return };
    for durability in [Durability::Buffered, Durability::Synced] {
        prune_commits(server, durability);
    }
}

fn prune_commits(server: &Scratch, durability: Durability) {
    let url = server.url();
    let engine = open(&url);
    let schema = schema_of(&url);
    let rows = || server.run(&format!("SELECT count(*) FROM {schema}.commits")).parse::<u64>().unwrap();
    for number in 0..600 {
        step(&engine, Shard(1), number, durability);
    }
    assert_eq!(rows(), 600, "all of them are young");
    // A repeated commit is recognized by its token.
    let outcome = engine.commit(Shard(1), Version(100), token(101), numbered(101), Durability::Synced).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(101)));
    server.run(&format!("UPDATE {schema}.commits SET at = at - interval '5 minutes'"));
    for number in 600..900 {
        step(&engine, Shard(1), number, durability);
    }
    assert!((300..400).contains(&rows()), "{}", rows());
}

#[test]
fn inserts_of_existing_keys_are_rejected() {
    let Some(server) = server() else { return };
    let engine = open(&server.url());
    step(&engine, Shard(1), 0, Durability::Buffered);
    let mut batch = Batch::new();
    batch.put(Keyspace::Local, b"key", b"value");
    batch.insert(Keyspace::Bodies, &1_u64.to_be_bytes(), b"twice");
    let error = engine.commit(Shard(1), Version(1), token(2), batch, Durability::Buffered).unwrap_err();
    assert!(matches!(error, StorageError::Present(_)), "{error}");
    assert_eq!(steps(&engine, Shard(1)), 1);
    assert_eq!(engine.snapshot(Shard(1)).unwrap().get(Keyspace::Local, b"key").unwrap(), None);
    step(&engine, Shard(1), 1, Durability::Buffered);
}

#[test]
fn a_large_commit_is_atomic() {
    let Some(server) = server() else { return };
    let engine = open(&server.url());
    let mut batch = Batch::new();
    for number in 0..20_u64 {
        batch.put(Keyspace::Attachments, &number.to_be_bytes(), &vec![number as u8; 4 << 20]);
    }
    let wrong = engine.commit(Shard(1), Version(3), token(1), batch.clone(), Durability::Buffered).unwrap();
    assert_eq!(wrong, Outcome::Conflict(Version(0)));
    let outcome = engine.commit(Shard(1), Version(0), token(1), batch, Durability::Buffered).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(1)));
    let snapshot = engine.snapshot(Shard(1)).unwrap();
    for number in 0..20_u64 {
        let value = snapshot.get(Keyspace::Attachments, &number.to_be_bytes()).unwrap().unwrap();
        assert!(value.len() == 4 << 20 && value.iter().all(|byte| u64::from(*byte) == number));
    }
}

#[test]
fn statistics_and_limits_are_reported() {
    let Some(server) = server() else { return };
    let engine = open(&server.url());
    step(&engine, Shard(1), 0, Durability::Synced);
    let value = |name| engine.statistics().iter().find(|(found, _)| *found == name).map(|(_, value)| *value);
    assert_eq!((value("commits"), value("conflicts")), (Some(1), Some(0)));
    assert!(value("connections") >= Some(1));
    engine.maintain().unwrap();
    engine.check().unwrap();
    engine.reclaim(Shard(1)).unwrap();
    let error = engine.checkpoint(std::path::Path::new("/nowhere")).unwrap_err();
    assert!(error.to_string().contains("pg_dump"), "{error}");
    assert!(options(&server.url()).location().contains("database postgres on /tmp/"));
}

#[test]
fn snapshots_outlive_the_engine() {
    let Some(server) = server() else { return };
    let engine = open(&server.url());
    step(&engine, Shard(1), 0, Durability::Buffered);
    let snapshot = engine.snapshot(Shard(1)).unwrap();
    drop(Arc::into_inner(engine).unwrap());
    assert_eq!(snapshot.state().unwrap().version, Version(1));
    let mut cursor: Box<dyn Cursor> =
        snapshot.scan(Keyspace::Bodies, KeyRange::default(), Direction::Forward, Expect::All).unwrap();
    assert!(cursor.next().unwrap().is_some());
}
