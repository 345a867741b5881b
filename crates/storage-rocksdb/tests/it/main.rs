//! Tests of the embedded engine through its public interface.
#![expect(clippy::unwrap_used, reason = "tests")]

mod child;
mod crash;
mod damage;
mod engine;

use std::path::Path;
use std::sync::Arc;

use settee_storage::conformance::{self, numbered, token};
use settee_storage::{Durability, Shard};
use settee_storage_rocksdb::{Options, RocksEngine};

fn open(path: &Path) -> Arc<RocksEngine> {
    Arc::new(RocksEngine::open(path, &Options::default()).unwrap())
}

fn step(engine: &RocksEngine, shard: Shard, step: u64, durability: Durability) {
    conformance::step(engine, shard, step, durability);
}

fn steps(engine: &RocksEngine, shard: Shard) -> u64 {
    conformance::steps(engine, shard)
}
