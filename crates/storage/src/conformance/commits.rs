//! Properties of single commits and of reads after them.

use super::fixture::{Open, commit, commit_at, entries, puts, view};
use crate::{
    Batch, CommitToken, Direction, Durability, KeyRange, Keyspace, MAX_KEY_BYTES, MAX_VALUE_BYTES, Outcome, Page,
    PageRange, Reply, Request, Shard, ShardState, StorageError, Version,
};

const SHARD: Shard = Shard(7);

pub fn fresh_shards_are_empty(open: Open<'_>) {
    let engine = open();
    let snapshot = view(&*engine, SHARD);
    assert_eq!(snapshot.state().expect("state"), ShardState::default(), "the state of a fresh shard");
    for space in Keyspace::ALL {
        assert_eq!(snapshot.get(space, b"").expect("get"), None, "a key of a fresh shard in {space:?}");
        assert!(entries(&*snapshot, space).is_empty(), "a scan of a fresh shard in {space:?}");
    }
    engine.sync().expect("an engine without commits can be synced");
}

/// Every commit increments the version by one, and the state contains the last token, with either durability.
pub fn commits_count_versions_and_keep_tokens(open: Open<'_>) {
    let engine = open();
    for step in 0..10 {
        let durability = if step % 2 == 0 { Durability::Synced } else { Durability::Buffered };
        let token = CommitToken(u128::MAX - u128::from(step));
        let batch = puts(Keyspace::Catalog, &[(b"step", &[step as u8])]);
        let outcome = engine.commit(SHARD, Version(step), token, batch, durability).expect("commit");
        let version = Version(step + 1);
        match outcome {
            Outcome::Committed(found) => assert_eq!(found, version, "the version after commit {step}"),
            Outcome::Unknown => {}
            Outcome::Conflict(found) => {
                panic!("commit {step} met a conflict with {found:?}, although there is no other writer")
            }
        }
        let snapshot = view(&*engine, SHARD);
        assert_eq!(snapshot.state().expect("state"), ShardState { version, token }, "the state after {step}");
        let value = snapshot.get(Keyspace::Catalog, b"step").expect("get");
        assert_eq!(value, Some(vec![step as u8]), "the value after a {durability:?} commit {step}");
    }
    let snapshot = view(&*engine, SHARD);
    for version in 0..13 {
        let mut replies = snapshot.read(&[Request::Token(Version(version)), Request::State]).expect("read");
        let found = replies.swap_remove(0).into_value().expect("a value");
        let right = (1..=10).contains(&version).then(|| (u128::MAX - u128::from(version - 1)).to_be_bytes().to_vec());
        // Older tokens may have been discarded.
        assert!(found == right || (found.is_none() && version < 10), "the token of version {version}: {found:?}");
    }
    engine.sync().expect("sync");
}

pub fn a_wrong_version_is_a_conflict(open: Open<'_>) {
    let engine = open();
    for version in 0..3 {
        for wrong in (0..5).filter(|wrong| *wrong != version) {
            let batch = puts(Keyspace::Local, &[(b"wrong", b"")]);
            let outcome = commit_at(&*engine, SHARD, Version(wrong), CommitToken(99), batch);
            assert_eq!(outcome, Err(Version(version)), "a commit that expects {wrong} at version {version}");
        }
        commit(&*engine, SHARD, puts(Keyspace::Local, &[(b"right", b"")]));
    }
    let snapshot = view(&*engine, SHARD);
    assert_eq!(snapshot.get(Keyspace::Local, b"wrong").expect("get"), None, "a conflict writes nothing");
    assert_eq!(snapshot.state().expect("state").token, CommitToken(3), "a conflict leaves the token");
}

