//! Properties of shards and keyspaces as a whole.

use super::fixture::{Generator, Open, commit, commit_at, entries, puts, scanned, view};
use crate::{
    Batch, CommitToken, Direction, Engine, Expect, KeyRange, Keyspace, Shard, ShardState, Snapshot, StorageError,
    Version,
};

/// Shards that are adjacent in every notation: as bytes of either order, as text, at both ends.
const SHARDS: [Shard; 9] = [
    Shard(0),
    Shard(1),
    Shard(2),
    Shard(0xff),
    Shard(0x100),
    Shard(0x101),
    Shard(0xffff_ffff),
    Shard(u64::MAX - 1),
    Shard(u64::MAX),
];
const KEYS: [&[u8]; 6] = [b"", b"\0\0\0\0\0\0\0\0", b"\0\0\0\0\0\0\0\x01", b"a", b"\xff", &[0xff; 40]];

fn fill(open: Open<'_>) -> std::sync::Arc<dyn crate::Engine> {
    let engine = open();
    for shard in SHARDS {
        let mut batch = Batch::new();
        for space in Keyspace::ALL {
            for key in KEYS {
                batch.put(space, key, &shard.0.to_be_bytes());
            }
        }
        commit(&*engine, shard, batch);
    }
    engine
}

fn assert_filled(snapshot: &dyn Snapshot, shard: Shard, when: &str) {
    let wanted: Vec<_> = KEYS.iter().map(|key| (key.to_vec(), shard.0.to_be_bytes().to_vec())).collect();
    for space in Keyspace::ALL {
        assert_eq!(entries(snapshot, space), wanted, "entries of {shard:?} in {space:?} {when}");
        let mut backward = scanned(snapshot, space, KeyRange::default(), Direction::Backward);
        backward.reverse();
        assert_eq!(backward, wanted, "entries of {shard:?} in {space:?} backwards {when}");
    }
    assert_eq!(snapshot.state().expect("state").version, Version(1), "the version of {shard:?} {when}");
}

pub fn shards_are_isolated(open: Open<'_>) {
    let engine = fill(open);
    for shard in SHARDS {
        assert_filled(&*view(&*engine, shard), shard, "after all were written");
    }
}

pub fn keyspaces_are_isolated(open: Open<'_>) {
    let engine = open();
    let shard = Shard(3);
    for space in Keyspace::ALL {
        commit(&*engine, shard, puts(space, &[(b"key", space.name().as_bytes())]));
    }
    let mut batch = Batch::new();
    batch.delete(Keyspace::Bodies, b"key");
    commit(&*engine, shard, batch);
    let snapshot = view(&*engine, shard);
    for space in Keyspace::ALL {
        let value = (space != Keyspace::Bodies).then(|| space.name().as_bytes().to_vec());
        assert_eq!(snapshot.get(space, b"key").expect("get"), value, "the key in {space:?}");
        let wanted: Vec<_> = value.into_iter().map(|value| (b"key".to_vec(), value)).collect();
        assert_eq!(entries(&*snapshot, space), wanted, "a scan of {space:?}");
    }
}

pub fn copied_shards_are_as_they_were(open: Open<'_>) {
    let engine = open();
    let (shard, token) = (Shard(u64::MAX), CommitToken(77));
    let restore = |version, batch| {
        let state = ShardState { version: Version(version), token };
        engine.restore(shard, state, batch)
    };
    for (version, key) in [(0, b"a"), (0, b"b"), (5_000_000_000, b"c")] {
        let mut batch = puts(Keyspace::Local, &[(key, b"old"), (b"same", key)]);
        batch.insert(Keyspace::Bodies, key, b"new");
        if version > 0 {
            batch.set_head(b"head");
            batch.delete(Keyspace::Local, b"a");
        }
        restore(version, batch).expect("restore");
        let state = view(&*engine, shard).state().expect("state");
        assert_eq!(state, ShardState { version: Version(version), token }, "the state behind {key:?}");
    }
    restore(7, Batch::new()).expect("a version may be less");
    restore(5_000_000_000, Batch::new()).expect("and more");
    engine.sync().expect("sync");
    let snapshot = view(&*engine, shard);
    let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    let wanted = vec![row(b"b", b"old"), row(b"c", b"old"), row(b"same", b"c")];
    assert_eq!(entries(&*snapshot, Keyspace::Local), wanted, "what was copied");
    assert_eq!(entries(&*snapshot, Keyspace::Bodies).len(), 3, "what was inserted");
    assert_eq!(snapshot.head().expect("head").as_deref(), Some(&b"head"[..]), "a head stays until there is another");
    for (expected, wanted) in [(0, Err(5_000_000_000)), (7, Err(5_000_000_000)), (5_000_000_000, Ok(5_000_000_001))] {
        let outcome = commit_at(&*engine, shard, Version(expected), CommitToken(1), Batch::new());
        assert_eq!(outcome, wanted.map(Version).map_err(Version), "a commit that expects {expected}");
    }
    engine.drop_shard(shard).expect("drop_shard");
    let refused = restore(1, puts(Keyspace::Local, &[(b"a", b"b")]));
    assert!(matches!(refused, Err(StorageError::Dropped)), "a dropped shard does not come back: {refused:?}");
    assert_dropped(&*engine, shard);
}

