//! Chaos test: nodes and their store (a PostgreSQL and its standby, or a bucket) fail while clients write, read and
//! follow. Every acknowledged write must exist exactly once, and all derived data must be correct.

mod check;
mod client;
mod follower;
mod shares;
mod world;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};

use client::{Client, DATABASE, NEIGHBOURS, Random, Shared, lock};
use follower::{Follower, Kind};
use shares::Shares;
use world::{Fault, FaultInterval, Kind as StoreKind, World};
use writer::{Counts, Doc, Pace, Writer};

use crate::attack::client::split;
use crate::build;
use crate::scratch::{MISSING, Scratch};
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Writers of [`DATABASE`]. Each other database has one.
const WRITERS: usize = 6;

/// Maximum pause of a writer between two writes in the long form.
const WRITE_INTERVAL_MS: u64 = 100;

const SHORT_SECONDS: u64 = 60;

#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    seconds: u64,
    seed: Option<u64>,
    is_long: bool,
    is_on_bucket: bool,
}

impl Options {
    pub fn short() -> Self {
        Self { seconds: SHORT_SECONDS, seed: None, is_long: false, is_on_bucket: false }
    }

    fn store(&self) -> StoreKind {
        match (self.is_on_bucket, self.is_long) {
            (true, _) => StoreKind::Bucket,
            (false, true) => StoreKind::WithStandby,
            (false, false) => StoreKind::Alone,
        }
    }

    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { seconds: 30 * 60, seed: None, is_long: true, is_on_bucket: false };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            if name == "--short" {
                options = Self { seed: options.seed, is_on_bucket: options.is_on_bucket, ..Self::short() };
                continue;
            }
            let value = arguments.next().with_context(|| format!("`{name}` is unknown or lacks its value"))?;
            if name == "--storage" {
                options.is_on_bucket = match value.as_str() {
                    "postgres" => false,
                    "s3" => true,
                    _ => bail!("--storage takes postgres or s3"),
                };
                continue;
            }
            let number: u64 = value.parse().with_context(|| format!("{name} takes a number"))?;
            match name.as_str() {
                "--minutes" => options.seconds = number * 60,
                "--seconds" => options.seconds = number,
                "--seed" => options.seed = Some(number),
                _ => bail!("there is no option `{name}`, only --minutes, --seconds, --seed, --storage and --short"),
            }
        }
        ensure!(options.seconds > 0, "something has to happen");
        Ok(options)
    }
}

pub(crate) fn command(workspace: &Workspace, options: &Options) -> Result<Tally> {
    let features: &[&str] = if options.is_on_bucket { &["--features=bucket"] } else { &[] };
    let built = build::build_with(workspace, features)?;
    if built.holds() { run(workspace, options) } else { Ok(built) }
}

