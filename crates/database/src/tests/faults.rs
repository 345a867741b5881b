//! Commits that fail, conflict or lose their acknowledgement: clients get the correct outcome or an error.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use settee_model::Rev;
use settee_model::json::Json;
use settee_storage::faulty::{FaultyEngine, WriteFault};
use settee_storage::{Batch, CommitToken, Durability, Engine, Outcome, Shard, Snapshot, StorageError, Version};

use super::{Store, audit, create, edit, engine, ids, new, open, save, saved, write};
use crate::update::load_writer;
use crate::{Catalog, Database, DatabaseError, DatabaseOptions, Result, UpdateOutcome, Work};

const OPTIONS: DatabaseOptions = DatabaseOptions { created_ms: 1, instance: 2, layout: crate::Layout::Whole, q: 1 };

type Act = Box<dyn FnOnce(&Interposed) + Send>;

enum OnCommit {
    After(Act),
    /// The commit is applied, then another action follows, and the acknowledgement is lost.
    LoseAnswer(Act),
    Delay,
}

enum OnSnapshot {
    Pass,
    After(Act),
    /// The snapshot is taken, then another action follows before a read other than that of its state.
    Before(Act),
    Fail,
}

struct Interposed {
    inner: Arc<dyn Engine>,
    commits: Mutex<VecDeque<OnCommit>>,
    snapshots: Mutex<VecDeque<OnSnapshot>>,
    delayed: Mutex<Option<(Shard, Version, CommitToken, Batch)>>,
}

impl Interposed {
    fn new(inner: Arc<dyn Engine>) -> Arc<Self> {
        Arc::new(Self { inner, commits: Mutex::default(), snapshots: Mutex::default(), delayed: Mutex::default() })
    }

    fn on_commit(&self, label: OnCommit) {
        self.commits.lock().push_back(label);
    }

    fn on_snapshot(&self, passing: usize, label: OnSnapshot) {
        let mut snapshots = self.snapshots.lock();
        snapshots.extend((0..passing).map(|_| OnSnapshot::Pass));
        snapshots.push_back(label);
    }

    fn let_arrive(&self) {
        let (shard, expected, token, batch) = self.delayed.lock().take().expect("a commit is under way");
        let outcome = self.inner.commit(shard, expected, token, batch, Durability::Synced).unwrap();
        assert_eq!(outcome, Outcome::Committed(Version(expected.0 + 1)));
    }
}

impl Engine for Interposed {
    fn snapshot(&self, shard: Shard) -> settee_storage::Result<Arc<dyn Snapshot>> {
        let next = self.snapshots.lock().pop_front();
        match next {
            Some(OnSnapshot::Fail) => return Err(StorageError::Io("unreadable".to_owned())),
            Some(OnSnapshot::After(act)) => act(self),
            Some(OnSnapshot::Before(act)) => {
                let snapshot = self.inner.snapshot(shard)?;
                // The snapshot is taken with its first read.
                snapshot.state()?;
                act(self);
                return Ok(snapshot);
            }
            Some(OnSnapshot::Pass) | None => {}
        }
        self.inner.snapshot(shard)
    }

    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> settee_storage::Result<Outcome> {
        let next = self.commits.lock().pop_front();
        match next {
            Some(OnCommit::After(act)) => act(self),
            Some(OnCommit::LoseAnswer(act)) => {
                let outcome = self.inner.commit(shard, expected, token, batch, durability)?;
                assert!(matches!(outcome, Outcome::Committed(_)));
                act(self);
                return Ok(Outcome::Unknown);
            }
            Some(OnCommit::Delay) => {
                *self.delayed.lock() = Some((shard, expected, token, batch));
                return Ok(Outcome::Unknown);
            }
            None => {}
        }
        self.inner.commit(shard, expected, token, batch, durability)
    }

    fn check(&self) -> settee_storage::Result<()> {
        self.inner.check()
    }

    fn drop_shard(&self, shard: Shard) -> settee_storage::Result<()> {
        self.inner.drop_shard(shard)
    }

    fn reclaim(&self, shard: Shard) -> settee_storage::Result<()> {
        self.inner.reclaim(shard)
    }

    fn approximate_size(&self, shard: Shard) -> u64 {
        self.inner.approximate_size(shard)
    }

    fn sync(&self) -> settee_storage::Result<()> {
        self.inner.sync()
    }

