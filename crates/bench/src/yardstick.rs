//! [`measure`]: limits of this machine, without a server: fsync, key-value store, a hand-written map, memory.

use crate::args::YardstickArgs;
use crate::generate::{Documents, IdOrder, Shape};
use crate::measure::{Figure, Limit, Metric};
use crate::progress::Progress;
use crate::results::Results;
use crate::statistics::{median, quantile};
use anyhow::{Context, Result, ensure};
use settee_storage_rocksdb::raw::{RawPattern, RawStore};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RawLoad {
    /// Id and body as one pair: the same bytes in the fewest entries. Nothing is read.
    Pairs,
    /// The minimum of a document database: the id is looked up; a record, an entry in the order of updates and the body
    /// are written.
    Documents,
}

impl RawLoad {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Pairs => "one entry a document",
            Self::Documents => "a lookup and three entries a document",
        }
    }
}

const RATE: Metric = Metric::higher("rate", "docs/s");
const BYTES: Metric = Metric::higher("rate", "MB/s");
const LATENCY: Metric = Metric::lower("latency", "ms");
const WRITES: Metric = Metric::higher("rate", "writes/s");

const BATCH: u64 = 1_000;
const APPEND_BYTES: usize = 4 << 10;
const APPENDS: usize = 500;
/// A disk with an fsync of seconds is measured with fewer appends.
const APPEND_SECONDS: f64 = 5.0;
const MAP_BYTES: usize = 256 << 20;
const MAP_SECONDS: f64 = 0.3;
const COPY_BYTES: usize = 256 << 20;

pub(crate) fn limits(args: &YardstickArgs, seed: u64) -> Vec<Limit> {
    let documents = |shape, order, count| Documents { shape, order, seed, count };
    let small = Shape::Score { size: args.size };
    vec![
        Limit::RawLoad(RawLoad::Pairs, documents(small, IdOrder::Sequential, args.docs)),
        Limit::RawLoad(RawLoad::Pairs, documents(small, IdOrder::Random, args.docs)),
        Limit::RawLoad(RawLoad::Documents, documents(small, IdOrder::Sequential, args.docs)),
        Limit::RawLoad(RawLoad::Documents, documents(small, IdOrder::Random, args.docs)),
        Limit::RustMap(documents(small, IdOrder::Sequential, args.docs)),
        Limit::RustMap(documents(Shape::Big, IdOrder::Sequential, args.docs.min(10_000))),
        Limit::RustMap(documents(Shape::BigTail, IdOrder::Sequential, args.docs.min(10_000))),
        Limit::SharedSync { clients: 1 },
        Limit::SharedSync { clients: 10 },
    ]
}

pub(crate) fn measure(directory: &Path, limits: &[Limit], results: &mut Results) -> Result<()> {
    eprintln!("yardstick: this machine");
    let scratch = Scratch::new(directory)?;
    let mut add = |label: String, figure: Figure| results.machine.push((label, figure));
    let latencies = sync_latencies_ms(&scratch.0.join("append"))?;
    let sync_ms = median(&latencies);
    add(format!("append {APPEND_BYTES} B and fsync, median"), Figure::new(LATENCY, sync_ms));
    add("append and fsync, p99".into(), Figure::new(LATENCY, quantile(&latencies, 0.99)));
    add("copy memory, one core".into(), Figure::new(BYTES, copy_rate() / 1e6));
    add("read a cached file, one core".into(), Figure::new(BYTES, read_rate(&scratch.0.join("read"))? / 1e6));
    for limit in limits {
        if results.limits.contains_key(limit) {
            continue;
        }
        let value = match limit {
            Limit::SharedSync { clients } => {
                let rate = *clients as f64 * 1e3 / sync_ms;
                results.machine.push((format!("{clients} clients that share each fsync"), Figure::new(WRITES, rate)));
                rate
            }
            Limit::RawLoad(load, documents) => {
                let rate = raw_load(&scratch.0.join("raw"), *load, documents)?;
                let (entries, shape) = (load.name(), documents.shape.name());
                let label =
                    format!("key-value store, {entries}, {shape}, {} ids, {BATCH} per fsync", documents.order.name());
                results.machine.push((label, Figure::new(RATE, rate)));
                rate
            }
            Limit::RustMap(documents) => {
                let map = rust_map(documents)?;
                let name = documents.shape.name();
                results.machine.push((format!("map by hand, {name}, one core"), Figure::new(RATE, map.one_core)));
                results.machine.push((format!("map by hand, {name}, all cores"), Figure::new(RATE, map.all_cores)));
                results.machine.push((
                    format!("the same in bytes, {name}, all cores"),
                    Figure::new(BYTES, map.bytes_all_cores / 1e6),
                ));
                map.all_cores
            }
        };
        results.limits.insert(*limit, value);
    }
    Ok(())
}