/// A dropped shard can never be read or written again, regardless of the version that a late writer expects.
fn assert_dropped(engine: &dyn Engine, shard: Shard) {
    let snapshot = view(engine, shard);
    assert!(matches!(snapshot.state(), Err(StorageError::Dropped)), "the state of dropped {shard:?}");
    assert!(matches!(snapshot.head(), Err(StorageError::Dropped)), "the head of dropped {shard:?}");
    for space in Keyspace::ALL {
        let found = snapshot.get(space, b"a");
        assert!(matches!(found, Err(StorageError::Dropped)), "a key of dropped {shard:?} in {space:?}: {found:?}");
        let found = snapshot.multi_get(space, &[b"a", b"b"]);
        assert!(matches!(found, Err(StorageError::Dropped)), "keys of dropped {shard:?} in {space:?}: {found:?}");
        let scan = snapshot.scan(space, KeyRange::default(), Direction::Forward, Expect::Few);
        assert!(matches!(scan, Err(StorageError::Dropped)), "a scan of dropped {shard:?} in {space:?}");
    }
    let commit = |expected| commit_at(engine, shard, expected, CommitToken(9), puts(Keyspace::Local, &[(b"a", b"b")]));
    let last = commit(Version(0)).expect_err("a commit to a dropped shard conflicts");
    assert_ne!(last, Version(0), "the version of {shard:?} does not come back");
    for expected in [Version(1), last, Version(last.0 + 1)] {
        assert_eq!(commit(expected), Err(last), "a commit to dropped {shard:?} that expects {expected:?}");
    }
}

pub fn dropped_shards_are_gone(open: Open<'_>) {
    let engine = fill(open);
    let before = SHARDS.map(|shard| view(&*engine, shard));
    for (index, dropped) in SHARDS.into_iter().enumerate() {
        engine.drop_shard(dropped).expect("drop_shard");
        for shard in &SHARDS[..=index] {
            assert_dropped(&*engine, *shard);
        }
        for shard in &SHARDS[index + 1..] {
            assert_filled(&*view(&*engine, *shard), *shard, &format!("after {dropped:?} was dropped"));
        }
    }
    for (shard, before) in SHARDS.into_iter().zip(before) {
        assert_filled(&*before, shard, "in a snapshot from before it was dropped");
    }
    engine.drop_shard(SHARDS[0]).expect("a shard that is not there can be dropped");
    engine.drop_shard(Shard(77)).expect("a shard that was never there can be dropped");
    assert_dropped(&*engine, SHARDS[0]);
    assert_dropped(&*engine, Shard(77));
}

pub fn reclaiming_changes_nothing(open: Open<'_>) {
    let engine = fill(open);
    let before = SHARDS.map(|shard| view(&*engine, shard));
    let shard = SHARDS[3];
    let mut batch = Batch::new();
    for space in Keyspace::ALL {
        KEYS[1..].iter().for_each(|key| batch.delete(space, key));
    }
    commit(&*engine, shard, batch);
    for reclaimed in SHARDS {
        engine.reclaim(reclaimed).expect("reclaim");
    }
    engine.reclaim(Shard(77)).expect("a shard that was never there has nothing to give back");
    let snapshot = view(&*engine, shard);
    for space in Keyspace::ALL {
        let left = vec![(KEYS[0].to_vec(), shard.0.to_be_bytes().to_vec())];
        assert_eq!(entries(&*snapshot, space), left, "entries of {shard:?} in {space:?}");
    }
    assert_eq!(snapshot.state().expect("state").version, Version(2));
    for other in SHARDS.into_iter().filter(|other| *other != shard) {
        assert_filled(&*view(&*engine, other), other, "after all were reclaimed");
    }
    for (shard, before) in SHARDS.into_iter().zip(before) {
        assert_filled(&*before, shard, "in a snapshot from before it was reclaimed");
    }
}

pub fn sizes_follow_the_data(open: Open<'_>) {
    const BYTES: u64 = 4 << 20;
    let engine = open();
    let (shard, other) = (Shard(10), Shard(11));
    let mut random = Generator::new(10);
    for at in 0..BYTES >> 16 {
        commit(&*engine, shard, puts(Keyspace::Bodies, &[(&at.to_be_bytes(), &random.bytes(1 << 16))]));
    }
    let size = engine.approximate_size(shard);
    assert!((BYTES / 2..BYTES * 2).contains(&size), "{BYTES} bytes were written and the size is {size}");
    let size = engine.approximate_size(other);
    assert!(size < BYTES / 8, "nothing was written and the size is {size}");
    engine.drop_shard(shard).expect("drop_shard");
    let size = engine.approximate_size(shard);
    assert!(size < BYTES / 8, "the shard was dropped and its size is {size}");
}