    fn checkpoint(&self, directory: &Path) -> settee_storage::Result<()> {
        self.inner.checkpoint(directory)
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.inner.statistics()
    }

    fn subscribe(&self, listener: settee_storage::CommitListener) {
        self.inner.subscribe(listener);
    }

    fn catch_up(&self) -> settee_storage::Result<()> {
        self.inner.catch_up()
    }
}

enum Arrives {
    BeforeLooking,
    BeforeTheNextTry,
}

/// Two nodes on the same storage; the engine of the first one follows a script.
struct Nodes {
    script: Arc<Interposed>,
    first: Catalog,
    second: Catalog,
}

impl Nodes {
    fn new() -> Self {
        let engine = engine();
        let script = Interposed::new(Arc::clone(&engine));
        let first = open(&(Arc::clone(&script) as Arc<dyn Engine>));
        Self { script, first, second: open(&engine) }
    }

    fn database(&self) -> (Arc<Database>, Arc<Database>) {
        let first = create(&self.first, "db");
        (first, self.second.database("db").unwrap())
    }
}

fn update(database: &Arc<Database>, update: crate::DocUpdate) -> Result<Vec<UpdateOutcome>> {
    database.update(Work::Documents(vec![update]))
}

fn save_there(node: &Arc<Database>, id: &'static str) -> Act {
    let node = Arc::clone(node);
    Box::new(move |_| {
        save(&node, new(id, "{\"there\":true}"));
    })
}

#[test]
fn every_write_can_fail_or_lose_its_answer() {
    let io = || StorageError::Io("a bad day".to_owned());
    for fault in [WriteFault::Fail(io()), WriteFault::LoseRequest, WriteFault::LoseAnswer] {
        for nth in 1..=40 {
            let faulty = Arc::new(FaultyEngine::new());
            let engine: Arc<dyn Engine> = Arc::clone(&faulty) as Arc<dyn Engine>;
            let database = create(&open(&engine), "db");
            faulty.inject_write(nth, fault.clone());
            let mut wanted = 0;
            let mut failed = 0;
            for number in 0..45 {
                let id = format!("{number:02}");
                match (update(&database, new(&id, "{}")), &fault) {
                    (Ok(outcomes), _) => {
                        assert!(matches!(outcomes[..], [UpdateOutcome::Saved(_)]), "{outcomes:?}");
                        wanted += 1;
                    }
                    (Err(error), WriteFault::Fail(_)) => {
                        assert!(matches!(error, DatabaseError::Storage(StorageError::Io(_))), "{error}");
                        assert_eq!(database.read().unwrap().head(&id).unwrap(), None, "nothing was written");
                        failed += 1;
                    }
                    (Err(error), _) => panic!("{fault:?} of write {nth}: {error}"),
                }
            }
            assert_eq!(failed, u64::from(matches!(fault, WriteFault::Fail(_))));
            let view = database.read().unwrap();
            assert_eq!(view.counts().unwrap(), (wanted, 0));
            assert_eq!(view.update_seq().unwrap(), wanted, "each sequence was used exactly once");
            audit(&view);
            audit(&open(&engine).database("db").unwrap().read().unwrap());
        }
    }
}

#[test]
fn two_nodes_write_to_one_database() {
    let engine = engine();
    let first = create(&open(&engine), "db");
    let second = open(&engine).database("db").unwrap();
    let work = |node: &Arc<Database>, writer: usize| {
        let mut wins: Vec<Rev> = Vec::new();
        for round in 0..25 {
            save(node, new(&format!("{round}/{writer}"), "{}"));
            let parent = node.read().unwrap().head("hot").unwrap().map(|head| head.rev);
            let hot = edit("hot", parent.as_ref(), false, &format!("{{\"n\":{round},\"by\":{writer}}}"));
            wins.extend(write(node, vec![hot]).into_iter().filter_map(saved));
        }
        wins
    };
    let mut wins: Vec<Rev> = thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = [&first, &second, &first, &second]
            .into_iter()
            .enumerate()
            .map(|(writer, node)| scope.spawn(move || work(node, writer)))
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    wins.sort();
    for database in [&first, &second, &open(&engine).database("db").unwrap()] {
        let view = database.read().unwrap();
        audit(&view);
        assert_eq!(view.counts().unwrap(), (101, 0));
        assert_eq!(view.update_seq().unwrap(), 100 + wins.len() as u64);
        let record = view.record("hot").unwrap().unwrap();
        assert_eq!(record.tree.nodes().iter().map(|node| node.rev.clone()).collect::<Vec<_>>(), wins);
        assert_eq!(record.tree.leaf_count(), 1);
    }
}

