//! Commit log for backups: RocksDB's own log, in which each commit contains its time as log data of twelve bytes.

use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;

use rocksdb::WriteBatch;
use settee_storage::{CommitLog, LogPosition, LogRead, LogRecord, Result, StorageError};

use crate::error::translate;
use crate::files::batch::annotations;
use crate::options::Log;
use crate::{RocksEngine, damage};

const TIME: u8 = b't';

fn annotation(time_us: u64) -> [u8; 9] {
    let mut bytes = [TIME; 9];
    bytes[1..].copy_from_slice(&time_us.to_be_bytes());
    bytes
}

fn time(annotation: &[u8]) -> Option<u64> {
    let (kind, time) = annotation.split_first()?;
    Some(u64::from_be_bytes(time.try_into().ok()?)).filter(|_| *kind == TIME)
}

/// No backup needs the archived logs any more.
pub(crate) fn forget(store: &Path) {
    // Files that cannot be removed only waste space. The next start retries.
    let _ = fs::remove_dir_all(store.join("archive"));
}

impl RocksEngine {
    /// Adds the time to a batch, before all other elements. A later commit never has an earlier time.
    pub(crate) fn stamp(&self, writes: &mut WriteBatch) {
        if let Log::Kept { clock_us, .. } = self.options.log {
            let now = clock_us();
            let time = self.last_commit_us.fetch_max(now, Ordering::Relaxed).max(now);
            writes.put_log_data(annotation(time));
        }
    }

    fn opening(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }
}

impl CommitLog for RocksEngine {
    fn end(&self) -> Result<LogPosition> {
        // The opening is read first: a position of a concurrently reopened store is invalid for both openings.
        let opening = self.opening();
        Ok(LogPosition { opening, number: self.store()?.database.latest_sequence_number() })
    }

