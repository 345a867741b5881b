//! Several processes and one store: the lease, the fence, and the identity of the store.

use std::thread;
use std::time::{Duration, Instant};

use settee_storage::{Durability, Engine, Shard, StorageError, Version};
use settee_storage_bucket::{BucketEngine, ClusterId, Options};

use crate::faulty::FaultyStore;
use crate::{numbered, open, options, step, steps, token};

/// Short enough for a test that waits for its end, and long enough for renewals on a loaded machine.
const SHORT_LEASE: Duration = Duration::from_secs(6);

#[test]
fn a_second_process_refuses_while_the_first_one_runs() {
    let store = FaultyStore::new(1);
    let first = Options { name: "settee@first".to_owned(), lease: SHORT_LEASE, ..options() };
    let engine = BucketEngine::open(store.bucket(), &first, None).unwrap();
    step(&engine, Shard(1), 0, Durability::Synced);
    let second = Options { is_exclusive: true, lease: SHORT_LEASE, ..options() };
    let error = BucketEngine::open(store.other().bucket(), &second, None).unwrap_err().to_string();
    assert!(error.contains("is in use by settee@first"), "{error}");
    step(&engine, Shard(1), 1, Durability::Synced);
    drop(engine);
    let engine = BucketEngine::open(store.other().bucket(), &second, None).unwrap();
    assert_eq!(steps(&engine, Shard(1)), 2, "the first process released the store");
}

#[test]
fn a_waiting_process_takes_over_when_the_first_one_ends() {
    let store = FaultyStore::new(1);
    let engine = open(store.bucket());
    let other = store.other();
    thread::scope(|scope| {
        let waiting =
            scope.spawn(|| BucketEngine::open(other.bucket(), &Options { lease: SHORT_LEASE, ..options() }, None));
        step(&engine, Shard(1), 0, Durability::Synced);
        assert!(!waiting.is_finished());
        drop(engine);
        let engine = waiting.join().unwrap().unwrap();
        assert_eq!(steps(&engine, Shard(1)), 1);
        step(&engine, Shard(1), 1, Durability::Synced);
    });
}

#[test]
fn a_process_that_cannot_reach_the_store_is_replaced_and_stops() {
    let store = FaultyStore::new(1);
    let lease = Duration::from_secs(2);
    let engine = BucketEngine::open(store.bucket(), &Options { lease, ..options() }, None).unwrap();
    step(&engine, Shard(1), 0, Durability::Synced);
    let other = store.other();
    store.set_down(true);
    let replaced = Instant::now();
    let second = open(other.bucket());
    println!("replaced after {:?}", replaced.elapsed());
    let Err(error) = engine.snapshot(Shard(1)) else { panic!("a replaced process still serves reads") };
    assert!(matches!(error, StorageError::Unreached(_)), "{error:?}");
    step(&second, Shard(1), 1, Durability::Synced);
    store.set_down(false);
    let outcome = engine.commit(Shard(1), Version(1), token(9), numbered(9), Durability::Synced);
    assert!(matches!(outcome, Err(StorageError::Unreached(_) | StorageError::InDoubt(_))), "{outcome:?}");
    assert!(engine.check().is_err() && engine.health().is_err());
    step(&second, Shard(1), 2, Durability::Synced);
    drop(engine);
    step(&second, Shard(1), 3, Durability::Synced);
    assert_eq!(steps(&second, Shard(1)), 4);
}

/// The lease has failed to exclude a second writer, as after a suspension of the first one.
#[test]
fn a_writer_without_a_lease_is_fenced() {
    const SHARDS: u64 = 4;
    let store = FaultyStore::new(1);
    let first = &*open(store.bucket());
    thread::scope(|scope| {
        let writers: Vec<_> = (0..SHARDS)
            .map(|shard| {
                scope.spawn(move || {
                    for number in 0.. {
                        let outcome = first.commit(
                            Shard(shard),
                            Version(number),
                            token(number + 1),
                            numbered(number + 1),
                            Durability::Synced,
                        );
                        if let Err(error) = outcome {
                            assert!(error.is_temporary(), "{error:?}");
                            return number;
                        }
                    }
                    unreachable!("the loop ends with an error")
                })
            })
            .collect();
        while (0..SHARDS).any(|shard| steps(first, Shard(shard)) < 20) {}
        store.remove("settee-coordinator");
        let second = open(store.other().bucket());
        let acknowledged: Vec<u64> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        for (shard, acknowledged) in (0..).zip(acknowledged) {
            let kept = steps(&second, Shard(shard));
            assert!((acknowledged..=acknowledged + 1).contains(&kept), "{kept} commits, {acknowledged} acknowledged");
            step(&second, Shard(shard), kept, Durability::Synced);
        }
        assert!(first.snapshot(Shard(0)).is_err(), "a fenced process serves no reads");
    });
}

fn refused(store: &std::sync::Arc<FaultyStore>, options: &Options, expected: &str) {
    let before = store.names();
    let error = BucketEngine::open(store.bucket(), options, None).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert_eq!(store.names(), before, "a refused start wrote objects");
}

#[test]
fn unsuitable_stores_are_refused_and_not_changed() {
    let store = FaultyStore::new(1);
    let engine = open(store.bucket());
    let cluster = engine.cluster();
    step(&engine, Shard(1), 0, Durability::Synced);
    drop(engine);
    refused(&store, &Options { cluster: Some(ClusterId(5)), ..options() }, "belong to cluster");
    let engine = BucketEngine::open(store.bucket(), &Options { cluster: Some(cluster), ..options() }, None).unwrap();
    assert_eq!((engine.cluster(), steps(&engine, Shard(1))), (cluster, 1));
    drop(engine);
    for (format, expected) in [(3, "use a newer version"), (1, "an earlier version wrote")] {
        store.write("settee-cluster", &format!("settee bucket\nformat {format}\ncluster {:032x}\n", cluster.0));
        refused(&store, &options(), expected);
    }
    store.write("settee-cluster", "something else");
    refused(&store, &options(), "is not the identity of a cluster");

    let store = FaultyStore::new(1);
    refused(&store, &Options { cluster: Some(cluster), ..options() }, "contains no data");
    store.write("photos/1.jpg", "image");
    refused(&store, &options(), "contains other objects, such as photos/1.jpg");

    let store = FaultyStore::new(1);
    store.forbid();
    refused(&store, &options(), "the credentials for s3://test/prefix are not accepted");
    let store = FaultyStore::new(1);
    store.set_down(true);
    refused(&store, &options(), "503 SlowDown");
}
