//! Creation, deletion and recreation of databases; names follow CouchDB's rules.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;

use settee_storage::faulty::{FaultyEngine, WriteFault};
use settee_storage::{Direction, Engine, Expect, KeyRange, Keyspace, Shard, StorageError};

use super::{audit, create, engine, ids, new, open, save, write};
use crate::{Catalog, DatabaseError, DatabaseOptions, OWNED_SHARDS, Submitted, Work, validate_name};

const OPTIONS: DatabaseOptions = DatabaseOptions { created_ms: 1, instance: 2, layout: crate::Layout::Whole, q: 1 };

fn entries_of(engine: &dyn Engine, shard: Shard) -> usize {
    let snapshot = engine.snapshot(shard).unwrap();
    if matches!(snapshot.state(), Err(StorageError::Dropped)) {
        return 0;
    }
    let count = |space| {
        let mut cursor = snapshot.scan(space, KeyRange::default(), Direction::Forward, Expect::Few).unwrap();
        std::iter::from_fn(|| cursor.next().unwrap().map(|_| ())).count()
    };
    Keyspace::ALL.into_iter().map(count).sum()
}

/// Attaches a record that makes a new shard with an entry part of the database, as an index does.
fn attach_shard(catalog: &Catalog, database: &Arc<crate::Database>) -> Shard {
    let shard = catalog.allocate_shard(crate::CATALOG).unwrap();
    let mut batch = settee_storage::Batch::new();
    batch.put(Keyspace::IndexNodes, b"node", b"1");
    let token = settee_storage::CommitToken(1);
    let version = settee_storage::Version(0);
    let durability = settee_storage::Durability::Synced;
    let outcome = catalog.engine().commit(shard, version, token, batch, durability).unwrap();
    assert!(matches!(outcome, settee_storage::Outcome::Committed(_)));
    let mut value = shard.0.to_be_bytes().to_vec();
    value.extend_from_slice(b"and the record of the index");
    let key = [OWNED_SHARDS, &shard.0.to_be_bytes()].concat();
    database.update(Work::Attach { key, value: Some(value) }).unwrap();
    shard
}

#[test]
fn names() {
    let legal = [
        "a",
        "db",
        "db1",
        "a_$()+-/b",
        "db/sub/sub2",
        "db+x",
        "db$1",
        "a/",
        "a//b",
        "_users",
        "_replicator",
        "_global_changes",
        "team/_users",
        "a/b/_replicator",
    ];
    for name in legal {
        validate_name(name).unwrap();
    }
    let illegal = [
        "",
        "ABC",
        "aBc",
        "1db",
        "db x",
        "db.x",
        "dbé",
        "_db",
        "/db",
        "db*",
        "-db",
        "_users/x",
        "_",
        "Team/_users",
        "_x/_users",
        "/_users",
        "a\0",
        "a%2fb",
        "_Users",
    ];
    for name in illegal {
        let error = validate_name(name).unwrap_err();
        let rule = "Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are \
                    allowed. Must begin with a letter.";
        assert_eq!(error.to_string(), format!("Name: '{name}'. {rule}"));
        let catalog = open(&engine());
        assert!(matches!(catalog.create(name, OPTIONS), Err(DatabaseError::IllegalName(_))));
    }
    validate_name(&"a".repeat(238)).unwrap();
    for long in [239, 4001] {
        let name = "a".repeat(long);
        let error = open(&engine()).create(&name, OPTIONS).unwrap_err();
        assert_eq!(error.to_string(), format!("At least one path segment of `{name}` is too long."));
    }
    validate_name(&["a".repeat(238), "b".repeat(238), "c".repeat(238)].join("/")).unwrap();
    validate_name(&vec!["a".repeat(238); 20].join("/")).unwrap_err();
    let both_wrong = validate_name(&"A".repeat(300)).unwrap_err();
    assert!(matches!(both_wrong, DatabaseError::IllegalName(_)));
}

#[test]
fn the_number_of_shards_that_was_asked_for_is_remembered() {
    let engine = engine();
    let q_of = |catalog: &Catalog, name: &str| catalog.database(name).unwrap().q();
    let catalog = open(&engine);
    for (name, q) in [("one", 1), ("eight", 8), ("many", u32::MAX)] {
        catalog.create(name, DatabaseOptions { q, ..OPTIONS }).unwrap();
        assert_eq!((q_of(&catalog, name), q_of(&open(&engine), name)), (q, q));
    }
}