#[test]
fn a_conflict_is_decided_again() {
    let nodes = Nodes::new();
    let (here, there) = nodes.database();
    let parent = save(&here, new("doc", "{}"));
    let other_edit = edit("doc", Some(&parent), false, "{\"there\":true}");
    let node = Arc::clone(&there);
    nodes.script.on_commit(OnCommit::After(Box::new(move |_| {
        save(&node, other_edit);
    })));
    let own = vec![edit("doc", Some(&parent), false, "{\"here\":true}"), new("else", "{}")];
    let outcomes = write(&here, own);
    assert!(matches!(outcomes[..], [UpdateOutcome::Conflict, UpdateOutcome::Saved(_)]), "{outcomes:?}");
    audit(&here.read().unwrap());
    assert_eq!(ids(&here.read().unwrap()), ["doc", "else"]);
}

#[test]
fn a_commit_that_arrives_late_is_not_taken_for_a_conflict() {
    for arrives in [Arrives::BeforeLooking, Arrives::BeforeTheNextTry] {
        let nodes = Nodes::new();
        let (here, _) = nodes.database();
        let parent = save(&here, new("doc", "{}"));
        nodes.script.on_commit(OnCommit::Delay);
        let arrive = Box::new(Interposed::let_arrive);
        match arrives {
            // The first snapshot is the one on which the first try is based.
            Arrives::BeforeLooking => nodes.script.on_snapshot(1, OnSnapshot::After(arrive)),
            Arrives::BeforeTheNextTry => nodes.script.on_commit(OnCommit::After(arrive)),
        }
        let outcomes = update(&here, edit("doc", Some(&parent), false, "{\"n\":1}")).unwrap();
        let rev = saved(outcomes[0].clone()).expect("it was written, so it is no conflict");
        assert!(nodes.script.delayed.lock().is_none());
        let view = here.read().unwrap();
        assert_eq!(view.head("doc").unwrap().unwrap().rev, rev);
        assert_eq!(view.update_seq().unwrap(), 2);
        audit(&view);
        save(&here, edit("doc", Some(&rev), false, "{\"n\":2}"));
        audit(&here.read().unwrap());
    }
}

#[test]
fn an_answer_that_is_lost_is_found_behind_commits_of_others() {
    // The commit was applied and others followed, so a conflict or an error would be wrong.
    let nodes = Nodes::new();
    let (here, there) = nodes.database();
    let parent = save(&here, new("doc", "{}"));
    let act: Act = Box::new(move |_| {
        for number in 0..3 {
            save(&there, new(&format!("else{number}"), "{}"));
        }
    });
    nodes.script.on_commit(OnCommit::LoseAnswer(act));
    let outcomes = update(&here, edit("doc", Some(&parent), false, "{\"n\":1}")).unwrap();
    let rev = saved(outcomes[0].clone()).expect("it was written, so it is no conflict");
    let head = here.read().unwrap().head("doc").unwrap().unwrap();
    assert_eq!(head.rev, rev);
    save(&here, edit("doc", Some(&head.rev), false, "{\"n\":2}"));
    assert_eq!(ids(&here.read().unwrap()), ["doc", "else0", "else1", "else2"]);
    audit(&here.read().unwrap());
}

#[test]
fn a_request_that_is_lost_is_made_again_behind_commits_of_others() {
    let nodes = Nodes::new();
    let (here, there) = nodes.database();
    let act: Act = Box::new(move |script: &Interposed| {
        script.delayed.lock().take();
        for number in 0..3 {
            save(&there, new(&format!("else{number}"), "{}"));
        }
    });
    nodes.script.on_commit(OnCommit::Delay);
    nodes.script.on_snapshot(1, OnSnapshot::After(act));
    let outcomes = update(&here, new("doc", "{}")).unwrap();
    assert!(matches!(outcomes[..], [UpdateOutcome::Saved(_)]));
    assert_eq!(ids(&here.read().unwrap()), ["doc", "else0", "else1", "else2"]);
    audit(&here.read().unwrap());
}

