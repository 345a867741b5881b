//! Events of databases are collected once a watcher exists, and stored in `_global_changes`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::{create, engine, ids, new, open, save};
use crate::{Catalog, DatabaseEventKind, Direction, GLOBAL_CHANGES};

fn watch(catalog: &Catalog) -> Arc<AtomicUsize> {
    let wakes = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&wakes);
    catalog.context().subscribe(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    wakes
}

fn kept(catalog: &Catalog) -> Vec<String> {
    let view = catalog.database(GLOBAL_CHANGES).unwrap().read().unwrap();
    let mut changes = view.changes(0, Direction::Forward).unwrap();
    let mut kept = Vec::new();
    while let Some(change) = changes.next().unwrap() {
        let (happened, name) = DatabaseEventKind::parse(change.id).unwrap();
        kept.push(format!("{} {name}", happened.name()));
    }
    kept
}

#[test]
fn many_updates_are_one_event_and_wake_once() {
    let catalog = open(&engine());
    let early = create(&catalog, "early");
    save(&early, new("1", "{}"));
    assert_eq!(catalog.context().take_events(), [], "no watcher is registered yet");
    let wakes = watch(&catalog);
    let other = create(&catalog, "a");
    for id in ["1", "2", "3"] {
        save(&other, new(id, "{}"));
        save(&early, new(&format!("x{id}"), "{}"));
    }
    catalog.delete("a").unwrap();
    save(&create(&catalog, "a"), new("again", "{}"));
    let events = catalog.context().take_events();
    let wanted = [
        ("a", DatabaseEventKind::Created),
        ("_dbs", DatabaseEventKind::Updated),
        ("a", DatabaseEventKind::Updated),
        ("early", DatabaseEventKind::Updated),
        ("a", DatabaseEventKind::Deleted),
        ("a", DatabaseEventKind::Created),
        ("a", DatabaseEventKind::Updated),
    ];
    assert_eq!(events, wanted.map(|(name, happened)| (name.to_owned(), happened)));
    assert_eq!(wakes.load(Ordering::Relaxed), 1);
    assert_eq!(catalog.context().take_events(), []);
    save(&early, new("y", "{}"));
    assert_eq!(wakes.load(Ordering::Relaxed), 2);
}

#[test]
fn events_are_kept_where_the_last_of_their_kind_happened() {
    let catalog = open(&engine());
    watch(&catalog);
    let events =
        [("a", DatabaseEventKind::Created), ("a", DatabaseEventKind::Updated), ("b:c", DatabaseEventKind::Deleted)];
    let events = |range: std::ops::Range<usize>| {
        events[range].iter().map(|(name, happened)| ((*name).to_owned(), *happened)).collect::<Vec<_>>()
    };
    // Without the database they are lost, as in CouchDB.
    catalog.keep_events(&events(0..3)).unwrap();
    let database = create(&catalog, GLOBAL_CHANGES);
    catalog.keep_events(&events(0..3)).unwrap();
    assert_eq!(kept(&catalog), ["created a", "updated a", "deleted b:c"]);
    catalog.keep_events(&[events(1..3), events(0..2)].concat()).unwrap();
    assert_eq!(kept(&catalog), ["deleted b:c", "created a", "updated a"]);
    assert_eq!(ids(&database.read().unwrap()), ["created:a", "deleted:b:c", "updated:a"]);
    let list = [("_dbs".to_owned(), DatabaseEventKind::Updated)];
    assert_eq!(catalog.context().take_events(), list, "the database of events makes no others");
    for _ in 0..20 {
        catalog.keep_events(&events(1..2)).unwrap();
    }
    let record = database.read().unwrap().record("updated:a").unwrap().unwrap();
    assert!(record.tree.nodes().len() <= 5, "the past of an event is soon forgotten");
}
