//! Regression tests for reads of documents.

use std::sync::Arc;
use std::time::{Duration, Instant};

use settee_storage::counting::CountingEngine;
use settee_storage::{Batch, CommitToken, Durability, Engine, Keyspace, Outcome};

use super::{Random, audit, body, create, edit, engine, new, open, replicated, rev, save, write};
use crate::update::queue::Queue;
use crate::{
    Completion, DatabaseError, Direction, DocUpdate, IdRange, Origin, Purge, Submitted, UpdateOutcome, Work, keys,
};

#[test]
fn a_snapshot_that_is_far_behind_still_counts_right() {
    let database = super::database();
    let live: Vec<String> = (0..50).map(|number| format!("{number:03}")).collect();
    write(&database, live.iter().map(|id| new(id, "{}")).collect());
    let view = database.read().unwrap();
    assert_eq!(view.update_seq().unwrap(), 50, "a snapshot starts with its first read");
    for id in ["a", "b", "c"] {
        save(&database, new(id, "{}"));
        let rev = view.head("007").unwrap().unwrap().rev;
        write(&database, vec![edit("007", Some(&rev), true, "{}")]);
        assert_eq!(view.rank_of_id(b"045").unwrap(), 45);
        assert_eq!(view.changes_after(30).unwrap(), 20);
        assert_eq!(super::model::all_docs(&view, &IdRange::default(), Direction::Backward, 40), {
            let mut first = live[..10].to_vec();
            first.reverse();
            first
        });
    }
}

#[test]
fn a_skip_of_any_size_ends() {
    // Regression test: the greatest number of backward rows overflowed. A skip beyond the end reads all rows.
    let database = super::database();
    write(&database, (0..100).map(|number| new(&format!("{number:03}"), "{}")).collect());
    let view = database.read().unwrap();
    for direction in [Direction::Forward, Direction::Backward] {
        for skip in [100, 101, u64::MAX - 1, u64::MAX] {
            assert_eq!(super::model::all_docs(&view, &IdRange::default(), direction, skip), Vec::<String>::new());
        }
        assert_eq!(super::model::all_docs(&view, &IdRange::default(), direction, 99).len(), 1);
    }
}

#[test]
fn a_known_revision_learns_its_ancestors() {
    // As in CouchDB: without this an ancestor that arrives later would be a conflict.
    let database = super::database();
    let path = [rev("3-c"), rev("2-b"), rev("1-a")];
    save(&database, replicated("doc", &path[..1], false, "{\"n\":3}"));
    save(&database, replicated("doc", &path, false, "{\"n\":3}"));
    save(&database, replicated("doc", &path[1..], false, "{\"n\":2}"));
    let view = database.read().unwrap();
    let record = view.record("doc").unwrap().unwrap();
    assert_eq!(record.tree.leaf_count(), 1);
    let leaf = record.tree.find(&path[0]).unwrap();
    assert_eq!(record.tree.history(leaf).count(), 3);
    assert_eq!(body(&view, record.tree.node(leaf).value.unwrap()).unwrap(), "{\"n\":3}");
    assert_eq!(view.update_seq().unwrap(), 3);
    audit(&view);
    save(&database, replicated("doc", &path, false, "{\"n\":3}"));
    save(&database, replicated("doc", &path[..2], false, "{\"n\":3}"));
    assert_eq!(database.read().unwrap().update_seq().unwrap(), 3);
}

#[test]
fn ancestors_beyond_the_limit_are_no_change() {
    let database = super::database();
    database.update(Work::SetRevsLimit(2)).unwrap();
    let path = [rev("3-c"), rev("2-b"), rev("1-a")];
    for _ in 0..2 {
        save(&database, replicated("doc", &path, false, "{\"n\":3}"));
        let view = database.read().unwrap();
        assert_eq!(view.update_seq().unwrap(), 1);
        assert_eq!(view.record("doc").unwrap().unwrap().tree.nodes().len(), 2);
        audit(&view);
    }
}

