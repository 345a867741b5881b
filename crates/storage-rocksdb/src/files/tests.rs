//! Stores written by the engine, read without it: undamaged, and with flipped bytes.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine as _, Expect, KeyRange, Keyspace, Outcome, Shard, StorageError,
    Version,
};
use tempfile::TempDir;

use super::bytes::masked_crc;
use super::log::{BLOCK, HEADER};
use super::*;
use crate::{Options, RocksEngine, damage};

const FLIPPED: usize = 64;

const PLACES: u64 = 10;

const SHARDS: RangeInclusive<u64> = 1..=6;

pub(super) struct Random(pub(super) u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % bound
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.below(256) as u8).collect()
    }
}

pub(super) fn open(path: &Path) -> RocksEngine {
    let options = Options { write_buffer_bytes: 1 << 20, ..Options::default() };
    RocksEngine::open(path, &options).unwrap()
}

fn commit(engine: &RocksEngine, shard: u64, batch: Batch) {
    let state = engine.snapshot(Shard(shard)).unwrap().state().unwrap();
    let outcome = engine.commit(Shard(shard), state.version, CommitToken(7), batch, Durability::Buffered).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(state.version.0 + 1)));
}

fn is_dropped(engine: &RocksEngine, shard: u64) -> bool {
    matches!(engine.snapshot(Shard(shard)).unwrap().state(), Err(StorageError::Dropped))
}

pub(super) fn fill(engine: &RocksEngine, random: &mut Random, commits: u64) {
    for number in 0..commits {
        let shard = SHARDS.start() + random.below(*SHARDS.end());
        let mut batch = Batch::new();
        for _ in 0..20 {
            let space = Keyspace::ALL[random.below(8) as usize];
            let key = format!("key {:05}", random.below(4000)).into_bytes();
            let length = match space {
                Keyspace::Bodies | Keyspace::Attachments => random.below(30_000) as usize,
                _ => random.below(200) as usize,
            };
            match random.below(5) {
                0 => batch.delete(space, &key),
                _ => batch.put(space, &key, &[random.bytes(length / 2), vec![b'x'; length / 2]].concat()),
            }
        }
        if !is_dropped(engine, shard) {
            commit(engine, shard, batch);
        }
        if number % 100 == 99 {
            engine.drop_shard(Shard(*SHARDS.end())).unwrap();
        }
    }
}

fn append(length: usize, record: &[u8]) -> Vec<u8> {
    let (mut out, mut rest, mut is_first) = (Vec::new(), record, true);
    loop {
        let left = BLOCK - (length + out.len()) % BLOCK;
        if left < HEADER {
            out.resize(out.len() + left, 0);
            continue;
        }
        let (payload, others) = rest.split_at(rest.len().min(left - HEADER));
        let kind = match (is_first, others.is_empty()) {
            (true, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
            (false, true) => 4,
        };
        out.extend_from_slice(&masked_crc(&[&[kind], payload]).to_le_bytes());
        out.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(payload);
        if others.is_empty() {
            return out;
        }
        (rest, is_first) = (others, false);
    }
}

pub(super) type Contents = BTreeMap<(u64, Keyspace, Vec<u8>), Vec<u8>>;

pub(super) fn contents(engine: &RocksEngine) -> Contents {
    let mut contents = Contents::new();
    for shard in SHARDS.filter(|shard| !is_dropped(engine, *shard)) {
        let snapshot = engine.snapshot(Shard(shard)).unwrap();
        for space in Keyspace::ALL {
            let mut cursor = snapshot.scan(space, KeyRange::default(), Direction::Forward, Expect::All).unwrap();
            while let Some((key, value)) = cursor.next().unwrap() {
                contents.insert((shard, space, key.to_vec()), value.to_vec());
            }
        }
    }
    contents
}

pub(super) fn store(directory: &Path, seed: u64, commits: u64) -> Contents {
    let engine = open(directory);
    let mut random = Random(seed);
    fill(&engine, &mut random, commits);
    engine.reclaim(Shard(1)).unwrap();
    fill(&engine, &mut random, 10);
    engine.sync().unwrap();
    contents(&engine)
}

pub(super) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn files(directory: &Path, is_wanted: fn(&str) -> bool) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_used = |path: &PathBuf| is_wanted(path.file_name().unwrap().to_str().unwrap());
    let mut paths: Vec<PathBuf> = paths.filter(is_used).filter(|path| fs::metadata(path).unwrap().len() > 0).collect();
    paths.sort();
    paths
}