#[derive(Default)]
struct Written {
    docs: Vec<Doc>,
    unknown: BTreeSet<String>,
    counts: Counts,
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<Tally> {
    ensure!(options.is_on_bucket || Scratch::is_there(), "{MISSING}");
    let clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| u64::from(since.subsec_nanos()));
    let seed = options.seed.unwrap_or_else(clock);
    println!("    seed {seed}");
    let mut world = World::start(workspace, options.store())?;
    let authorization = split(&world.nodes.url())?.1;
    let shared = Shared::new(world.addresses()?, authorization);
    prepare(&shared, &world.nodes.url())?;
    let followers = [Kind::Continuous, Kind::Longpoll, Kind::Continuous].map(|kind| Follower::new(&shared, kind));
    let mut shares = Shares::new(shared.nodes.len());
    let is_enough = AtomicBool::new(false);
    let (intervals, written) = thread::scope(|scope| {
        for follower in &followers {
            scope.spawn(|| follower.run(&|| is_enough.load(Ordering::Relaxed)));
        }
        let shared = &shared;
        let pause_ms = if options.is_long { WRITE_INTERVAL_MS } else { 0 };
        let own = iter::repeat_n((DATABASE, Pace::Free(pause_ms)), WRITERS);
        let databases = own.chain(NEIGHBOURS.map(|database| (database, Pace::InStep)));
        let begin =
            |(number, (database, pace))| scope.spawn(move || Writer::new(shared, database, number, seed, pace).run());
        let writers: Vec<_> = databases.enumerate().map(begin).collect();
        let intervals = run_faults(&mut world, options, seed, shared, &mut shares);
        shared.end();
        let mut written = BTreeMap::<&str, Written>::new();
        for writer in writers.into_iter().map(thread::ScopedJoinHandle::join) {
            match writer {
                Ok(writer) => written.entry(writer.database).or_default().add(writer),
                Err(_) => shared.violation("a writer panicked".to_owned()),
            }
        }
        if intervals.is_ok() {
            println!("    {:>7} ms the final checks start", shared.now_ms());
            check::everything(shared, &written, &followers);
        }
        is_enough.store(true, Ordering::Relaxed);
        (intervals, written)
    });
    let intervals = intervals?;
    world.wait_for_standby()?;
    if shares.total == 0 && !options.is_on_bucket {
        shared.violation("no commits to several databases were made together".to_owned());
    }
    let (longest_wait_ms, too_long) = check::waits(&shared, &intervals, options.store().wait_max_ms());
    // In the gate other programs share the machine, so times are not checked.
    too_long.into_iter().filter(|_| options.is_long).for_each(|label| shared.violation(label));
    let errors = shared.timings().iter().filter(|timing| timing.status == 500).count();
    if errors > 0 {
        shared.violation(format!("{errors} requests were answered with 500"));
    }
    let acknowledged = print_summary(&intervals, &written, &shares);
    print_times(&shared, &followers, longest_wait_ms);
    let violations = shared.violations();
    if !violations.is_empty() {
        println!("    {} things must not be (seed {seed}):", violations.len());
        violations.iter().take(20).for_each(|violation| println!("      {violation}"));
        println!("    the logs of the nodes: {}", world.nodes.servers[0].log().display());
    }
    Ok(Tally::of(acknowledged, violations.len() as u64))
}

fn prepare(shared: &Shared, front: &str) -> Result<()> {
    let mut client = Client::new(shared, 0);
    let design = check::design("");
    let copy = check::COPY;
    let mut make = |line: &str, body: &str| {
        let settled = client.settle(line, body.as_bytes()).context("no node answers")?;
        ensure!(matches!(settled.status, 201 | 202 | 412), "{line}: {} {}", settled.status, settled.text);
        Ok(())
    };
    for database in iter::once(DATABASE).chain(NEIGHBOURS) {
        make(&format!("PUT /{database}"), "")?;
        make(&format!("PUT /{database}/_design/main"), &design)?;
    }
    make(&format!("PUT /{copy}"), "")?;
    make("PUT /_replicator", "")?;
    let job = format!("{{\"source\":\"{front}/{DATABASE}\",\"target\":\"{front}/{copy}\",\"continuous\":true}}");
    make("PUT /_replicator/chaos", &job)
}

fn run_faults(
    world: &mut World,
    options: &Options,
    seed: u64,
    shared: &Shared,
    shares: &mut Shares,
) -> Result<Vec<FaultInterval>> {
    let (begun, mut random, mut intervals) = (Instant::now(), Random::new(seed), Vec::new());
    let length = Duration::from_secs(options.seconds);
    thread::sleep(Duration::from_secs(2));
    let of_store = if options.is_on_bucket { Fault::Outage } else { Fault::KillPrimary };
    let mut first = vec![Fault::Unresponsive, of_store, Fault::KillNode];
    while begun.elapsed() < length {
        let chosen = Fault::choose(&mut random, options.store());
        let fault = first.pop().unwrap_or(chosen);
        let interval = world.inject(fault, &mut random, shared)?;
        println!(
            "    {:>7} ms {} ({} ms){}",
            interval.begun_ms,
            fault.name(),
            interval.ended_ms - interval.begun_ms,
            if fault == Fault::Promote { format!(": {}", world.primary()) } else { String::new() }
        );
        intervals.push(interval);
        thread::sleep(Duration::from_millis(1000 + random.below(4000)));
        world.wait_for_standby()?;
        if !options.is_on_bucket {
            shares.ask(shared);
        }
    }
    Ok(intervals)
}

