//! Random commits through three processes while requests to the store are slow, fail or lose their responses, and while
//! the owners of groups change. A model contains the acknowledged commits.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_cluster::Groups;
use settee_storage::conformance::Generator;
use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Shard, Snapshot, Version,
};
use settee_storage_bucket::{BucketEngine, Options};

use crate::faulty::FaultyStore;
use crate::network::Network;
use crate::nodes::{GROUPS, shards, three_on, until, with_groups};

/// Threads that commit through each process.
const THREADS: u64 = 2;

/// Acknowledged commits of each process in each phase.
const COMMITS: u64 = 3;

/// Pause of a thread after an error.
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// The third process leaves.
    Leaves,
    /// No process reaches the second one for some time.
    LosesNetwork,
    /// The first process, which is the coordinator, does not reach the store for some time.
    LosesStore,
}

/// Commits of all threads.
#[derive(Default)]
struct Model {
    acknowledged: Mutex<HashMap<(Shard, u64), CommitToken>>,
    /// Commits that may have been applied.
    doubtful: Mutex<HashSet<CommitToken>>,
    /// Number of acknowledged commits of each process.
    counts: [AtomicU64; 3],
    last_token: AtomicU64,
    has_ended: AtomicBool,
}

impl Model {
    /// Returns false after an error.
    fn commit(&self, process: usize, engine: &BucketEngine, shard: Shard) -> bool {
        let state = match engine.snapshot(shard).and_then(|view| view.state()) {
            Ok(state) => state,
            Err(error) => {
                assert!(error.is_temporary(), "{error:?}");
                return false;
            }
        };
        let number = self.last_token.fetch_add(1, Ordering::SeqCst) + 1;
        let (token, Version(version)) = (CommitToken(u128::from(number)), state.version);
        let mut batch = Batch::new();
        batch.put(Keyspace::Bodies, &(version + 1).to_be_bytes(), &number.to_be_bytes());
        match engine.commit(shard, Version(version), token, batch, Durability::Synced) {
            Ok(Outcome::Committed(made)) => {
                assert_eq!(made, Version(version + 1));
                let earlier = self.acknowledged.lock().insert((shard, made.0), token);
                assert_eq!(earlier, None, "two commits have the version {made:?} of {shard:?}");
                self.counts[process].fetch_add(1, Ordering::SeqCst);
                true
            }
            Ok(Outcome::Conflict(_)) => true,
            Ok(_) => {
                self.doubtful.lock().insert(token);
                false
            }
            Err(error) => {
                assert!(error.is_temporary(), "{error:?}");
                self.doubtful.lock().insert(token);
                false
            }
        }
    }

    fn commit_until_ended(&self, process: usize, engine: &BucketEngine, seed: u64) {
        let mut random = Generator::new(seed);
        let shards = shards();
        while !self.has_ended.load(Ordering::SeqCst) {
            if !self.commit(process, engine, shards[random.below(shards.len())]) {
                thread::sleep(PAUSE);
            }
        }
    }

    fn count(&self, process: usize) -> u64 {
        self.counts[process].load(Ordering::SeqCst)
    }

    /// Returns the number of acknowledged commits to the shard.
    fn count_of(&self, shard: Shard) -> usize {
        self.acknowledged.lock().keys().filter(|(found, _)| *found == shard).count()
    }

    /// Compares the model with the store, as a process reads it. Returns the number of commits.
    fn check(&self, engine: &BucketEngine, seed: u64) -> usize {
        let (acknowledged, doubtful) = (self.acknowledged.lock(), self.doubtful.lock());
        let mut applied = HashSet::new();
        for shard in shards() {
            let snapshot = engine.snapshot(shard).unwrap();
            let rows = rows(&*snapshot);
            let version = snapshot.state().unwrap().version.0;
            assert_eq!(rows.len() as u64, version, "{shard:?} has a hole, seed {seed}");
            for (number, token) in (1..).zip(&rows) {
                match acknowledged.get(&(shard, number)) {
                    Some(expected) => assert_eq!(token, expected, "version {number} of {shard:?}, seed {seed}"),
                    None => assert!(doubtful.contains(token), "version {number} of {shard:?}, seed {seed}"),
                }
                assert!(applied.insert(*token), "{token:?} is applied twice, seed {seed}");
            }
        }
        let lost = acknowledged.values().filter(|token| !applied.contains(token)).count();
        assert_eq!(lost, 0, "acknowledged commits are lost, seed {seed}");
        applied.len()
    }
}

