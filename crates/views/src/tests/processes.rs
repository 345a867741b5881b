//! Several processes with the same indexes.

use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use settee_database::tasks::Tasks;
use settee_database::{Catalog, Database, DatabaseOptions, DocUpdate, EditMode, Layout, Waiting};
use settee_design::{DesignDocument, Language, Swap};
use settee_model::json::Json;
use settee_model::{Document, RevisionHasher};
use settee_storage::{Engine, Shard};
use settee_storage_testing::Store;

use super::{Rows, ddoc, settings};
use crate::Views;
use crate::control::BuildStatus;
use crate::error::{Result, ViewError};
use crate::host::{CatalogHost, IndexHost as _};
use crate::index::Signature;
use crate::pace::Urgency;
use crate::query::{Header, MapRow, Reduce, ReduceRow, RowSink, Update, ViewQuery};
use crate::testing::CountedRules;

struct Process {
    catalog: Arc<Catalog>,
    views: Views,
    language: CountedRules,
}

impl Process {
    fn new(engine: Arc<dyn Engine>, seed: u64) -> Self {
        let catalog = Arc::new(Catalog::open(engine, seed << 32).unwrap());
        let language = CountedRules::default();
        let shared: Arc<dyn Language> = Arc::new(language.clone());
        let languages = Arc::new(move |_: &str| Some(Arc::clone(&shared)));
        let settings = crate::Settings { seed: seed << 32, ..settings(2, 1 << 20) };
        let views = Views::new(Arc::clone(&catalog), languages, Tasks::new(|| 0), Arc::new(|_| {}), settings);
        Self { catalog, views, language }
    }

    fn database(&self) -> Arc<Database> {
        self.catalog.engine().catch_up().unwrap();
        self.catalog.database("db").unwrap()
    }

    fn ask(&self, design: &DesignDocument, query: &ViewQuery) -> Result<Rows> {
        let mut rows = Rows::default();
        self.views.query(&self.database(), design, "v", query, &mut rows).map(|_| rows)
    }

    fn count(&self, design: &DesignDocument) -> (usize, String) {
        let rows = self.ask(design, &ViewQuery { reduce: Reduce::Off, ..ViewQuery::default() }).unwrap().map.len();
        let counted = self.ask(design, &ViewQuery::default()).unwrap().reduce;
        (rows, counted.first().map_or_else(String::new, |(_, count)| count.clone()))
    }

    fn status(&self, design: &DesignDocument) -> BuildStatus {
        self.views.build_state(&self.database(), design).unwrap().status
    }

    fn mapped(&self) -> u64 {
        self.language.mapped.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Stops the next build before its first batch. The channels report the stop and resume the build.
    fn hold(&self) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
        let ((held, is_held), (resume, may_resume)) = (mpsc::channel(), mpsc::channel());
        let mut is_first = true;
        *self.language.watcher.lock() = Some(Box::new(move |_| {
            if std::mem::take(&mut is_first) {
                held.send(()).unwrap();
                let _ = may_resume.recv();
            }
            Ok(())
        }));
        (is_held, resume)
    }

    fn waits(&self) -> bool {
        self.views.core().claims.waits()
    }

    fn index(&self) -> (Signature, Shard, u64) {
        let indexes = self.views.core().indexes_of(self.database().shard());
        let handles = indexes.handles.lock();
        let (signature, handle) = handles.iter().next().unwrap();
        (*signature, handle.store().shard(), handle.meta().unwrap().next_node)
    }

    fn replace(&self) {
        let (signature, shard, _) = self.index();
        let database = self.database();
        let host = CatalogHost { catalog: &self.catalog, database: &database, waiting: Waiting::Allowed };
        host.replace_index(signature, shard).unwrap();
        assert_ne!(host.find_index(signature).unwrap(), Some(shard));
    }

    fn leave(&self) {
        self.catalog.engine().members().leave().unwrap();
    }

    fn come_back(&self) {
        self.catalog.engine().members().announce("back", "").unwrap();
    }
}

fn processes(documents: usize) -> [Process; 2] {
    let [one, other] = Store::new().two();
    let [one, other] = [Process::new(one, 1), Process::new(other, 2)];
    one.catalog.create("db", DatabaseOptions { created_ms: 0, instance: 1, layout: Layout::Whole, q: 1 }).unwrap();
    write(&one, 0..documents, "1");
    [one, other]
}

