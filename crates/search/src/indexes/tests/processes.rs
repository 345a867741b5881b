//! Several processes with the same index: one builds, the others wait or take over.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use settee_storage::{Direction, Expect, KeyRange, Keyspace, Shard};
use settee_storage_testing::Store;
use settee_views::{BuildStatus, Urgency, ViewError};

use super::*;
use crate::indexes::SearchError;
use crate::indexes::definition::SearchIndex;

fn worlds(documents: usize) -> [World; 2] {
    let worlds = Store::new().two().map(World::over);
    let database = worlds[0].create(Layout::Whole);
    write_some(&database, 0..documents);
    worlds
}

fn write_some(database: &Arc<Database>, numbers: std::ops::Range<usize>) {
    let text = |number| format!(r#"{{"_id":"{number:05}","t":"fox {number}","n":{number}}}"#);
    for work in DocUpdate::into_works(numbers.map(|number| update(&text(number), EditMode::Interactive)).collect()) {
        database.update(work).unwrap();
    }
}

fn database(world: &World) -> Arc<Database> {
    world.catalog.engine().catch_up().unwrap();
    world.catalog.database("db").unwrap()
}

fn count(world: &World) -> u64 {
    let database = database(world);
    world.search(&database, &design("f"), Query::term("default", "fox")).unwrap().total_hits
}

fn hold(world: &World) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let ((held, is_held), (go_on, may_go_on)) = (mpsc::channel(), mpsc::channel());
    let is_first = std::sync::atomic::AtomicBool::new(true);
    *world.members.watcher.lock() = Some(Box::new(move || {
        if is_first.swap(false, Ordering::Relaxed) {
            held.send(()).unwrap();
            let _ = may_go_on.recv();
        }
    }));
    (is_held, go_on)
}

#[test]
fn one_process_builds_and_the_others_wait_or_take_over() {
    let worlds = worlds(60);
    let [one, other] = &worlds;
    for dies in [false, true] {
        let documents = if dies { 90 } else { 60 };
        let (is_held, go_on) = hold(one);
        thread::scope(|scope| {
            let resume_sender = go_on;
            let builds = scope.spawn(|| count(one));
            is_held.recv().unwrap();
            let database = database(other);
            let background = other.searches.update(&database, &design("f"), Urgency::Background);
            assert!(matches!(background, Err(SearchError::Build(ViewError::Stopped))), "{background:?}");
            assert_eq!(other.searches.cleanup(&database, &[], 0).unwrap(), 0, "it is being built");
            let waits = scope.spawn(|| count(other));
            if dies {
                one.catalog.engine().members().leave().unwrap();
                assert_eq!(waits.join().unwrap(), documents);
                one.catalog.engine().members().announce("back", "").unwrap();
                resume_sender.send(()).unwrap();
            } else {
                resume_sender.send(()).unwrap();
                assert_eq!(waits.join().unwrap(), documents);
                assert_eq!(other.mapped(), 0);
            }
            assert_eq!(builds.join().unwrap(), documents);
        });
        write_some(&database(one), 60..if dies { 60 } else { 90 });
    }
    for round in 0..10 {
        let (writes, reads) = if round % 2 == 0 { (one, other) } else { (other, one) };
        let first = 100 + 10 * round;
        write_some(&database(writes), first..first + 10);
        assert_eq!((count(reads), count(writes)), (100 + 10 * round as u64, 100 + 10 * round as u64));
    }
}

#[test]
fn a_build_in_the_background_does_not_pause_while_a_client_of_another_process_waits() {
    let [one, other] = worlds(300);
    let client_build = one.views.pace().register(Urgency::Client);
    let (answer, answered) = mpsc::channel();
    thread::scope(|scope| {
        let builds = scope.spawn(|| one.searches.update(&database(&one), &design("f"), Urgency::Background));
        while one.tasks.list().is_empty() {
            thread::yield_now();
        }
        scope.spawn(|| answer.send(count(&other)).unwrap());
        let counted = answered.recv_timeout(Duration::from_secs(120));
        drop(client_build);
        assert_eq!(counted, Ok(300), "a timeout: the build is paused");
        builds.join().unwrap().unwrap();
    });
    assert_eq!(other.mapped(), 0);
}

