//! Flipped bytes below a running engine: reads of affected shards fail, all other shards can be read and written, and
//! dropping the affected shards removes the damage. `SETTEE_TEST_SCALE=10` tries ten places of each kind of file.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Shard, StorageError,
};
use settee_storage_rocksdb::files::{Depth, Fault, FileKind, check};
use settee_storage_rocksdb::{Options, RocksEngine};

const FLIPPED: usize = 64;

const SHARDS: RangeInclusive<u64> = 1..=8;

/// Shard of the writer that must not be affected.
const BYSTANDER: Shard = Shard(20);

struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

fn open(path: &Path) -> Result<RocksEngine, StorageError> {
    RocksEngine::open(path, &Options { write_buffer_bytes: 1 << 20, ..Options::default() })
}

fn commit(engine: &RocksEngine, shard: Shard, fill: &dyn Fn(&mut Batch)) -> Result<(), StorageError> {
    loop {
        let version = engine.snapshot(shard)?.state()?.version;
        let mut batch = Batch::new();
        fill(&mut batch);
        match engine.commit(shard, version, CommitToken(7), batch, Durability::Buffered)? {
            Outcome::Committed(_) => return Ok(()),
            Outcome::Conflict(_) | Outcome::Unknown => {}
        }
    }
}

fn fill(engine: &RocksEngine, random: &mut Random, commits: usize) {
    for _ in 0..commits {
        for shard in SHARDS {
            let entries: Vec<_> = (0..20)
                .map(|_| {
                    let space = Keyspace::ALL[random.below(Keyspace::ALL.len())];
                    let large = matches!(space, Keyspace::Bodies | Keyspace::Attachments) && random.below(8) == 0;
                    let length = random.below(if large { 30_000 } else { 300 });
                    (space, format!("key {:05}", random.below(3000)), random.bytes(length))
                })
                .collect();
            let put =
                |batch: &mut Batch| entries.iter().for_each(|(s, key, value)| batch.put(*s, key.as_bytes(), value));
            commit(engine, Shard(shard), &put).unwrap();
        }
    }
}

type Contents = BTreeMap<(u64, Keyspace, Vec<u8>), Vec<u8>>;

/// Returns the readable contents, and the unreadable parts of shards. A read may find new damage; the store is then
/// opened again, and the next read sees the rest.
fn contents(engine: &RocksEngine) -> (Contents, BTreeSet<(u64, Keyspace)>) {
    loop {
        match read_all(engine) {
            Ok(found) => return found,
            Err(StorageError::Interrupted(_)) => engine.maintain().unwrap(),
            Err(error) => panic!("{error}"),
        }
    }
}

fn read_all(engine: &RocksEngine) -> Result<(Contents, BTreeSet<(u64, Keyspace)>), StorageError> {
    let (mut contents, mut hurt) = (Contents::new(), BTreeSet::new());
    for shard in SHARDS {
        let snapshot = engine.snapshot(Shard(shard))?;
        match snapshot.state() {
            Err(StorageError::Dropped) => continue,
            Err(error @ StorageError::Interrupted(_)) => return Err(error),
            Err(_) => drop(hurt.insert((shard, Keyspace::Catalog))),
            Ok(_) => {}
        }
        for space in Keyspace::ALL {
            for direction in [Direction::Forward, Direction::Backward] {
                let mut cursor = match snapshot.scan(space, KeyRange::default(), direction, Expect::All) {
                    // The shard has no entries, and whether it was dropped is unknown.
                    Err(StorageError::Corrupt(_) | StorageError::Io(_)) => {
                        hurt.insert((shard, space));
                        continue;
                    }
                    cursor => cursor?,
                };
                loop {
                    match cursor.next() {
                        Ok(Some((key, value))) => drop(contents.insert((shard, space, key.to_vec()), value.to_vec())),
                        Ok(None) => break,
                        Err(StorageError::Corrupt(_) | StorageError::Io(_)) => {
                            hurt.insert((shard, space));
                            break;
                        }
                        Err(error) => return Err(error),
                    }
                }
            }
        }
    }
    Ok((contents, hurt))
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn files(directory: &Path, kind: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|found| found == kind)).collect();
    paths.sort();
    paths
}

/// Checks that every single lookup returns the original value or an error.
fn check_gets(engine: &RocksEngine, expected: &Contents, hurt: &BTreeSet<(u64, Keyspace)>, label: &str) -> usize {
    let mut lost = 0;
    for ((shard, space, key), value) in expected {
        match engine.snapshot(Shard(*shard)).unwrap().get(*space, key) {
            Ok(found) => assert_eq!(found.as_ref(), Some(value), "{label}: {shard} {space:?} {key:?}"),
            Err(_) => {
                assert!(hurt.contains(&(*shard, *space)), "{label}: {shard} {space:?} is scanned without an error");
                lost += 1;
            }
        }
    }
    lost
}

