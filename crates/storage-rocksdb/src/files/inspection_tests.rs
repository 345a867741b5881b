//! For each kind of file and damage: a store is opened with all its data, or refused without a change to any file.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use settee_storage::{Batch, CommitToken, Durability, Engine as _, Keyspace, Shard, Version};
use tempfile::TempDir;

use super::acknowledged;
use super::directory::Directory;
use super::inspection::UNFINISHED;
use super::tests::{Contents, Random, contents, copy, fill, open, store};
use crate::{Options, RocksEngine};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Harm {
    Missing,
    Empty,
    Half,
    Cut,
    Foreign,
    Loop,
    Fifo,
}

const HARMS: [Harm; 7] = [Harm::Missing, Harm::Empty, Harm::Half, Harm::Cut, Harm::Foreign, Harm::Loop, Harm::Fifo];

impl Harm {
    fn apply(self, file: &Path, other: &Path) {
        let bytes = fs::read(file).unwrap();
        match self {
            Self::Missing => fs::remove_file(file).unwrap(),
            Self::Empty => fs::write(file, "").unwrap(),
            Self::Half => fs::write(file, &bytes[..bytes.len() / 2]).unwrap(),
            Self::Cut => fs::write(file, &bytes[..bytes.len().saturating_sub(1)]).unwrap(),
            Self::Foreign => drop(fs::copy(other, file).unwrap()),
            Self::Loop => {
                fs::remove_file(file).unwrap();
                symlink(file, file).unwrap();
            }
            Self::Fifo => {
                fs::remove_file(file).unwrap();
                let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
                rustix::fs::mknodat(rustix::fs::CWD, file, kind, mode, 0).unwrap();
            }
        }
    }
}

