//! Concurrent writers and readers: no write is lost, each edit has one winner, and a reader's snapshot does not change.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;

use settee_model::Rev;

use super::{audit, body, edit, ids, new, save, saved, write};
use crate::{Database, DatabaseError, Direction, ReadView, Submitted, UpdateOutcome, Work};

const WRITERS: usize = 16;

fn check_counts(view: &ReadView<'_>) {
    let (live, deleted) = view.counts().unwrap();
    let listed = ids(view);
    assert_eq!(listed.len() as u64, live);
    assert_eq!(view.rank_of_id(&[0xff]).unwrap(), live);
    for (rank, id) in listed.iter().enumerate().step_by(5) {
        assert_eq!(view.rank_of_id(id.as_bytes()).unwrap(), rank as u64);
    }
    let mut changes = view.changes(0, Direction::Forward).unwrap();
    let mut seqs = Vec::new();
    while let Some(change) = changes.next().unwrap() {
        seqs.push(change.seq);
    }
    assert!(seqs.is_sorted_by(|a, b| a < b));
    assert_eq!(seqs.len() as u64, live + deleted);
    assert_eq!(view.changes_after(0).unwrap(), live + deleted);
    for (before, seq) in seqs.iter().enumerate().step_by(7) {
        assert_eq!(view.changes_after(*seq).unwrap(), (seqs.len() - before - 1) as u64);
    }
}

fn read_until(database: &Arc<Database>, done: &AtomicBool) {
    let mut last = false;
    while !last {
        last = done.load(Ordering::Acquire);
        let view = database.read().unwrap();
        audit(&view);
        check_counts(&view);
        let seq = view.update_seq().unwrap();
        while !done.load(Ordering::Acquire) && database.read().unwrap().update_seq().unwrap() < seq + 20 {
            thread::yield_now();
        }
        assert_eq!(view.update_seq().unwrap(), seq);
        check_counts(&view);
    }
}

fn edit_own(database: &Arc<Database>, writer: usize) -> Vec<(String, Rev, String)> {
    let mut newest = Vec::new();
    for number in 0..12 {
        let id = format!("{number}/{writer}");
        let mut text = format!("{{\"by\":{writer}}}");
        let mut rev = save(database, new(&id, &text));
        for round in 0..3 {
            text = format!("{{\"by\":{writer},\"round\":{round}}}");
            let deleted = round == 2 && number % 3 == 0;
            rev = save(database, edit(&id, Some(&rev), deleted, &text));
        }
        newest.push((id, rev, text));
    }
    newest
}

#[test]
fn writers_and_readers_at_once() {
    let database = super::database();
    let done = AtomicBool::new(false);
    let newest: Vec<_> = thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| read_until(&database, &done));
        }
        let database = &database;
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || edit_own(database, writer))).collect();
        let newest = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        done.store(true, Ordering::Release);
        newest
    });
    let view = database.read().unwrap();
    audit(&view);
    assert_eq!(view.update_seq().unwrap(), (WRITERS * 12 * 4) as u64);
    assert_eq!(view.counts().unwrap(), ((WRITERS * 8) as u64, (WRITERS * 4) as u64));
    for (id, rev, text) in newest {
        let head = view.head(&id).unwrap().unwrap();
        assert_eq!(head.rev, rev);
        assert_eq!(body(&view, head.stored), Some(text));
    }
    let mut body_seqs = BTreeSet::new();
    for id in (0..12).flat_map(|number| (0..WRITERS).map(move |writer| format!("{number}/{writer}"))) {
        let record = view.record(&id).unwrap().unwrap();
        assert_eq!(record.tree.nodes().len(), 4);
        body_seqs.extend(record.tree.nodes().iter().map(|node| node.value.unwrap().body_seq));
    }
    assert_eq!(body_seqs.len() as u64, view.update_seq().unwrap());
}

