//! Purges and compactions among the random operations, and their special cases.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::*;
use crate::tasks::Tasks;
use crate::tests::{create, engine, new, open, save};
use crate::{Compaction, Garbage, Purge};

impl ModelDoc {
    fn purge(&mut self, rev: &Rev) -> bool {
        if !self.leaves().contains(&rev) {
            return false;
        }
        let mut gone = Some(rev.clone());
        while let Some(rev) = gone {
            let parent = self.revs.remove(&rev).unwrap().parent;
            let has_others = |parent: &Rev| self.revs.values().any(|other| other.parent.as_ref() == Some(parent));
            gone = parent.filter(|parent| !has_others(parent));
        }
        true
    }
}

impl Model {
    fn purge(&mut self, purge: &Purge) -> UpdateOutcome {
        self.purges.push(purge.clone());
        let Some(doc) = self.docs.get_mut(&purge.id) else { return UpdateOutcome::Purged(Vec::new()) };
        let purged: Vec<Rev> = purge.revs.iter().filter(|rev| doc.purge(rev)).cloned().collect();
        if !purged.is_empty() {
            self.update_seq += 1;
            doc.seq = self.update_seq;
        }
        if doc.revs.is_empty() {
            self.docs.remove(&purge.id);
        }
        UpdateOutcome::Purged(purged)
    }

    fn compact(&mut self) {
        for doc in self.docs.values_mut() {
            let leaves: BTreeSet<Rev> = doc.leaves().into_iter().cloned().collect();
            doc.revs.iter_mut().filter(|(rev, _)| !leaves.contains(rev)).for_each(|(_, rev)| rev.content = None);
        }
    }
}

fn random_purge(random: &mut Random, model: &Model) -> Purge {
    let id = random_id(random);
    let some = |random: &mut Random| match random.below(4) {
        0 => random_rev(random, 1),
        _ => known_rev(random, model, &id).unwrap_or_else(|| random_rev(random, 2)),
    };
    let mut revs: Vec<Rev> = (0..random.below(4)).map(|_| some(random)).collect();
    if random.one_in(3) {
        revs.extend(model.docs.get(&id).iter().flat_map(|doc| doc.leaves()).cloned());
    }
    Purge { id, revs }
}

fn all_bodies(view: &ReadView<'_>, model: &Model) -> BTreeMap<String, Vec<Stored>> {
    let record = |id: &String| view.record(id).unwrap().unwrap();
    let stored = |id: &String| record(id).tree.nodes().iter().filter_map(|node| node.value).collect();
    model.docs.keys().map(|id| (id.clone(), stored(id))).collect()
}

fn note_gone(model: &mut Model, before: BTreeMap<String, Vec<Stored>>, view: &ReadView<'_>) {
    let kept: BTreeSet<u64> = all_bodies(view, model).into_values().flatten().map(|stored| stored.body_seq).collect();
    let gone = before.into_values().flatten().filter(|stored| !kept.contains(&stored.body_seq));
    model.forgotten.extend(gone.map(|stored| (stored.body_seq, stored.size)));
}

pub(super) fn purge(random: &mut Random, database: &Arc<Database>, model: &mut Model) {
    let before = all_bodies(&database.read().unwrap(), model);
    let purges: Vec<Purge> = (0..1 + random.below(8)).map(|_| random_purge(random, model)).collect();
    let wanted: Vec<UpdateOutcome> = purges.iter().map(|purge| model.purge(purge)).collect();
    assert_eq!(database.update(Work::Purge(purges)).unwrap(), wanted);
    note_gone(model, before, &database.read().unwrap());
}

pub(super) fn compact(random: &mut Random, database: &Arc<Database>, model: &mut Model) {
    let before = all_bodies(&database.read().unwrap(), model);
    let limit = 1 + random.below(20) as u64;
    database.update(Work::SetPurgedInfosLimit(limit)).unwrap();
    compact_now(database);
    model.compact();
    assert_eq!(database.garbage().unwrap().bytes, 0);
    let view = database.read().unwrap();
    note_gone(model, before, &view);
    assert_eq!(view.purged_infos_limit().unwrap(), limit);
    let forgotten = (model.purges.len() as u64).saturating_sub(limit);
    assert_eq!(view.purges_forgotten().unwrap().max(forgotten), view.purges_forgotten().unwrap());
}

fn compact_now(database: &Arc<Database>) {
    let done = database.compact(&Tasks::new(|| 0), &mut || ControlFlow::Continue(())).unwrap();
    assert_eq!(done, Compaction::Done);
}