fn kind(name: &str) -> (&'static str, bool) {
    match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("sst") => ("sorted file", true),
        Some("blob") => ("blob file", true),
        Some("log") => ("log", true),
        _ if name == "CURRENT" => ("CURRENT", true),
        _ if name.starts_with("MANIFEST-") => ("MANIFEST", true),
        _ if name.starts_with("OPTIONS-") => ("OPTIONS", false),
        _ if name == acknowledged::FILE => (acknowledged::FILE, false),
        _ => ("other", false),
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn image(directory: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let read = |path: PathBuf| fs::metadata(&path).is_ok_and(|found| found.is_file()).then(|| fs::read(path).unwrap());
    names(directory).into_iter().map(|name| (name.clone(), read(directory.join(name)))).collect()
}

fn copy_in_use(from: &Path, to: &Path) {
    loop {
        let before = names(from);
        fs::create_dir_all(to).unwrap();
        let is_copied = before.iter().all(|name| fs::copy(from.join(name), to.join(name)).is_ok());
        if is_copied && names(from) == before {
            return;
        }
        fs::remove_dir_all(to).unwrap();
    }
}

fn is_opened(origin: &Path, expected: &Contents, name: &str, other: &Path, harm: Harm) -> bool {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store");
    copy(origin, &path);
    harm.apply(&path.join(name), other);
    let before = image(&path);
    let description = format!("{name} {harm:?}");
    match RocksEngine::open(&path, &Options { write_buffer_bytes: 1 << 20, ..Options::default() }) {
        Ok(engine) => {
            assert!(contents(&engine) == *expected, "{description}: opened with other data");
            true
        }
        Err(error) => {
            assert!(image(&path) == before, "{description}: a start that was refused changed files: {error}");
            assert!(
                error.to_string().contains(&path.display().to_string()),
                "{description}: no file is named: {error}"
            );
            false
        }
    }
}

type Results = BTreeMap<(&'static str, String), (bool, bool)>;

fn harm_all(origin: &Path, expected: &Contents, foreign: &Path, results: &mut Results) {
    let found = super::directory::newest_log(origin).unwrap().unwrap();
    let newest = found.2.file_name().unwrap().to_string_lossy().into_owned();
    let manifest = Directory::read(origin).unwrap().manifest().unwrap().unwrap();
    let is_listed = |name: &str| match name.split_once('.') {
        Some((number, "sst")) => manifest.tables.contains_key(&number.parse().unwrap()),
        Some((number, "blob")) => manifest.needed_blobs().any(|(needed, _)| Ok(needed) == number.parse()),
        _ => true,
    };
    for name in names(origin) {
        let extension = |name: &str| kind(name);
        let other = names(foreign).into_iter().rfind(|other| extension(other) == extension(&name));
        let other = foreign.join(other.unwrap_or_else(|| "CURRENT".to_owned()));
        let (kind, is_needed) = kind(&name);
        for harm in HARMS {
            let is_opened = is_opened(origin, expected, &name, &other, harm);
            let must_be_refused = is_needed && is_listed(&name) && (kind != "log" || name == newest);
            let is_lost = matches!(harm, Harm::Missing | Harm::Empty);
            assert!(!(is_opened && must_be_refused && is_lost), "{name} {harm:?} was not noticed");
            let result = results.entry((kind, format!("{harm:?}"))).or_default();
            *result = (result.0 || !is_opened, result.1 || is_opened);
        }
    }
}

#[test]
fn every_file_missing_cut_or_replaced_is_refused_or_harmless() {
    let directory = TempDir::new().unwrap();
    let path = |name: &str| directory.path().join(name);
    let expected = store(&path("closed"), 3, 150);
    store(&path("foreign"), 4, 150);
    let mut results = Results::new();
    harm_all(&path("closed"), &expected, &path("foreign"), &mut results);
    copy(&path("closed"), &path("open"));
    let engine = open(&path("open"));
    fill(&engine, &mut Random(5), 3);
    engine.maintain().unwrap();
    let expected = contents(&engine);
    copy_in_use(&path("open"), &path("killed"));
    drop(engine);
    harm_all(&path("killed"), &expected, &path("foreign"), &mut results);
    for ((kind, harm), (is_refused, is_opened)) in &results {
        println!("{kind}, {harm}: refused {is_refused}, opened with all data {is_opened}");
    }
}

#[test]
fn every_file_of_a_new_store_counts() {
    let directory = TempDir::new().unwrap();
    let make = |name: &str, value: &[u8]| {
        let engine = open(&directory.path().join(name));
        let mut batch = Batch::new();
        batch.put(Keyspace::Bodies, b"key", value);
        let _saved =
            engine.commit(Shard(1), Version(0), CommitToken(u128::from(value[0])), batch, Durability::Synced).unwrap();
        engine.sync().unwrap();
        contents(&engine)
    };
    let expected = make("one", b"1");
    make("other", b"2");
    harm_all(&directory.path().join("one"), &expected, &directory.path().join("other"), &mut Results::new());
}

#[test]
fn a_store_is_created_only_where_no_file_of_one_is() {
    let check = |names: &[&str], is_created: bool| {
        let directory = TempDir::new().unwrap();
        for name in names {
            match name.strip_suffix('/') {
                Some(name) => fs::create_dir(directory.path().join(name)).unwrap(),
                None => fs::write(directory.path().join(name), "x").unwrap(),
            }
        }
        let before = image(directory.path());
        let opened = RocksEngine::open(directory.path(), &Options::default());
        assert_eq!(opened.is_ok(), is_created, "{names:?}");
        if let Ok(engine) = opened {
            drop(engine);
            assert!(!directory.path().join(UNFINISHED).exists());
            RocksEngine::open(directory.path(), &Options::default()).unwrap();
        } else {
            assert!(image(directory.path()) == before, "{names:?}");
        }
    };
    check(&[], true);
    check(&["LOCK", "LOG", "LOG.old.1", "lost+found/"], true);
    check(&["unfinished/"], true);
    check(&["unfinished/", "000004.log", "MANIFEST-000005", "IDENTITY"], true);
    check(&["unfinished/", "000009.sst"], false);
    for name in [
        "IDENTITY",
        "000004.log",
        "000009.sst",
        "000010.blob",
        "MANIFEST-000005",
        "OPTIONS-000007",
        "notes.txt",
        "DAMAGED",
    ] {
        check(&[name], false);
    }
}

#[test]
fn torn_writes_are_dropped_and_damage_before_acknowledged_ones_is_refused() {
    let directory = TempDir::new().unwrap();
    let origin = directory.path().join("origin");
    let engine = RocksEngine::open(&origin, &Options::default()).unwrap();
    let put = |number: u64| {
        let mut batch = Batch::new();
        batch.put(Keyspace::Bodies, &number.to_be_bytes(), &[b'v'; 300]);
        let _saved =
            engine.commit(Shard(1), Version(number), CommitToken(u128::MAX), batch, Durability::Buffered).unwrap();
    };
    (0..20).for_each(put);
    engine.maintain().unwrap();
    let acknowledged = contents(&engine);
    let (.., log, synced) = super::directory::newest_log(&origin).unwrap().unwrap();
    (20..40).for_each(put);
    let bytes = fs::read(&log).unwrap();
    let (synced, record) = (synced as usize, (bytes.len() - synced as usize) / 20);
    copy_in_use(&origin, &directory.path().join("image"));
    drop(engine);
    let check = |description: &str, torn: &[u8], is_opened: bool| {
        let path = directory.path().join(description);
        copy(&directory.path().join("image"), &path);
        fs::write(path.join(log.file_name().unwrap()), torn).unwrap();
        match RocksEngine::inspect(&path) {
            Ok(inspected) => {
                assert!(is_opened, "{description} is accepted");
                let is_cut = torn != bytes && !description.ends_with("end");
                assert_eq!(inspected.torn().is_some(), is_cut, "{description}");
                let found = contents(&inspected.open(&Options::default()).unwrap());
                assert!(
                    acknowledged.iter().all(|(key, value)| found.get(key) == Some(value)),
                    "{description}: writes are lost"
                );
            }
            Err(error) => assert!(!is_opened, "{description}: {error}"),
        }
    };
    let zeroed = |from: usize, to: usize| {
        let mut torn = bytes.clone();
        torn[from..to].fill(0);
        torn
    };
    check("whole", &bytes, true);
    check("cut", &bytes[..synced + 5 * record + 100], true);
    check("a missing write in the middle", &zeroed(synced + 5 * record, synced + 6 * record), true);
    check("half a write in the middle", &zeroed(synced + 5 * record + 100, synced + 6 * record), true);
    check("a missing end", &zeroed(synced + 5 * record, bytes.len()), true);
    check("cut before what was acknowledged", &bytes[..synced - 10], false);
    check("a missing write before what was acknowledged", &zeroed(synced - 2 * record, synced - record), false);
    let mut flipped = bytes.clone();
    flipped[synced + 5 * record + 20..synced + 5 * record + 84].iter_mut().for_each(|byte| *byte = !*byte);
    check("flipped bytes", &flipped, false);
}
