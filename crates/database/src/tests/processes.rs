//! Several processes on one store observe each other's commits, and remove no data that another one uses.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use settee_cluster::{Groups, Writers};
use settee_model::json::Json;
use settee_storage::memory::MemoryEngine;
use settee_storage::{Direction, Engine, Expect, KeyRange, Keyspace, Shard, Snapshot};

use super::{Store, audit, create, edit, ids, new, open, save, write};
use crate::tasks::Tasks;
use crate::update::load_writer;
use crate::update::writer::Writer;
use crate::{
    Catalog, Compaction, Compression, Database, DatabaseError, DatabaseEventKind, Event, GLOBAL_CHANGES, Origin,
    ReadView, StorageError, Submitted, UpdateOutcome, Upload, Waiting, Work,
};

const TIMEOUT: Duration = Duration::from_secs(60);

fn processes() -> [Catalog; 2] {
    Store::new().two().each_ref().map(open)
}

/// Returns a database as the next request uses it, after the process has handled all notifications.
fn next(catalog: &Catalog, name: &str) -> Arc<Database> {
    catalog.engine().catch_up().unwrap();
    catalog.database(name).unwrap()
}

#[test]
fn a_database_that_was_made_again_elsewhere_is_another_one() {
    let [ours, theirs] = processes();
    save(&create(&theirs, "db"), new("first", "{}"));
    for round in 0..50 {
        let before = next(&ours, "db");
        theirs.delete("db").unwrap();
        if round % 2 == 0 {
            ours.engine().catch_up().unwrap();
            assert!(matches!(ours.database("db"), Err(DatabaseError::NotFound)));
        }
        let id = format!("{round}");
        save(&create(&theirs, "db"), new(&id, "{}"));
        assert_eq!(ids(&next(&ours, "db").read().unwrap()), [id]);
        assert!(before.is_closed() && before.read().is_err());
    }
    // An unchanged name is read once for all foreign commits to the catalog.
    let database = next(&ours, "db");
    create(&theirs, "other");
    assert!(Arc::ptr_eq(&next(&ours, "db"), &database));
    assert_eq!(ours.names().unwrap(), ["db", "other"]);
}

/// The name is authoritative: a process that deletes a database may fail before it has dropped the shard.
#[test]
fn a_database_that_was_deleted_elsewhere_is_gone_before_its_shard_is() {
    let store = Store::new();
    let [ours, theirs, drops] = [(); 3].map(|()| open(&store.process()));
    let database = create(&theirs, "db");
    save(&database, new("first", "{}"));
    assert_eq!(ids(&next(&ours, "db").read().unwrap()), ["first"]);
    let claim = drops.engine().members().claim(&format!("drop/{}", database.shard().0)).unwrap();
    theirs.delete("db").unwrap();
    assert!(claim.is_some() && ours.engine().snapshot(database.shard()).unwrap().state().is_ok(), "it is still there");
    ours.engine().catch_up().unwrap();
    assert!(matches!(ours.database("db"), Err(DatabaseError::NotFound)));
    save(&create(&theirs, "db"), new("second", "{}"));
    assert_eq!(ids(&next(&ours, "db").read().unwrap()), ["second"]);
}

#[test]
fn a_database_that_was_never_written_takes_no_writes_when_it_was_deleted_elsewhere() {
    let [ours, theirs] = processes();
    create(&theirs, "db");
    let database = next(&ours, "db");
    theirs.delete("db").unwrap();
    let written = database.update(Work::Documents(vec![new("a", "{}")]));
    assert!(matches!(written, Err(DatabaseError::NotFound)), "{written:?}");
}

