//! Every possible state after a crash or a failed write is a valid index that can be updated.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use settee_storage::faulty::{FaultyEngine, WriteFault};
use settee_storage::{Direction, Engine, Expect, KeyRange, Keyspace, Snapshot, StorageError};

use super::host::TestHost;
use super::random::{VIEWS, change, compare};
use super::{ask, core, ddoc, settings};
use crate::index::{IndexStore, Tokens};
use crate::indexer::entries::for_each_row;
use crate::keys::{entry_prefix, node_id, push_row_key, row_id};
use crate::pace::Urgency;
use crate::query::ViewQuery;
use crate::reduce::Aggregate;
use crate::testing::Rules;
use crate::tree::check::{OwnedRow, check};
use settee_model::testing::Random;

pub(super) fn check_stored(host: &TestHost, engine: &Arc<dyn Engine>) -> Vec<u64> {
    let mut leftovers = Vec::new();
    for shard in host.index_shards() {
        let store = IndexStore::new(Arc::clone(engine), shard, Arc::new(Tokens::new(0)), Arc::default());
        let snapshot = store.snapshot().unwrap();
        let Some(meta) = store.meta(&*snapshot).unwrap() else {
            continue;
        };
        let open = |reduce: &Arc<str>| Aggregate::open(reduce, &Rules::shared(), Default::default()).unwrap();
        let mut aggregates: Vec<Aggregate> = meta.reduces.iter().map(open).collect();
        let (rows, mut nodes) = check(store.tree(&*snapshot), meta.rows.as_ref(), &mut aggregates);
        let (entries, entry_nodes) = check(store.tree(&*snapshot), meta.entries.as_ref(), &mut []);
        nodes.extend(entry_nodes);
        check_entries(&*snapshot, meta.load, &rows, entries);
        let mut stored =
            snapshot.scan(Keyspace::IndexNodes, KeyRange::default(), Direction::Forward, Expect::Few).unwrap();
        while let Some((key, _)) = stored.next().unwrap() {
            leftovers.extend(node_id(key).filter(|id| !nodes.contains(id)));
        }
    }
    leftovers
}

/// The back-pointers, inside and outside of the tree, must name exactly the existing rows.
fn check_entries(snapshot: &dyn Snapshot, load: u64, rows: &[OwnedRow], loaded: Vec<OwnedRow>) {
    let mut found = BTreeSet::new();
    let mut entries: BTreeMap<String, Vec<u8>> =
        loaded.into_iter().map(|entry| (row_id(&entry.row_key, 0).into_owned(), entry.value)).collect();
    let prefix = entry_prefix(load);
    let mut changed =
        snapshot.scan(Keyspace::IndexEntries, KeyRange::default(), Direction::Forward, Expect::Few).unwrap();
    while let Some((key, entry)) = changed.next().unwrap() {
        if let Some(id) = key.strip_prefix(prefix.as_slice()) {
            entries.insert(super::text(id), entry.to_vec());
        }
    }
    for (id, entry) in entries {
        for_each_row(&entry, |sort_key, number| {
            let mut row_key = Vec::new();
            push_row_key(&mut row_key, sort_key, id.as_bytes(), number);
            found.insert(row_key);
        })
        .unwrap();
    }
    assert!(found.iter().eq(rows.iter().map(|row| &row.row_key)));
}

#[test]
fn every_crash_image_can_be_brought_up_to_date() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut random = Random::of(seed);
        let faulty = Arc::new(FaultyEngine::new());
        let engine: Arc<dyn Engine> = faulty.clone();
        let host = TestHost::new(Arc::clone(&engine));
        let ddoc = ddoc(VIEWS);
        let core_now = core(settings(1, 5_000));
        for round in 0..5 {
            change(&host, &mut random, if round == 3 { 6_000 } else { 150 }, 2_000);
            ask(&core_now, &host, &ddoc, "plain", &ViewQuery::default()).unwrap();
            assert_eq!(check_stored(&host, &engine), []);
        }
        let images: Vec<_> = faulty.crash_images().collect();
        assert!(images.len() > 10);
        let mut leftovers = 0;
        for image in images {
            let engine: Arc<dyn Engine> = Arc::new(image);
            let host = host.over(Arc::clone(&engine));
            leftovers += check_stored(&host, &engine).len();
            change(&host, &mut random, 40, 2_000);
            let core = core(settings(1, 1 << 20));
            compare(&core, &host, &ddoc, &mut random, 5);
            core.update(&host, &ddoc, Urgency::Client).unwrap();
            assert_eq!(check_stored(&host, &engine), []);
        }
        assert!(leftovers > 0, "some crashes must hit a build that has written nodes already");
    }
}

#[test]
fn a_failed_write_loses_nothing() {
    let mut random = Random::of(21);
    let faulty = Arc::new(FaultyEngine::new());
    let engine: Arc<dyn Engine> = faulty.clone();
    let host = TestHost::new(Arc::clone(&engine));
    let ddoc = ddoc(VIEWS);
    let core = core(settings(1, 5_000));
    for round in 0..30 {
        change(&host, &mut random, 100, 1_000);
        let fault = match round % 3 {
            0 => WriteFault::Fail(StorageError::Full("test".to_owned())),
            1 => WriteFault::LoseRequest,
            _ => WriteFault::LoseAnswer,
        };
        faulty.inject_write(random.below(4) + 1, fault);
        let _ = core.update(&host, &ddoc, Urgency::Client);
        let _ = core.update(&host, &ddoc, Urgency::Client);
        compare(&core, &host, &ddoc, &mut random, 5);
        core.update(&host, &ddoc, Urgency::Client).unwrap();
        assert_eq!(check_stored(&host, &engine), []);
    }
}