#[test]
fn many_databases() {
    let engine = engine();
    let catalog = open(&engine);
    let mut names: Vec<String> = (0..300).map(|number| format!("db{number}/x")).collect();
    for name in &names {
        save(&create(&catalog, name), new("only", &format!("{{\"of\":\"{name}\"}}")));
    }
    names.sort();
    assert_eq!(catalog.names().unwrap(), names);
    let catalog = open(&engine);
    assert_eq!(catalog.names().unwrap(), names);
    let mut shards: Vec<Shard> = names.iter().map(|name| catalog.database(name).unwrap().shard()).collect();
    shards.sort();
    shards.dedup();
    assert_eq!(shards.len(), names.len(), "each has its own shard");
    for name in &names {
        let database = catalog.database(name).unwrap();
        assert_eq!((database.name(), database.created_ms(), database.instance()), (name.as_str(), 1, 2));
        let view = database.read().unwrap();
        let head = view.head("only").unwrap().unwrap();
        assert_eq!(super::body(&view, head.stored).unwrap(), format!("{{\"of\":\"{name}\"}}"));
    }
}

#[test]
fn a_database_exists_once() {
    let catalog = open(&engine());
    assert!(matches!(catalog.database("db"), Err(DatabaseError::NotFound)));
    assert!(matches!(catalog.delete("db"), Err(DatabaseError::NotFound)));
    create(&catalog, "db");
    assert!(matches!(catalog.create("db", OPTIONS), Err(DatabaseError::Exists)));
    catalog.delete("db").unwrap();
    assert!(matches!(catalog.delete("db"), Err(DatabaseError::NotFound)));
    assert_eq!(catalog.names().unwrap(), Vec::<String>::new());
}

#[test]
fn a_database_made_again_is_empty_and_elsewhere() {
    let engine = engine();
    let catalog = open(&engine);
    let old = create(&catalog, "db");
    save(&old, new("a", "{}"));
    let kept = old.read().unwrap();
    assert_eq!(kept.update_seq().unwrap(), 1, "a snapshot starts with its first read");
    catalog.delete("db").unwrap();
    assert_eq!(entries_of(engine.as_ref(), old.shard()), 0);
    let database = create(&catalog, "db");
    assert_ne!(database.shard(), old.shard());
    let view = database.read().unwrap();
    assert_eq!((view.counts().unwrap(), view.update_seq().unwrap()), ((0, 0), 0));
    assert_eq!(ids(&view), Vec::<String>::new());
    // Users of the old database get an error, but keep their snapshots.
    assert!(matches!(old.read(), Err(DatabaseError::NotFound)));
    assert!(matches!(old.info(), Err(DatabaseError::NotFound)));
    assert!(matches!(old.update(Work::Documents(vec![new("b", "{}")])), Err(DatabaseError::NotFound)));
    assert_eq!(ids(&kept), ["a"]);
    assert_eq!(entries_of(engine.as_ref(), old.shard()), 0, "nothing is written to a deleted database");
}

#[test]
fn owned_shards_go_with_their_database() {
    let engine = engine();
    let catalog = open(&engine);
    let database = create(&catalog, "db");
    let other = create(&catalog, "other");
    let owned: Vec<Shard> = (0..3).map(|_| attach_shard(&catalog, &database)).collect();
    let not_owned = attach_shard(&catalog, &other);
    let plain = Work::Attach { key: b"other/x".to_vec(), value: Some(not_owned.0.to_be_bytes().to_vec()) };
    database.update(plain).unwrap();
    catalog.delete("db").unwrap();
    for shard in owned {
        assert_eq!(entries_of(engine.as_ref(), shard), 0);
    }
    assert_eq!(entries_of(engine.as_ref(), not_owned), 1);
}