fn flip(files: &[PathBuf], random: &mut Random) -> (PathBuf, u64) {
    let path = &files[random.below(files.len() as u64) as usize];
    let mut bytes = fs::read(path).unwrap();
    let length = FLIPPED.min(bytes.len());
    let start = random.below((bytes.len() - length + 1) as u64) as usize;
    for byte in &mut bytes[start..start + length] {
        *byte = !*byte;
    }
    fs::write(path, bytes).unwrap();
    (path.clone(), start as u64)
}

fn salvaged(from: &Path, to: &Path) -> (Salvaged, Contents) {
    let found = salvage(from, to, &Options::default(), &mut |_| {}).unwrap();
    let contents = contents(&open(to));
    (found, contents)
}

#[test]
fn a_whole_store_has_no_faults_and_is_salvaged_whole() {
    let directory = TempDir::new().unwrap();
    let (old, new) = (directory.path().join("old"), directory.path().join("new"));
    let expected = store(&old, 1, 400);
    let checked = check(&old, Depth::Full, &mut |_, _| {}).unwrap();
    assert_eq!(checked.faults, []);
    let (found, contents) = salvaged(&old, &new);
    assert_eq!((found.damaged, found.lost_writes), (vec![], false));
    assert!(contents == expected, "{} entries instead of {}", contents.len(), expected.len());
    assert!(contents.len() > 1000);
}

#[test]
fn missing_files_are_found_without_reading_the_others() {
    let directory = TempDir::new().unwrap();
    store(directory.path(), 2, 200);
    let check = || check(directory.path(), Depth::Metadata, &mut |_, _| {}).unwrap().faults;
    assert_eq!(check(), []);
    let tables = files(directory.path(), |name| name.ends_with(".sst"));
    fs::remove_file(&tables[0]).unwrap();
    fs::write(&tables[1], "short").unwrap();
    let found: Vec<(PathBuf, bool)> =
        check().into_iter().map(|fault| (fault.file, fault.description == "is missing")).collect();
    assert_eq!(found, [(tables[0].clone(), true), (tables[1].clone(), false)]);
}

#[test]
fn a_store_in_use_has_no_faults() {
    let directory = TempDir::new().unwrap();
    let engine = open(directory.path());
    std::thread::scope(|scope| {
        scope.spawn(|| fill(&engine, &mut Random(3), 300));
        for _ in 0..5 {
            let mut faults = check(directory.path(), Depth::Full, &mut |_, _| {}).unwrap().faults;
            faults.retain(|fault| !(fault.kind == FileKind::Log && fault.is_torn_tail));
            assert_eq!(faults, []);
        }
    });
}

#[track_caller]
fn check_flips(is_wanted: fn(&str) -> bool, kinds: &[FileKind]) {
    let directory = TempDir::new().unwrap();
    let old = directory.path().join("old");
    let expected = store(&old, 5, 300);
    let (mut places, mut lost_entries) = (0, 0);
    for seed in 1..=PLACES {
        let (hurt, new) = (directory.path().join(format!("hurt{seed}")), directory.path().join(format!("new{seed}")));
        copy(&old, &hurt);
        let (path, start) = flip(&files(&hurt, is_wanted), &mut Random(seed * 7919));
        let description = format!("seed {seed}: {} at {start}", path.file_name().unwrap().display());
        let checked = check(&hurt, Depth::Full, &mut |_, _| {}).unwrap();
        let named: Vec<&Fault> = checked.faults.iter().filter(|fault| kinds.contains(&fault.kind)).collect();
        assert!(!named.is_empty(), "{description}: nothing found, but {:?}", checked.faults);
        let (found, contents) = salvaged(&hurt, &new);
        let is_damaged = |shard: u64| found.lost_writes || found.damaged.iter().any(|range| range.contains(&shard));
        for (key, value) in &expected {
            if contents.get(key) != Some(value) {
                lost_entries += 1;
                assert!(is_damaged(key.0), "{description}: {key:?} is lost, and nothing says so: {:?}", found.damaged);
            }
        }
        for key in contents.keys().filter(|key| !expected.contains_key(key)) {
            assert!(is_damaged(key.0), "{description}: {key:?} came back");
        }
        places += 1;
        fs::remove_dir_all(&hurt).unwrap();
        fs::remove_dir_all(&new).unwrap();
    }
    let all = expected.len() * places;
    println!("{kinds:?}: {places} places, {lost_entries} of {all} entries lost");
    assert!(lost_entries * 10 < all, "{lost_entries} of {all} entries are lost");
}

