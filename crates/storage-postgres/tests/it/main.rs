//! Tests of the engine on PostgreSQL, with a server that they start.
#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod on_postgresql;
mod proxy;
#[expect(dead_code, unreachable_pub, reason = "other crates include it, and use more of it")]
mod scratch;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use scratch::Scratch;
use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Shard, Version,
};
use settee_storage_postgres::{Options, PostgresEngine};

fn server() -> Option<&'static Scratch> {
    static SERVER: OnceLock<Option<Scratch>> = OnceLock::new();
    SERVER.get_or_init(|| Scratch::start("")).as_ref()
}

fn open(url: &str) -> Arc<PostgresEngine> {
    open_with(url, 60)
}

fn open_with(url: &str, connections: usize) -> Arc<PostgresEngine> {
    Arc::new(PostgresEngine::open(&options(url).with_connections(connections), id()).unwrap())
}

fn id() -> [u8; 16] {
    static LAST: AtomicU64 = AtomicU64::new(0);
    u128::from(LAST.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes()
}

fn options(url: &str) -> Options {
    Options::parse(url).unwrap()
}

fn schema_of(url: &str) -> &str {
    url.rsplit('=').next().unwrap()
}

fn step(engine: &PostgresEngine, shard: Shard, step: u64, durability: Durability) {
    let outcome = engine.commit(shard, Version(step), token(step + 1), numbered(step + 1), durability).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(step + 1)));
}

fn numbered(number: u64) -> Batch {
    let mut batch = Batch::new();
    batch.insert(Keyspace::Bodies, &number.to_be_bytes(), &vec![number as u8; (number % 700) as usize]);
    batch
}

fn token(number: u64) -> CommitToken {
    CommitToken(u128::from(number) << 70)
}

fn steps(engine: &PostgresEngine, shard: Shard) -> u64 {
    let snapshot = engine.snapshot(shard).unwrap();
    let state = snapshot.state().unwrap();
    let mut cursor = snapshot.scan(Keyspace::Bodies, KeyRange::default(), Direction::Forward, Expect::All).unwrap();
    let mut count = 0;
    while let Some((key, value)) = cursor.next().unwrap() {
        count += 1_u64;
        assert_eq!(key, count.to_be_bytes(), "{shard:?} has a hole");
        assert_eq!(value, vec![count as u8; (count % 700) as usize]);
    }
    assert_eq!(state.version, Version(count), "the version of {shard:?}");
    assert_eq!(state.token, if count > 0 { token(count) } else { CommitToken::default() });
    count
}