impl Written {
    fn add(&mut self, writer: Writer<'_>) {
        self.docs.extend(writer.docs);
        self.unknown.extend(writer.unknown);
        self.counts.acknowledged += writer.counts.acknowledged;
        self.counts.unsure += writer.counts.unsure;
        self.counts.read_elsewhere += writer.counts.read_elsewhere;
        self.counts.read_from_view += writer.counts.read_from_view;
    }
}

fn print_summary(intervals: &[FaultInterval], written: &BTreeMap<&str, Written>, shares: &Shares) -> u64 {
    let faults = Fault::ALL.iter().filter_map(|fault| {
        let count = intervals.iter().filter(|interval| interval.fault == *fault).count();
        (count > 0).then(|| format!("{count} {}", fault.name()))
    });
    println!("    {}", faults.collect::<Vec<_>>().join(", "));
    let sum = |count: fn(&Written) -> u64| written.values().map(count).sum::<u64>();
    let acknowledged = sum(|written| written.counts.acknowledged);
    println!(
        "    {acknowledged} writes acknowledged in {} documents of {} databases ({} after a second try, {} of unknown fate), at least {} made \
         with others, {} read through another node, {} from a view",
        sum(|written| written.docs.len() as u64),
        written.len(),
        sum(|written| written.counts.unsure),
        sum(|written| written.unknown.len() as u64),
        shares.total,
        sum(|written| written.counts.read_elsewhere),
        sum(|written| written.counts.read_from_view)
    );
    acknowledged
}

fn print_times(shared: &Shared, followers: &[Follower<'_>], longest_wait_ms: u64) {
    let timings = shared.timings();
    let mut took: Vec<u64> = timings.iter().filter(|timing| timing.status != 0).map(|timing| timing.took_ms).collect();
    took.sort_unstable();
    let part = |of: usize| took.get(took.len().saturating_sub(1) * of / 1000).copied().unwrap_or(0);
    let failed = |is_it: fn(u16) -> bool| timings.iter().filter(|timing| is_it(timing.status)).count();
    println!(
        "    {} requests: p50 {} ms, p99 {} ms, p99.9 {} ms, longest {} ms; {} without an answer, {} answered 5xx; \
         longest wait while only another node had failed, or a connection was unresponsive: {longest_wait_ms} ms",
        timings.len(),
        part(500),
        part(990),
        part(999),
        part(1000),
        failed(|status| status == 0),
        failed(|status| status >= 500)
    );
    for follower in followers {
        let seen = lock(&follower.seen);
        println!("    a follower ({:?}) saw {} changes in {} feeds", follower.kind(), seen.changes, seen.feeds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_a_time_and_a_seed() {
        let parse = |text: &str| Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).ok();
        let options = |seconds, seed, is_long| Some(Options { seconds, seed, is_long, is_on_bucket: false });
        let on_bucket = Options { seconds: 60, seed: None, is_long: false, is_on_bucket: true };
        assert_eq!(parse("--storage s3 --short"), Some(on_bucket));
        assert_eq!(parse(""), options(1800, None, true));
        assert_eq!(parse("--minutes 5 --seed 7"), options(300, Some(7), true));
        assert_eq!(parse("--short --seconds 20"), options(20, None, false));
        for wrong in ["--minutes", "--minutes x", "--minutes 0", "--else 1", "--storage x"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
