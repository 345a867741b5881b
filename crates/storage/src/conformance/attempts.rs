//! Properties of reads and commits during an attempt, which must not wait.

use super::fixture::{Entries, Open, commit, view};
use crate::nonblocking::{ENTRIES_MAX, attempt};
use crate::{Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Shard, Version};

const SHARD: Shard = Shard(7);
const SPACE: Keyspace = Keyspace::Documents;

fn filled(open: Open<'_>, entries: u64) -> (std::sync::Arc<dyn Engine>, Entries) {
    let engine = open();
    let entries: Entries = (0..entries).map(|n| (n.to_be_bytes().to_vec(), vec![1; 8])).collect();
    let mut batch = Batch::new();
    entries.iter().for_each(|(key, value)| batch.put(SPACE, key, value));
    commit(&*engine, SHARD, batch);
    (engine, entries)
}

fn scan(engine: &dyn Engine) -> crate::Result<usize> {
    let snapshot = engine.snapshot(SHARD)?;
    let mut cursor = snapshot.scan(SPACE, KeyRange::default(), Direction::Forward, Expect::All)?;
    let mut count = 0;
    while cursor.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Engines that must wait for every read refuse all of them.
pub fn attempts_read_the_same_or_are_refused(open: Open<'_>) {
    let (engine, entries) = filled(open, 100);
    let get = |key: &[u8]| engine.snapshot(SHARD)?.get(SPACE, key);
    for (key, value) in &entries {
        if let Some(found) = attempt(|| get(key)) {
            assert_eq!(found.expect("it was not refused").as_ref(), Some(value));
        }
    }
    if let Some(count) = attempt(|| scan(&*engine)) {
        assert_eq!(count.expect("it was not refused"), entries.len());
    }
    // A snapshot of an attempt is usable afterwards, and the reverse.
    let snapshot = attempt(|| engine.snapshot(SHARD)).and_then(Result::ok).unwrap_or_else(|| view(&*engine, SHARD));
    assert_eq!(snapshot.get(SPACE, &entries[0].0).expect("it may block").as_ref(), Some(&entries[0].1));
    if let Some(found) = attempt(|| snapshot.get(SPACE, &entries[1].0)) {
        assert_eq!(found.expect("it was not refused").as_ref(), Some(&entries[1].1));
    }
}

pub fn attempts_are_bounded(open: Open<'_>) {
    let (engine, entries) = filled(open, ENTRIES_MAX + 1);
    assert!(attempt(|| scan(&*engine)).is_none());
    assert_eq!(scan(&*engine).expect("it may block"), entries.len());
}

pub fn attempts_commit_nothing(open: Open<'_>) {
    let engine = open();
    let commit = || engine.commit(SHARD, Version(0), CommitToken(1), Batch::new(), Durability::Synced);
    assert!(attempt(|| commit().is_err()).is_none());
    assert!(attempt(|| engine.drop_shard(SHARD).is_err()).is_none());
    assert_eq!(view(&*engine, SHARD).state().expect("a state can be read").version, Version(0));
}
