//! Tests of backups in a store in memory: upload, restore, refusals, retention.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::StreamExt as _;
use object_store::memory::InMemory;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt as _};
use tokio::runtime::Runtime;

use super::super::tests::{Fixture, has};
use super::seal::Key;
use super::*;

const DAY_S: u64 = 86_400;

pub(in crate::backup) struct Bucket {
    objects: Arc<dyn ObjectStore>,
    runtime: Runtime,
}

impl Bucket {
    pub(in crate::backup) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Self { objects: Arc::new(InMemory::new()), runtime }
    }

    pub(in crate::backup) fn store(&self, key: Option<u8>) -> Store {
        let key = key.map(|byte| Key::new(&[byte; 32]));
        Store::new(Arc::clone(&self.objects), "one/server", key, "s3://bucket/one/server".to_owned()).unwrap()
    }

    pub(in crate::backup) fn names(&self) -> Vec<String> {
        let listed = self.objects.list(None).map(|object| object.unwrap().location.to_string());
        let mut names: Vec<String> = self.runtime.block_on(listed.collect());
        names.sort();
        names
    }

    fn bytes(&self, name: &str) -> Vec<u8> {
        let found = async { self.objects.get(&Name::from(name)).await.unwrap().bytes().await.unwrap() };
        self.runtime.block_on(found).to_vec()
    }

    pub(in crate::backup) fn replace(&self, name: &str, bytes: Vec<u8>) {
        self.runtime.block_on(self.objects.put(&Name::from(name), bytes.into())).unwrap();
    }
}

fn back_up(fixture: &Fixture, store: &Store, effort: Effort) -> Report {
    static DAY: AtomicU64 = AtomicU64::new(1);
    store.prepare().unwrap();
    let held = CheckpointOwner::take(&fixture.data()).unwrap();
    let begun_us = DAY.fetch_add(1, Ordering::Relaxed) * DAY_S * 1_000_000;
    upload(store, &sources(held.directory(), &fixture.data()).unwrap(), begun_us, None, effort, &|_| false).unwrap()
}

fn name(report: &Report) -> String {
    report.directory.file_name().unwrap().to_string_lossy().into_owned()
}

fn restored(fixture: &Fixture, store: &Store, name: &str, to: &str) -> anyhow::Result<PathBuf> {
    let data = fixture.0.join(to);
    restore(store, name, &data, &mut |_| Ok(()))?;
    Ok(data)
}

#[test]
fn a_backup_sends_only_new_files() {
    for key in [None, Some(1)] {
        let (fixture, bucket) = (Fixture::new(), Bucket::new());
        let store = bucket.store(key);
        fixture.put("a");
        let first = back_up(&fixture, &store, Effort::New);
        assert!(first.copied_bytes > 0 && last_full(&store).unwrap().is_none());
        fixture.put("b");
        let second = back_up(&fixture, &store, Effort::New);
        assert!(second.copied_bytes < second.bytes, "{second:?}");
        let files = || bucket.names().iter().filter(|name| name.contains("/files/")).count();
        assert!(files() < first.files + second.files, "files are shared");
        let before = files();
        let full = back_up(&fixture, &store, Effort::Full);
        assert!(full.copied_bytes > second.copied_bytes, "a full backup sends everything");
        assert_eq!(last_full(&store).unwrap(), time::parse(&name(&full)));
        assert!(files() < before + full.files, "over what is there");
        assert_eq!(names(&store).unwrap(), [name(&first), name(&second), name(&full)]);
        assert_eq!(newest(&store).unwrap(), name(&full));

        let (one, two) =
            (restored(&fixture, &store, &name(&first), "1"), restored(&fixture, &store, &name(&second), "2"));
        let (one, two) = (one.unwrap(), two.unwrap());
        assert!(has(&one, "a") && !has(&one, "b"));
        assert!(has(&two, "a") && has(&two, "b"));
        assert_eq!(fs::read_to_string(two.join("local.d/a.ini")).unwrap(), "[s]\nk = v\n");
        assert_eq!(verify(&store, &name(&second)).unwrap().bytes(), second.bytes);
        assert!(restore(&store, &name(&second), &two, &mut |_| Ok(())).is_err());
    }
}