struct Scratch(PathBuf);

impl Scratch {
    fn new(parent: &Path) -> Result<Scratch> {
        let path = parent.join(format!("bench-yardstick-{}", std::process::id()));
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Appends with a sync as in a write-ahead log: data, not timestamps.
fn sync_latencies_ms(path: &Path) -> Result<Vec<f64>> {
    let mut file = File::create(path)?;
    let block = [b'x'; APPEND_BYTES];
    let mut latencies = Vec::new();
    let started = Instant::now();
    while latencies.len() < APPENDS && started.elapsed().as_secs_f64() < APPEND_SECONDS {
        let append = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        latencies.push(append.elapsed().as_secs_f64() * 1e3);
    }
    Ok(latencies)
}

fn copy_rate() -> f64 {
    let from = vec![1_u8; COPY_BYTES];
    let mut to = vec![0_u8; COPY_BYTES];
    to.copy_from_slice(&from);
    let rounds = 4;
    let started = Instant::now();
    for _ in 0..rounds {
        std::hint::black_box(&mut to).copy_from_slice(std::hint::black_box(&from));
    }
    (rounds * COPY_BYTES) as f64 / started.elapsed().as_secs_f64()
}

/// Bytes per second of a file in the page cache: an upper bound of the rate of scans of stored documents.
fn read_rate(path: &Path) -> Result<f64> {
    let block = vec![b'x'; 1 << 20];
    let mut file = File::create(path)?;
    for _ in 0..COPY_BYTES >> 20 {
        file.write_all(&block)?;
    }
    drop(file);
    let (mut block, mut bytes) = (block, 0);
    let mut file = File::open(path)?;
    let started = Instant::now();
    loop {
        match file.read(&mut block)? {
            0 => break,
            read => bytes += read,
        }
    }
    let seconds = started.elapsed().as_secs_f64();
    fs::remove_file(path)?;
    Ok(bytes as f64 / seconds)
}

fn raw_load(directory: &Path, load: RawLoad, documents: &Documents) -> Result<f64> {
    let progress = Progress::new("yardstick: key-value store", documents.count);
    let batches = (0..documents.count).step_by(BATCH as usize).map(|start| {
        let end = (start + BATCH).min(documents.count);
        progress.advance(end - start);
        (start..end).map(|index| (documents.id(index).into_bytes(), documents.body(index))).collect()
    });
    fs::create_dir_all(directory)?;
    let pattern = match load {
        RawLoad::Pairs => RawPattern::Pair,
        RawLoad::Documents => RawPattern::Document,
    };
    let seconds = RawStore::load(directory, pattern, batches, true)?.seconds;
    fs::remove_dir_all(directory)?;
    Ok(documents.count as f64 / seconds)
}

struct MapRates {
    one_core: f64,
    all_cores: f64,
    bytes_all_cores: f64,
}

fn rust_map(documents: &Documents) -> Result<MapRates> {
    let mut text = Vec::new();
    let mut ends = Vec::new();
    let progress = Progress::new("yardstick: map by hand", documents.count);
    for index in 0..documents.count {
        if text.len() > MAP_BYTES {
            break;
        }
        text.push(b'{');
        documents.write_members(index, &mut text);
        text.push(b'}');
        ends.push(text.len());
        progress.advance(1);
    }
    drop(progress);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let expected = Documents { count: ends.len() as u64, ..*documents }.sums_by_month();
    let rate = |threads| -> Result<f64> {
        // The best of several passes: the first also faults the pages in, and a pass over few documents is very short.
        let (mut seconds, measuring) = (f64::INFINITY, Instant::now());
        while seconds.is_infinite() || measuring.elapsed().as_secs_f64() < MAP_SECONDS {
            let started = Instant::now();
            let sums = sum_on(threads, &text, &ends);
            seconds = seconds.min(started.elapsed().as_secs_f64());
            ensure!(sums == expected, "the map written by hand sums wrongly");
        }
        Ok(ends.len() as f64 / seconds)
    };
    let one_core = rate(1)?;
    let all_cores = rate(cores)?;
    Ok(MapRates { one_core, all_cores, bytes_all_cores: all_cores * text.len() as f64 / ends.len().max(1) as f64 })
}

type Sums = BTreeMap<(u32, u32), u64>;

fn sum_on(threads: usize, text: &[u8], ends: &[usize]) -> Sums {
    let share = ends.len().div_ceil(threads).max(1);
    let mut total = Sums::new();
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..ends.len())
            .step_by(share)
            .map(|start| {
                scope.spawn(move || {
                    let mut sums = Sums::new();
                    let mut from = if start == 0 { 0 } else { ends[start - 1] };
                    for &to in &ends[start..(start + share).min(ends.len())] {
                        if let Some((key, score)) = map_score(&text[from..to]) {
                            *sums.entry(key).or_default() += score;
                        }
                        from = to;
                    }
                    sums
                })
            })
            .collect();
        for worker in workers {
            for (key, sum) in worker.join().expect("summing cannot panic") {
                *total.entry(key).or_default() += sum;
            }
        }
    });
    total
}

