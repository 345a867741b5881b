//! Every state after a crash can be opened, contains all acknowledged writes, and no partial ones.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::thread;

use settee_model::Rev;
use settee_storage::faulty::{FaultyEngine, SyncFault};
use settee_storage::memory::MemoryEngine;
use settee_storage::{Engine, StorageError};

use super::{Random, audit, body, create, edit, new, open, replicated, save, saved};
use crate::tasks::Tasks;
use crate::{Catalog, Database, DatabaseOptions, DocUpdate, Purge, Result, UpdateOutcome, Work};

/// Last acknowledged revision of each document of each database.
#[derive(Clone, Debug, Default)]
struct Acknowledged {
    /// Absent databases were never created, or their deletion was acknowledged.
    databases: BTreeMap<&'static str, BTreeMap<String, (Rev, String)>>,
}

struct Sent {
    updates: Vec<DocUpdate>,
    bodies: Vec<String>,
}

impl Acknowledged {
    fn note(&mut self, name: &'static str, sent: &Sent, outcomes: Vec<UpdateOutcome>) {
        let documents = self.databases.get_mut(name).unwrap();
        for ((update, text), outcome) in sent.updates.iter().zip(&sent.bodies).zip(outcomes) {
            if let Some(rev) = saved(outcome) {
                documents.insert(update.id().to_owned(), (rev, text.clone()));
            }
        }
    }

    fn missing(&self, catalog: &Catalog) -> Vec<String> {
        let mut missing = Vec::new();
        for (name, documents) in &self.databases {
            let Ok(database) = catalog.database(name) else {
                missing.push((*name).to_owned());
                continue;
            };
            let view = database.read().unwrap();
            for (id, (rev, text)) in documents {
                let record = view.record(id).unwrap();
                let found = record.as_ref().and_then(|record| record.tree.node(record.tree.find(rev)?).value);
                if found.and_then(|stored| body(&view, stored)).as_ref() != Some(text) {
                    missing.push(format!("{name}/{id} {rev}"));
                }
            }
        }
        missing
    }
}

fn check_image(image: MemoryEngine, acknowledged: &Acknowledged, gone: &[&str]) {
    let engine: Arc<dyn Engine> = Arc::new(image);
    let catalog = open(&engine);
    assert_eq!(acknowledged.missing(&catalog), Vec::<String>::new());
    for name in catalog.names().unwrap() {
        assert!(!gone.contains(&name.as_str()), "{name} was deleted");
        let database = catalog.database(&name).unwrap();
        audit(&database.read().unwrap());
        let updates = (0..30).map(|number| new(&format!("after{number}"), "{}")).collect();
        super::write(&database, updates);
        save(&database, new("at last", "{}"));
        audit(&database.read().unwrap());
    }
    assert_eq!(acknowledged.missing(&catalog), Vec::<String>::new());
}

fn random_updates(random: &mut Random, database: &Arc<Database>) -> Sent {
    let mut sent = Sent { updates: Vec::new(), bodies: Vec::new() };
    for _ in 0..1 + random.below(12) {
        let id = format!("{:02}", random.below(60));
        let head = database.read().unwrap().head(&id).unwrap();
        let text = random.body(150);
        let deleted = random.one_in(5);
        let update = match head {
            Some(head) if !head.stored.deleted && random.one_in(4) => {
                let generation = head.rev.generation + 1;
                let conflict = super::rev(&format!("{generation}-{:x}", random.next()));
                replicated(&id, &[conflict, head.rev], deleted, &text)
            }
            Some(head) if !head.stored.deleted => edit(&id, Some(&head.rev), deleted, &text),
            Some(_) | None => new(&id, &text),
        };
        sent.updates.push(update);
        sent.bodies.push(text);
    }
    sent
}

fn work(random: &mut Random, engine: &Arc<dyn Engine>, steps: usize, recorded: &mut Acknowledged) -> Result<()> {
    let catalog = Catalog::open(Arc::clone(engine), random.next())?;
    for step in 0..steps {
        let name = random.pick(&["a", "b"]);
        let options = DatabaseOptions { created_ms: 1, instance: random.next(), layout: crate::Layout::Whole, q: 1 };
        if !recorded.databases.contains_key(name) {
            catalog.create(name, options)?;
            recorded.databases.insert(name, BTreeMap::new());
        } else if random.one_in(20) {
            // The database may exist or not from this point.
            recorded.databases.remove(name);
            catalog.delete(name)?;
        }
        let Some(database) = recorded.databases.contains_key(name).then(|| catalog.database(name)).transpose()? else {
            continue;
        };
        if step % 10 == 5 {
            let limit = random.pick(&[2, 3, 1000]);
            database.update(Work::SetRevsLimit(limit))?;
        }
        if step % 10 == 7 {
            database.update(Work::SetPurgedInfosLimit(2))?;
            database.compact(&Tasks::new(|| 0), &mut || ControlFlow::Continue(()))?;
        }
        if random.one_in(4)
            && let Some((id, (rev, _))) = recorded.databases.get_mut(name).and_then(BTreeMap::pop_first)
        {
            database.update(Work::Purge(vec![Purge { id, revs: vec![rev] }]))?;
        }
        let sent = random_updates(random, &database);
        let outcomes = database.update(Work::Documents(sent.updates.clone()))?;
        recorded.note(name, &sent, outcomes);
    }
    Ok(())
}

