//! Measures the embedded engine on this machine: `measure DIRECTORY`, which must exist on the disk to be measured.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use settee_storage::conformance::Generator;
use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Result, Shard, Version,
};
use settee_storage_rocksdb::raw::{RawPattern, RawStore};
use settee_storage_rocksdb::{Options, RocksEngine};

const ENTRIES: u64 = 1_000_000;
const BATCH: u64 = 1_000;

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let directory = std::env::args().nth(1).ok_or("usage: measure DIRECTORY")?;
    let directory = &Path::new(&directory).join("measure");
    fs::create_dir(directory)?;
    println!("fsync after 300 bytes: {:.0}/s", disk(&directory.join("disk"))?);
    let raw = RawStore::load(&directory.join("raw"), RawPattern::Pair, batches(), true)?;
    println!("raw store, random keys, sync per {BATCH}: {:.0} puts/s", raw.entries as f64 / raw.seconds);
    for threads in [1, 4, 16] {
        let engine = RocksEngine::open(&directory.join(format!("threads{threads}")), &Options::default())?;
        println!("synced commits, {threads} threads: {:.0}/s", commits(&engine, threads)?);
    }
    let engine = RocksEngine::open(&directory.join("bulk"), &Options::default())?;
    println!("random puts, sync per {BATCH}: {:.0}/s", bulk(&engine)?);
    println!("random gets: {:.0}/s", gets(&engine, 1)?);
    println!("random multi-gets of 100: {:.0} keys/s", gets(&engine, 100)?);
    println!("scan: {:.0} entries/s", scan(&engine, Keyspace::Documents)?);
    println!("40 KB puts, sync per 100: {:.0}/s", large(&engine)?);
    println!("scan of 40 KB values: {:.0}/s", scan(&engine, Keyspace::Bodies)?);
    for drops in [0, 5_000, 15_000] {
        let us = neighbour(&engine, drops)?;
        println!("reading a shard from its start, after {drops} more small shards were dropped: {us:.0} us");
    }
    for (name, value) in engine.statistics() {
        println!("  {name}: {value}");
    }
    drop(engine);
    fs::remove_dir_all(directory)?;
    Ok(())
}

fn rate(count: u64, start: Instant) -> f64 {
    count as f64 / start.elapsed().as_secs_f64()
}

fn disk(path: &Path) -> std::io::Result<f64> {
    let mut file = File::create(path)?;
    let start = Instant::now();
    for _ in 0..500 {
        file.write_all(&[1; 300])?;
        file.sync_data()?;
    }
    Ok(rate(500, start))
}

fn batches() -> impl Iterator<Item = Vec<(Vec<u8>, Vec<u8>)>> {
    let mut random = Generator::new(1);
    (0..ENTRIES / BATCH).map(move |_| (0..BATCH).map(|_| (random.bytes(16), random.bytes(100))).collect())
}

fn commits(engine: &RocksEngine, threads: u64) -> Result<f64> {
    let count = 4_000 / threads;
    let start = Instant::now();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads)
            .map(|shard| {
                scope.spawn(move || {
                    (0..count).try_for_each(|number| {
                        let mut batch = Batch::new();
                        batch.put(Keyspace::Documents, &number.to_be_bytes(), &[1; 300]);
                        write(engine, Shard(shard), number, batch)
                    })
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
    })?;
    Ok(rate(count * threads, start))
}

fn write(engine: &RocksEngine, shard: Shard, number: u64, batch: Batch) -> Result<()> {
    let outcome = engine.commit(shard, Version(number), CommitToken(1), batch, Durability::Synced)?;
    assert_eq!(outcome, Outcome::Committed(Version(number + 1)), "no other writer exists");
    Ok(())
}

fn bulk(engine: &RocksEngine) -> Result<f64> {
    let mut seconds = 0.0;
    for (number, entries) in (0..).zip(batches()) {
        let start = Instant::now();
        let mut batch = Batch::new();
        for (key, value) in &entries {
            batch.put(Keyspace::Documents, key, value);
        }
        write(engine, Shard(100), number, batch)?;
        seconds += start.elapsed().as_secs_f64();
    }
    Ok(ENTRIES as f64 / seconds)
}

fn gets(engine: &RocksEngine, together: usize) -> Result<f64> {
    let snapshot = engine.snapshot(Shard(100))?;
    let mut seconds = 0.0;
    let mut count = 0;
    for entries in batches().take(200) {
        let keys: Vec<_> = entries.iter().map(|(key, _)| key.as_slice()).collect();
        let start = Instant::now();
        for keys in keys.chunks(together) {
            let found = match keys {
                [key] => vec![snapshot.get(Keyspace::Documents, key)?],
                keys => snapshot.multi_get(Keyspace::Documents, keys)?,
            };
            assert!(found.iter().all(Option::is_some), "every key was written");
        }
        seconds += start.elapsed().as_secs_f64();
        count += BATCH;
    }
    Ok(count as f64 / seconds)
}

fn large(engine: &RocksEngine) -> Result<f64> {
    let mut random = Generator::new(2);
    let mut seconds = 0.0;
    for number in 0..100 {
        let mut batch = Batch::new();
        for entry in 0..100_u64 {
            let value: Vec<u8> = random.bytes(40_000).iter().map(|byte| b'0' + byte % 64).collect();
            batch.put(Keyspace::Bodies, &(number * 100 + entry).to_be_bytes(), &value);
        }
        let start = Instant::now();
        write(engine, Shard(101), number, batch)?;
        seconds += start.elapsed().as_secs_f64();
    }
    Ok(10_000.0 / seconds)
}

/// Returns the latency of a read of another shard after `drops` drops of small shards.
fn neighbour(engine: &RocksEngine, drops: u64) -> Result<f64> {
    static NEXT: AtomicU64 = AtomicU64::new(1_000);
    for _ in 0..drops {
        let shard = Shard(NEXT.fetch_add(1, Ordering::Relaxed));
        let mut batch = Batch::new();
        batch.put(Keyspace::Documents, b"document", b"value");
        let outcome = engine.commit(shard, Version(0), CommitToken(1), batch, Durability::Buffered)?;
        assert_eq!(outcome, Outcome::Committed(Version(1)), "no other writer exists");
        engine.drop_shard(shard)?;
    }
    let rounds = 20;
    let start = Instant::now();
    for _ in 0..rounds {
        let snapshot = engine.snapshot(Shard(100))?;
        let mut cursor = snapshot.scan(Keyspace::Documents, KeyRange::default(), Direction::Forward, Expect::Few)?;
        assert!(cursor.next()?.is_some(), "entries were written");
    }
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(rounds))
}

fn scan(engine: &RocksEngine, space: Keyspace) -> Result<f64> {
    let shard = if space == Keyspace::Bodies { Shard(101) } else { Shard(100) };
    let snapshot = engine.snapshot(shard)?;
    let start = Instant::now();
    let mut cursor = snapshot.scan(space, KeyRange::default(), Direction::Forward, Expect::All)?;
    let (mut count, mut bytes) = (0, 0);
    while let Some((key, value)) = cursor.next()? {
        count += 1;
        bytes += key.len() + value.len();
    }
    assert!(bytes > 0, "entries were written");
    Ok(rate(count, start))
}
