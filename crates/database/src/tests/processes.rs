//! Several processes on one store: each observes the commits of the others with the next use of a database, and none
//! removes data in use by another one.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use settee_model::json::Json;
use settee_storage::memory::MemoryEngine;
use settee_storage::{Direction, Engine, Expect, KeyRange, Keyspace, Snapshot};

use super::{Store, audit, create, edit, ids, new, open, save, write};
use crate::database::{CONTENTION, CONTENTION_MAX, REQUESTS_WITHOUT_READ_SET};
use crate::tasks::Tasks;
use crate::update::{Writer, load_writer};
use crate::{
    Catalog, Compaction, Compression, Database, DatabaseError, Event, GLOBAL_CHANGES, Happened, ReadSet, StorageError,
    Submitted, UpdateOutcome, Upload, Work,
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
fn a_conflict_is_remembered_for_a_while() {
    let [ours, theirs] = processes();
    let here = create(&ours, "db");
    let there = next(&theirs, "db");
    save(&here, new("a", "{}"));
    assert!(!here.yields_write() && !there.yields_write());
    let uses_up = |writes: u32| (0..writes).all(|_| there.yields_write()) && !there.yields_write();
    save(&there, new("b", "{}"));
    assert!(uses_up(CONTENTION), "its commit was for a version that was not the last any more");
    save(&there, new("c", "{}"));
    assert!(!there.yields_write());
    // After a conflict the process reads foreign commits and detects the other writer without a further conflict.
    // Each time it doubles the interval until the next test.
    let mut writes = CONTENTION;
    for round in 0..9 {
        save(&here, new(&format!("{round} here"), "{}"));
        save(&there, new(&format!("{round} there"), "{}"));
        writes = (2 * writes).min(CONTENTION_MAX);
        assert!(uses_up(writes), "{round}");
    }
    assert_eq!(writes, CONTENTION_MAX);
}

/// An occasional foreign commit causes a few commits under the shard lock, a continuing writer many.
#[test]
fn shard_locks_are_used_while_others_write() {
    let [ours, theirs] = processes();
    let here = create(&ours, "db");
    let there = next(&theirs, "db");
    let write = |database: &Arc<Database>, number: u32| {
        save(database, new(&format!("{number}"), "{}"));
        database.writer.lock().locked_commits
    };
    assert_eq!([write(&here, 0), write(&here, 1)], [0, 0]);
    // After an occasional foreign commit, the lock is not used any more after a few commits.
    assert_eq!((write(&there, 2), write(&here, 3)), (7, 7));
    let left: Vec<u32> = (4..12).map(|number| write(&here, number)).collect();
    assert_eq!(left, [6, 5, 4, 3, 2, 1, 0, 0]);
    // The other process continues to write.
    write(&there, 12);
    assert_eq!(write(&here, 13), 7);
    write(&there, 14);
    assert_eq!((write(&here, 15), write(&here, 16)), (63, 62));
    write(&there, 17);
    assert_eq!(write(&here, 18), 61);
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

/// The name is authoritative even if the entries still exist: a process that deletes a database may fail before it
/// has dropped the shard.
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
    let made = || *kept.of_designs("the last", |view| Ok::<_, DatabaseError>((view.design_seq()?, 8))).unwrap();
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

/// Checks that a writer that followed commits equals one that was loaded.
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
        catalog.activity().watch(|| {});
    }
    let events = next(&ours, GLOBAL_CHANGES);
    let (sender, notified) = mpsc::channel();
    let _subscription = events.subscribe(move |event| sender.send(event).unwrap());
    save(&create(&theirs, "db"), new("a", "{}"));
    let happened = theirs.activity().take();
    assert!(happened.contains(&("db".to_owned(), Happened::Updated)));
    theirs.keep_events(&happened).unwrap();
    while notified.recv_timeout(TIMEOUT).unwrap() != Event::Committed(3) {}
    assert_eq!(ids(&events.read().unwrap()), ["created:db", "updated:_dbs", "updated:db"]);
    next(&ours, "db");
    assert_eq!(ours.activity().take(), [], "what others do they keep themselves");
}

/// Content that exceeds the memory limit of an upload.
const LONG: &[u8] = &[7; 5_000];

/// Returns the number of stored chunks and marks of uploads.
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
    // The upload's process is no longer a member.
    uploads.engine().members().leave().unwrap();
    starts().database("db").unwrap();
    assert_eq!(stored_uploads(&database), 0);
    upload.write(LONG).unwrap();
    assert_eq!(stored_uploads(&database), 0, "an upload of a failed process stores no unreferenced data");
    // A running process removes the uploads of failed processes with its next compaction.
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
    // A shard that one process has started to drop is left to it while it lives.
    let shard = ours.allocate_shard().unwrap();
    let claim = ours.engine().members().claim(&format!("drop/{}", shard.0)).unwrap().unwrap();
    theirs.drop_shard(shard).unwrap();
    let state = || ours.engine().snapshot(shard).unwrap().state();
    assert!(state().is_ok());
    ours.engine().members().release(&claim).unwrap();
    theirs.drop_shard(shard).unwrap();
    assert!(state().is_err());
}