#[test]
fn several_updates_of_a_document_in_one_commit() {
    let database = super::database();
    let mut updates = vec![new("doc", "{\"n\":1}")];
    for number in 2..10 {
        let parent = updates.last().unwrap().path[0].clone();
        updates.push(edit("doc", Some(&parent), number == 5, &format!("{{\"n\":{number}}}")));
    }
    let again = new("doc", "{\"n\":10}");
    let deletion = updates[4].path[0].clone();
    updates.push(again);
    let outcomes = write(&database, updates);
    assert!(outcomes[..5].iter().all(|outcome| matches!(outcome, UpdateOutcome::Saved(_))));
    assert!(outcomes[5..9].iter().all(|outcome| *outcome == UpdateOutcome::Conflict));
    let view = database.read().unwrap();
    let head = view.head("doc").unwrap().unwrap();
    assert_eq!(outcomes[9], UpdateOutcome::Saved(head.rev.clone()));
    assert_eq!((head.rev.generation, head.seq, view.update_seq().unwrap()), (6, 1, 1));
    let record = view.record("doc").unwrap().unwrap();
    let history: Vec<_> = record.tree.history(record.tree.find(&head.rev).unwrap()).collect();
    assert_eq!(record.tree.node(history[1]).rev, deletion);
    audit(&view);
}

/// As in CouchDB: clients see it in `update_seq`, `_changes` and `pending`.
#[test]
fn one_work_makes_one_change_of_a_document() {
    let database = super::database();
    save(&database, new("before", "{}"));
    let leaf = |number: usize| {
        let path = [rev(&format!("2-{number:02}")), rev("1-a")];
        replicated(
            "doc",
            &path,
            number % 5 == 4,
            &format!("{{\"n\":{number},\"text\":\"{}\"}}", "x".repeat(40 * number)),
        )
    };
    let mut updates: Vec<_> = (0..10).map(leaf).collect();
    updates.insert(5, new("between", "{\"n\":0}"));
    write(&database, updates);
    let view = database.read().unwrap();
    let seq = |id: &str| view.head(id).unwrap().unwrap().seq;
    assert_eq!((seq("before"), seq("doc"), seq("between"), view.update_seq().unwrap()), (1, 2, 3, 3));
    let record = view.record("doc").unwrap().unwrap();
    for leaf in record.tree.leaves() {
        let node = record.tree.node(leaf);
        let number: usize = node.rev.to_string()[2..].parse().unwrap();
        let found = body(&view, node.value.unwrap()).unwrap();
        assert!(found.starts_with(&format!("{{\"n\":{number},")) && found.len() > 40 * number, "{found}");
    }
    assert_eq!(record.tree.leaf_count(), 10);
    audit(&view);
    // The next work uses a sequence of its own, and a purge removes the bodies of purged revisions.
    write(&database, vec![leaf(10), leaf(11)]);
    let purge = Purge { id: "doc".to_owned(), revs: (0..11).map(|number| rev(&format!("2-{number:02}"))).collect() };
    let view = database.read().unwrap();
    assert_eq!((view.head("doc").unwrap().unwrap().seq, view.update_seq().unwrap()), (4, 4));
    database.update(Work::Purge(vec![purge])).unwrap();
    let view = database.read().unwrap();
    assert_eq!(view.record("doc").unwrap().unwrap().tree.leaf_count(), 1);
    audit(&view);
}

#[test]
fn each_body_of_an_update_sequence_has_a_number_of_its_own() {
    let numbers = |seq| (0..3).map(move |earlier| keys::body_number(seq, earlier).unwrap());
    assert!(numbers(7).chain(numbers(8)).all(|number| [7, 8].contains(&keys::writer_of_body(number))));
    assert_eq!(numbers(7).chain(numbers(8)).collect::<std::collections::BTreeSet<_>>().len(), 6);
    assert_eq!((keys::body_number(7, 0), keys::body_number(1 << 50, 0)), (Some(7), Some(1 << 50)));
    let last = (1 << 20) - 1;
    assert_eq!(keys::writer_of_body(keys::body_number((1 << 43) - 1, last).unwrap()), (1 << 43) - 1);
    assert_eq!((keys::body_number(7, last + 1), keys::body_number(1 << 43, 1)), (None, None));
}

