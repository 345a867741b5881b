//! After any crash, an updated index equals a rebuilt one.

use settee_model::testing::{Random, scaled};
use settee_storage::faulty::FaultyEngine;

use super::*;

fn change(database: &Arc<Database>, random: &mut Random, changes: usize) {
    const WORDS: [&str; 6] = ["fox", "dog", "cat", "quick fox", "lazy dog", "a cat and a fox"];
    for _ in 0..changes {
        let id = format!("doc{}", random.below(40));
        let head = database.read().unwrap().head(&id).unwrap();
        let live = head.filter(|head| !head.stored.deleted).map(|head| head.rev);
        let (word, number) = (WORDS[random.below(WORDS.len())], random.below(10));
        let content = match random.below(6) {
            0 => String::new(),
            1 => format!(r#","n":{number}"#),
            2 => format!(r#","t":"{word}","bad":1"#),
            _ => format!(r#","t":"{word}","s":"{number}","n":{number}"#),
        };
        match (live, random.below(8)) {
            (Some(rev), 0) => drop(write(database, &format!(r#"{{"_id":"{id}","_rev":"{rev}","_deleted":true}}"#))),
            (Some(rev), 1) => purge(database, &id, &rev),
            (Some(rev), _) => drop(write(database, &format!(r#"{{"_id":"{id}","_rev":"{rev}"{content}}}"#))),
            (None, _) => drop(write(database, &format!(r#"{{"_id":"{id}"{content}}}"#))),
        }
    }
}

fn compare(world: &World, database: &Arc<Database>, seed: u64) {
    let (known, rebuilt) = (design("f"), design("anew"));
    assert_eq!(world.all(database, &known), world.all(database, &rebuilt), "seed {seed}");
    for query in [Query::term("default", "fox"), Query::number("n", 3.0), Query::exists("s")] {
        let ask = |design| world.search(database, design, query.clone()).unwrap();
        let (one, other) = (ask(&known), ask(&rebuilt));
        assert_eq!(shown(&one.hits), shown(&other.hits), "seed {seed}: {query:?}");
        assert_eq!(one.total_hits, other.total_hits, "seed {seed}: {query:?}");
    }
}

#[test]
fn every_crash_leaves_an_index_that_goes_on() {
    for seed in 0..scaled(1) {
        println!("seed {seed}");
        let mut random = Random::of(seed);
        let faulty = Arc::new(FaultyEngine::new());
        let world = World::over(faulty.clone());
        let database = world.create(Layout::Whole);
        for round in 0..6 {
            change(&database, &mut random, if round == 2 { 300 } else { 30 });
            world.all(&database, &design("f"));
        }
        compare(&world, &database, seed);
        let images: Vec<_> = faulty.crash_images().collect();
        assert!(images.len() > 30, "{}", images.len());
        for image in images.into_iter().step_by(3) {
            let world = World::over(Arc::new(image));
            let Ok(database) = world.catalog.database("db") else { continue };
            compare(&world, &database, seed);
            change(&database, &mut random, 20);
            compare(&world, &database, seed);
        }
    }
}

#[test]
fn a_crash_in_a_long_build_does_not_cost_all_of_it() {
    let faulty = Arc::new(FaultyEngine::new());
    let world = World::over(faulty.clone());
    let database = world.create(Layout::Whole);
    let updates =
        (0..400).map(|number| update(&format!(r#"{{"_id":"{number}","n":{number}}}"#), EditMode::Interactive));
    database.update(Work::Documents(updates.collect())).unwrap();
    faulty.sync().unwrap();
    assert_eq!(world.search(&database, &design("f"), Query::All).unwrap().total_hits, 400);
    let images: Vec<_> = faulty.crash_images().collect();
    let middle = images.into_iter().rev().nth(2).unwrap();
    let world = World::over(Arc::new(middle));
    let database = world.catalog.database("db").unwrap();
    assert_eq!(world.search(&database, &design("f"), Query::All).unwrap().total_hits, 400);
    assert!(world.mapped() < 400, "{}", world.mapped());
    compare(&world, &database, 0);
}