    fn read(&self, after: LogPosition, each: &mut dyn FnMut(LogRecord<'_>) -> ControlFlow<()>) -> Result<LogRead> {
        let end = self.end()?;
        if after.opening != end.opening {
            return Ok(LogRead::Gap);
        }
        let mut reached = after;
        if end.number <= after.number {
            return Ok(LogRead::Through(reached));
        }
        let store = self.store()?;
        let failed = |error| damage::without_path(&self.path, translate(error));
        let mut records = store.database.get_updates_since(after.number).map_err(failed)?;
        for record in &mut records {
            let (first, batch) = record.map_err(failed)?;
            if first != reached.number + 1 {
                return Ok(LogRead::Gap);
            }
            let bytes = batch.data();
            let corrupt = || StorageError::Corrupt("the log holds something that was not written here".to_owned());
            let (count, annotations) = annotations(bytes).ok_or_else(corrupt)?;
            reached.number += u64::from(count);
            // Commits in one record were concurrent: the latest one was not acknowledged before this time.
            let time_us = annotations.into_iter().filter_map(time).max();
            if each(LogRecord { end: reached.number, time_us, bytes }).is_break() {
                return Ok(LogRead::Through(reached));
            }
        }
        // The iterator does not report removed files as an error.
        let is_whole = reached.number >= end.number && self.opening() == after.opening;
        Ok(if is_whole { LogRead::Through(reached) } else { LogRead::Gap })
    }

    fn replay(&self, bytes: &[u8]) -> Result<()> {
        annotations(bytes).ok_or_else(|| StorageError::Corrupt("this is not a record of a log".to_owned()))?;
        let store = self.store()?;
        self.check_store()?;
        store.database.write(WriteBatch::from_data(bytes)).map_err(|error| self.failed(error))?;
        self.slots.forget_states();
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::AtomicU64;

    use settee_storage::{Batch, CommitToken, Durability, Engine as _, Keyspace, Outcome, Shard};

    use super::*;
    use crate::Options;

    fn clock_us() -> u64 {
        static NOW: AtomicU64 = AtomicU64::new(1000);
        NOW.fetch_add(1, Ordering::Relaxed)
    }

    fn open(path: &Path) -> RocksEngine {
        RocksEngine::open(path, &Options { log: Log::Kept { clock_us, seconds: 600 }, ..Options::default() }).unwrap()
    }

    fn put(engine: &RocksEngine, shard: u64, key: &str, value: &[u8]) -> u64 {
        let version = engine.snapshot(Shard(shard)).unwrap().state().unwrap().version;
        let mut batch = Batch::new();
        batch.put(Keyspace::Bodies, key.as_bytes(), value);
        batch.set_head(key.as_bytes());
        let outcome = engine.commit(Shard(shard), version, CommitToken(1), batch, Durability::Buffered).unwrap();
        assert!(matches!(outcome, Outcome::Committed(_)));
        clock_us()
    }

    type Record = (u64, Option<u64>, Vec<u8>);

    fn records(engine: &RocksEngine, after: LogPosition) -> Option<Vec<Record>> {
        let mut found = Vec::new();
        let mut each = |record: LogRecord<'_>| {
            found.push((record.end, record.time_us, record.bytes.to_vec()));
            ControlFlow::Continue(())
        };
        match engine.read(after, &mut each).unwrap() {
            LogRead::Through(_) => Some(found),
            LogRead::Gap => None,
        }
    }

    fn get(engine: &RocksEngine, shard: u64, key: &str) -> Option<Vec<u8>> {
        engine.snapshot(Shard(shard)).unwrap().get(Keyspace::Bodies, key.as_bytes()).unwrap()
    }

    #[test]
    fn a_copy_is_brought_to_any_moment() {
        let directory = tempfile::tempdir().unwrap();
        let engine = open(&directory.path().join("a"));
        put(&engine, 1, "before", b"0");
        let position = engine.end().unwrap();
        put(&engine, 1, "twice", b"1");
        engine.checkpoint(&directory.path().join("copy")).unwrap();
        let mut moments = Vec::new();
        for round in 0..50_u8 {
            moments.push(put(&engine, u64::from(round % 3), "a", &[round; 100]));
            if round % 10 == 0 {
                put(&engine, 9, "large", &vec![round; 40_000]);
                engine.checkpoint(&directory.path().join(format!("c{round}"))).unwrap();
            }
        }
        engine.drop_shard(Shard(9)).unwrap();
        let all = records(&engine, position).unwrap();
        assert_eq!(all.last().unwrap().0, engine.end().unwrap().number);
        let times: Vec<u64> = all.iter().filter_map(|(_, time, _)| *time).collect();
        assert!(times.is_sorted(), "{times:?}");
        let middle = LogPosition { number: all[10].0, ..position };
        assert_eq!(records(&engine, middle).unwrap(), all[11..]);

        let copy = open(&directory.path().join("copy"));
        let mut rest = all.iter().peekable();
        for (round, moment) in moments.iter().enumerate() {
            while let Some((_, _, bytes)) = rest.next_if(|(_, time, _)| time.is_none_or(|time| time <= *moment)) {
                copy.replay(bytes).unwrap();
            }
            assert_eq!(get(&copy, round as u64 % 3, "a").unwrap(), [round as u8; 100], "{round}");
        }
        assert_eq!(get(&copy, 9, "large").unwrap().len(), 40_000);
        rest.for_each(|(_, _, bytes)| copy.replay(bytes).unwrap());
        assert!(copy.snapshot(Shard(9)).unwrap().state().is_err(), "it was dropped");
        for shard in 0..3 {
            let (one, other) = (engine.snapshot(Shard(shard)).unwrap(), copy.snapshot(Shard(shard)).unwrap());
            assert_eq!(one.state().unwrap(), other.state().unwrap());
            assert_eq!(one.head().unwrap(), other.head().unwrap());
        }
        put(&copy, 1, "new", b"x");
        assert_eq!(get(&copy, 1, "twice").unwrap(), b"1");
    }

    #[test]
    fn lost_data_is_a_gap() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        let engine = open(&path);
        let position = engine.end().unwrap();
        put(&engine, 1, "a", b"1");
        assert_eq!(records(&engine, engine.end().unwrap()), Some(Vec::new()));
        assert_eq!(records(&engine, LogPosition { opening: 7, ..position }), None);
        engine.checkpoint(&directory.path().join("copy")).unwrap();
        put(&engine, 1, "b", b"1");
        assert_eq!(records(&engine, position).unwrap().len(), 2);
        assert!(path.join("archive").is_dir());
        drop(engine);
        let engine = RocksEngine::open(&path, &Options::default()).unwrap();
        assert!(!path.join("archive").exists());
        put(&engine, 1, "c", b"1");
        engine.checkpoint(&directory.path().join("another")).unwrap();
        put(&engine, 1, "d", b"1");
        assert_eq!(records(&engine, LogPosition { number: 0, opening: engine.end().unwrap().opening }), None);
        assert!(engine.replay(b"nonsense").is_err());
    }

    #[test]
    fn times_never_go_back() {
        fn backwards_us() -> u64 {
            static NOW: AtomicU64 = AtomicU64::new(1_000_000);
            NOW.fetch_sub(10, Ordering::Relaxed)
        }
        let directory = tempfile::tempdir().unwrap();
        let options = Options { log: Log::Kept { clock_us: backwards_us, seconds: 600 }, ..Options::default() };
        let engine = RocksEngine::open(&directory.path().join("a"), &options).unwrap();
        let position = engine.end().unwrap();
        for _ in 0..5 {
            put(&engine, 1, "a", b"1");
        }
        let times: Vec<_> = records(&engine, position).unwrap().into_iter().map(|(_, time, _)| time).collect();
        assert_eq!(times, [Some(1_000_000); 5]);
    }
}
