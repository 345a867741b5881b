//! The validated state must still hold at the commit, regardless of concurrent writers.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use settee_model::Rev;
use settee_model::json::{Json, Value};

use super::{Random, database, edit, new, replicated, rev, save, write};
use crate::{Database, DocUpdate, Precheck, ReadView, UpdateOutcome, Validated, ValidationBasis};

fn seen(view: &ReadView<'_>, update: &DocUpdate) -> Validated {
    let record = view.record(update.id()).unwrap();
    let basis = ValidationBasis::Seen(update.precheck(record.as_deref()));
    Validated { design_seq: view.design_seq().unwrap(), basis }
}

fn validated(view: &ReadView<'_>, mut update: DocUpdate) -> DocUpdate {
    let validated = seen(view, &update);
    update.set_validated(validated);
    update
}

fn one(database: &Arc<Database>, update: DocUpdate) -> UpdateOutcome {
    write(database, vec![update]).remove(0)
}

fn is_stale(outcome: &UpdateOutcome) -> bool {
    matches!(outcome, UpdateOutcome::Stale(_))
}

#[test]
fn prospects_foretell_outcomes() {
    let database = database();
    let first = save(&database, new("a", "{}"));
    let second = save(&database, edit("a", Some(&first), false, "{\"n\":2}"));
    let gone = save(&database, new("gone", "{}"));
    let gone = save(&database, edit("gone", Some(&gone), true, "{}"));
    let check = |update: DocUpdate, expected: Precheck| {
        let view = database.read().unwrap();
        let record = view.record(update.id()).unwrap();
        assert_eq!(update.precheck(record.as_deref()), expected, "{update:?}");
        let outcome = one(&database, validated(&view, update));
        assert_eq!(outcome == UpdateOutcome::Conflict, expected == Precheck::Conflict);
        assert!(!is_stale(&outcome));
    };
    check(new("a", "{}"), Precheck::Conflict);
    check(edit("a", Some(&first), false, "{}"), Precheck::Conflict);
    check(edit("b", Some(&first), false, "{}"), Precheck::Conflict);
    check(new("b", "{}"), Precheck::New { old: None });
    check(edit("a", Some(&second), true, "{}"), Precheck::New { old: Some(second.clone()) });
    check(edit("gone", Some(&gone), false, "{}"), Precheck::Conflict);
    check(new("gone", "{\"again\":1}"), Precheck::New { old: None });
    check(replicated("a", std::slice::from_ref(&first), false, "{}"), Precheck::Known);
    let path = [rev("4-x"), rev("3-y"), second.clone(), first];
    check(replicated("a", &path, false, "{}"), Precheck::New { old: Some(second) });
    check(replicated("c", &[rev("1-z")], false, "{}"), Precheck::New { old: None });
}

#[test]
fn a_change_of_design_documents_makes_validations_stale() {
    let database = database();
    let view = database.read().unwrap();
    assert_eq!((view.design_seq().unwrap(), database.design_seq()), (0, 0));
    let early = [new("a", "{}"), replicated("b", &[rev("1-b")], false, "{}")].map(|update| validated(&view, update));
    let mut unvalidated = new("c", "{}");
    unvalidated.set_validated(Validated { design_seq: 0, basis: ValidationBasis::Unvalidated });
    // Within one commit, updates before the design document are valid, those after it are stale.
    let works = vec![validated(&view, new("d", "{}")), new("_design/v", "{}"), unvalidated];
    let outcomes = write(&database, works);
    assert!(matches!(outcomes[..], [UpdateOutcome::Saved(_), UpdateOutcome::Saved(_), UpdateOutcome::Stale(_)]));
    let stale = early.clone().map(|update| UpdateOutcome::Stale(Box::new(update)));
    assert_eq!(write(&database, early.to_vec()), stale);
    assert_eq!((database.read().unwrap().design_seq().unwrap(), database.design_seq()), (2, 2));
    assert!(matches!(one(&database, new("e", "{}")), UpdateOutcome::Saved(_)), "no validation was requested");
}

