//! Tests of a group whose owners have different clocks.

use object_store::memory::InMemory;
use settee_storage::Snapshot as _;
use settee_storage::conformance::{numbered, token};
use slatedb::db_cache::moka::MokaCache;

use super::*;
use crate::Options;

fn context(runtime: &Handle, objects: &Arc<InMemory>) -> Arc<Context> {
    let poll_interval = Duration::from_millis(20);
    let options = Options { poll_interval, flush_interval: Duration::from_millis(20), ..Options::default() };
    Arc::new(Context {
        objects: Arc::clone(objects) as Arc<dyn ObjectStore>,
        runtime: runtime.clone(),
        settings: options.settings(false),
        garbage: None,
        history: Duration::ZERO,
        cache: Arc::new(MokaCache::new()),
        shown: "memory".to_owned(),
        timeout: Duration::from_secs(20),
        commit_interval: Duration::ZERO,
        idle_time: options.idle_time,
        meter: Arc::default(),
        commits: AtomicU64::new(0),
        written: AtomicU64::new(0),
    })
}

fn commit(group: &Group, shard: Shard, version: u64) {
    let (token, batch) = (token(version + 1), numbered(version + 1));
    let outcome = group.commit(shard, Version(version), token, batch, Durability::Synced);
    assert_eq!(outcome.unwrap(), Outcome::Committed(Version(version + 1)));
}

/// The library would reject every write, file and compaction of an owner whose clock is behind that of an earlier one.
/// Some owners end without a flush, so that their times are only in the log. The others write files, which are compacted.
#[test]
fn an_owner_whose_clock_is_behind_that_of_the_earlier_one_serves_the_group() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let context = context(runtime.handle(), &Arc::new(InMemory::new()));
    let shard = Shard(1);
    let mut version = 0;
    let started = Instant::now();
    for round in 0..16 {
        let ahead_ms = [60_000, -60_000, 0, 30_000][round % 4];
        let group = Group::open_at(&context, 0, GroupClock::new(ahead_ms)).unwrap();
        for _ in 0..3 {
            commit(&group, shard, version);
            version += 1;
        }
        assert_eq!(group.snapshot(shard).unwrap().state().unwrap().version, Version(version));
        if round % 3 != 0 {
            group.close();
        }
    }
    println!("{version} commits in {:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let group = Group::open_at(&context, 0, GroupClock::new(0)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while group.counts()[2] == 0 {
        assert!(Instant::now() < deadline, "no compaction: {:?}", group.counts());
        group.check().unwrap();
        commit(&group, shard, version);
        version += 1;
    }
    group.check().unwrap();
}
