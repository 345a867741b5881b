//! The partitioning of a database is persistent, and partitions are counted.

use std::sync::Arc;

use super::{Random, edit, engine, new, open, rev, save};
use crate::{Database, DatabaseOptions, Layout, PartitionInfo, Purge, UpdateOutcome, Work};

fn partitioned() -> Arc<Database> {
    let options = DatabaseOptions { created_ms: 7, instance: 9, layout: Layout::Partitioned, q: 1 };
    open(&engine()).create("db", options).unwrap()
}

#[test]
fn the_layout_is_kept() {
    let engine = engine();
    for (name, layout) in [("whole", Layout::Whole), ("parted", Layout::Partitioned)] {
        open(&engine).create(name, DatabaseOptions { created_ms: 7, instance: 9, layout, q: 1 }).unwrap();
        let database = open(&engine).database(name).unwrap();
        assert_eq!((database.layout(), database.created_ms(), database.instance()), (layout, 7, 9));
    }
}

#[test]
fn a_partition_counts_its_own_documents() {
    let database = super::database();
    for id in ["a:1", "a:2", "a:3", "ab:1", "a", "a;", "b:1", "_design/a:1"] {
        save(&database, new(id, "{\"n\":1}"));
    }
    let first = database.read().unwrap().head("a:2").unwrap().unwrap().rev;
    save(&database, edit("a:2", Some(&first), true, "{}"));
    save(&database, super::replicated("a:1", &[rev("1-x")], false, "{\"n\":12}"));
    let info = |partition: &str| database.read().unwrap().partition_info(partition).unwrap();
    let check = |partition: &str, live: u64, deleted: u64, bytes: u64| {
        let PartitionInfo { doc_count, doc_del_count, external_bytes } = info(partition);
        assert_eq!((doc_count, doc_del_count, external_bytes), (live, deleted, bytes), "{partition}");
    };
    check("a", 2, 1, 7 + 8 + 2 + 7);
    check("ab", 1, 0, 7);
    assert_eq!(info("nobody"), PartitionInfo::default());
    let before = info("ab");
    save(&database, new("b:2", "{\"n\":1}"));
    assert_eq!(info("ab"), before);
}

#[test]
fn documents_of_a_full_partition_do_not_grow() {
    let database = partitioned();
    let outcome = |update: crate::DocUpdate| {
        let outcomes = database.update(Work::Documents(vec![update.within(20)])).unwrap();
        outcomes.into_iter().next().unwrap()
    };
    let saved = |outcome: UpdateOutcome| matches!(outcome, UpdateOutcome::Saved(_));
    let updates = ["a:1", "a:2", "a:3", "a:4"].map(|id| new(id, "{\"n\":1}").within(20));
    assert!(database.update(Work::Documents(updates.to_vec())).unwrap().into_iter().all(saved));
    assert_eq!(outcome(new("a:5", "{}")), UpdateOutcome::PartitionOverflow("a:5".to_owned()));
    let head = |id: &str| database.read().unwrap().head(id).unwrap().unwrap().rev;
    assert_eq!(
        outcome(edit("a:1", Some(&head("a:1")), false, "{\"n\":12}")),
        UpdateOutcome::PartitionOverflow("a:1".to_owned())
    );
    assert_eq!(outcome(edit("a:1", None, false, "{\"n\":12}")), UpdateOutcome::Conflict);
    assert!(saved(outcome(edit("a:1", Some(&head("a:1")), false, "{\"n\":2}"))));
    for id in ["b:1", "_design/a"] {
        assert!(saved(outcome(new(id, "{}"))), "{id}");
    }
    assert!(saved(outcome(super::replicated("a:5", &[rev("1-x")], false, "{\"n\":1}"))));
    assert!(saved(outcome(edit("a:2", Some(&head("a:2")), true, "{}"))));
    assert_eq!(outcome(new("a:6", "{}")), UpdateOutcome::PartitionOverflow("a:6".to_owned()));
    let purges = ["a:3", "a:4"].map(|id| Purge { id: id.to_owned(), revs: vec![head(id)] });
    database.update(Work::Purge(purges.to_vec())).unwrap();
    assert!(saved(outcome(new("a:6", "{\"n\":1}"))));
}

/// Cached sizes must equal those of a complete scan.
#[test]
fn sizes_of_partitions_follow_the_commits() {
    let (database, random) = (partitioned(), &mut Random::new());
    for step in 0..300 {
        let id = format!("{}:{}", ["a", "b"][random.below(2) as usize], random.below(5));
        let read = database.read().unwrap();
        let (head, limit) = (read.head(&id).unwrap(), random.below(40));
        let size = read.partition_info(&id[..1]).unwrap().external_bytes;
        let before = head.as_ref().map_or(0, |head| u64::from(head.stored.size));
        if let Some(head) = head.as_ref().filter(|_| random.below(4) == 0) {
            database.update(Work::Purge(vec![Purge { id, revs: vec![head.rev.clone()] }])).unwrap();
            continue;
        }
        let body = ["{}", "{\"n\":1}", "{\"n\":12345}"][random.below(3) as usize];
        let parent = head.as_ref().filter(|head| !head.stored.deleted).map(|head| &head.rev);
        let deleted = parent.is_some() && random.below(4) == 0;
        let update = edit(&id, parent, deleted, body).within(limit);
        let outcome = database.update(Work::Documents(vec![update])).unwrap().remove(0);
        let overflows = size >= limit && body.len() as u64 > before;
        assert_eq!(
            matches!(outcome, UpdateOutcome::PartitionOverflow(_)),
            overflows,
            "step {step}: {id} {size} {limit}"
        );
    }
}