#[test]
fn one_winner_a_round() {
    let database = super::database();
    let barrier = Barrier::new(WRITERS);
    let rounds = 30;
    let wins: Vec<Vec<Rev>> = thread::scope(|scope| {
        let (database, barrier) = (&database, &barrier);
        let work = move |writer: usize| {
            let mut wins = Vec::new();
            let mut parent: Option<Rev> = None;
            for round in 0..rounds {
                let update = edit("hot", parent.as_ref(), false, &format!("{{\"n\":{round},\"by\":{writer}}}"));
                wins.extend(write(database, vec![update]).into_iter().filter_map(saved));
                barrier.wait();
                parent = Some(database.read().unwrap().head("hot").unwrap().unwrap().rev);
                barrier.wait();
            }
            wins
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(move || work(writer))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let mut won: Vec<Rev> = wins.into_iter().flatten().collect();
    won.sort();
    let view = database.read().unwrap();
    audit(&view);
    let record = view.record("hot").unwrap().unwrap();
    let kept: Vec<Rev> = record.tree.nodes().iter().map(|node| node.rev.clone()).collect();
    assert_eq!(won, kept, "one new revision a round, all of them in one line");
    assert_eq!(won.len(), rounds);
    assert_eq!((record.tree.leaf_count(), view.update_seq().unwrap()), (1, rounds as u64));
}

#[test]
fn writers_that_wait_share_commits() {
    let database = super::database();
    let (sender, receiver) = mpsc::channel();
    let submit = |id: &str| {
        let sender = sender.clone();
        let done = Box::new(move |result| sender.send(result).unwrap());
        database.submit(Work::Documents(vec![new(id, "{}")]), done)
    };
    assert_eq!(submit("000"), Submitted::Leader);
    for number in 1..50 {
        assert_eq!(submit(&format!("{number:03}")), Submitted::Queued);
    }
    database.run_as_leader();
    let answers: Vec<_> = receiver.try_iter().collect();
    assert_eq!(answers.len(), 50);
    for answer in answers {
        assert!(matches!(answer.unwrap()[..], [UpdateOutcome::Saved(_)]));
    }
    let view = database.read().unwrap();
    let version = view.snapshot().state().unwrap().version.0;
    assert!(version < 5, "{version} commits for 50 small updates");
    assert!((0..50).all(|number| view.head(&format!("{number:03}")).unwrap().unwrap().seq == number + 1));
    audit(&view);
    assert_eq!(submit("again"), Submitted::Leader);
    database.run_as_leader();
}

#[test]
fn a_leader_is_not_delayed_by_later_work() {
    const MOST: usize = 5_000;
    let database = super::database();
    let came = Arc::new(AtomicUsize::new(0));
    let submit_more = {
        let (database, came) = (Arc::clone(&database), Arc::clone(&came));
        move || {
            let number = came.fetch_add(1, Ordering::Relaxed);
            if number < MOST {
                let work = Work::Documents(vec![new(&format!("later{number}"), "{}")]);
                assert_eq!(database.submit(work, Box::new(|_| ())), Submitted::Queued);
            }
        }
    };
    let subscription = database.subscribe(move |_| submit_more());
    save(&database, new("first", "{}"));
    let came_before = came.swap(MOST, Ordering::Relaxed);
    assert!(came_before < MOST, "the caller led until nothing came any more");
    drop(subscription);
    save(&database, new("last", "{}"));
    audit(&database.read().unwrap());
}

#[test]
fn a_panic_of_a_completion_leaves_the_queue_working() {
    let database = super::database();
    let (sender, receiver) = mpsc::channel();
    let submit = |id: &str, padding: usize, panics: bool| {
        let (sender, id) = (sender.clone(), id.to_owned());
        let update = new(&id, &format!("{{\"p\":\"{}\"}}", "x".repeat(padding)));
        let done = Box::new(move |result: crate::WorkResult| {
            assert!(!panics, "a completion that panics");
            sender.send((id, result.is_ok())).unwrap();
        });
        let _ = database.submit(Work::Documents(vec![update]), done);
    };
    submit("a", 0, false);
    submit("b", 0, true);
    submit("c", 0, false);
    submit("d", 7000, true);
    submit("e", 7000, false);
    let panicked = thread::scope(|scope| scope.spawn(|| database.run_as_leader()).join());
    panicked.unwrap_err();
    let answered: Vec<_> = receiver.try_iter().collect();
    let wanted = ["a", "c", "e"].map(|id| (id.to_owned(), true));
    assert_eq!(answered, wanted, "the others receive correct outcomes, including those behind");
    save(&database, new("f", "{}"));
    let view = database.read().unwrap();
    assert_eq!(ids(&view), ["a", "b", "c", "d", "e", "f"]);
    audit(&view);
}

#[test]
fn a_panic_of_a_listener_leaves_the_queue_working() {
    let database = super::database();
    let subscription = database.subscribe(|_| panic!("a listener that panics"));
    let (leads, hears) = mpsc::channel();
    thread::scope(|scope| {
        let panicked = scope.spawn(|| {
            let done = Box::new(move |result| leads.send(result).unwrap());
            assert_eq!(database.submit(Work::Documents(vec![new("a", "{}")]), done), Submitted::Leader);
            database.run_as_leader();
        });
        panicked.join().unwrap_err();
    });
    hears.recv().expect_err("the completion was dropped");
    drop(subscription);
    save(&database, new("b", "{}"));
    let view = database.read().unwrap();
    assert_eq!(ids(&view), ["a", "b"], "the commit had happened");
    audit(&view);
}

#[test]
fn waiters_for_a_panicking_commit_get_an_error() {
    let database = super::database();
    let _subscription = database.subscribe(|_| panic!("a listener that panics"));
    assert_eq!(database.submit(Work::Documents(vec![new("a", "{}")]), Box::new(|_| ())), Submitted::Leader);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| database.update(Work::Documents(vec![new("b", "{}")])));
        while database.queue.waiting() < 2 {
            thread::yield_now();
        }
        scope.spawn(|| database.run_as_leader()).join().unwrap_err();
        let error = waiter.join().unwrap().unwrap_err();
        assert!(matches!(error, DatabaseError::Storage(_)), "not that there is no database: {error}");
    });
}