#[test]
fn flipped_bytes_of_sorted_files_cost_their_block() {
    check_flips(|name| name.ends_with(".sst"), &[FileKind::Table]);
}

#[test]
fn flipped_bytes_of_blob_files_cost_their_blobs() {
    check_flips(|name| name.ends_with(".blob"), &[FileKind::Blob]);
}

#[test]
fn flipped_bytes_of_the_log_cost_their_writes() {
    check_flips(|name| name.ends_with(".log"), &[FileKind::Log]);
}

#[test]
fn flipped_bytes_of_the_manifest_cost_nothing() {
    check_flips(
        |name| name.starts_with("MANIFEST-") || name == "CURRENT" || name.starts_with("OPTIONS-") || name == "IDENTITY",
        &[FileKind::Manifest, FileKind::Current, FileKind::Text],
    );
}

#[test]
fn a_record_that_spans_blocks_is_cut_wherever_it_ends() {
    let mut bytes = append(0, &[1; 32_000]);
    let start = bytes.len();
    bytes.extend(append(start, &[2; 70_000]));
    for end in (start + 1..bytes.len()).step_by(97).chain([bytes.len() - 1]) {
        let cut = &bytes[..end];
        let last = log::Log::new(cut).last();
        let is_expected = matches!(last, Some(log::Item::Damage { offset, is_last: true, .. }) if offset == start);
        assert!(is_expected && log::is_cut(cut, start), "{end}: {last:?}");
    }
    for lost in [2, 15, 4000] {
        let mut torn = bytes.clone();
        torn[bytes.len() - lost..].fill(0);
        assert!(log::is_cut(&torn, start), "{lost}");
    }
    bytes[start + 40] ^= 1;
    assert!(!log::is_cut(&bytes, start));
}

/// Regression: a log whose end was after the last header, and before the end of the block, caused an endless loop.
#[test]
fn a_log_may_end_within_the_rest_of_a_block() {
    let first = append(0, &vec![1; (32 << 10) - 7 - 5]);
    let whole = [&first[..], &append(first.len(), &[2; 100])].concat();
    for end in first.len()..=first.len() + 5 {
        assert_eq!(log::Log::new(&whole[..end]).count(), 1, "{end}");
    }
    assert_eq!(log::Log::new(&whole).count(), 2);
}

#[test]
fn a_manifest_that_a_power_loss_cut_opens() {
    let directory = TempDir::new().unwrap();
    let manifest = |path: &Path| directory::Directory::read(path).unwrap().current.unwrap();
    drop(RocksEngine::open(directory.path(), &Options::default()).unwrap());
    let whole = fs::read(manifest(directory.path())).unwrap();
    let record = append(whole.len(), &[7; 12_000]);
    for (kept, lost) in
        [(12_007, 0..1), (12_007, 1..2), (12_007, 1..9), (5000, 0..0), (3, 0..0), (8200, 2..3), (8200, 0..1)]
    {
        let mut bytes = [&whole[..], &record[..kept]].concat();
        let first = whole.len() / 4096;
        for page in lost.clone().map(|page| (first + page) * 4096) {
            let end = (page + 4096).min(bytes.len());
            bytes[page.max(whole.len()).min(end)..end].fill(0);
        }
        if lost.is_empty() {
            // The file system may have kept one of several writes to a page.
            bytes.get_mut(whole.len()..whole.len() + 7).into_iter().for_each(|header| header.fill(0));
        }
        fs::write(manifest(directory.path()), bytes).unwrap();
        let opened = RocksEngine::open(directory.path(), &Options::default());
        drop(opened.unwrap_or_else(|error| panic!("{kept} {lost:?}: {error}")));
        fs::write(manifest(directory.path()), &whole).unwrap();
    }
}

