//! A random history of commits, and the states that are opened while objects are removed.

use std::num::NonZeroU32;

use settee_storage::conformance::Generator;
use slatedb::config::{CompactorOptions, FlushOptions, FlushType, GarbageCollectorDirectoryOptions};
use slatedb::{Db, Settings};

use super::*;
use crate::identity::{ClusterId, Identity};

const KEPT: Duration = Duration::from_secs(2);

fn settings() -> Settings {
    Settings {
        flush_interval: Some(Duration::from_millis(1)),
        l0_sst_size_bytes: 4096,
        l0_max_ssts: 64,
        l0_max_ssts_per_key: 64,
        compactor_options: Some(CompactorOptions {
            poll_interval: Duration::from_millis(50),
            ..CompactorOptions::default()
        }),
        garbage_collector_options: None,
        ..Settings::default()
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap()
}

async fn count(database: &Db) -> u64 {
    database.get(b"count").await.unwrap().map_or(0, |bytes| u64::from_be_bytes(bytes.as_ref().try_into().unwrap()))
}

/// Everything that the library considers unused is offered to the filter at once, while commits, files and compactions
/// replace each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_state_of_the_time_that_is_kept_can_be_opened() {
    let seed = now().as_nanos() as u64;
    println!("seed {seed}");
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let new = Identity::new(ClusterId(1), NonZeroU32::MIN, [0; 32]);
    identity::establish(objects.as_ref(), "memory", None, new).await.unwrap();
    let path = group::path(0);
    let database = Db::builder(path.clone(), Arc::clone(&objects)).with_settings(settings()).build().await.unwrap();
    let unused = || GarbageCollectorDirectoryOptions { interval: None, min_age: Duration::ZERO, dry_run: false };
    let options = GarbageCollectorOptions {
        manifest_options: Some(unused()),
        wal_options: Some(unused()),
        compacted_options: Some(unused()),
        compactions_options: Some(unused()),
        ..GarbageCollectorOptions::default()
    };
    let admin = Admin::builder(path.clone(), Arc::clone(&objects)).build();
    let kept = Kept {
        group: path.clone(),
        objects: Arc::clone(&objects),
        admin,
        duration: KEPT + Duration::from_secs(2),
        compaction_time: Duration::from_secs(1),
    };
    let collector = GarbageCollectorBuilder::new(path.clone(), Arc::clone(&objects))
        .with_options(options)
        .with_gc_filter(Arc::new(kept))
        .build();
    // Start and acknowledgement of each commit.
    let mut commits: Vec<(Duration, Duration)> = Vec::new();
    let mut random = Generator::new(seed);
    let mut checked = 0;
    while checked < 8 || now() < commits[0].1 + 3 * KEPT {
        for _ in 0..40 {
            let before = now();
            let number = commits.len() as u64 + 1;
            database.put(b"count", number.to_be_bytes()).await.unwrap();
            database.put(format!("{:08}", random.below(500)), [7; 200]).await.unwrap();
            commits.push((before, now()));
        }
        database.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await.unwrap();
        collector.run_gc_once().await;
        let at_s = (now() - Duration::from_millis(1_000 + random.below(KEPT.as_millis() as usize) as u64)).as_secs();
        if at_s <= commits[0].1.as_secs() {
            continue;
        }
        let (past, opened_s) = PastStore::open(Arc::clone(&objects), "memory", Some(at_s)).await.unwrap();
        assert_eq!(opened_s, at_s);
        let settings = Settings { compactor_options: None, ..settings() };
        let opened = Db::builder(path.clone(), past).with_settings(settings).build().await.unwrap();
        let found = count(&opened).await;
        let least = commits.iter().filter(|(_, acknowledged)| acknowledged.as_secs() <= at_s).count() as u64;
        let most = commits.iter().filter(|(start, _)| start.as_secs() <= at_s).count() as u64;
        assert!((least..=most).contains(&found), "{found}, not {least} to {most}, seed {seed}");
        let mut entries = opened.scan(b"".to_vec()..b"z".to_vec()).await.unwrap();
        while entries.next().await.unwrap().is_some() {}
        checked += 1;
    }
    let oldest = manifests(objects.as_ref(), &path).await.unwrap()[0];
    assert!(oldest.0 > 1, "nothing was removed");
    let error = PastStore::open(Arc::clone(&objects), "memory", Some(commits[1].1.as_secs())).await.unwrap_err();
    assert!(error.to_string().contains("does not contain the state of that time any more"), "{error}");
    assert_eq!(count(&database).await, commits.len() as u64);
}

#[tokio::test]
async fn a_state_of_the_past_needs_a_store_and_a_time_that_has_passed() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let open = async |at_s| {
        let opened = PastStore::open(Arc::clone(&objects), "memory", at_s).await;
        opened.map(|(_, at_s)| at_s).map_err(|error| error.to_string())
    };
    assert!(open(None).await.unwrap_err().contains("contains no data"));
    assert!(objects.list(None).next().await.is_none(), "nothing was written");
    let before = now().as_secs() - 1;
    let new = Identity::new(ClusterId(1), NonZeroU32::MIN, [0; 32]);
    identity::establish(objects.as_ref(), "memory", None, new).await.unwrap();
    assert!(open(Some(before)).await.unwrap_err().contains("contains no data"));
    assert!(open(Some(now().as_secs() + 60)).await.unwrap_err().contains("future"));
    assert!(open(None).await.unwrap() > before);
    assert_eq!(objects.list(None).count().await, 1, "only the identity remains");
}