#[test]
fn a_lost_commit_whose_version_was_taken_is_retried() {
    let nodes = Nodes::new();
    let (here, there) = nodes.database();
    nodes.script.on_commit(OnCommit::Delay);
    nodes.script.on_snapshot(1, OnSnapshot::After(save_there(&there, "else")));
    let outcomes = update(&here, new("doc", "{}")).unwrap();
    assert!(matches!(outcomes[..], [UpdateOutcome::Saved(_)]));
    assert_eq!(ids(&here.read().unwrap()), ["doc", "else"]);
    assert_eq!(here.read().unwrap().update_seq().unwrap(), 2);
    audit(&here.read().unwrap());
}

#[test]
fn the_ranks_of_a_lost_race_are_not_taken_for_those_of_the_winner() {
    // Both nodes commit at the same version; a reader reads just when the loser observes the conflict.
    let nodes = Nodes::new();
    let (here, there) = nodes.database();
    write(&here, (0..60).map(|number| new(&format!("{number:02}"), "{}")).collect());
    nodes.script.on_commit(OnCommit::After(save_there(&there, "59 and a half")));
    let looked = Arc::new(Mutex::new(false));
    let (node, note) = (Arc::clone(&here), Arc::clone(&looked));
    nodes.script.on_snapshot(
        1,
        OnSnapshot::After(Box::new(move |_| {
            let view = node.read().unwrap();
            audit(&view);
            assert_eq!(view.rank_of_id(b"59").unwrap(), 59);
            *note.lock() = true;
        })),
    );
    save(&here, new("0", "{}"));
    assert!(*looked.lock());
    let view = here.read().unwrap();
    assert_eq!(view.rank_of_id(b"59").unwrap(), 60);
    audit(&view);
}

#[test]
fn a_bucket_is_divided_with_the_next_commit_of_whomever() {
    let nodes = Nodes::new();
    let (here, there) = nodes.database();
    write(&here, vec![new("0", "{}"), new("9", "{}")]);
    write(&here, (0..40).map(|number| new(&format!("5/{number:02}"), "{}")).collect());
    let stored = || load_writer(&*here.engine().snapshot(here.shard()).unwrap()).unwrap();
    assert!(stored().ranks.ids.overfull().is_some());
    let before = here.read().unwrap();
    save(&there, new("8", "{}"));
    assert!(stored().ranks.ids.overfull().is_none());
    for view in [before, here.read().unwrap(), there.read().unwrap()] {
        audit(&view);
        assert_eq!(view.rank_of_id(b"5/20").unwrap(), 21);
    }
}

/// If the division were not stored immediately, each process would lose it and repeat it with its next commit.
#[test]
fn processes_that_write_in_turn_divide_a_bucket() {
    let nodes = Nodes::new();
    let (here, there) = nodes.database();
    let stored = || load_writer(&*here.engine().snapshot(here.shard()).unwrap()).unwrap();
    for number in 0..60 {
        let start = || stored().ranks.ids.overfull().map(|overfull| overfull.start);
        let before = start();
        save([&here, &there][number % 2], new(&format!("{:02}", number * 37 % 60), "{}"));
        assert!(before.is_none() || start() != before, "commit {number} divides what was too large before");
    }
    audit(&here.read().unwrap());
    audit(&there.read().unwrap());
}

#[test]
fn reads_that_fail_fail_the_update() {
    let nodes = Nodes::new();
    let (here, _) = nodes.database();
    nodes.script.on_snapshot(0, OnSnapshot::Fail);
    let error = update(&here, new("doc", "{}")).unwrap_err();
    assert!(matches!(error, DatabaseError::Storage(StorageError::Io(_))));
    save(&here, new("doc", "{}"));
}

#[test]
fn a_database_is_created_on_one_node_only() {
    let nodes = Nodes::new();
    let Nodes { script, first, second } = nodes;
    let second = Arc::new(second);
    let there = Arc::clone(&second);
    script.on_commit(OnCommit::After(Box::new(move |_| {
        save(&create(&there, "db"), new("there", "{}"));
    })));
    assert!(matches!(first.create("db", OPTIONS), Err(DatabaseError::Exists)));
    let (here, there) = (first.database("db").unwrap(), second.database("db").unwrap());
    assert_eq!(here.shard(), there.shard());
    assert_eq!(ids(&here.read().unwrap()), ["there"]);
}