fn write(process: &Process, numbers: std::ops::Range<usize>, value: &str) {
    let mut hasher = RevisionHasher::default();
    let update = |number: usize| {
        let text = format!(r#"{{"k":{},"v":{value}}}"#, number % 1000);
        let body = Json::parse(text.as_bytes()).unwrap();
        let document = Document { id: None, rev: None, deleted: false, body, attachments: None, revisions: None };
        DocUpdate::prepare(format!("{number:06}"), document, EditMode::Interactive, &mut hasher).unwrap()
    };
    for work in DocUpdate::into_works(numbers.map(update).collect()) {
        process.database().update(work).unwrap();
    }
}

fn design() -> DesignDocument {
    ddoc(r#""v": {"map": "value k v", "reduce": "_count"}"#)
}

fn until(condition: impl Fn() -> bool) {
    while !condition() {
        thread::yield_now();
    }
}

#[test]
fn a_query_waits_for_the_build_of_another_process() {
    let [one, other] = processes(3000);
    let (is_held, resume) = one.hold();
    thread::scope(|scope| {
        let builds = scope.spawn(|| one.count(&design()));
        is_held.recv().unwrap();
        let waits = scope.spawn(|| other.count(&design()));
        until(|| other.waits());
        resume.send(()).unwrap();
        assert_eq!(builds.join().unwrap(), (3000, "3000".to_owned()));
        assert_eq!(waits.join().unwrap(), (3000, "3000".to_owned()));
    });
    assert_eq!((one.mapped(), other.mapped()), (3000, 0));
    assert!(!other.waits());
}

#[test]
fn the_background_leaves_an_index_to_its_builder() {
    let [one, other] = processes(500);
    let (is_held, resume) = one.hold();
    thread::scope(|scope| {
        // Dropped on a panic, so that the build ends.
        let resume_sender = resume;
        let builds = scope.spawn(|| one.views.update(&one.database(), &design(), Urgency::Background));
        is_held.recv().unwrap();
        let left = other.views.update(&other.database(), &design(), Urgency::Background);
        assert!(matches!(left, Err(ViewError::Stopped)), "{left:?}");
        assert_eq!(other.views.cleanup(&other.database(), &[], 0).unwrap(), 0, "it is being built");
        resume_sender.send(()).unwrap();
        builds.join().unwrap().unwrap();
    });
    assert_eq!(other.status(&design()), BuildStatus::Current);
    assert_eq!(other.mapped(), 0);
    assert_eq!(other.views.cleanup(&other.database(), &[], 0).unwrap(), 1);
}

#[test]
fn a_build_in_the_background_does_not_pause_while_a_client_of_another_process_waits() {
    let [one, other] = processes(3000);
    let client_build = one.views.pace().register(Urgency::Client);
    let (answer, answered) = mpsc::channel();
    thread::scope(|scope| {
        let builds = scope.spawn(|| one.views.update(&one.database(), &design(), Urgency::Background));
        until(|| !one.views.core().tasks.list().is_empty());
        scope.spawn(|| answer.send(other.count(&design())).unwrap());
        let counted = answered.recv_timeout(Duration::from_secs(120));
        drop(client_build);
        assert_eq!(counted, Ok((3000, "3000".to_owned())), "a timeout: the build is paused");
        builds.join().unwrap().unwrap();
    });
    assert_eq!(other.mapped(), 0);
}

#[test]
fn a_waiter_takes_over_from_a_failed_process() {
    let [one, other] = processes(3000);
    let (is_held, resume) = one.hold();
    thread::scope(|scope| {
        let late = scope.spawn(|| one.count(&design()));
        is_held.recv().unwrap();
        let waits = scope.spawn(|| other.count(&design()));
        until(|| other.waits());
        one.leave();
        assert_eq!(waits.join().unwrap(), (3000, "3000".to_owned()));
        write(&other, 3000..3100, "2");
        assert_eq!(other.count(&design()), (3100, "3100".to_owned()));
        one.come_back();
        resume.send(()).unwrap();
        let (rows, counted) = late.join().unwrap();
        assert!(rows >= 3000 && counted == rows.to_string(), "{rows} {counted}");
    });
    for round in 0..20_usize {
        let (writes, reads) = if round.is_multiple_of(2) { (&one, &other) } else { (&other, &one) };
        let documents = 3100 + round * 300;
        write(writes, documents..documents + 300, "3");
        let expected = (documents + 300, (documents + 300).to_string());
        assert_eq!((reads.count(&design()), writes.count(&design())), (expected.clone(), expected), "{round}");
    }
}

/// The nodes that the overtaken builder has read are removed by the commits of the other process.
#[test]
fn an_overtaken_builder_starts_over() {
    let [one, other] = processes(3000);
    assert_eq!(one.count(&design()), (3000, "3000".to_owned()));
    write(&one, 3000..3050, "2");
    let (is_held, resume) = one.hold();
    thread::scope(|scope| {
        // Dropped on a panic, so that the build ends.
        let resume_sender = resume;
        let late = scope.spawn(|| one.count(&design()));
        is_held.recv().unwrap();
        one.leave();
        for documents in [3050, 3100] {
            write(&other, documents..documents + 50, "3");
            assert_eq!(other.count(&design()).0, documents + 50);
        }
        one.come_back();
        resume_sender.send(()).unwrap();
        let (rows, counted) = late.join().unwrap();
        assert!(rows >= 3050 && counted == rows.to_string(), "{rows} {counted}");
    });
}

#[test]
fn a_node_considered_failed_claims_again() {
    let [one, _] = processes(3000);
    let (is_held, resume) = one.hold();
    let lost = thread::scope(|scope| {
        // Dropped on a panic, so that the build ends.
        let resume_sender = resume;
        let late = scope.spawn(|| one.count(&design()));
        is_held.recv().unwrap();
        let members = one.catalog.engine().members();
        let lost = members.claim(&format!("index/{}", one.index().1.0)).unwrap().unwrap();
        one.leave();
        one.come_back();
        resume_sender.send(()).unwrap();
        assert_eq!(late.join().unwrap(), (3000, "3000".to_owned()));
        lost
    });
    assert!(one.index().2 >> 24 >= lost.epoch, "{} of {lost:?}", one.index().2);
}

#[test]
fn each_claim_has_numbers_of_its_own() {
    let processes = processes(100);
    let mut before = None;
    for round in 1..7 {
        let process = &processes[round % 2];
        write(process, round * 1000..round * 1000 + 50, "6");
        assert_eq!(process.count(&design()).0, 100 + 50 * round);
        let claim = Some(process.index().2 >> 24);
        assert!(claim > before, "{claim:?} after {before:?}");
        before = claim;
    }
}

#[test]
fn waiters_for_an_index_reset_elsewhere_find_the_new_one() {
    let [one, other] = processes(500);
    let whole = (500, "500".to_owned());
    let (is_held, resume) = one.hold();
    thread::scope(|scope| {
        let resume_sender = resume;
        let builds = scope.spawn(|| one.count(&design()));
        is_held.recv().unwrap();
        let waits = scope.spawn(|| other.count(&design()));
        until(|| other.waits());
        one.replace();
        assert_eq!(waits.join().unwrap(), whole);
        resume_sender.send(()).unwrap();
        assert_eq!(builds.join().unwrap(), whole);
    });
    assert_eq!((one.count(&design()), other.count(&design())), (whole.clone(), whole));
}

#[test]
fn an_index_whose_shard_is_another_one_is_found() {
    let as_it_is = ViewQuery { update: Update::False, reduce: Reduce::Off, ..ViewQuery::default() };
    for way in 0..4 {
        let [one, other] = processes(50);
        let whole = (50, "50".to_owned());
        assert_eq!((one.count(&design()), other.count(&design())), (whole.clone(), whole.clone()), "{way}");
        one.replace();
        match way {
            0 => assert_eq!(other.ask(&design(), &as_it_is).unwrap().map.len(), 0),
            1 => assert_eq!(other.status(&design()), BuildStatus::Lagging),
            2 => assert_eq!(other.views.info(&other.database(), &design()).unwrap().update_seq, 0),
            _ => other.views.update(&other.database(), &design(), Urgency::Background).unwrap(),
        }
        assert_eq!((other.count(&design()), one.count(&design())), (whole.clone(), whole), "{way}");
    }
}

/// The shard is removed before its record: a query in between finds an empty index and builds another one.
#[test]
fn an_index_that_is_about_to_be_forgotten_is_empty() {
    let as_it_is = ViewQuery { update: Update::False, reduce: Reduce::Off, ..ViewQuery::default() };
    for way in 0..4 {
        let [process, _] = processes(50);
        let whole = (50, "50".to_owned());
        assert_eq!(process.count(&design()), whole, "{way}");
        process.catalog.engine().drop_shard(process.index().1).unwrap();
        match way {
            0 => assert_eq!(process.ask(&design(), &as_it_is).unwrap().map.len(), 0),
            1 => assert_eq!(process.status(&design()), BuildStatus::Lagging),
            2 => assert_eq!(process.views.info(&process.database(), &design()).unwrap().update_seq, 0),
            _ => assert_eq!(process.index().2, 1, "no nodes"),
        }
        assert_eq!(process.count(&design()), whole, "{way}");
    }
}

#[test]
fn two_processes_build_at_all_times() {
    let processes = processes(100);
    thread::scope(|scope| {
        for (number, process) in processes.iter().enumerate() {
            scope.spawn(move || {
                for round in 0..30 {
                    let first = (1 + 2 * round + number) * 1000;
                    write(process, first..first + 50, "4");
                    let (rows, counted) = process.count(&design());
                    assert!(rows >= 150 + 50 * round, "{rows} in round {round}");
                    assert!(counted.parse::<usize>().unwrap() >= rows, "{rows} {counted}");
                }
            });
        }
    });
    for process in &processes {
        assert_eq!(process.count(&design()), (3100, "3100".to_owned()));
        let rebuilt = ddoc(r#""v": {"map": "value k v", "reduce": "_count"}, "w": {"map": "none"}"#);
        let rebuilt = DesignDocument {
            options: settee_design::DesignOptions { include_design: true, ..rebuilt.options },
            ..rebuilt
        };
        assert_eq!(process.count(&rebuilt), (3100, "3100".to_owned()));
        let rows =
            |design| process.ask(design, &ViewQuery { reduce: Reduce::Off, ..ViewQuery::default() }).unwrap().map;
        assert_eq!(rows(&design()), rows(&rebuilt));
    }
}

#[test]
fn an_index_that_was_removed_elsewhere_is_found_or_made_again() {
    let [one, other] = processes(200);
    let whole = (200, "200".to_owned());
    let as_it_is = ViewQuery { update: Update::False, reduce: Reduce::Off, ..ViewQuery::default() };
    for _ in 0..5 {
        assert_eq!((one.count(&design()), other.count(&design())), (whole.clone(), whole.clone()));
        assert_eq!(one.views.cleanup(&one.database(), &[], 0).unwrap(), 1);
        assert_eq!(one.count(&design()), whole);
        assert_eq!(other.ask(&design(), &as_it_is).unwrap().map.len(), 200);
        assert_eq!(one.views.cleanup(&one.database(), &[], 0).unwrap(), 1);
        assert_eq!(other.views.info(&other.database(), &design()).unwrap().update_seq, 0);
    }
    let engine = one.catalog.engine();
    let used = (2..200).filter(|&shard| engine.approximate_size(settee_storage::Shard(shard)) > 0).count();
    assert_eq!(used, 0, "nothing is left of them");
}

struct ConcurrentAction<F> {
    rows: Rows,
    act: Option<F>,
}

impl<F: FnOnce()> RowSink for ConcurrentAction<F> {
    fn header(&mut self, header: Header) -> ControlFlow<()> {
        self.rows.header(header)
    }

    fn map_row(&mut self, row: MapRow<'_>) -> ControlFlow<()> {
        if let Some(act) = self.act.take() {
            act();
        }
        self.rows.map_row(row)
    }

    fn reduce_row(&mut self, row: ReduceRow<'_>) -> ControlFlow<()> {
        self.rows.reduce_row(row)
    }
}

#[test]
fn a_reader_reads_all_of_an_index_that_another_process_removes() {
    let [one, other] = processes(2000);
    let query = ViewQuery { reduce: Reduce::Off, ..ViewQuery::default() };
    for _ in 0..3 {
        let whole = one.ask(&design(), &query).unwrap().map;
        other.count(&design());
        let remove = || assert_eq!(one.views.cleanup(&one.database(), &[], 0).unwrap(), 1);
        let mut read = ConcurrentAction { rows: Rows::default(), act: Some(remove) };
        let _ = other.views.query(&other.database(), &design(), "v", &query, &mut read).unwrap();
        assert!(read.act.is_none());
        assert_eq!(read.rows.map, whole);
        // The new index uses no nodes of the old one.
        assert_eq!(other.count(&design()), (2000, "2000".to_owned()));
    }
}

#[test]
fn one_shard_is_given_to_an_index_by_all() {
    for _ in 0..50 {
        let processes = processes(10);
        let counts = thread::scope(|scope| {
            let asked: Vec<_> = processes.iter().map(|process| scope.spawn(|| process.count(&design()))).collect();
            asked.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(counts, vec![(10, "10".to_owned()); 2]);
        let shards = |process: &Process| process.database().read().unwrap().attached_with_prefix(b"index/").unwrap();
        assert_eq!((shards(&processes[0]).len(), shards(&processes[0])), (1, shards(&processes[1])));
    }
}

#[test]
fn build_commands_apply_in_all_processes() {
    let [one, other] = processes(3000);
    let design = design();
    assert_eq!((one.status(&design), other.status(&design)), (BuildStatus::Lagging, BuildStatus::Lagging));
    one.views.pause(&one.database(), &design).unwrap();
    assert_eq!(other.status(&design), BuildStatus::Paused);
    assert!(matches!(other.ask(&design, &ViewQuery::default()), Err(ViewError::Paused)));
    other.views.resume(&other.database(), &design).unwrap();
    assert_eq!(one.status(&design), BuildStatus::Lagging);
    for status in [BuildStatus::Paused, BuildStatus::Resting] {
        let is_pause = status == BuildStatus::Paused;
        let (is_held, resume) = one.hold();
        let ended = thread::scope(|scope| {
            let builds = scope.spawn(|| one.views.update(&one.database(), &design, Urgency::Client));
            is_held.recv().unwrap();
            let say = if is_pause { Views::pause } else { Views::cancel };
            say(&other.views, &other.database(), &design).unwrap();
            one.database();
            resume.send(()).unwrap();
            builds.join().unwrap()
        });
        assert!(matches!(ended, Err(ViewError::Paused | ViewError::Cancelled)), "{ended:?}");
        assert_eq!((one.status(&design), other.status(&design)), (status, status));
        other.views.resume(&other.database(), &design).unwrap();
        assert_eq!(one.status(&design), BuildStatus::Lagging);
    }
    // After a cancellation all processes skip the indexes until a query needs them.
    one.views.cancel(&one.database(), &design).unwrap();
    assert_eq!(other.status(&design), BuildStatus::Resting);
    assert_eq!(other.count(&design), (3000, "3000".to_owned()));
    write(&other, 3000..3001, "5");
    assert_eq!((one.status(&design), other.status(&design)), (BuildStatus::Lagging, BuildStatus::Lagging));
}

#[test]
fn the_swap_of_a_view_counts_in_all_processes() {
    let [one, other] = processes(300);
    let online = |views: &str| DesignDocument { swap: Swap::Online, ..ddoc(views) };
    let old = online(r#""v": {"map": "value k v"}, "w": {"map": "value v k"}"#);
    let new = online(r#""v": {"map": "each k"}, "w": {"map": "each v"}"#);
    let stale = |process: &Process, design: &DesignDocument| {
        let rows = process.ask(design, &ViewQuery::default()).unwrap();
        (rows.stale.is_some(), rows.map.len())
    };
    // The absence of served definitions is cached.
    assert_eq!(stale(&other, &new), (false, 0));
    assert_eq!(stale(&one, &old), (true, 0));
    one.views.update(&one.database(), &old, Urgency::Client).unwrap();
    assert_eq!((stale(&one, &old), stale(&other, &old)), ((false, 300), (false, 300)));
    assert_eq!(stale(&other, &new), (true, 300));
    assert_eq!(other.views.cleanup(&other.database(), std::slice::from_ref(&new), 0).unwrap(), 0);
    other.views.update(&other.database(), &new, Urgency::Client).unwrap();
    assert_eq!(stale(&one, &new), (false, 0));
}