pub fn heads_stay_until_they_are_set(open: Open<'_>) {
    let engine = open();
    assert_eq!(view(&*engine, SHARD).head().expect("head"), None, "the head of a fresh shard");
    let longest = [7; crate::MAX_HEAD_BYTES];
    let mut wanted = None;
    for (step, head) in [None, Some(&b"one"[..]), None, Some(&longest), None, Some(b"two")].into_iter().enumerate() {
        let before = view(&*engine, SHARD);
        let mut batch = puts(Keyspace::Local, &[(b"key", b"value")]);
        if let Some(head) = head {
            batch.set_head(head);
        }
        commit(&*engine, SHARD, batch);
        assert_eq!(before.head().expect("head"), wanted, "the head in a snapshot from before step {step}");
        wanted = head.map(<[u8]>::to_vec).or(wanted);
        assert_eq!(view(&*engine, SHARD).head().expect("head"), wanted, "the head after step {step}");
    }
    let mut batch = Batch::new();
    batch.set_head(b"never");
    commit_at(&*engine, SHARD, Version(77), CommitToken(9), batch).expect_err("the version is wrong");
    assert_eq!(view(&*engine, SHARD).head().expect("head"), wanted, "the head after a conflict");
    assert_eq!(view(&*engine, Shard(SHARD.0 + 1)).head().expect("head"), None, "the head of another shard");
}

pub fn round_trips_answer_all_requests(open: Open<'_>) {
    let engine = open();
    let mut batch = puts(Keyspace::Local, &[(b"a", b"1"), (b"b", b"2"), (b"c", b"3")]);
    batch.insert(Keyspace::Bodies, b"a", b"4");
    batch.set_head(b"head");
    commit(&*engine, SHARD, batch);
    let snapshot = view(&*engine, SHARD);
    let page = |range, direction, rows| Request::Page(PageRange { space: Keyspace::Local, range, direction, rows });
    let behind_a = KeyRange { start: Some(b"b"), end: None };
    let requests = [
        Request::MultiGet(Keyspace::Local, &[b"c", b"x", b"a"]),
        Request::Head,
        page(KeyRange::default(), Direction::Forward, 2),
        Request::Get(Keyspace::Bodies, b"a"),
        page(behind_a, Direction::Backward, 2),
        Request::State,
        Request::Get(Keyspace::Bodies, b"b"),
    ];
    let row = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    let wanted = [
        Reply::Values(vec![Some(b"3".to_vec()), None, Some(b"1".to_vec())]),
        Reply::Value(Some(b"head".to_vec())),
        Reply::Page(Page { rows: vec![row(b"a", b"1"), row(b"b", b"2")], is_last: false }),
        Reply::Value(Some(b"4".to_vec())),
        Reply::Page(Page { rows: vec![row(b"c", b"3"), row(b"b", b"2")], is_last: true }),
        Reply::State(snapshot.state().expect("state")),
        Reply::Value(None),
    ];
    assert_eq!(snapshot.read(&requests).expect("read"), wanted, "one round trip");
    assert_eq!(snapshot.read(&[]).expect("read"), [], "an empty round trip");
}

pub fn limits_are_kept(open: Open<'_>) {
    let engine = open();
    let longest = vec![b'k'; MAX_KEY_BYTES];
    let version = commit(&*engine, SHARD, puts(Keyspace::Documents, &[(&longest, b"value")]));
    let (too_long, value) = (vec![b'k'; MAX_KEY_BYTES + 1], vec![0; MAX_VALUE_BYTES + 1]);
    for (label, entry) in [("key", (&too_long[..], &b"value"[..])), ("value", (&b"key"[..], &value[..]))] {
        let batch = puts(Keyspace::Documents, &[(b"other", b"value"), entry]);
        let outcome = engine.commit(SHARD, version, CommitToken(9), batch, Durability::Buffered);
        assert!(matches!(outcome, Err(StorageError::TooLarge(_))), "a {label} that is too long: {outcome:?}");
    }
    let snapshot = view(&*engine, SHARD);
    assert_eq!(snapshot.state().expect("state").version, version, "what was refused is no commit");
    let wanted = vec![(longest, b"value".to_vec())];
    assert_eq!(entries(&*snapshot, Keyspace::Documents), wanted, "what was refused leaves nothing behind");
}

pub fn the_last_write_of_a_batch_wins(open: Open<'_>) {
    let engine = open();
    let space = Keyspace::Documents;
    commit(&*engine, SHARD, puts(space, &[(b"c", b"old"), (b"d", b"old")]));
    let mut batch = Batch::new();
    batch.put(space, b"a", b"1");
    batch.put(space, b"b", b"1");
    batch.delete(space, b"c");
    batch.put(space, b"d", b"1");
    batch.delete(space, b"absent");
    batch.put(space, b"a", b"2");
    batch.delete(space, b"b");
    batch.put(space, b"c", b"2");
    batch.delete(space, b"d");
    commit(&*engine, SHARD, batch);
    let found = entries(&*view(&*engine, SHARD), space);
    let wanted = vec![(b"a".to_vec(), b"2".to_vec()), (b"c".to_vec(), b"2".to_vec())];
    assert_eq!(found, wanted, "put-put, put-delete, delete-put and put-delete of an old key in one batch");
}