#[test]
fn catalog_commits_whose_answers_are_lost_happen_once() {
    let nodes = Nodes::new();
    nodes.script.on_commit(OnCommit::LoseAnswer(Box::new(|_| ())));
    let first = create(&nodes.first, "a");
    nodes.script.on_commit(OnCommit::Delay);
    nodes.script.on_snapshot(1, OnSnapshot::After(Box::new(Interposed::let_arrive)));
    let second = create(&nodes.first, "b");
    assert_eq!(second.shard().0, first.shard().0 + 1, "no shard number was wasted");
    nodes.script.on_commit(OnCommit::LoseAnswer(Box::new(|_| ())));
    nodes.first.delete("a").unwrap();
    assert_eq!(nodes.second.names().unwrap(), ["b"]);
}

#[test]
fn no_shard_is_attached_while_its_database_goes() {
    // A deletion that had read the owned shards already would never drop this one.
    let nodes = Nodes::new();
    let (here, _) = nodes.database();
    let notified = Arc::new(Mutex::new(None));
    let (node, note) = (Arc::clone(&here), Arc::clone(&notified));
    nodes.script.on_commit(OnCommit::After(Box::new(move |_| {
        let value = Some(99_u64.to_be_bytes().to_vec());
        *note.lock() = Some(node.update(Work::Attach { key: [crate::OWNED_SHARDS, b"x"].concat(), value }));
    })));
    nodes.first.delete("db").unwrap();
    let attached = notified.lock().take().expect("it was tried");
    assert!(matches!(attached, Err(DatabaseError::NotFound)));
}

#[test]
fn another_nodes_new_database_is_not_deleted_with_the_old_one() {
    let nodes = Nodes::new();
    let (here, _) = nodes.database();
    save(&here, new("old", "{}"));
    nodes.second.delete("db").unwrap();
    save(&create(&nodes.second, "db"), new("new", "{}"));
    assert!(matches!(nodes.first.delete("db"), Err(DatabaseError::NotFound)));
    assert_eq!(ids(&nodes.first.database("db").unwrap().read().unwrap()), ["new"]);
}

#[test]
fn a_database_that_another_node_deleted_takes_no_writes() {
    let nodes = Nodes::new();
    let (here, _) = nodes.database();
    save(&here, new("a", "{}"));
    nodes.second.delete("db").unwrap();
    assert!(matches!(update(&here, new("b", "{}")), Err(DatabaseError::NotFound)));
    assert!(matches!(update(&here, new("b", "{}")), Err(DatabaseError::NotFound)));
    let state = nodes.script.inner.snapshot(here.shard()).unwrap().state();
    assert!(matches!(state, Err(StorageError::Dropped)), "nothing comes back: {state:?}");
    let never = create(&nodes.first, "never");
    nodes.second.delete("never").unwrap();
    assert!(matches!(update(&never, new("b", "{}")), Err(DatabaseError::NotFound)));
}

/// A read of foreign commits can be slower than a commit of this process.
#[test]
fn reads_before_a_commit_do_not_replace_newer_cached_state() {
    let [ours, theirs] = Store::new().two();
    let script = Interposed::new(ours);
    let catalog = open(&(Arc::clone(&script) as Arc<dyn Engine>));
    let (here, there) = (create(&catalog, "db"), open(&theirs));
    let there = there.database("db").unwrap();
    let set = |name: &str| Work::SetSecurity(Json::parse(format!(r#"{{"name":"{name}"}}"#).as_bytes()).unwrap());
    let known = || here.security().unwrap().unwrap().as_bytes().to_vec();
    let elsewhere = here.attached_elsewhere();
    there.update(set("theirs")).unwrap();
    let (own, newer) = (Arc::clone(&here), set("ours"));
    script.on_snapshot(
        0,
        OnSnapshot::Before(Box::new(move |_| {
            own.update(newer).unwrap();
            save(&own, new("_design/d", "{}"));
            own.update(Work::Attach { key: b"x".to_vec(), value: Some(b"1".to_vec()) }).unwrap();
        })),
    );
    catalog.engine().catch_up().unwrap();
    let used = catalog.database("db").unwrap();
    assert!(Arc::ptr_eq(&used, &here) && script.snapshots.lock().is_empty(), "its state was read");
    assert_eq!((known(), here.design_seq()), (br#"{"name":"ours"}"#.to_vec(), 1));
    assert_eq!(here.attached_elsewhere(), elsewhere, "no other process has attached anything");
    there.update(set("newer")).unwrap();
    catalog.engine().catch_up().unwrap();
    catalog.database("db").unwrap();
    assert_eq!(known(), br#"{"name":"newer"}"#);
}
