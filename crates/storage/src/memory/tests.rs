//! Tests of the memory engine beyond the conformance suite.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::conformance::{self, Generator};

#[test]
fn conforms() {
    conformance::run_all(&|| Arc::new(MemoryEngine::new()));
}

#[test]
fn two_users_of_a_store_know_each_other() {
    conformance::run_all_of_two(&|| {
        let engine = MemoryEngine::new();
        [Arc::new(engine.user()), Arc::new(engine)]
    });
}

#[test]
fn a_load_with_snapshots_between_copies_little() {
    let engine = MemoryEngine::new();
    let mut random = Generator::new(5);
    let mut snapshots = Vec::new();
    for batch_number in 0..100 {
        let mut batch = Batch::new();
        for _ in 0..1000 {
            batch.put(Keyspace::Documents, &random.number().to_be_bytes(), b"value");
        }
        let outcome =
            engine.commit(Shard(1), Version(batch_number), CommitToken(1), batch, Durability::Buffered).unwrap();
        assert_eq!(outcome, Outcome::Committed(Version(batch_number + 1)));
        snapshots.push(engine.current());
    }
    for (index, snapshot) in snapshots.iter().enumerate() {
        let tree = snapshot.tree(Shard(1), Keyspace::Documents).unwrap();
        assert_eq!(tree.entries, 1000 * (index as u64 + 1));
        assert_eq!(tree.iter().count() as u64, tree.entries);
    }
    let before = engine.current();
    let mut batch = Batch::new();
    batch.put(Keyspace::Documents, b"one more", b"");
    let _ = engine.commit(Shard(1), Version(100), CommitToken(1), batch, Durability::Buffered).unwrap();
    let after = engine.current();
    let chunks = |shards: &Shards| shards.tree(Shard(1), Keyspace::Documents).unwrap().chunk_addresses();
    let old = chunks(&before);
    let copied = chunks(&after).iter().filter(|chunk| !old.contains(*chunk)).count();
    assert!((1..=2).contains(&copied), "{copied} of {} chunks were copied for one write", old.len());
}

#[test]
fn forks_go_their_own_way() {
    let engine = MemoryEngine::new();
    let write = |engine: &MemoryEngine, version, value: &[u8]| {
        let mut batch = Batch::new();
        batch.put(Keyspace::Local, b"key", value);
        engine.commit(Shard(1), Version(version), CommitToken(7), batch, Durability::Synced).unwrap()
    };
    let read = |engine: &MemoryEngine| engine.snapshot(Shard(1)).unwrap().get(Keyspace::Local, b"key").unwrap();
    assert_eq!(write(&engine, 0, b"both"), Outcome::Committed(Version(1)));
    let fork = engine.fork();
    assert_eq!(write(&engine, 1, b"one"), Outcome::Committed(Version(2)));
    assert_eq!(write(&fork, 1, b"two"), Outcome::Committed(Version(2)));
    assert_eq!(read(&engine).unwrap(), b"one");
    assert_eq!(read(&fork).unwrap(), b"two");
}

#[test]
fn a_checkpoint_can_be_loaded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("checkpoint");
    let engine = MemoryEngine::new();
    for shard in [Shard(1), Shard(u64::MAX)] {
        let mut batch = Batch::new();
        batch.put(Keyspace::Bodies, b"", &shard.0.to_be_bytes());
        batch.put(Keyspace::Catalog, b"\xff", b"");
        let _ = engine.commit(shard, Version(0), CommitToken(u128::MAX), batch, Durability::Buffered).unwrap();
    }
    engine.checkpoint(&path).unwrap();
    let loaded = MemoryEngine::load(&path).unwrap();
    assert_eq!(loaded.statistics(), engine.statistics());
    for shard in [Shard(1), Shard(u64::MAX)] {
        assert_eq!(loaded.current().state(shard), engine.current().state(shard));
        let snapshot = loaded.snapshot(shard).unwrap();
        assert_eq!(snapshot.get(Keyspace::Bodies, b"").unwrap().unwrap(), shard.0.to_be_bytes());
        assert_eq!(snapshot.get(Keyspace::Catalog, b"\xff").unwrap().unwrap(), b"");
    }
    engine.checkpoint(&path).expect_err("the directory exists");

    let file = path.join("memory");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 1]).unwrap();
    assert!(matches!(MemoryEngine::load(&path), Err(crate::StorageError::Corrupt(_))), "a short file is damaged");
}

#[test]
fn trees_agree_with_a_map_while_they_shrink() {
    let seed = 11;
    let mut random = Generator::new(seed);
    let mut tree = Tree::default();
    let mut map = BTreeMap::new();
    for step in 0..60_000 {
        let key = (random.below(3_000) as u16).to_be_bytes();
        if random.below(10) < if step < 30_000 { 7 } else { 2 } {
            tree.put(&key, b"v");
            map.insert(key, ());
        } else {
            tree.delete(&key);
            map.remove(&key);
        }
    }
    assert!(tree.iter().map(|(key, _)| key).eq(map.keys().map(|key| &key[..])), "seed {seed}");
    assert_eq!((tree.entries, tree.bytes), (map.len() as u64, 3 * map.len() as u64), "seed {seed}");
    for key in map.keys() {
        tree.delete(key);
    }
    assert_eq!((tree.entries, tree.bytes, tree.end()), (0, 0, (0, 0)));
}
