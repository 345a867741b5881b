//! Commits to different shards in one statement.

use std::sync::Barrier;
use std::thread;

use settee_storage::{Batch, CommitToken, Durability, Engine, Keyspace, Outcome, Shard, StorageError, Version};
use settee_storage_postgres::PostgresEngine;

use super::nodes::until;
use crate::proxy::Proxy;
use crate::scratch::Scratch;
use crate::{numbered, open, schema_of, server, step, steps, token};

fn statistic(engine: &PostgresEngine, wanted: &str) -> u64 {
    engine.statistics().into_iter().find(|(name, _)| *name == wanted).unwrap().1
}

/// Starts threads that commit to shards 1 to `count` while no commit can be written, and waits for all. Returns the
/// outcomes by shard. The first two have statements of their own, and the others share the third one: a fence that
/// rejects a commit needs no lock to do so.
fn commit_concurrently(
    (server, url): (&Scratch, &str),
    engine: &PostgresEngine,
    count: u64,
    commit: impl Fn(Shard) -> Result<Outcome, StorageError> + Sync,
) -> Vec<Result<Outcome, StorageError>> {
    let schema = schema_of(url);
    let keeper = format!("BEGIN; LOCK TABLE {schema}.commits IN EXCLUSIVE MODE; SELECT pg_sleep(60)");
    let locks = |which: &str, what: &str| {
        server.run(&format!("SELECT {what} FROM pg_locks WHERE relation = '{schema}.commits'::regclass AND {which}"))
    };
    thread::scope(|scope| {
        scope.spawn(|| server.try_run(&keeper));
        until("the table is locked", || locks("mode = 'ExclusiveLock' AND granted", "count(*)") == "1");
        let commit = &commit;
        let begin = |shard| scope.spawn(move || commit(Shard(shard)));
        let waiting = || locks("NOT granted", "count(*)");
        let mut threads = vec![begin(1)];
        until("the first one waits", || waiting() == "1");
        threads.push(begin(2));
        until("the second one waits", || waiting() == "2");
        threads.extend((3..=count).map(begin));
        until("all wait", || statistic(engine, "commits_unfinished") == count);
        assert_eq!(waiting(), "2", "statements are under way");
        locks("mode = 'ExclusiveLock' AND granted", "pg_terminate_backend(pid)");
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn waiting_commits_share_a_statement() {
    const COUNT: u64 = 12;
    let Some(server) = server() else { return };
    let url = server.url();
    let engine = open(&url);
    let commit = |shard: Shard, version: u64| {
        engine.commit(shard, Version(version), token(version + 1), numbered(version + 1), Durability::Synced)
    };
    for version in 0..2 {
        let before = statistic(&engine, "commits_shared");
        let outcomes = commit_concurrently((server, &url), &engine, COUNT, |shard| commit(shard, version));
        for outcome in outcomes {
            assert_eq!(outcome.unwrap(), Outcome::Committed(Version(version + 1)));
        }
        let shared = statistic(&engine, "commits_shared") - before;
        assert_eq!(shared, COUNT - 2);
    }
    for shard in 1..=COUNT {
        assert_eq!(steps(&engine, Shard(shard)), 2);
    }
}

/// A commit that conflicts, or inserts an existing key, does not prevent the others.
#[test]
fn a_failed_commit_fails_alone() {
    const COUNT: u64 = 12;
    const LATE: Shard = Shard(3);
    const WRONG: Shard = Shard(9);
    let Some(server) = server() else { return };
    let url = server.url();
    let (engine, other) = (open(&url), open(&url));
    (1..=COUNT).for_each(|shard| step(&engine, Shard(shard), 0, Durability::Synced));
    step(&other, LATE, 1, Durability::Synced);
    let outcomes = commit_concurrently((server, &url), &engine, COUNT, |shard| {
        // The token identifies the commit that was applied.
        let mine = if shard == LATE { CommitToken(7) } else { token(2) };
        let number = if shard == WRONG { 1 } else { 2 };
        engine.commit(shard, Version(1), mine, numbered(number), Durability::Synced)
    });
    for (shard, outcome) in (1..).map(Shard).zip(outcomes) {
        match (shard, outcome) {
            (LATE, Ok(Outcome::Conflict(Version(2)))) | (WRONG, Err(StorageError::Present(_))) => {}
            (LATE | WRONG, outcome) => panic!("{shard:?}: {outcome:?}"),
            (_, outcome) => assert_eq!(outcome.unwrap(), Outcome::Committed(Version(2)), "{shard:?}"),
        }
        assert_eq!(steps(&engine, shard), if shard == WRONG { 1 } else { 2 });
    }
}

/// A connection that is cut at any byte of the response to several commits.
#[test]
fn a_cut_neither_loses_nor_repeats_joint_commits() {
    const SHARDS: u64 = 5;
    const CUTS: i64 = 40;
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.socket());
    let url = server.url();
    let engine = open(&proxy.url(schema_of(&url)));
    (1..=SHARDS).for_each(|shard| step(&engine, Shard(shard), 0, Durability::Synced));
    let mut cuts = 0;
    for (version, cut) in (1..).zip(0..CUTS) {
        let all = Barrier::new(SHARDS as usize + 1);
        thread::scope(|scope| {
            for shard in 1..=SHARDS {
                let (engine, all) = (&engine, &all);
                scope.spawn(move || {
                    all.wait();
                    step(engine, Shard(shard), version, Durability::Synced);
                });
            }
            proxy.cut_after(cut);
            all.wait();
        });
        cuts += u64::from(proxy.is_cut());
    }
    proxy.cut_after(-1);
    println!("{cuts} connections were cut, {} commits were shared", statistic(&engine, "commits_shared"));
    assert!(cuts > 20 && statistic(&engine, "commits_shared") > 0);
    for shard in 1..=SHARDS {
        assert_eq!(steps(&engine, Shard(shard)), 1 + CUTS.unsigned_abs());
    }
}

/// Processes whose statements have shards in common, without shard locks: no deadlock occurs, and nothing is lost.
#[test]
fn joint_statements_of_several_processes_do_not_deadlock() {
    const SHARDS: u64 = 6;
    const COMMITS: u64 = 40;
    let Some(server) = server() else { return };
    let url = server.url();
    let engines = [open(&url), open(&url), open(&url)];
    thread::scope(|scope| {
        for (place, engine) in engines.iter().enumerate() {
            for shard in 1..=SHARDS {
                scope.spawn(move || {
                    let (mut version, mut made) = (0, 0);
                    while made < COMMITS {
                        let mut batch = Batch::new();
                        batch.insert(Keyspace::Bodies, &[place as u8, made as u8], b"made");
                        let mine = CommitToken(u128::from(made) << 8 | place as u128);
                        match engine.commit(Shard(shard), Version(version), mine, batch, Durability::Synced).unwrap() {
                            Outcome::Committed(Version(now)) => (version, made) = (now, made + 1),
                            Outcome::Conflict(Version(now)) => version = now,
                            Outcome::Unknown => panic!("nothing was cut"),
                        }
                    }
                });
            }
        }
    });
    let all = COMMITS * engines.len() as u64;
    for shard in (1..=SHARDS).map(Shard) {
        let snapshot = engines[0].snapshot(shard).unwrap();
        assert_eq!(snapshot.state().unwrap().version, Version(all));
        let keys: Vec<Vec<u8>> =
            (0..3).flat_map(|place| (0..COMMITS).map(move |made| vec![place, made as u8])).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let found = snapshot.multi_get(Keyspace::Bodies, &keys).unwrap();
        assert!(found.iter().all(|value| value.as_deref() == Some(b"made")), "{shard:?}");
    }
    assert!(engines.iter().any(|engine| statistic(engine, "commits_shared") > 0));
}
