//! Tests with logs in a store in memory: every time that they cover is restored, and any other time is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use settee_storage::{Batch, CommitToken, Durability, Engine, Keyspace, Outcome, Shard};

use super::replay::{RestoreTime, find};
use super::ship::{Shipped, Shipper, Stream};
use super::*;
use crate::backup::BackupControl;
use crate::backup::manifest::Logged;
use crate::backup::remote::tests::Bucket;
use crate::backup::remote::{self, Effort};
use crate::backup::schedule::{Backups, Plan};
use crate::backup::tests::Fixture;
use crate::control::Checkpoint;
use crate::{backends, environment};
use settee_api::Backups as _;

struct Sent {
    fixture: Fixture,
    bucket: Bucket,
    engine: Arc<dyn Engine>,
    stream: Arc<Mutex<Stream>>,
    shipper: Shipper,
}

fn put(engine: &dyn Engine, shard: u64, key: &str, value: &str) {
    let version = engine.snapshot(Shard(shard)).unwrap().state().unwrap().version;
    let mut batch = Batch::new();
    batch.put(Keyspace::Documents, key.as_bytes(), value.as_bytes());
    let outcome = engine.commit(Shard(shard), version, CommitToken(1), batch, Durability::Synced).unwrap();
    assert!(matches!(outcome, Outcome::Committed(_)));
}

fn get(data: &Path, shard: u64, key: &str) -> Option<String> {
    let engine = backends::open(data, 64).unwrap();
    let value = engine.snapshot(Shard(shard)).unwrap().get(Keyspace::Documents, key.as_bytes()).unwrap();
    value.map(|value| String::from_utf8(value).unwrap())
}

fn now_us() -> u64 {
    let begun = environment::now_us();
    while environment::now_us() <= begun + 1 {
        std::hint::spin_loop();
    }
    begun + 1
}

impl Sent {
    fn new(key: Option<u8>) -> Self {
        let (fixture, bucket) = (Fixture::new(), Bucket::new());
        let engine = backends::prepare(&fixture.data()).unwrap().open_with_log(64).unwrap();
        let stream = Arc::new(Mutex::new(Stream::begin(engine.as_ref()).unwrap()));
        let shipper = Shipper::new(bucket.store(key), Arc::clone(&engine), Arc::clone(&stream));
        Self { fixture, bucket, engine, stream, shipper }
    }

    fn put(&self, key: &str, value: &str) {
        put(self.engine.as_ref(), 1, key, value);
    }

    fn back_up(&self, key: Option<u8>, second: u64) -> u64 {
        let store = self.bucket.store(key);
        store.prepare().unwrap();
        let position = self.engine.log().unwrap().end().unwrap().number;
        let checkpoint = Checkpoint::make(&self.fixture.data(), self.engine.as_ref(), second).unwrap();
        let log = Logged { stream: self.stream.lock().id.clone(), position, taken_us: now_us() };
        let (taken_us, sources) = (log.taken_us, remote::sources(&checkpoint.0, &self.fixture.data()).unwrap());
        remote::upload(&store, &sources, second * 1_000_000, Some(log), Effort::New, &|_| false).unwrap();
        taken_us
    }

    fn restore(&self, key: Option<u8>, moment: RestoreTime, to: &str) -> anyhow::Result<PathBuf> {
        let (store, data) = (self.bucket.store(key), self.fixture.0.join(to));
        find(&store, moment)?.run(&store, &data)?;
        Ok(data)
    }

    fn refusal(&self, moment: RestoreTime) -> String {
        let name = format!("refused-{:016x}", environment::random_u64());
        format!("{:#}", self.restore(None, moment, &name).unwrap_err())
    }
}

#[test]
fn every_moment_is_restored_from_the_backup_before_it() {
    for key in [None, Some(1)] {
        let mut sent = Sent::new(key);
        sent.put("first", "0");
        let taken_us = sent.back_up(key, 1);
        let mut moments = vec![(taken_us, None)];
        for round in 0..12 {
            sent.put("counted", &round.to_string());
            moments.push((now_us(), Some(round)));
            if round % 3 == 0 {
                assert_eq!(sent.shipper.ship().unwrap(), Shipped::All);
            }
            if round == 7 {
                sent.back_up(key, 2);
            }
        }
        sent.shipper.ship().unwrap();
        for (place, (moment_us, expected)) in moments.into_iter().enumerate() {
            let data = sent.restore(key, RestoreTime::Time(moment_us), &place.to_string()).unwrap();
            assert!(!data.join(backends::RESERVE).exists(), "that is a server's to make");
            assert_eq!(get(&data, 1, "counted"), expected.map(|round: i32| round.to_string()));
            assert_eq!(get(&data, 1, "first").as_deref(), Some("0"));
        }
        let data = sent.restore(key, RestoreTime::Newest, "newest").unwrap();
        assert_eq!(get(&data, 1, "counted").as_deref(), Some("11"));
        let covered = covered(&sent.bucket.store(key)).unwrap();
        assert!(covered.len() == 1 && covered[0].0 == taken_us, "{covered:?}");
    }
}