/// Submits documents together, each with or without a read set, and returns the results.
fn together(database: &Arc<Database>, works: Vec<(&str, Option<&ReadSet>)>) -> Vec<Result<Vec<UpdateOutcome>, String>> {
    let (sender, answers) = mpsc::channel();
    let mut leads = Vec::new();
    let count = works.len();
    for (place, (id, read_set)) in works.into_iter().enumerate() {
        let sender = sender.clone();
        let done = Box::new(move |result: crate::Result<_>| {
            sender.send((place, result.map_err(|error| error.to_string()))).unwrap();
        });
        let work = Work::Documents(vec![new(id, "{}")]);
        leads.push(match read_set {
            Some(read_set) => database.submit_with_read_set(work, read_set, done),
            None => database.submit(work, done),
        });
    }
    assert_eq!(leads[0], Submitted::Lead);
    database.lead();
    let mut answers: Vec<_> = answers.iter().take(count).collect();
    answers.sort_by_key(|(place, _)| *place);
    answers.into_iter().map(|(_, answer)| answer).collect()
}

#[test]
fn read_sets_belong_to_their_work() {
    let [ours, theirs] = processes();
    let here = create(&ours, "db");
    let besides = create(&ours, "besides");
    let there = next(&theirs, "db");
    let read_set = || {
        ours.engine().catch_up().unwrap();
        ours.database("db").unwrap();
        ours.database("besides").unwrap();
        // Optimistic validation is disabled for a while after foreign commits.
        let found = (0..=REQUESTS_WITHOUT_READ_SET).find_map(|_| ReadSet::of(&here, vec![Arc::clone(&besides)]));
        found.expect("all databases were read")
    };
    let outdated = || Err(DatabaseError::Storage(StorageError::Outdated).to_string());
    let is_saved =
        |answer: &Result<Vec<UpdateOutcome>, String>| matches!(answer.as_deref(), Ok([UpdateOutcome::Saved(_)]));
    // A new connection cannot validate a read set.
    let saved = |id: &str| {
        (0..3).any(|_| {
            let read_set = read_set();
            let answers = together(&here, vec![(id, Some(&read_set))]);
            assert_eq!(is_saved(&answers[0]), read_set.is_held(), "{answers:?}");
            read_set.is_held()
        })
    };
    type Elsewhere<'a> = &'a dyn Fn(u32);
    let to_itself = |round| drop(save(&there, new(&format!("there {round}"), "{}")));
    let to_catalog = |round| drop(create(&theirs, &format!("new{round}")));
    let to_besides = |round| drop(save(&next(&theirs, "besides"), new(&format!("{round}"), "{}")));
    let elsewhere: [Elsewhere<'_>; 3] = [&to_itself, &to_catalog, &to_besides];
    for (round, change) in (0..4).flat_map(|_| elsewhere).enumerate() {
        let ids = [0, 1, 2, 3].map(|number| format!("{round} {number}"));
        assert!(saved(&ids[3]), "{round}");
        let (first, second) = (read_set(), read_set());
        assert!(first.is_current());
        change(round as u32);
        let works = vec![(ids[0].as_str(), Some(&first)), (ids[1].as_str(), None), (ids[2].as_str(), Some(&second))];
        let answers = together(&here, works);
        assert!(is_saved(&answers[1]), "{round}: {answers:?}");
        for (answer, read_set) in [(&answers[0], &first), (&answers[2], &second)] {
            assert!(*answer == outdated() && !read_set.is_held(), "{round}: {answer:?}");
            ours.engine().catch_up().unwrap();
            assert!(!read_set.is_current(), "{round}");
        }
        // A request that failed validation can be retried, and its work is not queued any more.
        assert!(saved(&ids[0]) && saved(&ids[2]), "{round}");
        // A work without changes validates nothing.
        let last = read_set();
        assert_eq!(together(&here, vec![(&ids[0], Some(&last))]), [Ok(vec![UpdateOutcome::Conflict])], "{round}");
        assert!(!last.is_held());
    }
}

/// No read set can be captured before all notifications are handled.
#[test]
fn a_notified_writer_refreshes_before_optimistic_validation() {
    let [ours, theirs] = processes();
    let here = create(&ours, "db");
    let there = next(&theirs, "db");
    ours.engine().catch_up().unwrap();
    assert!(ReadSet::of(&here, Vec::new()).is_some());
    save(&there, new("a", "{}"));
    ours.engine().catch_up().unwrap();
    assert!(ReadSet::of(&here, Vec::new()).is_none());
    ours.database("db").unwrap();
    let before = ReadSet::of(&here, Vec::new()).unwrap();
    // A failed validation disables optimistic validation for a while.
    save(&there, new("b", "{}"));
    assert!(together(&here, vec![("c", Some(&before))])[0].is_err());
    assert!((0..REQUESTS_WITHOUT_READ_SET).all(|_| ReadSet::of(&here, Vec::new()).is_none()));
    assert!(ReadSet::of(&here, Vec::new()).is_some());
}
