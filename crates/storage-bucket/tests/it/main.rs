//! Tests of the engine on object storage through its public interface.
#![expect(clippy::unwrap_used, reason = "tests")]

mod child;
mod crash;
mod engine;
mod faults;
mod faulty;
mod owners;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::client::{ClientOptions, HttpClient, HttpConnector};
use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Shard, StorageError,
    Version,
};
use settee_storage_bucket::{Access, Bucket, BucketEngine, Location, Options, Standby};

/// A long lease, because a loaded machine may not renew a short one.
const LEASE: Duration = Duration::from_secs(120);

fn options() -> Options {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    Options {
        id: u128::from(id),
        name: format!("node {id}"),
        lease: LEASE,
        standby: Standby::Waits,
        commit_interval: Duration::ZERO,
        flush_interval: Duration::from_millis(20),
        ..Options::default()
    }
}

fn open(bucket: Bucket) -> Arc<BucketEngine> {
    Arc::new(BucketEngine::open(bucket, &options()).unwrap())
}

/// No test uses the network.
#[derive(Debug)]
struct NoNetwork;

impl HttpConnector for NoNetwork {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Err(object_store::Error::Generic { store: "test", source: "there is no network".into() })
    }
}

fn directory(path: &Path) -> Bucket {
    let location = Location::parse(&format!("file://{}", path.display())).unwrap();
    location.open(&Access::default(), Arc::new(NoNetwork)).unwrap()
}

fn step(engine: &BucketEngine, shard: Shard, step: u64, durability: Durability) {
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

/// Checks that the commits of a shard are complete and in order, and returns their number.
fn steps(engine: &BucketEngine, shard: Shard) -> u64 {
    let snapshot = engine.snapshot(shard).unwrap();
    let state = match snapshot.state() {
        Err(StorageError::Dropped) => return 0,
        state => state.unwrap(),
    };
    let range = KeyRange::default();
    let mut cursor = snapshot.scan(Keyspace::Bodies, range, Direction::Forward, Expect::All).unwrap();
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

fn statistic(engine: &BucketEngine, name: &str) -> u64 {
    engine.statistics().into_iter().find(|(found, _)| *found == name).map(|(_, value)| value).unwrap()
}
