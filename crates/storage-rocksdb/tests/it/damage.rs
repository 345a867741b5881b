//! Flipped bytes below a running engine: reads of affected shards fail, and all other shards can be read and written.
//! `SETTEE_TEST_SCALE=10` tries ten places of each kind of file.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Shard, StorageError,
};
use settee_storage_rocksdb::files::salvage;
use settee_storage_rocksdb::{Options, RocksEngine};

const FLIPPED: usize = 64;

const SHARDS: RangeInclusive<u64> = 1..=8;

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

/// Every single lookup must return the original value or an error.
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

fn hurt_in_use(kind: &str, damage: fn(&Path, &mut Random) -> io::Result<String>) {
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

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn one_place(
    path: &Path,
    expected: &Contents,
    damage: fn(&Path, &mut Random) -> io::Result<String>,
    seed: u64,
) -> (usize, usize) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let engine = open(path).unwrap();
    engine.maintain().unwrap();
    // A compaction may remove the chosen file before it is damaged; then another is chosen.
    let mut label = damage(path, &mut random);
    while label.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        label = damage(path, &mut random);
    }
    let label = format!("seed {seed}, {}", label.unwrap());
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
        for _ in 0..2 {
            for shard in SHARDS {
                let put = |batch: &mut Batch| batch.put(Keyspace::Local, b"new", b"x");
                let _ = commit(&engine, Shard(shard), &put);
                let _ = engine.reclaim(Shard(shard));
            }
        }
    });
    drop(engine);
    let engine = open(path).unwrap_or_else(|error| panic!("{label}: {error}"));
    engine.maintain().unwrap();
    let (found, hurt) = contents(&engine);
    for (key, value) in &found {
        assert!(expected.get(key).is_none_or(|before| before == value), "{label}: {key:?} is another");
    }
    let shards: BTreeSet<u64> = hurt.iter().map(|(shard, _)| *shard).collect();
    let lost = check_gets(&engine, expected, &hurt, &label);
    assert!(hurt.is_empty() || engine.damage().is_some(), "{label}: {hurt:?} are damaged, which is not reported");
    let engine = reopened(engine, path, &label);
    assert_eq!(contents(&engine).1, hurt, "{label}");
    let damage = engine.damage();
    shards.iter().for_each(|shard| engine.drop_shard(Shard(*shard)).unwrap());
    let engine = reopened(engine, path, &label);
    let mut rest = expected.clone();
    rest.retain(|(shard, ..), _| !shards.contains(shard));
    let is_complete = |engine: &RocksEngine| {
        let (mut found, hurt) = contents(engine);
        found.retain(|(_, _, key), _| key != b"new");
        assert!(found == rest, "{label}: others have lost something");
        hurt
    };
    // A scan may read the block after its last entry, which is damaged and belonged to the next shard.
    for (shard, _) in is_complete(&engine) {
        let is_neighbour = |hurt: &u64| shard.abs_diff(*hurt) == 1;
        assert!(shards.iter().any(is_neighbour), "{label}: {shard} is hurt");
    }
    SHARDS.for_each(|shard| engine.reclaim(Shard(shard)).unwrap());
    commit(&engine, BYSTANDER, &|batch| batch.put(Keyspace::Local, b"last", b"x")).unwrap();
    engine.check().unwrap();
    drop(engine);
    let salvaged = path.join("salvaged");
    salvage(path, &salvaged, &Options::default(), &mut |_| {}).unwrap();
    let engine = open(&salvaged).unwrap();
    assert_eq!(is_complete(&engine), BTreeSet::new(), "{label}: salvaged");
    assert_eq!(engine.damage(), None, "{label}: {damage:?}");
    (lost, shards.len())
}

fn reopened(engine: RocksEngine, path: &Path, label: &str) -> RocksEngine {
    drop(engine);
    let engine = open(path).unwrap_or_else(|error| panic!("{label}: {error}"));
    engine.maintain().unwrap();
    engine
}

/// Inverts bytes of an existing file. The file is not created if it was removed.
fn flip(path: &Path, places: RangeInclusive<usize>, random: &mut Random) -> io::Result<String> {
    let mut bytes = fs::read(path)?;
    let length = FLIPPED.min(bytes.len());
    let (first, last) = (bytes.len() * places.start() / 100, bytes.len() * places.end() / 100 - length);
    let start = first + random.below(last - first + 1);
    bytes[start..start + length].iter_mut().for_each(|byte| *byte = !*byte);
    File::options().write(true).open(path)?.write_all(&bytes)?;
    Ok(format!("{} at {start}", path.file_name().unwrap().to_str().unwrap()))
}

fn one_of(paths: &[PathBuf], random: &mut Random) -> PathBuf {
    paths[random.below(paths.len())].clone()
}

#[test]
fn flipped_bytes_of_a_sorted_file_affect_no_other_shard() {
    hurt_in_use("sorted files", |path, random| {
        let mut paths = files(path, "sst");
        paths.retain(|path| fs::metadata(path).is_ok_and(|found| found.len() > 10_000));
        flip(&one_of(&paths, random), 0..=50, random)
    });
}

#[test]
fn flipped_bytes_of_a_blob_file_affect_no_other_shard() {
    hurt_in_use("blob files", |path, random| flip(&one_of(&files(path, "blob"), random), 0..=100, random));
}

/// RocksDB opens no file whose end is damaged. The store is not opened for writing, and the rest can be read.
#[test]
fn a_store_with_a_damaged_end_of_a_sorted_file_is_read_only() {
    let directory = tempfile::tempdir().unwrap();
    let engine = open(directory.path()).unwrap();
    fill(&engine, &mut Random(5), 3);
    SHARDS.for_each(|shard| engine.reclaim(Shard(shard)).unwrap());
    engine.sync().unwrap();
    drop(engine);
    let expected = contents(&open(directory.path()).unwrap()).0;
    let mut paths = files(directory.path(), "sst");
    paths.sort_by_key(|path| fs::metadata(path).unwrap().len());
    let path = &paths[paths.len() / 2];
    let mut bytes = fs::read(path).unwrap();
    let end = bytes.len() - 20;
    bytes[end..].iter_mut().for_each(|byte| *byte = !*byte);
    fs::write(path, bytes).unwrap();
    let error = open(directory.path()).unwrap_err();
    assert!(error.to_string().contains(path.file_name().unwrap().to_str().unwrap()), "{error}");
    let engine = RocksEngine::open_read_only(directory.path(), &Options::default()).unwrap();
    let (found, hurt) = contents(&engine);
    assert!(!found.is_empty() && !hurt.is_empty() && found.len() < expected.len(), "{} {hurt:?}", found.len());
    assert!(found.iter().all(|(key, value)| expected.get(key) == Some(value)));
    let salvaged = directory.path().join("salvaged");
    salvage(directory.path(), &salvaged, &Options::default(), &mut |_| {}).unwrap();
    assert!(contents(&open(&salvaged).unwrap()) == (expected, BTreeSet::new()));
}