#[test]
fn large_bodies_are_divided_and_large_requests_too() {
    let database = super::database();
    let mut random = Random::new();
    let bodies: Vec<String> = (0..200).map(|_| random.body(1000)).collect();
    let updates = bodies.iter().enumerate().map(|(n, body)| new(&format!("{n:03}"), body)).collect();
    let works = DocUpdate::into_works(updates);
    assert!(works.len() > 10);
    for work in works {
        database.update(work).unwrap();
    }
    let view = database.read().unwrap();
    for (number, wanted) in bodies.iter().enumerate() {
        let head = view.head(&format!("{number:03}")).unwrap().unwrap();
        assert_eq!(body(&view, head.stored).as_ref(), Some(wanted));
        assert_eq!(head.seq, number as u64 + 1);
    }
    assert!(DocUpdate::into_works(Vec::new()).is_empty());
}

/// Small updates cost more than their bytes, because concurrent writers wait for the whole commit.
#[test]
fn a_commit_takes_so_many_updates_however_small_they_are() {
    // Maximum number of updates of one commit at their minimum cost, see `UPDATE_BYTES`.
    let most = (8 << 10) / 64;
    let updates = || (0..10 * most).map(|number| new(&number.to_string(), "{}")).collect::<Vec<_>>();
    let works = DocUpdate::into_works(updates());
    let counts: Vec<usize> =
        works.iter().map(|work| if let Work::Documents(part) = work { part.len() } else { 0 }).collect();
    assert_eq!(counts.iter().sum::<usize>(), 10 * most);
    assert!(counts.iter().all(|count| *count <= most) && counts.len() < 50, "{counts:?}");
    let queue = Queue::default();
    for update in updates() {
        let _ = queue.push(vec![(Work::Documents(vec![update]), Box::new(|_| {}))], Origin::Client);
    }
    let mut taken = 0;
    while let Some(works) = queue.take(8 << 10) {
        assert!(works.len() <= most, "{}", works.len());
        taken += works.len();
    }
    assert_eq!(taken, 10 * most);
}

#[test]
fn a_full_commit_does_not_wait_and_a_client_returns_after_its_last_answer() {
    const LIMIT_BYTES: usize = 8 << 10;
    let queue = Queue::default();
    let updates = (0..500).map(|number| new(&format!("{number:04}"), "{}")).collect();
    let works = DocUpdate::into_works(updates);
    let count = works.len();
    assert!(count > 3);
    let begun = Instant::now();
    let queued = works.into_iter().map(|work| -> (Work, Completion) { (work, Box::new(|_| {})) }).collect();
    assert_eq!(queue.push(queued, Origin::Client), Submitted::Leader);
    assert_eq!(queue.push(Vec::new(), Origin::Client), Submitted::Queued);
    assert_eq!(queue.collect(count + 1, LIMIT_BYTES, Duration::from_secs(60)), count);
    let mut last = Vec::new();
    while let Some(works) = queue.take(LIMIT_BYTES) {
        last.extend(works.iter().map(|work| work.is_last));
    }
    assert_eq!(last.iter().filter(|is_last| **is_last).count(), 1);
    assert_eq!((last.len(), last.last()), (count, Some(&true)));
    assert!(begun.elapsed() < Duration::from_secs(30), "it has waited");
    let _ = queue.push(vec![(Work::SetRevsLimit(1), Box::new(|_| {}))], Origin::Client);
    assert_eq!(queue.collect(2, LIMIT_BYTES, Duration::ZERO), 1);
    assert_eq!(queue.collect(2, 1, Duration::ZERO), 1);
}

#[test]
fn missing_clients_are_not_waited_for() {
    let queue = Queue::default();
    let _ = queue.push(vec![(Work::SetRevsLimit(1), Box::new(|_| {}))], Origin::Client);
    for _ in 0..3 {
        assert_eq!(queue.collect(2, 1, Duration::ZERO), 1);
    }
    let begun = Instant::now();
    for _ in 0..20 {
        assert_eq!(queue.collect(2, 1, Duration::from_secs(60)), 1);
    }
    assert!(begun.elapsed() < Duration::from_secs(30), "it has waited");
}