#[test]
fn interrupted_deletions_are_finished() {
    // Writes of a deletion: the entry, and for each shard its removal and its mark. Each of them can be the last.
    for writes in 1..=5 {
        let engine = Arc::new(FaultyEngine::new());
        let catalog = open(&(Arc::clone(&engine) as Arc<dyn Engine>));
        let database = create(&catalog, "db");
        save(&database, new("a", "{}"));
        let owned = attach_shard(&catalog, &database);
        engine.inject_write(writes, WriteFault::Fail(StorageError::Io("the power went".to_owned())));
        let error = catalog.delete("db").unwrap_err();
        assert!(matches!(error, DatabaseError::Storage(_)), "{error}");
        if writes == 1 {
            let database = catalog.database("db").unwrap();
            save(&database, new("b", "{}"));
            assert_eq!(ids(&database.read().unwrap()), ["a", "b"]);
        } else {
            assert!(matches!(catalog.database("db"), Err(DatabaseError::NotFound)));
        }
        for image in engine.crash_images() {
            let image: Arc<dyn Engine> = Arc::new(image);
            let catalog = open(&image);
            if writes == 1 {
                catalog.delete("db").unwrap();
            }
            assert!(matches!(catalog.database("db"), Err(DatabaseError::NotFound)));
            for shard in [database.shard(), owned] {
                assert_eq!(entries_of(image.as_ref(), shard), 0, "after {writes} writes");
            }
            assert_eq!(entries_of(image.as_ref(), Shard(0)), 1, "nothing but the next shard number is left");
            assert!(create(&catalog, "db").shard() > owned);
        }
    }
}

#[test]
fn deleting_beside_writers_and_readers() {
    let catalog = open(&engine());
    for _ in 0..20 {
        let database = create(&catalog, "db");
        let begun = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 0..4 {
                let (database, begun) = (&database, &begun);
                scope.spawn(move || {
                    for number in 0.. {
                        match database.update(Work::Documents(vec![new(&format!("{thread}/{number}"), "{}")])) {
                            Ok(_) => begun.store(true, Ordering::Release),
                            Err(error) => {
                                assert!(matches!(error, DatabaseError::NotFound), "{error}");
                                break;
                            }
                        }
                    }
                });
            }
            scope.spawn(|| {
                loop {
                    match database.read() {
                        Ok(view) if matches!(view.update_seq(), Err(DatabaseError::NotFound)) => break,
                        Ok(view) => audit(&view),
                        Err(error) => {
                            assert!(matches!(error, DatabaseError::NotFound), "{error}");
                            break;
                        }
                    }
                }
            });
            while !begun.load(Ordering::Acquire) {
                thread::yield_now();
            }
            catalog.delete("db").unwrap();
        });
        assert_eq!(entries_of(catalog.engine().as_ref(), database.shard()), 0);
    }
}

/// Each write starts with the completion of the previous one, so the leader always has work.
fn write_on(database: &Arc<crate::Database>, left: usize, ended: mpsc::Sender<crate::Result<()>>) -> Submitted {
    let again = Arc::clone(database);
    let work = Work::Documents(vec![new(&format!("{left}"), "{}")]);
    database.submit(
        work,
        Box::new(move |result| match result {
            Ok(_) if left == 0 => ended.send(Ok(())).unwrap(),
            Ok(_) => assert_eq!(write_on(&again, left - 1, ended), Submitted::Queued),
            Err(error) => ended.send(Err(error)).unwrap(),
        }),
    )
}

#[test]
fn a_busy_queue_does_not_hold_up_the_deletion() {
    let catalog = open(&engine());
    let database = create(&catalog, "db");
    let (sender, ended) = mpsc::channel();
    assert_eq!(write_on(&database, 20_000, sender), Submitted::Leader);
    thread::scope(|scope| {
        scope.spawn(|| database.run_as_leader());
        while database.read().unwrap().update_seq().unwrap() < 10 {
            thread::yield_now();
        }
        catalog.delete("db").unwrap();
    });
    assert!(matches!(ended.recv().unwrap(), Err(DatabaseError::NotFound)), "the writer was stopped");
}