#[test]
fn an_index_that_was_removed_elsewhere_is_found_or_made_again() {
    let [one, other] = worlds(20);
    for _ in 0..5 {
        assert_eq!((count(&one), count(&other)), (20, 20));
        let here = database(&one);
        assert_eq!(one.searches.cleanup(&here, &[], 0).unwrap(), 1);
        assert_eq!(count(&one), 20);
        let there = database(&other);
        let found = other
            .searches
            .open(&there, &design("f"), SearchKind::Nouveau, "i", Freshness::Any, &SearchLimits::none())
            .unwrap();
        assert_eq!(found.search(&Request::new(Query::All), &SearchLimits::none()).unwrap().total_hits, 20);
        assert_eq!(other.searches.cleanup(&there, &[], 0).unwrap(), 1);
    }
}

fn shard(world: &World) -> Shard {
    let indexes = world.searches.databases.of(database(world).shard());
    let handles = indexes.handles.lock();
    handles.values().next().unwrap().store().shard()
}

fn last_file(world: &World) -> u64 {
    let snapshot = world.catalog.engine().snapshot(shard(world)).unwrap();
    let range = KeyRange::default();
    let mut pieces = snapshot.scan(Keyspace::IndexNodes, range, Direction::Backward, Expect::Few).unwrap();
    let (key, _) = pieces.next().unwrap().unwrap();
    crate::store::keys::file_of(key).unwrap()
}

#[test]
fn each_claim_has_numbers_of_its_own() {
    let worlds = worlds(20);
    let mut before = None;
    for round in 1..7_u64 {
        let world = &worlds[round as usize % 2];
        let first = round as usize * 100;
        write_some(&database(world), first..first + 5);
        assert_eq!(count(world), 20 + 5 * round);
        let claim = Some(last_file(world) >> 24);
        assert!(claim > before, "{claim:?} after {before:?}");
        before = claim;
    }
}

#[test]
fn waiters_for_an_index_reset_elsewhere_find_the_new_one() {
    let [one, other] = worlds(40);
    let signature = SearchIndex::all(&design("f"))[0].signature;
    let (is_held, go_on) = hold(&one);
    thread::scope(|scope| {
        let resume_sender = go_on;
        let builds = scope.spawn(|| count(&one));
        is_held.recv().unwrap();
        let waits = scope.spawn(|| count(&other));
        let there = database(&other);
        while other.searches.build_state(&there, &design("f")).unwrap().status != BuildStatus::Building {
            thread::yield_now();
        }
        let here = database(&one);
        let records = one.searches.records(&here);
        let shard = records.find(signature).unwrap().unwrap();
        records.replace(signature, shard).unwrap();
        assert_ne!(records.find(signature).unwrap(), Some(shard));
        assert_eq!(waits.join().unwrap(), 40);
        resume_sender.send(()).unwrap();
        assert_eq!(builds.join().unwrap(), 40);
    });
    assert_eq!((count(&one), count(&other)), (40, 40));
}

#[test]
fn an_index_that_is_about_to_be_forgotten_is_empty() {
    for is_asked_as_it_is in [true, false] {
        let [world, _] = worlds(20);
        assert_eq!(count(&world), 20);
        world.catalog.engine().drop_shard(shard(&world)).unwrap();
        let database = database(&world);
        if is_asked_as_it_is {
            let found = world
                .searches
                .open(&database, &design("f"), SearchKind::Nouveau, "i", Freshness::Any, &SearchLimits::none())
                .unwrap();
            assert_eq!(found.search(&Request::new(Query::All), &SearchLimits::none()).unwrap().total_hits, 0);
        } else {
            let state = world.searches.build_state(&database, &design("f")).unwrap();
            assert_eq!(state.status, BuildStatus::Lagging);
        }
        assert_eq!(count(&world), 20);
    }
}

#[test]
fn a_node_considered_failed_claims_again() {
    let [one, _] = worlds(1200);
    let (is_held, go_on) = hold(&one);
    let lost = thread::scope(|scope| {
        let resume_sender = go_on;
        let builds = scope.spawn(|| count(&one));
        is_held.recv().unwrap();
        let members = one.catalog.engine().members();
        let lost = members.claim(&format!("index/{}", shard(&one).0)).unwrap().unwrap();
        members.leave().unwrap();
        members.announce("back", "").unwrap();
        resume_sender.send(()).unwrap();
        assert_eq!(builds.join().unwrap(), 1200);
        lost
    });
    assert!(last_file(&one) >> 24 >= lost.epoch, "{} under {lost:?}", last_file(&one));
}