#[test]
fn the_log_of_ranks_stays_short() {
    let database = super::database();
    for number in 0..100 {
        let local = edit("_local/x", None, false, &format!("{{\"n\":{number}}}"));
        write(&database, vec![local]);
        if number % 10 == 0 {
            save(&database, new(&format!("{number}"), "{}"));
        }
        let catalog = super::audit::entries(&database.read().unwrap(), Keyspace::Catalog);
        let records = catalog.keys().filter(|key| key.starts_with(crate::keys::RANK_LOG)).count();
        assert!(records <= 20, "{records}");
    }
    audit(&database.read().unwrap());
}

#[test]
fn a_body_with_a_hole_is_corrupt_and_one_that_is_gone_is_absent() {
    let database = super::database();
    save(&database, new("doc", &format!("{{\"p\":\"{}\"}}", "x".repeat(300))));
    let stored = database.read().unwrap().head("doc").unwrap().unwrap().stored;
    let remove_chunk = |chunk| {
        let mut batch = Batch::new();
        batch.delete(Keyspace::Bodies, &crate::keys::body(stored.body_seq, chunk));
        let engine = database.engine();
        let version = engine.snapshot(database.shard()).unwrap().state().unwrap().version;
        let outcome = engine.commit(database.shard(), version, CommitToken(1), batch, Durability::Synced).unwrap();
        assert!(matches!(outcome, Outcome::Committed(_)));
        database.read().unwrap()
    };
    let mut out = Vec::new();
    for chunk in [2, 1] {
        let error = remove_chunk(chunk).read_body(stored, &mut out).unwrap_err();
        assert!(matches!(error, DatabaseError::Corrupt("body")), "{error}");
    }
    let view = remove_chunk(0);
    out.clear();
    assert!(!view.read_body(stored, &mut out).unwrap());
    let rev = view.head("doc").unwrap().unwrap().rev;
    assert!(!view.write_document(&mut out, "doc", &rev, stored, |_| ()).unwrap());
    assert_eq!(out, b"");
}

#[test]
fn a_revision_of_a_document_that_is_not_there_is_a_conflict_in_every_edit() {
    let database = super::database();
    save(&database, new("other", "{}"));
    for (deleted, parent) in [(false, "1-a"), (true, "1-a"), (false, "0-1"), (false, "9-")] {
        let outcomes = write(&database, vec![edit("doc", Some(&rev(parent)), deleted, "{}")]);
        assert_eq!(outcomes, [UpdateOutcome::Conflict], "{parent}");
    }
    let view = database.read().unwrap();
    assert!(view.record("doc").unwrap().is_none());
    assert_eq!(view.update_seq().unwrap(), 1);
}

#[test]
fn a_document_with_many_conflicts_is_stored_in_short_values() {
    let engine = Arc::new(CountingEngine::new(engine()));
    let database = create(&open(&(Arc::clone(&engine) as Arc<dyn Engine>)), "db");
    let conflicts = |from: u32| {
        (from..from + 200)
            .map(|n| replicated("doc", &[rev(&format!("1-{n:032x}"))], n % 3 == 0, "{}"))
            .collect::<Vec<_>>()
    };
    for from in [0, 200, 400] {
        write(&database, conflicts(from));
    }
    let leaves = |count: usize| {
        let view = database.read().unwrap();
        assert_eq!(view.record("doc").unwrap().unwrap().tree.leaves().count(), count);
        let head = view.head("doc").unwrap().unwrap();
        assert!(head.has_conflicts && !head.stored.deleted);
        assert_eq!(view.heads(&["doc"]).unwrap()[0], Some(head));
        audit(&view);
    };
    leaves(600);
    let longest = engine.take_largest().value_bytes;
    assert!(longest < 2_000, "a value of {longest} bytes");
    let revs = (100..590).map(|n| rev(&format!("1-{n:032x}"))).collect();
    database.update(Work::Purge(vec![Purge { id: "doc".to_owned(), revs }])).unwrap();
    leaves(110);
    let revs = (0..600).map(|n| rev(&format!("1-{n:032x}"))).collect();
    database.update(Work::Purge(vec![Purge { id: "doc".to_owned(), revs }])).unwrap();
    assert!(database.read().unwrap().head("doc").unwrap().is_none());
    audit(&database.read().unwrap());
}
