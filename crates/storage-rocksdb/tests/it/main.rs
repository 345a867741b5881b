//! Tests of the embedded engine through its public interface.
#![expect(clippy::unwrap_used, reason = "tests")]

mod child;
mod crash;
mod damage;
mod engine;

use std::path::Path;
use std::sync::Arc;

use settee_storage::{Batch, CommitToken, Durability, Engine, Expect, Keyspace, Outcome, Shard, Version};
use settee_storage_rocksdb::{Options, RocksEngine};

fn open(path: &Path) -> Arc<RocksEngine> {
    Arc::new(RocksEngine::open(path, &Options::default()).unwrap())
}

fn batch(key: &[u8], value: &[u8]) -> Batch {
    let mut batch = Batch::new();
    batch.put(Keyspace::Bodies, key, value);
    batch
}

fn step(engine: &RocksEngine, shard: Shard, step: u64, durability: Durability) {
    let outcome = engine.commit(shard, Version(step), token(step + 1), numbered(step + 1), durability).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(step + 1)));
}

fn numbered(number: u64) -> Batch {
    batch(&number.to_be_bytes(), &vec![number as u8; (number % 700) as usize])
}

fn token(number: u64) -> CommitToken {
    CommitToken(u128::from(number) << 70)
}

fn steps(engine: &RocksEngine, shard: Shard) -> u64 {
    let snapshot = engine.snapshot(shard).unwrap();
    let state = match snapshot.state() {
        Err(settee_storage::StorageError::Dropped) => return 0,
        state => state.unwrap(),
    };
    let range = settee_storage::KeyRange::default();
    let mut cursor = snapshot.scan(Keyspace::Bodies, range, settee_storage::Direction::Forward, Expect::Few).unwrap();
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
