//! Properties of reads during an attempt, which must not wait.

use super::fixture::{Entries, Open, commit};
use crate::nonblocking::{ENTRIES_MAX, Waiting, attempt};
use crate::{Batch, Direction, Engine, Expect, KeyRange, Keyspace, Shard};

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

fn scan(engine: &dyn Engine, waiting: Waiting<'_>) -> crate::Result<usize> {
    let snapshot = waiting.snapshot(engine, SHARD)?;
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
    for (key, value) in &entries {
        if let Some(found) = attempt(|waiting| waiting.snapshot(&*engine, SHARD)?.get(SPACE, key)) {
            assert_eq!(found.expect("it was not refused").as_ref(), Some(value));
        }
    }
    if let Some(count) = attempt(|waiting| scan(&*engine, waiting)) {
        assert_eq!(count.expect("it was not refused"), entries.len());
    }
}

pub fn attempts_are_bounded(open: Open<'_>) {
    let (engine, entries) = filled(open, ENTRIES_MAX + 1);
    assert!(attempt(|waiting| scan(&*engine, waiting)).is_none());
    assert_eq!(scan(&*engine, Waiting::Allowed).expect("it may block"), entries.len());
    // The bound applies to all snapshots of an attempt together.
    let twice = |waiting: Waiting<'_>| -> crate::Result<()> {
        for _ in 0..2 {
            let snapshot = waiting.snapshot(&*engine, SHARD)?;
            let mut cursor = snapshot.scan(SPACE, KeyRange::default(), Direction::Forward, Expect::All)?;
            for _ in 0..=ENTRIES_MAX / 2 {
                cursor.next()?;
            }
        }
        Ok(())
    };
    assert!(attempt(twice).is_none());
    assert!(twice(Waiting::Allowed).is_ok());
}