fn hurt_in_use(kind: &str, damage: fn(&Path, &mut Random) -> String) {
    let places: u64 = env::var("SETTEE_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
    let origin = tempfile::tempdir().unwrap();
    let mut random = Random(5);
    let expected = {
        let engine = open(origin.path()).unwrap();
        fill(&engine, &mut random, 60);
        SHARDS.for_each(|shard| engine.reclaim(Shard(shard)).unwrap());
        fill(&engine, &mut random, 10);
        engine.sync().unwrap();
        drop(engine);
        contents(&open(origin.path()).unwrap()).0
    };
    let (mut all_lost, mut all_shards) = (0, 0);
    for seed in 1..=places {
        let directory = tempfile::tempdir().unwrap();
        copy(origin.path(), directory.path());
        let (lost, shards) = one_place(directory.path(), &expected, damage, seed);
        all_lost += lost;
        all_shards += shards;
    }
    println!(
        "{kind}: {places} places, {all_lost} of {} entries lost, {all_shards} of {} shards hurt",
        expected.len() as u64 * places,
        SHARDS.count() as u64 * places
    );
}

/// Ends the threads that poll the flag, also when a test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn one_place(path: &Path, expected: &Contents, damage: fn(&Path, &mut Random) -> String, seed: u64) -> (usize, usize) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let engine = open(path).unwrap();
    engine.maintain().unwrap();
    let label = format!("seed {seed}, {}", damage(path, &mut random));
    println!("{label}");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let _ = engine.maintain();
                thread::park_timeout(Duration::from_millis(10));
            }
        });
        scope.spawn(|| {
            for number in 0_u64.. {
                let put = |batch: &mut Batch| batch.put(Keyspace::Documents, &number.to_be_bytes(), b"x");
                commit(&engine, BYSTANDER, &put).unwrap_or_else(|error| panic!("{label}: write {number}: {error}"));
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let _ends = Ends(&is_over);
        // Compactions read all data and find the damage step by step.
        for _ in 0..2 {
            for shard in SHARDS {
                let put = |batch: &mut Batch| batch.put(Keyspace::Local, b"new", b"x");
                let _ = commit(&engine, Shard(shard), &put);
                let _ = engine.reclaim(Shard(shard));
            }
        }
    });
    let is_unnoticed = engine.damage().is_none();
    drop(engine);
    let engine = match open(path) {
        // The engine has read a deleted file through its open handle only, and a start requires the file.
        Err(StorageError::Corrupt(text)) if is_unnoticed && text.ends_with("is missing") => return (0, 0),
        opened => opened.unwrap_or_else(|error| panic!("{label}: {error}")),
    };
    engine.maintain().unwrap();
    let (found, hurt) = contents(&engine);
    for (key, value) in &found {
        assert!(expected.get(key).is_none_or(|before| before == value), "{label}: {key:?} is another");
    }
    let shards: BTreeSet<u64> = hurt.iter().map(|(shard, _)| *shard).collect();
    let lost = check_gets(&engine, expected, &hurt, &label);
    assert_eq!(
        engine.damage().is_some(),
        !hurt.is_empty(),
        "{label}: {hurt:?} are damaged, and {:?} is reported",
        engine.damage()
    );
    // The damage persists until the affected shards are dropped.
    let engine = reopened(engine, path, &label);
    assert_eq!(contents(&engine).1, hurt, "{label}");
    shards.iter().for_each(|shard| engine.drop_shard(Shard(*shard)).unwrap());
    let engine = reopened(engine, path, &label);
    let (mut found, hurt) = contents(&engine);
    assert!(hurt.is_empty() && engine.damage().is_none(), "{label}: {hurt:?} {:?}", engine.damage());
    found.retain(|(_, _, key), _| key != b"new");
    let mut rest = expected.clone();
    rest.retain(|(shard, ..), _| !shards.contains(shard));
    assert!(found == rest, "{label}: others have lost something");
    SHARDS.for_each(|shard| engine.reclaim(Shard(shard)).unwrap());
    commit(&engine, BYSTANDER, &|batch| batch.put(Keyspace::Local, b"last", b"x")).unwrap();
    engine.check().unwrap();
    drop(engine);
    let checked = check(path, Depth::Whole, &mut |_, _| {}).unwrap();
    // An unreferenced value stays in its file until garbage collection.
    let is_over = |fault: &Fault| fault.is_cut_end || fault.kind == FileKind::Blob;
    assert!(checked.faults.iter().all(is_over), "{label}: {:?}", checked.faults);
    (lost, shards.len())
}

fn reopened(engine: RocksEngine, path: &Path, label: &str) -> RocksEngine {
    drop(engine);
    let engine = open(path).unwrap_or_else(|error| panic!("{label}: {error}"));
    engine.maintain().unwrap();
    engine
}

fn flip(path: &Path, random: &mut Random) -> String {
    let mut bytes = fs::read(path).unwrap();
    let length = FLIPPED.min(bytes.len());
    let start = random.below(bytes.len() - length + 1);
    bytes[start..start + length].iter_mut().for_each(|byte| *byte = !*byte);
    fs::write(path, bytes).unwrap();
    format!("{} at {start}", path.file_name().unwrap().to_str().unwrap())
}

fn one_of(paths: &[PathBuf], random: &mut Random) -> PathBuf {
    paths[random.below(paths.len())].clone()
}

#[test]
fn flipped_bytes_of_a_sorted_file_affect_no_other_shard() {
    hurt_in_use("sorted files", |path, random| flip(&one_of(&files(path, "sst"), random), random));
}

#[test]
fn flipped_bytes_of_a_blob_file_affect_no_other_shard() {
    hurt_in_use("blob files", |path, random| flip(&one_of(&files(path, "blob"), random), random));
}

#[test]
fn a_missing_sorted_file_affects_no_other_shard() {
    hurt_in_use("missing sorted files", |path, random| {
        let file = one_of(&files(path, "sst"), random);
        fs::remove_file(&file).unwrap();
        format!("without {}", file.display())
    });
}
