//! Tests of backups of data that no server uses: linking, verification, restore, refusals.

use std::os::unix::fs::MetadataExt as _;
use std::sync::atomic::{AtomicU32, Ordering};

use settee_storage::{Batch, CommitToken, Durability, Keyspace, Outcome, Shard};

use super::*;
use crate::{backends, version};

pub(super) struct Fixture(pub(super) PathBuf);

impl Fixture {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("settee-backup-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let fixture = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(fixture.data().join("local.d")).unwrap();
        fs::write(fixture.data().join("local.ini"), "[couchdb]\nuuid = 1\n").unwrap();
        fs::write(fixture.data().join("local.d/a.ini"), "[s]\nk = v\n").unwrap();
        fixture
    }

    pub(super) fn data(&self) -> PathBuf {
        self.0.join("data")
    }

    pub(super) fn put(&self, key: &str) {
        let engine = backends::open(&self.data(), 64).unwrap();
        let version = engine.snapshot(Shard(1)).unwrap().state().unwrap().version;
        let mut batch = Batch::new();
        batch.put(Keyspace::Documents, key.as_bytes(), &[7; 100_000]);
        let outcome = engine.commit(Shard(1), version, CommitToken(1), batch, Durability::Synced).unwrap();
        assert!(matches!(outcome, Outcome::Committed(_)));
    }

    fn back_up(&self, name: &str) -> Report {
        let report = run(&self.data(), &self.0.join("backups")).unwrap();
        let directory = self.0.join("backups").join(name);
        fs::rename(&report.directory, &directory).unwrap();
        Report { directory, ..report }
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub(super) fn has(data: &Path, key: &str) -> bool {
    let engine = backends::open(data, 64).unwrap();
    engine.snapshot(Shard(1)).unwrap().get(Keyspace::Documents, key.as_bytes()).unwrap().is_some()
}

#[test]
fn a_second_backup_links_files_of_the_first() {
    let fixture = Fixture::new();
    fixture.put("a");
    let first = fixture.back_up("2001");
    assert_eq!(first.copied_bytes, first.bytes);
    fixture.put("b");
    let second = fixture.back_up("2002");
    assert!(second.copied_bytes < second.bytes, "{second:?}");
    let sorted = |report: &Report| {
        let names = files::below(&report.directory.join(ENGINE), Path::new("")).unwrap();
        names.into_iter().filter(|source| source.path.extension().is_some_and(|name| name == "sst")).collect::<Vec<_>>()
    };
    let linked = sorted(&first).iter().filter(|source| fs::metadata(&source.file).unwrap().nlink() == 2).count();
    assert!(linked > 0, "{:?}", sorted(&first));
    fs::remove_dir_all(&first.directory).unwrap();
    let restored = fixture.0.join("restored");
    restore::run(&second.directory, &restored).unwrap();
    assert!(has(&restored, "a") && has(&restored, "b"));
    assert_eq!(fs::read_to_string(restored.join("local.d/a.ini")).unwrap(), "[s]\nk = v\n");
    version::check(&restored).unwrap();
}

#[test]
fn damage_is_found_before_anything_is_restored() {
    let fixture = Fixture::new();
    fixture.put("a");
    let report = fixture.back_up("2001");
    assert_eq!(verify(&report.directory).unwrap().bytes(), report.bytes);
    let restored = fixture.0.join("restored");
    let refuse = |label: &str, expected: &str| {
        let error = format!("{:#}", restore::run(&report.directory, &restored).unwrap_err());
        assert!(error.contains(expected), "{label}: {error}");
        assert!(verify(&report.directory).is_err(), "{label}");
        assert!(!restored.join(ENGINE).exists(), "{label}");
        let _ = fs::remove_dir_all(&restored);
    };
    let ini = report.directory.join("local.ini");
    let before = fs::read(&ini).unwrap();
    fs::write(&ini, "[couchdb]\nuuid = 2\n").unwrap();
    refuse("another content", "damaged");
    fs::remove_file(&ini).unwrap();
    refuse("a file is missing", "cannot be read");
    fs::write(&ini, before).unwrap();
    let manifest = report.directory.join(MANIFEST);
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"local.ini\"", "\"../local.ini\"")).unwrap();
    refuse("another manifest", "not a complete backup");
    let outside = Manifest {
        entries: vec![Entry { path: "../evil".into(), bytes: 0, sha256: String::new(), modified_ns: 0 }],
        ..Manifest {
            version: String::new(),
            begun: String::new(),
            finished: String::new(),
            entries: Vec::new(),
            log: None,
        }
    };
    outside.write(&manifest).unwrap();
    assert!(format!("{:#}", Manifest::read(&manifest).unwrap_err()).contains("outside"));
    fs::write(&manifest, &text[..text.len() / 2]).unwrap();
    refuse("half a manifest", "not a complete backup");
}

#[test]
fn data_is_not_overwritten_and_an_incomplete_restore_is_not_served() {
    let fixture = Fixture::new();
    fixture.put("a");
    let report = fixture.back_up("2001");
    let error = restore::run(&report.directory, &fixture.data()).unwrap_err().to_string();
    assert!(error.contains("is not empty"), "{error}");
    let half = fixture.0.join("half");
    fs::create_dir_all(half.join(version::RESTORING)).unwrap();
    assert!(version::check(&half).unwrap_err().to_string().contains("interrupted"));
    let error = run(&fixture.data(), &fixture.data().join("backups")).unwrap_err().to_string();
    assert!(error.contains("would be lost with it"), "{error}");
    fs::write(fixture.data().join("version"), "99\n").unwrap();
    assert!(run(&fixture.data(), &fixture.0.join("b")).unwrap_err().to_string().contains("layout 99"));
}