#[test]
fn a_time_outside_of_the_log_is_rejected() {
    let mut sent = Sent::new(None);
    let before_us = now_us();
    sent.put("a", "1");
    sent.back_up(None, 1);
    assert!(sent.refusal(RestoreTime::Time(now_us())).contains("the log ends at"));
    assert_eq!(get(&sent.restore(None, RestoreTime::Newest, "alone").unwrap(), 1, "a").as_deref(), Some("1"));
    sent.put("a", "2");
    sent.shipper.ship().unwrap();
    let covered_us = now_us();
    sent.put("a", "3");
    assert!(sent.refusal(RestoreTime::Time(now_us())).contains("the log ends at"));
    assert!(sent.refusal(RestoreTime::Time(before_us)).contains("no backup with a log from before"));
    sent.shipper.ship().unwrap();
    assert_eq!(get(&sent.restore(None, RestoreTime::Time(covered_us), "2").unwrap(), 1, "a").as_deref(), Some("2"));
    let name =
        sent.bucket.names().into_iter().find(|name| name.contains("/log/") && !name.ends_with("through")).unwrap();
    sent.bucket.replace(&name, b"damaged".to_vec());
    assert!(sent.refusal(RestoreTime::Newest).contains("unpacked"), "{}", sent.refusal(RestoreTime::Newest));
    sent.bucket.store(None).delete(name.strip_prefix("one/server/").unwrap()).unwrap();
    assert!(sent.refusal(RestoreTime::Newest).contains("missing"), "{}", sent.refusal(RestoreTime::Newest));
    let empty = Bucket::new();
    assert!(find(&empty.store(None), RestoreTime::Newest).unwrap_err().to_string().contains("no backups"));
}

#[test]
fn a_stopped_server_has_no_gap_and_another_log_has() {
    let mut sent = Sent::new(None);
    sent.put("a", "1");
    sent.back_up(None, 1);
    sent.put("a", "2");
    sent.shipper.close().unwrap();
    let stopped_us = now_us();
    assert!(sent.refusal(RestoreTime::Time(stopped_us)).contains("the log ends at"), "it may have been started again");
    *sent.stream.lock() = Stream::begin(sent.engine.as_ref()).unwrap();
    let mut shipper = Shipper::new(sent.bucket.store(None), Arc::clone(&sent.engine), Arc::clone(&sent.stream));
    sent.back_up(None, 2);
    sent.put("a", "3");
    shipper.close().unwrap();
    assert_eq!(get(&sent.restore(None, RestoreTime::Time(stopped_us), "2").unwrap(), 1, "a").as_deref(), Some("2"));
    let silent_us = now_us();
    sent.put("a", "4");
    *sent.stream.lock() = Stream::begin(sent.engine.as_ref()).unwrap();
    sent.back_up(None, 3);
    assert!(sent.refusal(RestoreTime::Time(silent_us)).contains("the log ends at"));
    assert_eq!(get(&sent.restore(None, RestoreTime::Newest, "4").unwrap(), 1, "a").as_deref(), Some("4"));
    assert_eq!(covered(&sent.bucket.store(None)).unwrap().len(), 2);
}

#[test]
fn a_server_writes_backups_and_its_log_until_its_end() {
    for log_interval in [Some(Duration::from_secs(3600)), None] {
        let (fixture, bucket) = (Fixture::new(), Bucket::new());
        let engine = backends::prepare(&fixture.data()).unwrap().open_with_log(64).unwrap();
        put(engine.as_ref(), 1, "before", "1");
        let plan = Plan { interval_us: 3_600_000_000, full_interval_us: Some(1), keep_s: 1000, log_interval };
        let (store, backup_control) = (bucket.store(None), Arc::new(BackupControl::default()));
        let backups = Backups::start(
            &|| Ok(bucket.store(None)),
            plan,
            &fixture.data(),
            Arc::clone(&engine),
            Arc::clone(&backup_control),
        )
        .unwrap();
        put(engine.as_ref(), 1, "after", "1");
        let ended = |count: usize| {
            while backup_control.state().attempts.len() < count || backup_control.state().running.is_some() {
                std::thread::yield_now();
            }
        };
        ended(1);
        backup_control.start();
        ended(2);
        let state = backup_control.state();
        backups.stop();
        drop(engine);
        assert_eq!(remote::names(&store).unwrap(), state.stored);
        assert_eq!(
            (state.stored.len(), state.attempts.iter().filter(|attempt| attempt.outcome.is_ok()).count()),
            (2, 2)
        );
        let data = fixture.0.join("restored");
        match log_interval {
            Some(_) => drop(find(&store, RestoreTime::Newest).unwrap().run(&store, &data).unwrap()),
            None => drop(remote::restore(&store, &remote::newest(&store).unwrap(), &data, &mut |_| Ok(())).unwrap()),
        }
        assert_eq!(get(&data, 1, "before").as_deref(), Some("1"));
        assert!(log_interval.is_none() || get(&data, 1, "after").is_some());
        assert_eq!(remote::last_full(&store).unwrap(), time_of(&store));
        assert!(find(&store, RestoreTime::Time(1)).is_err());
    }
}

fn time_of(store: &Store) -> Option<u64> {
    crate::time::parse(&remote::newest(store).unwrap())
}
