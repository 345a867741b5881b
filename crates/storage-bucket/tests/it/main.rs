//! Tests of the engine on object storage through its public interface.
#![expect(clippy::unwrap_used, reason = "tests")]

mod changing_owners;
mod child;
mod crash;
mod engine;
mod faults;
mod faulty;
mod history;
mod listings;
mod network;
mod nodes;
mod outages;
mod owners;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use object_store::client::{ClientOptions, HttpClient, HttpConnector};
use settee_storage::conformance::{self, numbered, token};
use settee_storage::{Durability, Engine, Shard};
use settee_storage_bucket::{Access, Bucket, BucketEngine, Location, Options};

/// A long lease, because a loaded machine may not renew a short one.
const LEASE: Duration = Duration::from_secs(120);

fn options() -> Options {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let id = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    Options {
        id: u128::from(id),
        name: format!("node {id}"),
        lease: LEASE,
        address: format!("http://node-{id}/"),
        commit_interval: Duration::ZERO,
        flush_interval: Duration::from_millis(20),
        ..Options::default()
    }
}

fn open(bucket: Bucket) -> Arc<BucketEngine> {
    Arc::new(BucketEngine::open(bucket, &options(), None).unwrap())
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
    conformance::step(engine, shard, step, durability);
}

fn steps(engine: &BucketEngine, shard: Shard) -> u64 {
    conformance::steps(engine, shard)
}

fn statistic(engine: &BucketEngine, name: &str) -> u64 {
    engine.statistics().into_iter().find(|(found, _)| *found == name).map(|(_, value)| value).unwrap()
}