pub(super) fn check_purges(view: &ReadView<'_>, model: &Model) {
    assert_eq!(view.purge_seq().unwrap(), model.purges.len() as u64);
    let forgotten = view.purges_forgotten().unwrap();
    let mut wanted = (1..).zip(&model.purges).skip(forgotten as usize);
    view.purges(0, |number, purge| assert_eq!(wanted.next(), Some((number, &purge)))).unwrap();
    assert_eq!(wanted.next(), None);
    let mut last = Vec::new();
    view.purges(view.purge_seq().unwrap().saturating_sub(1), |number, _| last.push(number)).unwrap();
    assert!(last.len() <= 1);
}

#[test]
fn compaction_beside_writers_loses_nothing() {
    let engine = engine();
    let database = create(&open(&engine), "db");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let database = &database;
                scope.spawn(move || {
                    for number in 0..150 {
                        let id = format!("{}/{writer}", number % 10);
                        let head = database.read().unwrap().head(&id).unwrap().map(|head| head.rev);
                        save(database, edit(&id, head.as_ref(), false, &format!("{{\"n\":{number}}}")));
                    }
                })
            })
            .collect();
        let compacting = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                compact_now(&database);
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        over.store(true, Ordering::Relaxed);
        compacting.join().unwrap();
    });
    compact_now(&database);
    let view = database.read().unwrap();
    audit(&view);
    for writer in 0..4 {
        for number in 140..150 {
            let head = view.head(&format!("{}/{writer}", number % 10)).unwrap().unwrap();
            assert_eq!(head.rev.generation, 15);
            assert_eq!(body(&view, head.stored).unwrap(), format!("{{\"n\":{number}}}"));
        }
    }
    let garbage = database.garbage().unwrap();
    assert_eq!((garbage.bytes, garbage.purges), (0, 0));
}

#[test]
fn a_compaction_is_one_at_a_time_and_can_be_ended() {
    let database = crate::tests::database();
    for number in 0..60 {
        let id = format!("{number:02}");
        let first = save(&database, new(&id, "{\"n\":1}"));
        save(&database, edit(&id, Some(&first), false, "{\"n\":2}"));
    }
    let tasks = Tasks::new(|| 0);
    let mut progress = Vec::new();
    let ended = database.compact(&tasks, &mut || {
        assert!(database.is_compacting());
        let again = database.compact(&tasks, &mut || ControlFlow::Continue(()));
        assert_eq!(again.unwrap(), Compaction::Running);
        progress.extend(tasks.list().into_iter().map(|task| (task.changes_done, task.total_changes)));
        if progress.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert_eq!(ended.unwrap(), Compaction::Stopped);
    assert!(!database.is_compacting() && tasks.list().is_empty());
    assert_eq!(progress, [(7, 60), (14, 60), (21, 60)]);
    assert_eq!(database.garbage().unwrap(), Garbage { total_bytes: (60 + 39) * 7, bytes: 39 * 7, purges: 0 });
    audit(&database.read().unwrap());
    compact_now(&database);
    assert_eq!(database.garbage().unwrap().bytes, 0);
    let unasked = database.compact(&tasks, &mut || panic!("there is nothing to do"));
    assert_eq!(unasked.unwrap(), Compaction::Done);
}

#[test]
fn purge_and_write_in_one_commit() {
    let database = crate::tests::database();
    let first = save(&database, new("doc", "{\"n\":1}"));
    let before = database.read().unwrap().update_seq().unwrap();
    let purge = Work::Purge(vec![Purge { id: "doc".to_owned(), revs: vec![first.clone()] }]);
    // The queue has no leader until all three works wait, so they share a commit.
    let (sender, receiver) = std::sync::mpsc::channel();
    for work in [purge, Work::Documents(vec![new("doc", "{\"n\":2}")]), Work::Compact(vec!["doc".to_owned()])] {
        let sender = sender.clone();
        let _ = database.submit(work, Box::new(move |result| sender.send(result.unwrap()).unwrap()));
    }
    database.run_as_leader();
    let outcomes: Vec<_> = receiver.iter().take(3).collect();
    assert_eq!(outcomes[0], [UpdateOutcome::Purged(vec![first])]);
    let view = database.read().unwrap();
    let head = view.head("doc").unwrap().unwrap();
    assert_eq!(outcomes[1], [UpdateOutcome::Saved(head.rev.clone())]);
    assert_eq!((head.rev.generation, head.seq), (1, before + 2));
    assert_eq!(body(&view, head.stored).unwrap(), "{\"n\":2}");
    audit(&view);
}