#[test]
fn every_sync_can_be_the_last() {
    let mut random = Random::new();
    for last in 1..=60 {
        let faulty = Arc::new(FaultyEngine::new());
        faulty.inject_sync(last, SyncFault::Fail(StorageError::Io("the power went".to_owned())));
        let engine: Arc<dyn Engine> = Arc::clone(&faulty) as Arc<dyn Engine>;
        let mut recorded = Acknowledged::default();
        work(&mut random, &engine, 100, &mut recorded).unwrap_err();
        let images: Vec<_> = faulty.crash_images().collect();
        // The last commit may have survived, and so may the removal of a record before it, which is not synced.
        assert!((2..=3).contains(&images.len()), "{} images", images.len());
        for image in images {
            check_image(image, &recorded, &[]);
        }
    }
}

#[test]
fn a_group_survives_as_a_whole_or_not_at_all() {
    let faulty = Arc::new(FaultyEngine::new());
    let engine: Arc<dyn Engine> = Arc::clone(&faulty) as Arc<dyn Engine>;
    let database = create(&open(&engine), "db");
    save(&database, new("before", "{}"));
    faulty.inject_sync(1, SyncFault::Fail(StorageError::Io("the power went".to_owned())));
    let updates = (0..50).map(|number| new(&format!("{number}"), "{}")).collect();
    database.update(Work::Documents(updates)).unwrap_err();
    database.update(Work::Documents(vec![new("after", "{}")])).unwrap_err();
    assert_eq!(database.read().unwrap().counts().unwrap(), (1, 0));
    audit(&database.read().unwrap());
    let counts: Vec<u64> = faulty
        .crash_images()
        .map(|image| {
            let image: Arc<dyn Engine> = Arc::new(image);
            let view = open(&image).database("db").unwrap().read().unwrap();
            audit(&view);
            view.counts().unwrap().0
        })
        .collect();
    assert_eq!(counts, [1, 51]);
}

#[test]
fn crashes_at_any_moment_of_many_writers() {
    let faulty = Arc::new(FaultyEngine::new());
    let engine: Arc<dyn Engine> = Arc::clone(&faulty) as Arc<dyn Engine>;
    let catalog = open(&engine);
    let database = create(&catalog, "a");
    let recorded = Mutex::new(Acknowledged::default());
    recorded.lock().unwrap().databases.insert("a", BTreeMap::new());
    thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|writer| {
                let (database, recorded) = (&database, &recorded);
                scope.spawn(move || {
                    for number in 0..25 {
                        let text = format!("{{\"by\":{writer}}}");
                        let updates = vec![new(&format!("{number}/{writer}"), &text), new("hot", &text)];
                        let sent = Sent { updates, bodies: vec![text.clone(), text] };
                        let outcomes = database.update(Work::Documents(sent.updates.clone())).unwrap();
                        recorded.lock().unwrap().note("a", &sent, outcomes);
                    }
                })
            })
            .collect();
        loop {
            let over = writers.iter().all(thread::ScopedJoinHandle::is_finished);
            // Recorded before the crash, so it must survive.
            let acknowledged = recorded.lock().unwrap().clone();
            for image in faulty.crash_images() {
                check_image(image, &acknowledged, &[]);
            }
            if over {
                break;
            }
        }
    });
    assert_eq!(recorded.lock().unwrap().databases["a"].len(), 8 * 25 + 1);
}

#[test]
fn a_deletion_that_was_acknowledged_survives() {
    let faulty = Arc::new(FaultyEngine::new());
    let engine: Arc<dyn Engine> = Arc::clone(&faulty) as Arc<dyn Engine>;
    let catalog = open(&engine);
    save(&create(&catalog, "a"), new("x", "{}"));
    save(&create(&catalog, "b"), new("x", "{}"));
    catalog.delete("a").unwrap();
    for image in faulty.crash_images() {
        check_image(image, &Acknowledged::default(), &["a"]);
    }
}

#[test]
fn the_check_notices_a_disk_that_lies() {
    let faulty = Arc::new(FaultyEngine::new());
    let engine: Arc<dyn Engine> = Arc::clone(&faulty) as Arc<dyn Engine>;
    let database = create(&open(&engine), "a");
    let mut recorded = Acknowledged::default();
    recorded.databases.insert("a", BTreeMap::new());
    faulty.inject_sync(1, SyncFault::Skip);
    let sent = Sent { updates: vec![new("x", "{}")], bodies: vec!["{}".to_owned()] };
    let outcomes = database.update(Work::Documents(sent.updates.clone())).unwrap();
    recorded.note("a", &sent, outcomes);
    let missing: Vec<usize> = faulty
        .crash_images()
        .map(|image| {
            let image: Arc<dyn Engine> = Arc::new(image);
            recorded.missing(&open(&image)).len()
        })
        .collect();
    assert_eq!(missing, [1, 0]);
}
