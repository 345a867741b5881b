//! Properties of scans, seeks and multi-gets.

use super::fixture::{Entries, Open, commit, puts, scanned, view};
use crate::{Batch, Cursor, Direction, Expect, KeyRange, Keyspace, Shard};

const SHARD: Shard = Shard(255);
const SPACE: Keyspace = Keyspace::Documents;
const KEYS: [&[u8]; 8] = [b"", b"\0", b"a", b"a\0", b"b", b"ba", b"\xff", b"\xff\xff"];
/// Bounds and seek targets on, between and around the keys.
const PROBES: [&[u8]; 11] = [
    b"",
    b"\0",
    b"\0\0",
    b"a",
    b"a\0",
    b"aa",
    b"b",
    b"c",
    b"\xff",
    b"\xff\xfe",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
];

/// Also fills the adjacent shards with entries that no scan may return.
fn fill(open: Open<'_>) -> std::sync::Arc<dyn crate::Engine> {
    let engine = open();
    for shard in [Shard(SHARD.0 - 1), SHARD, Shard(SHARD.0 + 1)] {
        let mut batch = Batch::new();
        for key in KEYS {
            batch.put(SPACE, key, if shard == SHARD { key } else { b"a neighbour" });
        }
        batch.put(Keyspace::Local, b"aaa", b"another keyspace");
        commit(&*engine, shard, batch);
    }
    engine
}

fn ranges() -> impl Iterator<Item = KeyRange<'static>> {
    let bounds = || std::iter::once(None).chain(PROBES.into_iter().map(Some));
    bounds().flat_map(move |start| bounds().map(move |end| KeyRange { start, end }))
}

fn wanted(range: KeyRange<'_>, direction: Direction) -> Entries {
    let inside = |key: &&[u8]| range.start.is_none_or(|start| *key >= start) && range.end.is_none_or(|end| *key < end);
    let mut entries: Entries = KEYS.into_iter().filter(inside).map(|key| (key.to_vec(), key.to_vec())).collect();
    if direction == Direction::Backward {
        entries.reverse();
    }
    entries
}

fn drain(cursor: &mut dyn Cursor) -> Entries {
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next().expect("a scan continues") {
        entries.push((key.to_vec(), value.to_vec()));
    }
    entries
}

pub fn scans_answer_every_range(open: Open<'_>) {
    let engine = fill(open);
    let snapshot = view(&*engine, SHARD);
    for range in ranges() {
        for direction in [Direction::Forward, Direction::Backward] {
            let found = scanned(&*snapshot, SPACE, range, direction);
            assert_eq!(found, wanted(range, direction), "a scan of {range:?} {direction:?}");
        }
    }
}

pub fn cursors_stay_at_the_end(open: Open<'_>) {
    let engine = fill(open);
    let snapshot = view(&*engine, SHARD);
    for direction in [Direction::Forward, Direction::Backward] {
        let range = KeyRange { start: Some(b"a"), end: Some(b"b") };
        let mut cursor = snapshot.scan(SPACE, range, direction, Expect::Few).expect("scan");
        assert_eq!(drain(&mut *cursor).len(), 2, "entries of {range:?}");
        for _ in 0..3 {
            assert_eq!(cursor.next().expect("next"), None, "after the end of {range:?} {direction:?}");
        }
    }
}

pub fn scans_keep_to_their_snapshot(open: Open<'_>) {
    let engine = fill(open);
    let snapshot = view(&*engine, SHARD);
    for direction in [Direction::Forward, Direction::Backward] {
        let mut cursor = snapshot.scan(SPACE, KeyRange::default(), direction, Expect::Few).expect("scan");
        let first = cursor.next().expect("next").map(|(key, _)| key.to_vec());
        let mut batch = puts(SPACE, &[(b"added", b""), (b"b", b"changed")]);
        batch.delete(SPACE, b"ba");
        commit(&*engine, SHARD, batch);
        let mut found: Vec<_> = first.into_iter().map(|key| (key.clone(), key)).collect();
        found.extend(drain(&mut *cursor));
        assert_eq!(found, wanted(KeyRange::default(), direction), "a scan {direction:?} that was overtaken");
    }
}

pub fn seeks_go_anywhere_in_the_range(open: Open<'_>) {
    let engine = fill(open);
    let snapshot = view(&*engine, SHARD);
    for range in ranges() {
        for direction in [Direction::Forward, Direction::Backward] {
            let all = wanted(range, direction);
            let rest = |key: &[u8]| -> Entries {
                let behind = |found: &[u8]| match direction {
                    Direction::Forward => found < key,
                    Direction::Backward => found > key,
                };
                all.iter().filter(|(found, _)| !behind(found)).cloned().collect()
            };
            let mut cursor = snapshot.scan(SPACE, range, direction, Expect::Few).expect("scan");
            for first in PROBES {
                for second in PROBES {
                    let context = || format!("seeks to {first:?} and {second:?} in {range:?} {direction:?}");
                    cursor.seek(first).expect("seek");
                    let one = cursor.next().expect("next").map(|(key, _)| key.to_vec());
                    assert_eq!(one, rest(first).first().map(|(key, _)| key.clone()), "the entry after {}", context());
                    cursor.seek(second).expect("seek");
                    assert_eq!(drain(&mut *cursor), rest(second), "the rest after {}", context());
                }
            }
        }
    }
}

pub fn multi_gets_keep_their_order(open: Open<'_>) {
    let engine = fill(open);
    let snapshot = view(&*engine, SHARD);
    let mut many: Vec<&[u8]> = Vec::new();
    for _ in 0..20 {
        many.extend(PROBES.iter().rev());
    }
    let lists: [&[&[u8]]; 5] = [&[], &KEYS, &[b"b", b"a"], &[b"absent", b"a", b"a", b"", b"absent"], &many];
    for keys in lists {
        let found = snapshot.multi_get(SPACE, keys).expect("multi_get");
        let wanted: Vec<_> = keys.iter().map(|key| KEYS.contains(key).then(|| key.to_vec())).collect();
        assert_eq!(found, wanted, "a multi-get of {keys:?}");
    }
}
