//! Subscribers are notified of every commit after it can be read, and not after the end of the subscription.

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use settee_model::json::Json;

use super::{Store, create, edit, engine, ids, new, open, save, write};
use crate::{Database, DatabaseError, Event, Subscription, Work};

const TIMEOUT: Duration = Duration::from_secs(60);

type Events = Arc<Mutex<Vec<Event>>>;

fn listen(database: &Arc<Database>) -> (Subscription, Events) {
    let notified = Events::default();
    let notes = Arc::clone(&notified);
    (database.subscribe(move |event| notes.lock().unwrap().push(event)), notified)
}

fn take(notified: &Events) -> Vec<Event> {
    std::mem::take(&mut notified.lock().unwrap())
}

#[test]
fn events_follow_commits_and_end_with_the_subscription() {
    let database = super::database();
    let (first, heard_first) = listen(&database);
    let rev = save(&database, new("a", "{}"));
    assert_eq!(take(&heard_first), [Event::Committed(1)]);
    let (second, heard_second) = listen(&database);
    write(&database, vec![edit("a", Some(&rev), false, "{\"n\":1}"), new("b", "{}")]);
    assert_eq!(take(&heard_first), [Event::Committed(3)]);
    assert_eq!(take(&heard_second), [Event::Committed(3)]);
    drop(first);
    save(&database, new("c", "{}"));
    assert_eq!(take(&heard_first), []);
    assert_eq!(take(&heard_second), [Event::Committed(4)]);
    drop(second);
    save(&database, new("d", "{}"));
    assert_eq!(take(&heard_second), []);
}

#[test]
fn commits_without_document_changes_are_not_notified() {
    let database = super::database();
    let rev = save(&database, new("a", "{}"));
    let (_subscription, notified) = listen(&database);
    write(&database, vec![edit("_local/x", None, false, "{}")]);
    write(&database, vec![new("a", "{\"n\":1}")]);
    write(&database, Vec::new());
    database.update(Work::SetRevsLimit(7)).unwrap();
    database.update(Work::Attach { key: b"x".to_vec(), value: None }).unwrap();
    assert_eq!(take(&notified), []);
    save(&database, edit("a", Some(&rev), true, "{}"));
    assert_eq!(take(&notified), [Event::Committed(2)]);
}

#[test]
fn notified_changes_can_be_read() {
    let database = super::database();
    // The listener must not call the database, but it may read from the engine.
    let (engine, shard) = (Arc::clone(database.engine()), database.shard());
    let read = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&read);
    let _subscription = database.subscribe(move |event| {
        let (_, meta) = crate::meta::Meta::read_with_state(engine.snapshot(shard).unwrap().as_ref()).unwrap();
        notes.lock().unwrap().push((event, meta.update_seq));
    });
    for id in ["a", "b", "c"] {
        save(&database, new(id, "{}"));
    }
    assert_eq!(*read.lock().unwrap(), [1, 2, 3].map(|seq| (Event::Committed(seq), seq)));
}

#[test]
fn subscribers_are_notified_of_the_deletion() {
    let catalog = open(&engine());
    let database = create(&catalog, "db");
    let other = create(&catalog, "other");
    let (_one, notified) = listen(&database);
    let (_two, heard_other) = listen(&other);
    catalog.delete("db").unwrap();
    assert_eq!(take(&notified), [Event::Deleted]);
    assert!(matches!(database.update(Work::Documents(vec![new("a", "{}")])), Err(DatabaseError::NotFound)));
    save(&create(&catalog, "db"), new("a", "{}"));
    assert_eq!(take(&notified), [], "the new database is another one");
    assert_eq!(take(&heard_other), []);
}

#[test]
fn commits_of_another_process_are_notified() {
    let [ours, theirs] = Store::new().two().each_ref().map(open);
    let written = create(&theirs, "db");
    let read = ours.database("db").unwrap();
    let (sender, events) = mpsc::channel();
    let _subscription = read.subscribe(move |event| sender.send(event).unwrap());
    let next = || events.recv_timeout(TIMEOUT).unwrap();
    save(&written, new("a", "{}"));
    assert_eq!(next(), Event::Committed(1));
    assert_eq!(ids(&read.read().unwrap()), ["a"]);
    // Commits that change no document are observed with the next notification.
    let security = Json::parse(br#"{"admins":{}}"#).unwrap();
    written.update(Work::SetSecurity(security.clone())).unwrap();
    save(&written, new("_design/d", "{}"));
    assert_eq!(next(), Event::Committed(2));
    assert_eq!(read.security().unwrap().unwrap().as_bytes(), security.as_bytes());
    assert_eq!(read.design_seq(), 2);
    save(&read, new("b", "{}"));
    assert_eq!(next(), Event::Committed(3), "its own commits are notified without a catch-up");
    save(&written, new("c", "{}"));
    assert_eq!(next(), Event::Committed(4));
    theirs.delete("db").unwrap();
    assert_eq!(next(), Event::Deleted);
    assert!(matches!(ours.database("db"), Err(DatabaseError::NotFound)));
    save(&create(&theirs, "db"), new("again", "{}"));
    assert_eq!(ids(&ours.database("db").unwrap().read().unwrap()), ["again"], "another database of that name");
}