#[test]
fn a_change_of_the_old_document_makes_validations_stale() {
    let database = database();
    let first = save(&database, new("a", "{}"));
    let path = [rev("3-c"), rev("2-b"), first];
    let update = validated(&database.read().unwrap(), replicated("a", &path, false, "{}"));
    one(&database, replicated("a", &path[1..], false, "{}"));
    assert!(is_stale(&one(&database, update)));
    let update = validated(&database.read().unwrap(), replicated("a", &path, false, "{}"));
    assert_eq!(one(&database, update.clone()), UpdateOutcome::Saved(path[0].clone()));
    assert_eq!(one(&database, update), UpdateOutcome::Saved(path[0].clone()), "there is nothing left to validate");
    // An update that was validated as a conflict must not be applied when the conflict has disappeared.
    let winner = database.read().unwrap().head("a").unwrap().unwrap().rev;
    let update = validated(&database.read().unwrap(), new("a", "{\"unseen\":1}"));
    save(&database, edit("a", Some(&winner), true, "{}"));
    assert!(is_stale(&one(&database, update)));
}

const DESIGN: &str = "_design/rules";

fn number(body: &[u8], name: &str) -> u64 {
    Value::trusted(body).get(name).and_then(Value::as_u64).unwrap_or_default()
}

fn stored_body(view: &ReadView<'_>, id: &str, rev: &Rev) -> Json {
    let record = view.record(id).unwrap().unwrap();
    let stored = record.tree.node(record.tree.find(rev).unwrap()).value.unwrap();
    let mut body = Vec::new();
    assert!(view.read_body(stored, &mut body).unwrap());
    Json::trusted(body)
}

/// `n` must be at least the value in the design document, and larger than in the old document.
fn is_allowed(least: u64, old: Option<u64>, new: u64) -> bool {
    new >= least && old.is_none_or(|old| new > old)
}

fn ask(view: &ReadView<'_>, update: DocUpdate) -> Option<DocUpdate> {
    let least = match view.head(DESIGN).unwrap() {
        Some(head) if !head.stored.deleted => number(stored_body(view, DESIGN, &head.rev).as_bytes(), "least"),
        _ => 0,
    };
    let validated = seen(view, &update);
    if let ValidationBasis::Seen(Precheck::New { old }) = &validated.basis {
        let old = old.as_ref().map(|old| number(stored_body(view, update.id(), old).as_bytes(), "n"));
        if !is_allowed(least, old, number(update.body().as_bytes(), "n")) {
            return None;
        }
    }
    let mut update = update;
    update.set_validated(validated);
    Some(update)
}

fn random_update(view: &ReadView<'_>, random: &mut Random) -> DocUpdate {
    let id = format!("doc{}", random.below(6));
    // Numbers grow with time, so that most updates stay valid.
    let body = format!("{{\"n\":{}}}", view.update_seq().unwrap() + random.below(150) as u64);
    let head = view.head(&id).unwrap();
    let newest = head.map(|head| head.rev);
    if random.one_in(3) {
        let parent = newest.into_iter();
        let generation = parent.clone().next().map_or(0, |rev| rev.generation) + 1;
        let new = rev(&format!("{generation}-{:x}", random.next()));
        let path: Vec<Rev> = std::iter::once(new).chain(parent).collect();
        return replicated(&id, &path, random.one_in(8), &body);
    }
    edit(&id, newest.as_ref(), random.one_in(8), &body)
}

#[derive(Default)]
struct Changes {
    count: Mutex<usize>,
    changed: Condvar,
}

impl Changes {
    fn add(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }

    fn wait_for_one(&self) {
        let count = self.count.lock().unwrap();
        let before = *count;
        drop(self.changed.wait_while(count, |count| *count == before).unwrap());
    }
}

fn change_rules(database: &Arc<Database>, random: &mut Random, done: &AtomicBool, changes: &Changes) {
    while !done.load(Ordering::Acquire) {
        let head = database.read().unwrap().head(DESIGN).unwrap();
        let (parent, deleted) = match head {
            Some(head) if head.stored.deleted => (None, false),
            Some(head) => (Some(head.rev), random.one_in(4)),
            None => (None, false),
        };
        let seq = database.read().unwrap().update_seq().unwrap();
        let body = format!("{{\"least\":{}}}", seq + random.below(100) as u64);
        save(database, edit(DESIGN, parent.as_ref(), deleted, if deleted { "{}" } else { &body }));
        changes.add();
        thread::yield_now();
    }
}

