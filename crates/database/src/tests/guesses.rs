//! Documents that are probably new are written without a read, with the outcomes of writes with a read.

use std::sync::Arc;

use settee_model::Rev;
use settee_storage::Engine;
use settee_storage::counting::CountingEngine;
use settee_storage::faulty::FaultyEngine;
use settee_storage::memory::MemoryEngine;

use super::{Random, Store, audit, create, edit, new, open, replicated, rev, save, write};
use crate::{Database, DocUpdate, UpdateOutcome};

fn counted() -> (Arc<CountingEngine>, Arc<Database>) {
    let engine = Arc::new(CountingEngine::new(Arc::new(MemoryEngine::new())));
    let database = create(&open(&(Arc::clone(&engine) as Arc<dyn Engine>)), "db");
    (engine, database)
}

#[test]
fn new_documents_are_one_trip() {
    let (engine, database) = counted();
    let trips = |update: DocUpdate| {
        let before = engine.calls();
        let outcome = write(&database, vec![update]).remove(0);
        let calls = engine.calls().since(before);
        (matches!(outcome, UpdateOutcome::Saved(_)), calls.reads + calls.pages, calls.commits)
    };
    assert_eq!(trips(new("a", "{}")), (true, 0, 1));
    assert_eq!(trips(replicated("b", &[rev("1-x")], false, "{}")), (true, 0, 1));
    let first = save(&database, new("c", "{}"));
    assert_eq!(trips(edit("c", Some(&first), false, "{}")), (true, 1, 1));
    assert_eq!(trips(edit("d", None, true, "{}")).1, 1);
    assert_eq!(trips(replicated("e", &[rev("2-y"), rev("1-x")], false, "{}")), (true, 1, 1));
    // A wrong assumption wastes a commit, and the next ones read first.
    assert_eq!(trips(new("a", "{}")), (false, 1, 1));
    assert_eq!(trips(new("f", "{}")), (true, 1, 1));
    for number in 0..100 {
        save(&database, new(&format!("g{number}"), "{}"));
    }
    assert_eq!(trips(new("h", "{}")), (true, 0, 1), "and after a while they do not");
    audit(&database.read().unwrap());
}

#[test]
fn a_wrong_guess_of_a_group_changes_nothing() {
    let (_, database) = counted();
    let gone = save(&database, new("gone", "{}"));
    let gone = save(&database, edit("gone", Some(&gone), true, "{}"));
    save(&database, new("there", "{}"));
    let ids = ["a", "there", "b", "gone", "b"];
    let outcomes = write(&database, ids.map(|id| new(id, "{\"n\":1}")).to_vec());
    let conflicts: Vec<bool> = outcomes.iter().map(|outcome| *outcome == UpdateOutcome::Conflict).collect();
    assert_eq!(conflicts, [false, true, false, false, true]);
    assert_eq!(super::saved(outcomes[3].clone()).unwrap().generation, gone.generation + 1);
    let view = database.read().unwrap();
    assert_eq!(view.update_seq().unwrap(), 6);
    audit(&view);
}

#[test]
fn outcomes_equal_those_of_an_engine_that_reads_first() {
    let random = &mut Random::new();
    for _ in 0..20 {
        let always_reads: Arc<dyn Engine> = Arc::new(FaultyEngine::new());
        assert!(!always_reads.refuses_present());
        let looked = create(&open(&always_reads), "db");
        let [ours, theirs] = Store::new().two().each_ref().map(open);
        let guessed = [create(&ours, "db"), theirs.database("db").unwrap()];
        for _ in 0..60 {
            let updates: Vec<DocUpdate> = (0..1 + random.below(3)).map(|_| any(&looked, random)).collect();
            let database = &guessed[random.below(2) as usize];
            assert_eq!(write(database, updates.clone()), write(&looked, updates));
        }
        guessed.iter().for_each(|database| audit(&database.read().unwrap()));
        let seqs = [&guessed[0], &looked].map(|database| database.read().unwrap().update_seq().unwrap());
        assert_eq!(seqs[0], seqs[1]);
    }
}

fn any(database: &Arc<Database>, random: &mut Random) -> DocUpdate {
    let id = format!("{}", random.below(40));
    let body = format!("{{\"n\":{}}}", random.below(3));
    let head = database.read().unwrap().head(&id).unwrap();
    let parent: Option<Rev> = head.map(|head| head.rev).filter(|_| random.below(2) == 0);
    match random.below(6) {
        0 => replicated(&id, &[rev(["1-x", "1-y"][random.below(2) as usize])], false, &body),
        1 => edit(&id, parent.as_ref(), parent.is_some(), &body),
        _ => edit(&id, parent.as_ref(), false, &body),
    }
}
