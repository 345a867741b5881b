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
use settee_storage::conformance::{self, numbered, token};
use settee_storage::{Durability, Shard};
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
    conformance::step(engine, shard, step, durability);
}

fn steps(engine: &PostgresEngine, shard: Shard) -> u64 {
    conformance::steps(engine, shard)
}
