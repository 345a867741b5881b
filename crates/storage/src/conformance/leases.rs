//! Properties of commits under a [claim](crate::Batch::set_claim): the fence of a writer lease.

use std::sync::Arc;
use std::thread;

use super::fixture::{OpenTwice, puts, view};
use crate::members::{Claim, NodeId, WRITER_PREFIX};
use crate::{Batch, CommitToken, Durability, Engine, Keyspace, Outcome, Result, Shard, StorageError, Version};

fn key() -> String {
    format!("{WRITER_PREFIX}0")
}

/// Waits until no commit of an earlier holder can be applied.
fn acquire(engine: &dyn Engine) -> Claim {
    let claim = engine.members().claim(&key()).expect("the engine can be written").expect("no process holds it");
    engine.members().fence(&claim).expect("earlier commits have ended");
    claim
}

fn under(claim: &Claim, key: &[u8], bytes: usize) -> Batch {
    let mut batch = puts(Keyspace::Local, &[(key, &vec![7; bytes])]);
    batch.set_claim(claim.clone());
    batch
}

fn next(engine: &dyn Engine, shard: Shard, batch: Batch, durability: Durability) -> Result<Outcome> {
    let Version(version) = view(engine, shard).state().expect("state").version;
    engine.commit(shard, Version(version), CommitToken(u128::from(version) + 1), batch, durability)
}

pub fn processes_see_the_holders_of_writer_leases(open: OpenTwice<'_>) {
    let engines = open();
    let [here, there] = engines.each_ref().map(AsRef::as_ref);
    let seen = |engine: &dyn Engine| -> Vec<(Claim, NodeId)> {
        engine.members().refresh().expect("the engine can be read");
        engine.members().writers().to_vec()
    };
    let _other = here.members().claim("work").expect("the engine can be written");
    assert_eq!([seen(here), seen(there)], [vec![], vec![]]);
    for engine in [here, there, here] {
        let held = acquire(engine);
        let wanted = vec![(held.clone(), engine.members().this())];
        assert_eq!([seen(here), seen(there)], [wanted.clone(), wanted]);
        engine.members().release(&held).expect("it can be released");
        assert_eq!([seen(here), seen(there)], [vec![], vec![]]);
    }
}

/// Commits of every size are applied while their claim is held, and write nothing after another process has claimed.
pub fn commits_under_an_earlier_claim_are_rejected(open: OpenTwice<'_>) {
    const KINDS: [(usize, Durability); 4] = [
        (10, Durability::Synced),
        (100 << 10, Durability::Synced),
        (3 << 20, Durability::Synced),
        (10, Durability::Buffered),
    ];
    let engines = open();
    let shard = Shard(7);
    let mut last = 0;
    for round in 0..4 {
        let [here, there] = [round % 2, 1 - round % 2].map(|user| &*engines[user]);
        let held = acquire(here);
        assert!(held.epoch > last, "{held:?} after {last}");
        last = held.epoch;
        for (bytes, durability) in KINDS {
            let made = next(here, shard, under(&held, b"held", bytes), durability);
            assert!(matches!(made, Ok(Outcome::Committed(_))), "{bytes} bytes: {made:?}");
        }
        here.members().release(&held).expect("it can be released");
        let taken = acquire(there);
        for (bytes, durability) in KINDS {
            let state = view(here, shard).state().expect("state");
            let made = next(here, shard, under(&held, b"late", bytes), durability);
            assert!(matches!(made, Err(StorageError::Deposed)), "{bytes} bytes: {made:?}");
            let snapshot = view(here, shard);
            assert_eq!(snapshot.state().expect("state"), state);
            assert_eq!(snapshot.get(Keyspace::Local, b"late").expect("get"), None);
        }
        let free = puts(Keyspace::Local, &[(b"free", b"value")]);
        assert!(matches!(next(here, shard, free, Durability::Synced), Ok(Outcome::Committed(_))));
        there.members().release(&taken).expect("it can be released");
    }
}

pub fn a_claim_is_of_one_commit(open: OpenTwice<'_>) {
    let engines = open();
    let [here, there] = engines.each_ref();
    let late = acquire(&**here);
    here.members().release(&late).expect("it can be released");
    let other = acquire(&**there);
    there.members().release(&other).expect("it can be released");
    let held = acquire(&**here);
    thread::scope(|scope| {
        for number in 0..12 {
            let (here, shard): (&Arc<dyn Engine>, _) = (here, Shard(100 + number));
            let [late, held] = [&late, &held];
            scope.spawn(move || {
                for round in 0..20 {
                    let key = format!("{round}");
                    let made = |batch| next(&**here, shard, batch, Durability::Synced);
                    let free = puts(Keyspace::Local, &[(key.as_bytes(), b"value")]);
                    assert!(matches!(made(free), Ok(Outcome::Committed(_))));
                    let held = made(under(held, key.as_bytes(), 10));
                    assert!(matches!(held, Ok(Outcome::Committed(_))), "{held:?}");
                    let late = made(under(late, key.as_bytes(), 10));
                    assert!(matches!(late, Err(StorageError::Deposed)), "{late:?}");
                }
                assert_eq!(view(&**here, shard).state().expect("state").version, Version(40));
            });
        }
    });
}