fn history_of_rules(view: &ReadView<'_>) -> BTreeMap<u64, u64> {
    let record = view.record(DESIGN).unwrap().unwrap();
    let stored = record.tree.nodes().iter().map(|node| (node.rev.clone(), node.value.unwrap()));
    stored.map(|(rev, stored)| (stored.body_seq, number(stored_body(view, DESIGN, &rev).as_bytes(), "least"))).collect()
}

#[test]
fn no_update_slips_past_the_rules_of_its_moment() {
    let database = database();
    let (done, changes, writers, tries) = (AtomicBool::new(false), Changes::default(), 6, 400);
    let mut random = Random::new();
    let seeds: Vec<u64> = (0..=writers).map(|_| random.next()).collect();
    let stale: u64 = thread::scope(|scope| {
        let (database, done, changes) = (&database, &done, &changes);
        let ruler = seeds[writers];
        scope.spawn(move || change_rules(database, &mut Random::of(ruler), done, changes));
        let write = move |seed: u64| {
            let (mut random, mut stale) = (Random::of(seed), 0);
            for _ in 0..tries {
                let view = database.read().unwrap();
                let update = ask(&view, random_update(&view, &mut random));
                // The scheduling of threads is arbitrary, so some rounds force a change of the rules at this point.
                if random.one_in(20) {
                    changes.wait_for_one();
                }
                let Some(update) = update else { continue };
                stale += u64::from(is_stale(&one(database, update)));
            }
            stale
        };
        let writers: Vec<_> = seeds[..writers].iter().map(|seed| scope.spawn(move || write(*seed))).collect();
        let stale = writers.into_iter().map(|writer| writer.join().unwrap()).sum();
        done.store(true, Ordering::Release);
        stale
    });
    let view = database.read().unwrap();
    super::audit(&view);
    let rules = history_of_rules(&view);
    let mut revisions = 0;
    for id in (0..6).map(|number| format!("doc{number}")) {
        let Some(record) = view.record(&id).unwrap() else { continue };
        for node in record.tree.nodes() {
            let stored = node.value.unwrap();
            let least = rules.range(..stored.body_seq).next_back().map_or(0, |(_, least)| *least);
            let n = |rev: &Rev| number(stored_body(&view, &id, rev).as_bytes(), "n");
            let parent = node.parent.map(|parent| record.tree.node(parent));
            let resurrected = parent.is_some_and(|parent| parent.value.unwrap().deleted);
            let old = parent.filter(|_| !resurrected).map(|parent| n(&parent.rev));
            assert!(is_allowed(least, old, n(&node.rev)), "{id} {} under {least}, old {old:?}", node.rev);
            revisions += 1;
        }
    }
    assert!(
        revisions > 20 && rules.len() > 10 && stale > 0,
        "{revisions} revisions, {} rules, {stale} stale",
        rules.len()
    );
}

#[test]
fn another_body_makes_another_revision_of_an_edit_only() {
    let database = database();
    let first = save(&database, new("a", "{}"));
    let hasher = &mut settee_model::RevisionHasher::default();
    let body = || Json::parse(b"{\"n\":2}").unwrap();
    let expected = edit("a", Some(&first), false, "{\"n\":2}");
    let changed = edit("a", Some(&first), false, "{\"n\":1}").with_body(body(), hasher);
    assert_eq!((changed.path(), changed.body()), (expected.path(), &body()));
    assert_eq!(new("b", "{\"n\":1}").with_body(body(), hasher).path(), new("b", "{\"n\":2}").path());
    let given = replicated("c", &[rev("2-x"), rev("1-x")], false, "{\"n\":1}");
    let changed = given.clone().with_body(body(), hasher);
    assert_eq!((changed.path(), changed.body()), (given.path(), &body()));
}