/// Returns the tokens of the commits of a shard.
fn rows(snapshot: &dyn Snapshot) -> Vec<CommitToken> {
    let mut cursor = snapshot.scan(Keyspace::Bodies, KeyRange::default(), Direction::Forward, Expect::All).unwrap();
    let mut rows = Vec::new();
    while let Some((key, value)) = cursor.next().unwrap() {
        assert_eq!(key, (rows.len() as u64 + 1).to_be_bytes());
        rows.push(CommitToken(u128::from(u64::from_be_bytes(value.try_into().unwrap()))));
    }
    rows
}

/// Claims groups without an owner, as servers do.
fn claim_vacant(engines: &[&BucketEngine]) {
    let groups = Groups::new(engines[0].group_count().unwrap());
    for group in 0..GROUPS {
        let key = groups.key(group);
        let has_owner = engines.iter().any(|engine| {
            let members = engine.members();
            let writers = members.writers();
            writers.iter().any(|(claim, node)| claim.key == key && *node == members.this() && members.holds(claim))
        });
        if !has_owner {
            let _ = engines.iter().find(|engine| matches!(engine.members().claim(&key), Ok(Some(_))));
        }
    }
}

/// Waits for acknowledged commits of each process, and to each shard.
fn until_more(label: &str, model: &Model, engines: &[(usize, &BucketEngine)], more: u64) {
    let before = engines.iter().map(|(process, _)| model.count(*process)).collect::<Vec<_>>();
    let before_of: Vec<usize> = shards().into_iter().map(|shard| model.count_of(shard)).collect();
    let all: Vec<&BucketEngine> = engines.iter().map(|(_, engine)| *engine).collect();
    let mut claimed = Instant::now();
    let waited = until(label, || {
        if claimed.elapsed() > Duration::from_millis(200) {
            claim_vacant(&all);
            claimed = Instant::now();
        }
        let by_all = engines.iter().zip(&before).all(|((process, _), before)| model.count(*process) >= before + more);
        by_all && shards().into_iter().zip(&before_of).all(|(shard, before)| model.count_of(shard) > *before)
    });
    println!("{label}: {waited:?}");
}

/// `failures` is the number of requests in 1,000 that fail, and of those that lose their response.
fn check(latency_ms: u64, failures: u64, change: Change, timeout: Duration) {
    let seed = RandomState::new().hash_one(1);
    println!("seed {seed}");
    let (store, network) = (FaultyStore::new(seed), Network::new());
    let lease = Duration::from_secs(3);
    let (stores, engines) = three_on(&network, &store, || Options { lease, timeout, ..with_groups(GROUPS) });
    let model = Model::default();
    let [first, second, third] = engines.each_ref().map(AsRef::as_ref);
    let address = format!("http://node-{}/", second.members().this().0);
    thread::scope(|scope| {
        for (process, engine) in engines.iter().enumerate() {
            for thread in 0..THREADS {
                let (model, seed) = (&model, seed ^ (process as u64 * THREADS + thread + 1));
                scope.spawn(move || model.commit_until_ended(process, engine, seed));
            }
        }
        let all = [(0, first), (1, second), (2, third)];
        until_more("all commit without faults", &model, &all, 1);
        for store in &stores {
            store.set_latency(Duration::from_millis(latency_ms));
            store.set_failures(failures, failures);
        }
        until_more("all commit", &model, &all, COMMITS);
        let others = match change {
            Change::Leaves => [all[0], all[1]],
            Change::LosesNetwork => [all[0], all[2]],
            Change::LosesStore => [all[1], all[2]],
        };
        match change {
            Change::Leaves => third.close(),
            Change::LosesNetwork => network.set_silent(&address, true),
            Change::LosesStore => stores[0].set_down(true),
        }
        until_more("the others commit to every group", &model, &others, COMMITS);
        network.set_silent(&address, false);
        stores[0].set_down(false);
        if change != Change::Leaves {
            until_more("all commit again", &model, &all, COMMITS);
        }
        model.has_ended.store(true, Ordering::SeqCst);
    });
    stores.iter().for_each(|store| store.set_failures(0, 0));
    stores.iter().for_each(|store| store.set_latency(Duration::ZERO));
    for engine in
        engines.iter().filter(|engine| change != Change::Leaves || engine.members().this() != third.members().this())
    {
        let commits = model.check(engine, seed);
        println!("{commits} commits, {} in doubt", model.doubtful.lock().len());
    }
}

#[test]
fn nothing_is_lost_at_5_ms_if_a_process_loses_the_network() {
    check(5, 20, Change::LosesNetwork, Duration::from_secs(3));
}

#[test]
fn nothing_is_lost_at_50_ms_if_the_coordinator_loses_the_store() {
    check(50, 20, Change::LosesStore, Duration::from_secs(3));
}

#[test]
fn nothing_is_lost_at_500_ms_if_a_process_leaves() {
    check(500, 10, Change::Leaves, Duration::from_secs(30));
}