#[test]
fn creating_and_deleting_at_the_same_time() {
    let catalog = open(&engine());
    let created: Vec<usize> = thread::scope(|scope| {
        let work = || {
            let mut created = 0;
            for _ in 0..50 {
                match catalog.create("db", OPTIONS) {
                    Ok(database) => {
                        created += 1;
                        let written = database.update(Work::Documents(vec![new("a", "{}")]));
                        assert!(matches!(written, Ok(_) | Err(DatabaseError::NotFound)));
                    }
                    Err(error) => assert!(matches!(error, DatabaseError::Exists), "{error}"),
                }
                if let Err(error) = catalog.delete("db") {
                    assert!(matches!(error, DatabaseError::NotFound), "{error}");
                }
            }
            created
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(created.iter().sum::<usize>() > 0);
    assert_eq!(catalog.names().unwrap(), Vec::<String>::new());
    assert_eq!(entries_of(catalog.engine().as_ref(), Shard(0)), 1, "nothing but the next shard number is left");
}

#[test]
fn settings_are_kept() {
    let engine = engine();
    let database = create(&open(&engine), "db");
    assert_eq!(database.revs_limit().unwrap(), 1000);
    assert_eq!(database.security().unwrap(), None);
    let security = settee_model::json::Json::parse(b"{\"admins\":{}}").unwrap();
    database.update(Work::SetSecurity(security.clone())).unwrap();
    database.update(Work::SetRevsLimit(3)).unwrap();
    write(&database, Vec::new());
    for database in [database, open(&engine).database("db").unwrap()] {
        assert_eq!(database.revs_limit().unwrap(), 3);
        assert_eq!(database.security().unwrap(), Some(security.clone()));
        assert_eq!(database.read().unwrap().security().unwrap(), Some(security.clone()));
        assert_eq!(database.read().unwrap().update_seq().unwrap(), 0);
    }
}

#[test]
fn attached_records() {
    let database = super::database();
    let attach = |key: &[u8], value: Option<&[u8]>| {
        database.update(Work::Attach { key: key.to_vec(), value: value.map(<[u8]>::to_vec) }).unwrap();
    };
    for key in ["a/1", "a/2", "b/1"] {
        attach(key.as_bytes(), Some(key.as_bytes()));
    }
    attach(b"a/2", Some(b"new"));
    attach(b"b/1", None);
    let view = database.read().unwrap();
    assert_eq!(view.attached(b"a/1").unwrap().as_deref(), Some(&b"a/1"[..]));
    assert_eq!(view.attached(b"b/1").unwrap(), None);
    let found = view.attached_with_prefix(b"a/").unwrap();
    assert_eq!(found, [(b"a/1".to_vec(), b"a/1".to_vec()), (b"a/2".to_vec(), b"new".to_vec())]);
}

#[test]
fn unused_databases_beyond_the_limit_are_closed_least_recently_used_first() {
    let catalog = open(&engine());
    catalog.set_max_open(8);
    let name = |number: usize| format!("d{number:02}");
    let held: Vec<_> = (0..3).map(|number| create(&catalog, &name(number))).collect();
    for number in 3..40 {
        save(&create(&catalog, &name(number)), new("a", "{}"));
        // A database that is requested continuously is never the least recently used.
        catalog.database(&name(5)).ok();
        let open = catalog.open_databases();
        assert!(open.len() <= 9, "{} are open", open.len());
        for kept in held.iter().map(|database| database.name().to_owned()).chain((number >= 5).then(|| name(5))) {
            assert!(open.iter().any(|database| database.name() == kept), "{kept} was closed");
        }
    }
    for number in 3..40 {
        let database = catalog.database(&name(number)).unwrap();
        assert_eq!(database.info().unwrap().doc_count, 1, "{number}");
        audit(&database.read().unwrap());
    }
    assert!(held.iter().all(|database| Arc::ptr_eq(database, &catalog.database(database.name()).unwrap())));
    catalog.set_max_open(1);
    assert_eq!(catalog.open_databases().len(), held.len());
    catalog.delete(&name(20)).unwrap();
    assert!(matches!(catalog.database(&name(20)), Err(DatabaseError::NotFound)));
}

#[test]
fn databases_are_opened_closed_written_and_deleted_at_the_same_time() {
    let catalog = open(&engine());
    catalog.set_max_open(2);
    let name = |number: usize| format!("d{number}");
    (0..6).for_each(|number| drop(create(&catalog, &name(number))));
    let notified = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let watched = catalog.database("d0").unwrap();
    let counter = Arc::clone(&notified);
    let _subscription = watched.subscribe(move |_| {
        counter.fetch_add(1, Ordering::Relaxed);
    });
    thread::scope(|scope| {
        for writer in 0..4 {
            let catalog = &catalog;
            scope.spawn(move || {
                for round in 0..50 {
                    let database = catalog.database(&name(round % 5)).unwrap();
                    save(&database, new(&format!("{writer}-{round}"), "{}"));
                    if writer == 0 {
                        catalog.delete("d5").unwrap();
                        drop(create(catalog, "d5"));
                    } else if let Ok(database) = catalog.database("d5") {
                        assert!(database.info().is_ok_and(|info| info.doc_count == 0) || database.is_closed());
                    }
                }
            });
        }
    });
    let count = |number| catalog.database(&name(number)).unwrap().info().unwrap().doc_count;
    assert_eq!((0..5).map(count).collect::<Vec<_>>(), [40; 5]);
    assert!(notified.load(Ordering::Relaxed) > 0, "a subscription keeps its database open");
}