/// The founding map function walks the members and stops when it has both values.
fn map_score(document: &[u8]) -> Option<((u32, u32), u64)> {
    let (mut key, mut score) = (None, None);
    let mut at = 1;
    while key.is_none() || score.is_none() {
        let (name, value) = member(document, at)?;
        let end = skip_value(document, value)?;
        match name {
            b"metadata" => key = Some(month(&document[value..end])?),
            b"score" => score = Some(number(&document[value..end])? as u64),
            _ => {}
        }
        at = end + 1;
    }
    Some((key?, score?))
}

fn month(metadata: &[u8]) -> Option<(u32, u32)> {
    let mut at = 1;
    loop {
        let (name, value) = member(metadata, at)?;
        let end = skip_value(metadata, value)?;
        if name == b"createdAt" {
            return Some((number(metadata.get(value + 1..value + 5)?)?, number(metadata.get(value + 6..value + 8)?)?));
        }
        at = end + 1;
    }
}

fn member(text: &[u8], at: usize) -> Option<(&[u8], usize)> {
    if text.get(at) != Some(&b'"') {
        return None;
    }
    let end = skip_value(text, at)?;
    Some((&text[at + 1..end - 1], end + 1))
}

/// The text must be compact.
fn skip_value(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => {
            let mut at = at + 1;
            loop {
                let rest = text.get(at..)?;
                // One comparison per eight bytes until a quote or a backslash.
                at += rest.chunks_exact(8).take_while(|chunk| !holds_quote_or_escape(chunk)).count() * 8;
                at += text[at..].iter().position(|byte| matches!(byte, b'"' | b'\\'))?;
                if text[at] == b'"' {
                    return Some(at + 1);
                }
                at += 2;
            }
        }
        b'{' | b'[' => {
            let (mut depth, mut at) = (0, at);
            loop {
                match text.get(at)? {
                    b'"' => at = skip_value(text, at)? - 1,
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        _ => Some(at + text[at..].iter().position(|byte| matches!(byte, b',' | b'}' | b']'))?),
    }
}

fn holds_quote_or_escape(chunk: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let word = u64::from_le_bytes(chunk.try_into().expect("chunks of eight"));
    let zero_byte = |word: u64| word.wrapping_sub(ONES) & !word & (ONES << 7);
    zero_byte(word ^ (ONES * u64::from(b'"'))) | zero_byte(word ^ (ONES * u64::from(b'\\'))) != 0
}

fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0_u32, |sum, digit| match digit {
        b'0'..=b'9' => Some(sum * 10 + u32::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn values_are_skipped() {
        for (text, end) in [
            (r#""abc","#, 5),
            (r#""a\"bcdefghijklmnop","#, 20),
            (r#""abcdefghijklmnopqrstuvwxyz\\","#, 30),
            (r#"{"a":["}",{}]},"#, 14),
            ("12,", 2),
        ] {
            assert_eq!(skip_value(text.as_bytes(), 0), Some(end), "{text}");
        }
        assert_eq!(skip_value(b"\"open", 0), None);
    }

    #[test]
    fn the_map_sums_the_generated_documents() {
        for shape in [Shape::Score { size: 0 }, Shape::Big, Shape::BigTail] {
            let documents = Documents { shape, order: IdOrder::Random, seed: 5, count: 200 };
            let rates = rust_map(&documents).unwrap();
            assert!(rates.one_core > 0.0 && rates.all_cores > 0.0);
        }
        assert_eq!(map_score(br#"{"_id":"_design/x"}"#), None);
    }

    #[test]
    fn limits_are_measured() {
        let directory = std::env::temp_dir();
        let documents = Documents { shape: Shape::Score { size: 0 }, order: IdOrder::Random, seed: 5, count: 2_500 };
        let limit = Limit::RawLoad(RawLoad::Documents, documents);
        let mut results = Results::default();
        measure(&directory, &[limit, limit, Limit::SharedSync { clients: 10 }], &mut results).unwrap();
        assert!(results.limits[&limit] > 0.0);
        assert!(results.limits[&Limit::SharedSync { clients: 10 }] > 0.0);
        assert!(!directory.join(format!("bench-yardstick-{}", std::process::id())).exists());
    }
}