#[test]
fn a_file_that_is_missing_or_damaged_is_found_and_sent_again() {
    for key in [None, Some(1)] {
        let (fixture, bucket) = (Fixture::new(), Bucket::new());
        let store = bucket.store(key);
        fixture.put("a");
        let first = back_up(&fixture, &store, Effort::New);
        let largest = bucket.names().into_iter().filter(|name| name.contains("/files/"));
        let largest = largest.max_by_key(|name| bucket.bytes(name).len()).unwrap();
        let mut bytes = bucket.bytes(&largest);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        bucket.replace(&largest, bytes);
        let error = format!("{:#}", verify(&store, &name(&first)).unwrap_err());
        assert!(error.contains("damaged"), "{error}");
        assert!(restored(&fixture, &store, &name(&first), "1").is_err());
        assert!(!fixture.0.join("1").join(ENGINE).exists());
        back_up(&fixture, &store, Effort::Full);
        verify(&store, &name(&first)).unwrap();
        store.delete(largest.strip_prefix("one/server/").unwrap()).unwrap();
        let error = format!("{:#}", verify(&store, &name(&first)).unwrap_err());
        assert!(error.contains("missing"), "{error}");
        back_up(&fixture, &store, Effort::New);
        verify(&store, &name(&first)).unwrap();
    }
}

#[test]
fn encrypted_backups_reveal_nothing_and_require_their_key() {
    let (fixture, bucket) = (Fixture::new(), Bucket::new());
    fixture.put("secret-id");
    fs::write(fixture.data().join("local.ini"), "[admins]\nsecret-name = secret-hash\n").unwrap();
    let report = back_up(&fixture, &bucket.store(Some(1)), Effort::New);
    for object in bucket.names() {
        let bytes = bucket.bytes(&object);
        assert!(!bytes.windows(6).any(|window| window == b"secret"), "{object}");
        assert!(object.ends_with("about.json") || bytes.starts_with(b"SETTEES1"), "{object}");
    }
    for (key, expected) in [(None, "are encrypted: specify"), (Some(2), "another key")] {
        let error = newest(&bucket.store(key)).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        assert!(bucket.store(key).prepare().is_err());
    }
    assert_eq!(newest(&bucket.store(Some(1))).unwrap(), name(&report));
    let plain = Bucket::new();
    plain.store(None).prepare().unwrap();
    assert!(plain.store(Some(1)).prepare().unwrap_err().to_string().contains("not encrypted"));
    assert!(newest(&plain.store(None)).unwrap_err().to_string().contains("no complete backup"));
    assert!(newest(&Bucket::new().store(None)).unwrap_err().to_string().contains("no backups"));
}

#[test]
fn large_files_are_sent_in_parts_and_changing_ones_are_rejected() {
    let bucket = Bucket::new();
    let file = std::env::temp_dir().join(format!("settee-large-{}", std::process::id()));
    let content: Vec<u8> = (0..40_000_000_u32).map(|number| (number >> 8) as u8).collect();
    fs::write(&file, &content).unwrap();
    let (bytes, sha256) = files::digest(&file).unwrap();
    for key in [None, Some(1)] {
        let store = bucket.store(key);
        store.put_file("large", &file, bytes, &sha256).unwrap();
        assert!(store.get("large").unwrap().unwrap() == content);
        let wrong = files::digest_of(b"something else");
        for size in [bytes, 100] {
            assert!(store.put_file("changed", &file, size, &wrong).unwrap_err().to_string().contains("changed"));
        }
        assert_eq!(store.get("changed").unwrap(), None);
    }
    fs::remove_file(&file).unwrap();
}

#[test]
fn retention_removes_old_backups_and_their_exclusive_files() {
    let (fixture, bucket) = (Fixture::new(), Bucket::new());
    let store = bucket.store(None);
    let reports: Vec<Report> = ["a", "b", "c"]
        .into_iter()
        .map(|key| {
            fixture.put(key);
            back_up(&fixture, &store, Effort::New)
        })
        .collect();
    let names_before = names(&store).unwrap();
    let files = || bucket.names().iter().filter(|name| name.contains("/files/")).count();
    let before = files();
    let later_us = environment::now_us() + 10 * DAY_S * 1_000_000;
    let all_s = later_us / 1_000_000;
    assert_eq!(retention::apply(&store, later_us, all_s).unwrap(), retention::Removed::default());
    let removed = retention::apply(&store, environment::now_us(), 0).unwrap();
    assert_eq!((removed.backups, removed.files), (2, 0), "files may belong to a backup that is on its way");
    let removed = retention::apply(&store, later_us, 0).unwrap();
    assert_eq!(removed.backups, 0, "the newest stays");
    assert!(removed.files > 0 && files() == before - removed.files, "{removed:?}");
    assert_eq!(names(&store).unwrap(), names_before[2..]);
    assert_eq!(files(), fs_files(&store, &names_before[2]));
    let data = restored(&fixture, &store, &name(&reports[2]), "1").unwrap();
    assert!(has(&data, "a") && has(&data, "c"));
}

fn fs_files(store: &Store, name: &str) -> usize {
    let entries = manifest(store, name).unwrap().entries;
    entries.iter().map(|entry| entry.sha256.clone()).collect::<BTreeSet<_>>().len()
}
