//! Properties of optimistic commits, which [depend](crate::Batch::set_read_set) on the read set of their process.

use std::sync::Arc;
use std::thread;

use super::users::OpenTwice;
use super::{commit, puts, view};
use crate::{Batch, CommitToken, Durability, Engine, Keyspace, Outcome, ReadSet, Result, Shard, StorageError, Version};

const WATCHED: [Shard; 2] = [Shard(1), Shard(2)];

/// Maximum number of retries of commits that an engine may abort.
const ATTEMPTS_MAX: u32 = 50;

/// Returns a read set after catching up with all commits.
fn read_set(engine: &dyn Engine) -> ReadSet {
    engine.catch_up().expect("the engine can be read");
    engine.read_set(&WATCHED).expect("all commits were observed")
}

fn with_read_set(read_set: &ReadSet, key: &[u8]) -> Batch {
    let mut batch = puts(Keyspace::Local, &[(key, b"value")]);
    batch.set_read_set(read_set.clone());
    batch
}

fn next(engine: &dyn Engine, shard: Shard, batch: Batch) -> Result<Outcome> {
    let Version(version) = view(engine, shard).state().expect("state").version;
    engine.commit(shard, Version(version), CommitToken(u128::from(version) + 1), batch, Durability::Synced)
}

/// Commits with a current read set. Engines may abort such commits, but not repeatedly.
fn validate_and_commit(engine: &dyn Engine, shard: Shard, key: &[u8]) {
    for _ in 0..ATTEMPTS_MAX {
        match next(engine, shard, with_read_set(&read_set(engine), key)) {
            Ok(Outcome::Committed(_)) => return,
            made => assert!(matches!(made, Err(StorageError::Outdated)), "{made:?}"),
        }
    }
    panic!("{ATTEMPTS_MAX} commits were aborted");
}

/// Returns a read set after three commits with it. Commits of others to other shards, and commits of this process, do
/// not invalidate it. Engines may abort here as well, for example after a reconnect.
fn validate_and_commit_on([here, there]: [&dyn Engine; 2], shard: Shard) -> ReadSet {
    for _ in 0..ATTEMPTS_MAX {
        let known = read_set(here);
        commit(there, Shard(8), puts(Keyspace::Local, &[(b"key", b"value")]));
        let made = (0..3).try_for_each(|_| match next(here, shard, with_read_set(&known, b"held")) {
            Ok(Outcome::Committed(_)) => Ok(()),
            made => Err(made),
        });
        match made {
            Ok(()) => return known,
            Err(made) => assert!(matches!(made, Err(StorageError::Outdated)), "{made:?}"),
        }
    }
    panic!("commits were aborted {ATTEMPTS_MAX} times");
}

/// A batch is committed while no other process has committed to the shards of its read set; after that it writes
/// nothing.
pub fn a_read_set_is_valid_until_another_process_commits(open: OpenTwice<'_>) {
    let engines = open();
    let [here, there] = engines.each_ref().map(AsRef::as_ref);
    let own = Shard(7);
    for (round, shard) in [1, 2, 1, 2].map(Shard).into_iter().enumerate() {
        commit(there, shard, puts(Keyspace::Local, &[(b"key", b"value")]));
        validate_and_commit(here, own, b"first");
        let known = validate_and_commit_on([here, there], own);
        commit(there, shard, puts(Keyspace::Local, &[(b"key", b"other")]));
        let state = view(here, own).state().expect("state");
        let key = format!("{round}");
        let made = next(here, own, with_read_set(&known, key.as_bytes()));
        assert!(matches!(made, Err(StorageError::Outdated)), "{made:?}");
        let snapshot = view(here, own);
        assert_eq!(snapshot.state().expect("state"), state);
        assert_eq!(snapshot.get(Keyspace::Local, key.as_bytes()).expect("get"), None);
        // After it has observed the commit a writer can succeed again; a batch without a read set always can.
        validate_and_commit(here, own, b"heard");
        let free = puts(Keyspace::Local, &[(b"free", b"value")]);
        assert!(matches!(next(here, own, free), Ok(Outcome::Committed(_))));
    }
    let known = read_set(here);
    there.drop_shard(WATCHED[1]).expect("drop_shard");
    let made = next(here, own, with_read_set(&known, b"dropped"));
    assert!(matches!(made, Err(StorageError::Outdated)), "{made:?}");
}

/// A read set applies to one commit and not to those that share a statement with it. Large commits and unsynced ones
/// are never aborted without reason.
pub fn a_read_set_is_of_one_commit(open: OpenTwice<'_>) {
    let engines = open();
    let [here, there] = engines.each_ref();
    let outdated = read_set(&**here);
    commit(&**there, WATCHED[0], puts(Keyspace::Local, &[(b"key", b"value")]));
    thread::scope(|scope| {
        for number in 0..12 {
            let (here, shard): (&Arc<dyn Engine>, _) = (here, Shard(100 + number));
            let outdated = &outdated;
            scope.spawn(move || {
                for round in 0..20 {
                    let key = format!("{round}");
                    let free = || puts(Keyspace::Local, &[(key.as_bytes(), b"value")]);
                    assert!(matches!(next(&**here, shard, free()), Ok(Outcome::Committed(_))));
                    validate_and_commit(&**here, shard, key.as_bytes());
                    let lost = next(&**here, shard, with_read_set(outdated, key.as_bytes()));
                    assert!(matches!(lost, Err(StorageError::Outdated)), "{lost:?}");
                }
                assert_eq!(view(&**here, shard).state().expect("state").version, Version(40));
            });
        }
    });
    for (bytes, durability) in [(3 << 20, Durability::Synced), (10, Durability::Buffered)] {
        let mut batch = puts(Keyspace::Local, &[(b"key", &vec![7; bytes])]);
        batch.set_read_set(outdated.clone());
        let made = here.commit(Shard(7), Version(0), CommitToken(1), batch, durability);
        assert!(matches!(made, Err(StorageError::Outdated)), "{made:?}");
        assert_eq!(view(&**here, Shard(7)).state().expect("state").version, Version(0));
    }
}
