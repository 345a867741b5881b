//! A long load resumes after a crash from its last checkpoint, with any possible state of engine and files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_storage::faulty::{FaultyEngine, SyncFault};
use settee_storage::memory::MemoryEngine;
use settee_storage::{Engine, StorageError};

use super::crashes::check_stored;
use super::host::TestHost;
use super::random::{VIEWS, change, compare};
use super::{counted_core, ddoc, run_directory, settings};
use crate::clock::Clock;
use crate::index::{Checkpoint, IndexStore, Tokens};
use crate::indexer::Settings;
use crate::indexer::runs::RunDirectory;
use crate::pace::Urgency;
use settee_model::testing::Random;

fn busy_clock() -> Clock {
    let now = AtomicU64::new(0);
    Clock::new(move || now.fetch_add(1000, Ordering::Relaxed))
}

pub(super) fn hurried(directory: &Path, memory_bytes: usize) -> Settings {
    Settings {
        checkpoint_interval_ms: 3,
        clock: busy_clock(),
        run_directory: directory.to_owned(),
        ..settings(2, memory_bytes)
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).into_iter().flatten() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

struct Moment {
    engine: MemoryEngine,
    files: PathBuf,
}

type Moments = Arc<Mutex<Vec<Moment>>>;

/// Records possible states of an engine after a crash: the durable state, all commits, and one in between.
fn remember_moments(engine: &FaultyEngine, files: PathBuf) -> Moments {
    let moments = Moments::default();
    let remembered = Arc::clone(&moments);
    engine.watch(move |engine| {
        let images: Vec<MemoryEngine> = engine.crash_images().collect();
        let count = images.len();
        let mut moments = remembered.lock();
        for (index, engine) in images.into_iter().enumerate() {
            if [0, count / 2, count - 1].contains(&index) {
                let copied = run_directory();
                copy(&files, &copied);
                moments.push(Moment { engine, files: copied });
            }
        }
    });
    moments
}

fn checkpoints(host: &TestHost, engine: &Arc<dyn Engine>, files: &Path) -> Vec<(RunDirectory, Checkpoint)> {
    let store = |shard| IndexStore::new(Arc::clone(engine), shard, Arc::new(Tokens::new(0)), Arc::default());
    let of = |shard| Some((RunDirectory::new(files, shard), store(shard).checkpoint().unwrap()?));
    host.index_shards().into_iter().filter_map(of).collect()
}

fn watched_build(seed: u64) -> (TestHost, Random, Vec<Moment>) {
    println!("seed {seed}");
    let mut random = Random::of(seed);
    let files = run_directory();
    let engine = FaultyEngine::new();
    let moments = remember_moments(&engine, files.clone());
    let host = TestHost::new(Arc::new(engine));
    change(&host, &mut random, 1_500, 1_200);
    let (core, language) = counted_core(hurried(&files, 60_000));
    core.update(&host, &ddoc(VIEWS), Urgency::Client).unwrap();
    compare(&core, &host, &ddoc(VIEWS), &mut random, 5);
    assert!(language.mapped.load(Ordering::Relaxed) <= 1_300, "a build without a crash maps every document once");
    assert!(std::fs::read_dir(&files).unwrap().next().is_none(), "runs go when they are in the index");
    if seed % 2 == 1 {
        moments.lock().clear();
        change(&host, &mut random, 2_000, 9_000);
        core.update(&host, &ddoc(VIEWS), Urgency::Client).unwrap();
    }
    let moments = std::mem::take(&mut *moments.lock());
    (host, random, moments)
}

#[test]
fn a_load_resumes_to_the_same_index_after_a_crash_at_any_step() {
    for seed in 0..2 {
        let (built, mut random, moments) = watched_build(seed);
        let (mut resumed, count) = (0, moments.len());
        let step = if std::env::var_os("SETTEE_LIVES").is_some() { 1 } else { count.div_ceil(40) };
        for Moment { engine, files } in moments.into_iter().step_by(step) {
            let engine: Arc<dyn Engine> = Arc::new(engine);
            let host = built.over(Arc::clone(&engine));
            let stored = checkpoints(&host, &engine, &files);
            for (directory, checkpoint) in &stored {
                assert!(checkpoint.runs().all(|run| directory.is_whole(run)), "recorded before it was written");
            }
            let mut reached: Vec<u64> = stored.iter().map(|(_, checkpoint)| checkpoint.update_seq).collect();
            reached.dedup();
            // A crash between the records of one checkpoint leaves indexes at different sequences.
            let reached = if let [one] = reached[..] { Some(one) } else { None };
            let left = reached.map(|seq| crate::host::IndexHost::read(&host).unwrap().count_after(seq).unwrap());
            change(&host, &mut random, 30, 9_000);
            host.purge("d1", false);
            let (core, language) = counted_core(settings_in(&files));
            compare(&core, &host, &ddoc(VIEWS), &mut random, 3);
            core.update(&host, &ddoc(VIEWS), Urgency::Client).unwrap();
            assert_eq!(check_stored(&host, &engine), []);
            assert!(checkpoints(&host, &engine, &files).is_empty());
            if let Some(left) = left.filter(|_| stored.len() == host.index_shards().len()) {
                let mapped = language.mapped.load(Ordering::Relaxed);
                assert!(mapped <= left + 40, "{mapped} documents were mapped, where {left} were left");
                resumed += 1;
            }
        }
        assert!(resumed * step > 10, "{resumed} of {count} crashes left a checkpoint");
    }
}

fn settings_in(files: &Path) -> Settings {
    Settings { run_directory: files.to_owned(), ..settings(1, 1 << 20) }
}

#[test]
fn a_load_goes_on_after_many_crashes() {
    let mut random = Random::of(31);
    let mut engine = MemoryEngine::new();
    let files = run_directory();
    let mut host = TestHost::new(Arc::new(MemoryEngine::new()));
    change(&host, &mut random, 6_000, 9_000);
    let mut mapped_in_all = 0;
    for crash in 0.. {
        assert!(crash < 60, "the load does not come to an end");
        let faulty = Arc::new(FaultyEngine::over(engine));
        faulty.inject_sync(8, SyncFault::Fail(StorageError::Io("test".to_owned())));
        host = host.over(faulty.clone());
        let (core, language) = counted_core(hurried(&files, 60_000));
        let result = core.update(&host, &ddoc(VIEWS), Urgency::Client);
        mapped_in_all += language.mapped.load(Ordering::Relaxed);
        let images: Vec<MemoryEngine> = faulty.crash_images().collect();
        engine = images.into_iter().next().unwrap();
        if result.is_ok() {
            assert!(crash >= 2, "there was no crash");
            break;
        }
        change(&host, &mut random, 10, 9_000);
    }
    let host = host.over(Arc::new(engine));
    compare(&counted_core(settings_in(&files)).0, &host, &ddoc(VIEWS), &mut random, 30);
    assert!(mapped_in_all < 2 * 6_000, "{mapped_in_all} documents were mapped");
}

#[test]
fn runs_that_are_broken_or_gone_are_not_used() {
    let (built, mut random, moments) = watched_build(4);
    let breaking: [fn(&Path); 4] = [
        |run| std::fs::remove_file(run).unwrap(),
        |run| std::fs::write(run, b"").unwrap(),
        |run| {
            let mut bytes = std::fs::read(run).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            std::fs::write(run, bytes).unwrap();
        },
        |run| std::fs::write(run.with_file_name("99999.run"), b"an unreferenced file").unwrap(),
    ];
    let mut broken = 0;
    for (index, Moment { engine, files }) in moments.into_iter().enumerate() {
        let engine: Arc<dyn Engine> = Arc::new(engine);
        let host = built.over(Arc::clone(&engine));
        let stored = checkpoints(&host, &engine, &files);
        let Some((_, checkpoint)) = stored.first().filter(|(_, checkpoint)| !checkpoint.rows.is_empty()) else {
            continue;
        };
        let run = checkpoint.rows[usize::try_from(random.below(checkpoint.rows.len() as u64)).unwrap()].number;
        let has_checkpoint = |shard: &settee_storage::Shard| {
            let store = IndexStore::new(Arc::clone(&engine), *shard, Arc::new(Tokens::new(0)), Arc::default());
            store.checkpoint().unwrap().is_some()
        };
        let shard = host.index_shards().into_iter().find(has_checkpoint).unwrap();
        breaking[index % 4](&files.join(shard.0.to_string()).join(format!("{run}.run")));
        broken += 1;
        host.put("new", None);
        let (core, _) = counted_core(settings_in(&files));
        compare(&core, &host, &ddoc(VIEWS), &mut random, 3);
        core.update(&host, &ddoc(VIEWS), Urgency::Client).unwrap();
        assert_eq!(check_stored(&host, &engine), []);
        assert!(std::fs::read_dir(&files).unwrap().next().is_none(), "nothing is left over");
    }
    assert!(broken > 20);
}

#[test]
fn an_expired_purge_ends_recorded_progress() {
    let (built, mut random, moments) = watched_build(6);
    let last = moments.into_iter().rev().find(|moment| std::fs::read_dir(&moment.files).unwrap().next().is_some());
    let Moment { engine, files } = last.unwrap();
    let engine: Arc<dyn Engine> = Arc::new(engine);
    let host = built.over(Arc::clone(&engine));
    let ids: Vec<String> = host.documents.lock().by_id.keys().take(50).cloned().collect();
    ids.iter().for_each(|id| host.purge(id, false));
    host.forget_purges();
    let (core, _) = counted_core(settings_in(&files));
    compare(&core, &host, &ddoc(VIEWS), &mut random, 20);
    assert_eq!(check_stored(&host, &engine), []);
}