#[test]
fn cached_state_of_a_database_is_refreshed_at_its_next_use() {
    let [ours, theirs] = processes();
    let written = create(&theirs, "db");
    let kept = next(&ours, "db");
    let make = |view: &ReadView<'_>| Ok::<_, DatabaseError>((view.design_seq()?, 8));
    let made = || *kept.of_designs("the last", Waiting::Allowed, make).unwrap();
    assert_eq!(made(), 0);
    for round in 1..50 {
        let notified = kept.notified_version();
        let security = Json::parse(format!(r#"{{"admins":{{"names":["{round}"]}}}}"#).as_bytes()).unwrap();
        written.update(Work::SetSecurity(security.clone())).unwrap();
        ours.engine().catch_up().unwrap();
        assert!(kept.notified_version() > notified);
        // The refresh does not wait for commits of this process.
        let writing = kept.writer.lock();
        let used = next(&ours, "db");
        assert_eq!(used.security().unwrap().unwrap().as_bytes(), security.as_bytes());
        save(&written, new(&format!("_design/{round}"), "{}"));
        let used = next(&ours, "db");
        assert_eq!((used.design_seq(), made()), (round, round));
        drop(writing);
    }
}

#[test]
fn cached_settings_do_not_undo_those_of_another_process() {
    let [ours, theirs] = processes();
    let (written, kept) = (create(&theirs, "db"), next(&ours, "db"));
    let security = |name: &str| Json::parse(format!(r#"{{"name":"{name}"}}"#).as_bytes()).unwrap();
    kept.update(Work::SetSecurity(security("old"))).unwrap();
    written.update(Work::SetSecurity(security("new"))).unwrap();
    save(&kept, new("a", "{}"));
    for catalog in [&ours, &theirs] {
        let known = next(catalog, "db").security().unwrap().unwrap();
        assert_eq!(known.as_bytes(), security("new").as_bytes());
    }
}

#[test]
fn a_record_is_replaced_only_as_its_author_knows_it() {
    let [ours, theirs] = processes();
    let (here, there) = (create(&ours, "db"), next(&theirs, "db"));
    let record = |value: &str| Some(value.as_bytes().to_vec());
    let replace = |before: Option<&str>, value: Option<&str>| Work::Replace {
        key: b"x".to_vec(),
        before: before.and_then(record),
        value: value.and_then(record),
    };
    let elsewhere = here.attached_elsewhere();
    let saved = Vec::<UpdateOutcome>::new();
    assert_eq!(here.update(replace(None, Some("1"))).unwrap(), saved);
    assert_eq!(here.attached_elsewhere(), elsewhere, "its own commits are not foreign");
    assert_eq!(there.update(replace(None, Some("2"))).unwrap(), [UpdateOutcome::Conflict]);
    assert_eq!(there.update(replace(Some("1"), Some("2"))).unwrap(), saved);
    assert_eq!(here.update(replace(Some("1"), None)).unwrap(), [UpdateOutcome::Conflict]);
    assert_eq!(here.read().unwrap().attached(b"x").unwrap(), record("2"));
    assert!(here.attached_elsewhere() > elsewhere);
    let elsewhere = here.attached_elsewhere();
    save(&there, new("a", "{}"));
    next(&ours, "db");
    assert_eq!(here.attached_elsewhere(), elsewhere, "documents are no records");
    there.update(Work::Attach { key: b"x".to_vec(), value: None }).unwrap();
    next(&ours, "db");
    assert!(here.attached_elsewhere() > elsewhere);
}

#[test]
fn ranks_include_commits_of_another_process() {
    let [ours, theirs] = processes();
    let (written, read) = (create(&theirs, "db"), next(&ours, "db"));
    for round in 0..30 {
        let updates = (0..10).map(|number| new(&format!("{number}/{round:02}"), "{}")).collect();
        write(&written, updates);
        let view = read.read().unwrap();
        audit(&view);
        assert_eq!(view.rank_of_id(b"5/").unwrap(), 5 * (round + 1));
        assert_eq!(view.changes_after(3).unwrap(), 10 * (round + 1) - 3);
        let state = read.engine().snapshot(read.shard()).unwrap().state().unwrap();
        assert_eq!(read.ranks.lock()[0].state, state, "the ranks are not counted again from the first document");
    }
    let rev = save(&read, new("here", "{}"));
    audit(&read.read().unwrap());
    save(&written, edit("here", Some(&rev), true, "{}"));
    audit(&read.read().unwrap());
    audit(&written.read().unwrap());
}

fn check_writer(writer: &Writer, snapshot: &dyn Snapshot) {
    let loaded = load_writer(snapshot).unwrap();
    let seen = |writer: &Writer| {
        let mut ranks = Vec::new();
        writer.ranks.encode(&mut ranks);
        let security = writer.security.as_ref().map(|security| security.as_bytes().to_vec());
        (writer.state, writer.meta, ranks, writer.revs_limit, security, writer.rank_log.clone(), writer.rank_pieces)
    };
    assert_eq!(seen(writer), seen(&loaded));
}

#[test]
fn a_writer_follows_commits_of_other_processes() {
    let [ours, theirs] = processes();
    let databases = [create(&ours, "db"), theirs.database("db").unwrap()];
    for round in 0..80_u64 {
        let (writes, follows) = (&databases[(round % 2) as usize], &databases[(round / 3 % 2) as usize]);
        for number in 0..=round % 3 {
            let id = format!("{}", (round * 7919 + number) % 1000);
            let rev = save(writes, new(&format!("{id}-{round}"), "{}"));
            if number == 1 {
                save(writes, edit(&format!("{id}-{round}"), Some(&rev), round % 4 == 0, "{}"));
            }
        }
        match round % 10 {
            3 => drop(writes.update(Work::SetRevsLimit(round + 1)).unwrap()),
            7 => drop(writes.update(Work::SetSecurity(Json::parse(b"{\"a\":1}").unwrap())).unwrap()),
            _ => {}
        }
        save(follows, new(&format!("follows-{round}"), "{}"));
        let (writer, snapshot) = (follows.writer.lock(), follows.engine().snapshot(follows.shard()).unwrap());
        check_writer(&writer, snapshot.as_ref());
        drop(writer);
        audit(&follows.read().unwrap());
    }
}

#[test]
fn a_writer_does_not_continue_from_lost_commits() {
    let engine = Arc::new(MemoryEngine::new());
    let database = create(&open(&(Arc::clone(&engine) as Arc<dyn Engine>)), "db");
    save(&database, new("both", "{}"));
    // Simulates a server that has lost its last commits, after which another process has continued.
    let other: Arc<dyn Engine> = Arc::new(engine.fork());
    let elsewhere = open(&other).database("db").unwrap();
    save(&database, new("lost", "{}"));
    for id in ["other", "others", "more"] {
        save(&elsewhere, new(id, "{}"));
    }
    let snapshot = other.snapshot(elsewhere.shard()).unwrap();
    let mut writer = database.writer.lock();
    assert_eq!(writer.state.version.0 + 2, snapshot.state().unwrap().version.0);
    writer.follow(snapshot.as_ref(), snapshot.state().unwrap(), Vec::new()).unwrap();
    check_writer(&writer, snapshot.as_ref());
    assert_eq!(writer.meta.doc_count, 4);
}

#[test]
fn events_of_databases_that_others_write_reach_local_waiters() {
    let [ours, theirs] = processes();
    create(&theirs, GLOBAL_CHANGES);
    for catalog in [&ours, &theirs] {
        catalog.context().subscribe(|| {});
    }
    let events = next(&ours, GLOBAL_CHANGES);
    let (sender, notified) = mpsc::channel();
    let _subscription = events.subscribe(move |event| sender.send(event).unwrap());
    save(&create(&theirs, "db"), new("a", "{}"));
    let happened = theirs.context().take_events();
    assert!(happened.contains(&("db".to_owned(), DatabaseEventKind::Updated)));
    theirs.keep_events(&happened).unwrap();
    while notified.recv_timeout(TIMEOUT).unwrap() != Event::Committed(3) {}
    assert_eq!(ids(&events.read().unwrap()), ["created:db", "updated:_dbs", "updated:db"]);
    next(&ours, "db");
    assert_eq!(ours.context().take_events(), [], "what others do they keep themselves");
}

const LONG: &[u8] = &[7; 5_000];

fn stored_uploads(database: &Database) -> usize {
    let snapshot = database.engine().snapshot(database.shard()).unwrap();
    let mut cursor =
        snapshot.scan(Keyspace::Attachments, KeyRange::default(), Direction::Forward, Expect::All).unwrap();
    std::iter::from_fn(|| cursor.next().unwrap().map(|_| ())).count()
}

#[test]
fn uploads_of_a_live_process_go_on_when_another_one_starts() {
    let store = Store::new();
    let uploads = open(&store.process());
    uploads.engine().members().announce("one", "").unwrap();
    let database = create(&uploads, "db");
    let mut upload = Upload::new(&database, Compression::None);
    upload.write(LONG).unwrap();
    let stored = stored_uploads(&database);
    assert!(stored > 0);
    let starts = || open(&store.process());
    let started = starts().database("db").unwrap();
    started.compact(&Tasks::new(|| 0), &mut || ControlFlow::Continue(())).unwrap();
    assert_eq!(stored_uploads(&database), stored);
    upload.write(LONG).unwrap();
    assert!(stored_uploads(&database) > stored);
    uploads.engine().members().leave().unwrap();
    starts().database("db").unwrap();
    assert_eq!(stored_uploads(&database), 0);
    upload.write(LONG).unwrap();
    assert_eq!(stored_uploads(&database), 0, "an upload of a failed process stores no unreferenced data");
    let (living, dead) = (starts(), starts());
    dead.engine().members().announce("dead", "").unwrap();
    let living = next(&living, "db");
    let mut upload = Upload::new(&next(&dead, "db"), Compression::None);
    upload.write(LONG).unwrap();
    let mut own = Upload::new(&living, Compression::None);
    own.write(LONG).unwrap();
    let stored = stored_uploads(&living);
    let compact = || living.compact(&Tasks::new(|| 0), &mut || ControlFlow::Continue(())).unwrap();
    assert_eq!((compact(), stored_uploads(&living)), (Compaction::Done, stored));
    dead.engine().members().leave().unwrap();
    assert_eq!((compact(), stored_uploads(&living)), (Compaction::Done, stored / 2));
}

#[test]
fn one_process_compacts_and_one_drops_a_shard() {
    let [ours, theirs] = processes();
    let (here, there) = (create(&ours, "db"), next(&theirs, "db"));
    let rev = save(&here, new("a", "{}"));
    save(&here, edit("a", Some(&rev), false, r#"{"n":1}"#));
    let tasks = Tasks::new(|| 0);
    let mut meanwhile = Vec::new();
    let mut pause = || {
        meanwhile.push(there.compact(&tasks, &mut || ControlFlow::Continue(())).unwrap());
        ControlFlow::Continue(())
    };
    assert_eq!(here.compact(&tasks, &mut pause).unwrap(), Compaction::Done);
    assert_eq!(meanwhile, [Compaction::Running]);
    assert_eq!(there.compact(&tasks, &mut || ControlFlow::Continue(())).unwrap(), Compaction::Done);
    // Another process does not drop a shard that a live process has started to drop.
    let shard = ours.allocate_shard(crate::CATALOG).unwrap();
    let claim = ours.engine().members().claim(&format!("drop/{}", shard.0)).unwrap().unwrap();
    theirs.drop_shard(shard).unwrap();
    let state = || ours.engine().snapshot(shard).unwrap().state();
    assert!(state().is_ok());
    ours.engine().members().release(&claim).unwrap();
    theirs.drop_shard(shard).unwrap();
    assert!(state().is_err());
}

fn writer_of(writers: &[Arc<Writers>; 2], shard: Shard) -> usize {
    let begun = Instant::now();
    loop {
        match writers.iter().position(|writers| writers.claim(shard).is_ok()) {
            Some(writer) => return writer,
            None => assert!(begun.elapsed() < TIMEOUT, "no process became the writer"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn only_the_writer_commits_writes_of_clients() {
    let catalogs = processes();
    let writers = catalogs.each_ref().map(|catalog| Writers::start(Arc::clone(catalog.engine()), Groups::default()));
    catalogs.iter().zip(&writers).for_each(|(catalog, writers)| catalog.set_writers(Arc::clone(writers)));
    let shard = create(&catalogs[0], "db").shard();
    let client = |place: usize, id: &str| {
        let work = Work::Documents(vec![new(id, "{}")]);
        next(&catalogs[place], "db").update_for(Origin::Client, work).map_err(|error| error.to_string())
    };
    let is_saved =
        |result: &Result<Vec<UpdateOutcome>, String>| matches!(result.as_deref(), Ok([UpdateOutcome::Saved(_)]));
    let deposed = || Err(DatabaseError::Storage(StorageError::Deposed).to_string());
    let first = writer_of(&writers, shard);
    for round in 0..20 {
        assert_eq!(client(1 - first, "refused"), deposed(), "{round}");
        save(&next(&catalogs[round % 2], "db"), new(&format!("server {round}"), "{}"));
        assert!(is_saved(&client(first, &format!("client {round}"))), "{round}");
    }
    writers[first].stop();
    let second = writer_of(&writers, shard);
    assert_eq!(second, 1 - first);
    assert!(is_saved(&client(second, "later")));
    assert_eq!(client(first, "refused"), deposed());
    let found = ids(&next(&catalogs[first], "db").read().unwrap());
    assert_eq!((found.len(), found.contains(&"refused".to_owned())), (41, false));
}

#[test]
fn refused_works_do_not_affect_others_of_their_group() {
    let catalogs = processes();
    let writers = catalogs.each_ref().map(|catalog| Writers::start(Arc::clone(catalog.engine()), Groups::default()));
    catalogs.iter().zip(&writers).for_each(|(catalog, writers)| catalog.set_writers(Arc::clone(writers)));
    let shard = create(&catalogs[0], "db").shard();
    let follower = 1 - writer_of(&writers, shard);
    let database = next(&catalogs[follower], "db");
    let (sender, answers) = mpsc::channel();
    let submit = |id: &str| {
        let (sender, id) = (sender.clone(), id.to_owned());
        let work = Work::Documents(vec![new(&id, "{}")]);
        database.submit(work, Box::new(move |result| sender.send((id, result.is_ok())).unwrap()))
    };
    assert_eq!(submit("client"), Submitted::Leader);
    let server = std::thread::scope(|scope| {
        let updating = Arc::clone(&database);
        let server = scope.spawn(move || updating.update(Work::Documents(vec![new("server", "{}")])).is_ok());
        database.run_as_leader();
        server.join().unwrap()
    });
    assert!(server);
    assert_eq!(answers.recv().unwrap(), ("client".to_owned(), false));
    assert_eq!(ids(&database.read().unwrap()), ["server"]);
}
