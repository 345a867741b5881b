//! Tests of [`Writers`] on threads: two users of a memory engine.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use settee_storage::memory::MemoryEngine;

use super::*;

const TIMEOUT: Duration = Duration::from_secs(30);
const SHARD: Shard = Shard(5);

/// Returns two users of a store.
fn engines() -> [Arc<dyn Engine>; 2] {
    let one = MemoryEngine::new();
    let other = one.user();
    [Arc::new(one), Arc::new(other)]
}

fn until(writers: &Writers, place: Place) {
    let (changes, changed) = mpsc::channel();
    writers.on_change(Box::new(move || {
        let _ = changes.send(());
    }));
    while writers.place(SHARD) != place {
        let change = changed.recv_timeout(TIMEOUT);
        assert!(change.is_ok(), "{:?} instead of {place:?}", writers.place(SHARD));
    }
}

#[test]
fn the_only_process_is_the_writer_at_once() {
    let writers = Writers::start(Arc::new(MemoryEngine::new()), Groups::default());
    assert!(writers.holds_all() && writers.place(SHARD) == Place::Here);
    assert_eq!(writers.claim(SHARD).expect("it is the writer").key, "writer/1/0");
    writers.stop();
    assert!(writers.claim(SHARD).is_err() && !writers.holds_all());
}

#[test]
fn a_node_with_another_number_of_groups_waits_for_the_others_to_leave() {
    let [first, second] = engines();
    first.members().announce("first", "http://first").expect("a new name");
    second.members().announce("second", "http://second").expect("a new name");
    let one = Writers::start(Arc::clone(&first), Groups::default());
    until(&one, Place::Here);
    let other = Writers::start(second, Groups::new(NonZeroU32::new(8).expect("positive")));
    for _ in 0..3 {
        other.inner.observe();
        assert_eq!(other.place(SHARD), Place::Unknown);
    }
    assert!(one.claim(SHARD).is_ok());
    one.stop();
    first.members().leave().expect("a memory engine");
    until(&other, Place::Here);
}

#[test]
fn a_stopped_writer_is_followed_by_another_node() {
    let [first, second] = engines();
    let node = first.members().this();
    let one = Writers::start(first, Groups::default());
    until(&one, Place::Here);
    let other = Writers::start(second, Groups::default());
    until(&other, Place::At(node));
    assert!(one.holds_all() && !other.holds_all());
    let claim = one.claim(SHARD).expect("it is the writer");
    assert!(matches!(other.claim(SHARD), Err(StorageError::Deposed)));
    let changes = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&changes);
    other.on_change(Box::new(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    }));
    one.leave();
    assert!(one.place(SHARD) == Place::Unknown && one.claim(SHARD).is_ok(), "a write in progress is finished");
    one.stop();
    assert!(one.claim(SHARD).is_err());
    other.refresh();
    until(&other, Place::Here);
    assert!(other.claim(SHARD).expect("it is the writer").epoch > claim.epoch);
    assert!(changes.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_deposed_writer_is_a_follower() {
    let [first, second] = engines();
    let writers = Writers::start(Arc::clone(&first), Groups::default());
    until(&writers, Place::Here);
    let claim = writers.claim(SHARD).expect("it is the writer");
    first.members().release(&claim).expect("it can be released");
    let taken = second.members().claim(&claim.key).expect("the engine can be written");
    // The node can have claimed again before the other one.
    let Some(taken) = taken else { return until(&writers, Place::Here) };
    assert!(writers.claim(SHARD).is_err(), "a claim that is not held");
    writers.deposed(&claim);
    until(&writers, Place::At(second.members().this()));
    second.members().release(&taken).expect("it can be released");
    until(&writers, Place::Here);
    assert!(writers.claim(SHARD).expect("it is the writer").epoch > taken.epoch);
}