#[test]
fn a_manifest_that_was_durable_is_not_cut() {
    let directory = TempDir::new().unwrap();
    let engine = RocksEngine::open(directory.path(), &Options::default()).unwrap();
    let mut batch = Batch::new();
    batch.put(Keyspace::Bodies, b"key", b"value");
    let outcome = engine.commit(Shard(1), Version(0), CommitToken(1), batch, Durability::Synced).unwrap();
    assert_eq!(outcome, Outcome::Committed(Version(1)));
    engine.reclaim(Shard(1)).unwrap();
    drop(engine);
    let found = directory::Directory::read(directory.path()).unwrap();
    let whole = fs::read(found.current.as_ref().unwrap()).unwrap();
    let cut_off = |bytes: &[u8]| cut_manifest(directory.path(), bytes).unwrap().map(<[u8]>::len);
    let torn = [&whole[..], &append(whole.len(), &[7; 900])[..800]].concat();
    assert_eq!(cut_off(&torn), Some(whole.len()));
    assert_eq!(cut_off(&whole), None, "nothing is cut");
    let mut flipped = whole.clone();
    flipped[20] ^= 1;
    assert_eq!(cut_off(&flipped), None, "nothing would be left");
    fs::write(found.current.as_ref().unwrap(), &flipped).unwrap();
    RocksEngine::open(directory.path(), &Options::default()).unwrap_err();
    assert!(!directory.path().join(damage::FILE).exists(), "data are not damaged");
    fs::remove_file(found.tables.values().next().unwrap()).unwrap();
    assert_eq!(cut_off(&torn), None, "a later record was durable when the file was removed");
}

#[test]
fn a_manifest_is_cut_if_the_logs_that_it_needs_are_there() {
    let directory = TempDir::new().unwrap();
    let write = |engine: &RocksEngine, shard: u64| {
        let mut batch = Batch::new();
        batch.put(Keyspace::Bodies, b"key", b"value");
        let outcome = engine.commit(Shard(shard), Version(0), CommitToken(1), batch, Durability::Synced).unwrap();
        assert_eq!(outcome, Outcome::Committed(Version(1)));
    };
    write(&RocksEngine::open(directory.path(), &Options::default()).unwrap(), 1);
    let engine = RocksEngine::open(directory.path(), &Options::default()).unwrap();
    let read = || fs::read(directory::Directory::read(directory.path()).unwrap().current.unwrap()).unwrap();
    let cut_off = |bytes: &[u8]| cut_manifest(directory.path(), bytes).unwrap().map(<[u8]>::len);
    let opened = read();
    let torn = [&opened[..], &append(opened.len(), &[7; 900])[..800]].concat();
    assert_eq!(cut_off(&torn), Some(opened.len()));
    write(&engine, 2);
    assert_eq!(cut_off(&torn), Some(opened.len()), "the log has it");
    engine.checkpoint(&directory.path().join("checkpoint")).unwrap();
    let flushed = read();
    assert!(flushed.len() > opened.len() && flushed.starts_with(&opened), "a flush was noted");
    write(&engine, 3);
    drop(engine);
    let mut damaged = flushed;
    damaged[opened.len() + 3] ^= 1;
    assert_eq!(cut_off(&damaged), None, "the log that has the second write was removed");
}

/// RocksDB's repair loses the blob files, therefore salvage reads the files itself.
#[test]
fn a_repair_by_rocksdb_loses_the_large_values_of_an_undamaged_store() {
    let directory = TempDir::new().unwrap();
    let expected = store(directory.path(), 5, 300);
    rocksdb::DB::repair(&rocksdb::Options::default(), directory.path()).unwrap();
    let engine = RocksEngine::open_read_only(directory.path(), &Options::default()).unwrap();
    let is_lost = |(shard, space, key): &(u64, Keyspace, Vec<u8>)| {
        engine.snapshot(Shard(*shard)).unwrap().get(*space, key).is_err()
    };
    let lost = expected.keys().filter(|key| is_lost(key)).count();
    assert!(lost * 10 > expected.len(), "{lost} of {} entries are lost", expected.len());
}