pub fn empty_batches_count(open: Open<'_>) {
    let engine = open();
    assert_eq!(commit(&*engine, SHARD, Batch::new()), Version(1), "the version after an empty batch");
    assert_eq!(view(&*engine, SHARD).state().expect("state").version, Version(1), "the state after an empty batch");
}

pub fn batches_cover_all_keyspaces(open: Open<'_>) {
    let engine = open();
    let mut batch = Batch::new();
    for space in Keyspace::ALL {
        batch.put(space, b"key", space.name().as_bytes());
    }
    commit(&*engine, SHARD, batch);
    let snapshot = view(&*engine, SHARD);
    for space in Keyspace::ALL {
        let value = snapshot.get(space, b"key").expect("get");
        assert_eq!(value.as_deref(), Some(space.name().as_bytes()), "the entry in {space:?}");
    }
}

pub fn snapshots_are_repeatable(open: Open<'_>) {
    let engine = open();
    let space = Keyspace::Sequence;
    commit(&*engine, SHARD, puts(space, &[(b"changed", b"1"), (b"deleted", b"1")]));
    let snapshot = view(&*engine, SHARD);
    let state = snapshot.state().expect("state");
    let wanted = entries(&*snapshot, space);
    assert_eq!(wanted.len(), 2, "entries that were just written");

    let mut batch = puts(space, &[(b"changed", b"2"), (b"added", b"2")]);
    batch.delete(space, b"deleted");
    commit(&*engine, SHARD, batch);
    assert_eq!(entries(&*snapshot, space), wanted, "a scan of an old snapshot");
    assert_eq!(snapshot.state().expect("state"), state, "the state in an old snapshot");
    let values = snapshot.multi_get(space, &[b"added", b"changed", b"deleted"]).expect("multi_get");
    assert_eq!(values, [None, Some(b"1".to_vec()), Some(b"1".to_vec())], "values in an old snapshot");
    let now = view(&*engine, SHARD).multi_get(space, &[b"added", b"changed", b"deleted"]).expect("multi_get");
    assert_eq!(now, [Some(b"2".to_vec()), Some(b"2".to_vec()), None], "values in a new snapshot");
}

pub fn odd_keys_and_values_are_kept(open: Open<'_>) {
    let engine = open();
    let longest_key = vec![0xff; 9_000];
    let large: Vec<u8> = (0..1_u32 << 20).map(|at| (at % 251) as u8).collect();
    let empty: &[u8] = b"";
    let odd: [(&[u8], &[u8]); 9] = [
        (b"", b""),
        (b"\0", b"\0\0\0"),
        (b"\0\0", b""),
        (b"\0\xff", &[0xff; 300]),
        (b"a", &large),
        (b"a\0", b"after a prefix"),
        (b"\xff", b"ones"),
        (b"\xff\xff", empty),
        (&longest_key, b"long"),
    ];
    for (round, space) in Keyspace::ALL.into_iter().enumerate() {
        commit(&*engine, SHARD, puts(space, &odd));
        let snapshot = view(&*engine, SHARD);
        let found = entries(&*snapshot, space);
        assert_eq!(found.len(), odd.len(), "odd keys in {space:?}");
        for ((key, value), (found_key, found_value)) in odd.iter().zip(&found) {
            assert!(key == found_key, "round {round}: key {key:?} is {found_key:?} in {space:?}");
            assert!(value == found_value, "the value of {key:?} in {space:?} has {} bytes", found_value.len());
            let got = snapshot.get(space, key).expect("get");
            assert!(got.as_deref() == Some(*value), "get of {key:?} in {space:?}");
        }
    }
    let mut batch = Batch::new();
    for (key, _) in odd {
        batch.delete(Keyspace::Bodies, key);
    }
    commit(&*engine, SHARD, batch);
    assert!(entries(&*view(&*engine, SHARD), Keyspace::Bodies).is_empty(), "odd keys can be deleted");
}
