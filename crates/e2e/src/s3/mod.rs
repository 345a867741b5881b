//! `cargo xtask s3`: an independent S3 server. First a server sends periodic backups and its log; then it is restored to
//! random seconds, and must contain exactly the writes that were acknowledged before each of them. Then the data of
//! servers are in the bucket ([`store`]), and the commands of [`PAGE`] are executed.

pub(crate) mod gateway;
mod load;
mod store;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::attack::client::{Connection, split};
use crate::build;
use crate::readme;
use crate::server::{Access, Server};
use crate::tally::Tally;
use crate::workspace::Workspace;
use gateway::{BUCKET, Gateway, ID, SECRET};
use load::{DATABASE, Writer, documents, now_us};

const WRITERS: usize = 4;

const MOMENTS: usize = 10;

const PAGE: &str = "docs/operation/backup.md";

/// The last write must be in the bucket within this time.
const SHIP_LIMIT: Duration = Duration::from_secs(30);

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    seconds: u64,
    interval: u64,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { seconds: 60, interval: 10 };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let target = match argument.as_str() {
                "--seconds" => &mut options.seconds,
                "--interval" => &mut options.interval,
                unknown => bail!("there is no option `{unknown}`, only --seconds and --interval"),
            };
            *target =
                arguments.next().and_then(|number| number.parse().ok()).context("a number of seconds is missing")?;
        }
        ensure!(options.seconds > options.interval && options.interval > 0, "there would be no backup within the load");
        Ok(options)
    }
}

pub(crate) fn command(workspace: &Workspace, options: &Options) -> Result<Tally> {
    let built = build::build_with(workspace, &["--features=bucket"])?;
    if built.holds() { run(workspace, options) } else { Ok(built) }
}

fn run(workspace: &Workspace, options: &Options) -> Result<Tally> {
    let gateway = Gateway::start(workspace)?;
    let key = workspace.scratch("s3-key");
    fs::write(&key, "5e".repeat(32)).context("the key cannot be written")?;
    let bucket = Bucket { workspace, gateway: &gateway, key: &key };
    let run = bucket.play(options);
    let _ = fs::remove_file(&key);
    let mut tally = run?;
    tally += store::run(workspace, &gateway)?;
    tally += run_page(workspace, &gateway)?;
    Ok(tally)
}

fn run_page(workspace: &Workspace, gateway: &Gateway) -> Result<Tally> {
    let endpoint = gateway.endpoint();
    let variables =
        [("AWS_ACCESS_KEY_ID", ID), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_ENDPOINT_URL", endpoint.as_str())];
    let settings = [
        format!("backup/url=s3://{BUCKET}/page"),
        format!("backup/endpoint={endpoint}"),
        format!("backup/access_key_id={ID}"),
        format!("backup/secret_access_key={SECRET}"),
        "backup/log_interval=1".to_owned(),
    ];
    let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
    let server = Server::start_with(workspace, "s3-page", Access::AdminParty, &settings)?;
    let has_backup = || -> Result<bool> {
        let mut command = Command::new(workspace.binary());
        command.args(["restore", "--from", "s3://backups/page", "--check"]).envs(variables);
        Ok(command.output().context("no settee")?.status.success())
    };
    let begun = Instant::now();
    while !has_backup()? {
        ensure!(begun.elapsed() < SHIP_LIMIT, "the server makes no backup");
        thread::sleep(Duration::from_millis(200));
    }
    // A backup is named after the second of its start.
    thread::sleep(Duration::from_secs(1));
    let replacements = [("https://s3.example.com", endpoint.as_str()), ("s3://backups/server", "s3://backups/page")];
    readme::against_bucket(workspace, PAGE, &server, &variables, &replacements)
}

/// Creates the database and lets [`WRITERS`] clients write to it.
fn write(url: &str, seconds: u64) -> Result<Vec<Writer>> {
    let (address, authorization) = split(url)?;
    let (status, _) = Connection::open(address)?.ask(&format!("PUT /{DATABASE}"), &authorization, b"")?;
    ensure!(status == 201, "the database cannot be created: {status}");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = &over;
        let threads: Vec<_> = (0..WRITERS).map(|name| scope.spawn(move || Writer::run(url, name, over))).collect();
        thread::sleep(Duration::from_secs(seconds));
        over.store(true, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().ok().context("a writer broke")?).collect()
    })
}

struct Bucket<'a> {
    workspace: &'a Workspace,
    gateway: &'a Gateway,
    key: &'a Path,
}

impl Bucket<'_> {
    fn url() -> String {
        format!("s3://{BUCKET}/server")
    }

    fn play(&self, options: &Options) -> Result<Tally> {
        let (writers, begun_us, ended_us) = self.load(options)?;
        let (objects, bytes) = self.gateway.figures();
        let writes: usize = writers.iter().map(Writer::len).sum();
        println!(
            "{writes} writes in {} s, {} a second; {objects} objects of {} MB in the bucket; the server's data are gone",
            options.seconds,
            writes as u64 / options.seconds,
            bytes >> 20
        );
        let (first, last) = (begun_us / 1_000_000 + 2, ended_us / 1_000_000);
        let mut tally = Tally::default();
        for (place, random) in randoms(begun_us).take(MOMENTS).enumerate() {
            let second = first + random % (last - first);
            tally += Tally::one(self.try_moment(&writers, second, place)?);
        }
        tally += Tally::one(self.try_one_database(&writers, last)?);
        Ok(tally)
    }

    /// Returns the writes, and the time range that can be restored.
    fn load(&self, options: &Options) -> Result<(Vec<Writer>, u64, u64)> {
        let settings = [
            format!("backup/url={}", Self::url()),
            format!("backup/endpoint={}", self.gateway.endpoint()),
            format!("backup/access_key_id={ID}"),
            format!("backup/secret_access_key={SECRET}"),
            format!("backup/key_file={}", self.key.display()),
            format!("backup/interval={}", options.interval),
            "backup/log_interval=1".to_owned(),
        ];
        let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
        let server = Server::start_with(self.workspace, "s3", Access::Admin, &settings)?;
        let begun_us = now_us();
        let writers = write(&server.url(), options.seconds)?;
        let ended_us = now_us();
        self.wait_for_log(ended_us)?;
        drop(server);
        Ok((writers, begun_us, ended_us))
    }

    fn wait_for_log(&self, time_us: u64) -> Result<()> {
        let begun = Instant::now();
        let moment = format!("{}.{:06}", time_us / 1_000_000, time_us % 1_000_000);
        loop {
            let mut command = self.settee(&["restore", "--from", &Self::url()]);
            let output = command.args(["--at", &moment, "--check"]).output().context("no settee")?;
            if output.status.success() {
                return Ok(());
            }
            ensure!(begun.elapsed() < SHIP_LIMIT, "the log does not come: {}", String::from_utf8_lossy(&output.stderr));
            thread::sleep(Duration::from_millis(500));
        }
    }

    fn settee(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.workspace.binary());
        command.args(arguments).args(["--endpoint", &self.gateway.endpoint(), "--key-file"]).arg(self.key);
        command.env("AWS_ACCESS_KEY_ID", ID).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
    }

    fn try_moment(&self, writers: &[Writer], second: u64, place: usize) -> Result<bool> {
        let purpose = format!("s3-restored-{place}");
        let data = self.workspace.scratch(&purpose);
        let begun = Instant::now();
        let mut command = self.settee(&["restore", "--from", &Self::url()]);
        let output = command.args(["--at", &second.to_string(), "--data"]).arg(&data).output();
        let output = output.context("no settee")?;
        if !output.status.success() {
            println!("second {second}: {}", String::from_utf8_lossy(&output.stderr).trim_end());
            return Ok(false);
        }
        let took = begun.elapsed();
        let mut server = Server::start(self.workspace, &purpose, Access::Admin)?;
        let found = documents(&server.url(), DATABASE)?;
        server.stop()?;
        Ok(matches_writes(writers, second, &found, &format!("restored in {:.1} s", took.as_secs_f64())))
    }

    fn try_one_database(&self, writers: &[Writer], second: u64) -> Result<bool> {
        let server = Server::start(self.workspace, "s3-other", Access::Admin)?;
        let url = format!("{}/copy", server.url());
        let mut command = self.settee(&["restore", "--from", &Self::url()]);
        let command = command.args(["--at", &second.to_string(), "--database", &url, "--name", DATABASE]);
        let output = command.output().context("no settee")?;
        if !output.status.success() {
            println!("one database: {}", String::from_utf8_lossy(&output.stderr).trim_end());
            return Ok(false);
        }
        Ok(matches_writes(writers, second, &documents(&server.url(), "copy")?, "one database under another name"))
    }
}

/// Returns true if the restored state has exactly the writes acknowledged before the second. One write in flight of
/// each writer must be present or absent as a whole.
fn matches_writes(writers: &[Writer], second: u64, found: &BTreeMap<usize, load::State>, label: &str) -> bool {
    let (mut holds, mut writes, nothing) = (true, 0, load::State::new());
    for (name, writer) in writers.iter().enumerate() {
        let (acknowledged, begun) = writer.before(second * 1_000_000);
        let found = found.get(&name).unwrap_or(&nothing);
        let fits = (acknowledged..=begun).any(|count| writer.state(count) == *found);
        if !fits {
            println!("  writer {name}: {} documents are not what {acknowledged} writes left", found.len());
        }
        (holds, writes) = (holds && fits, writes + acknowledged);
    }
    let verdict = if holds { "exactly" } else { "NOT" };
    println!("second {second}: {verdict} the {writes} writes acknowledged before it; {label}");
    holds
}

fn randoms(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed | 1;
    println!("seed {seed}");
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_seconds() {
        let parse = |text: &str| Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).ok();
        assert_eq!(parse(""), Some(Options { seconds: 60, interval: 10 }));
        assert_eq!(parse("--seconds 90 --interval 7"), Some(Options { seconds: 90, interval: 7 }));
        for wrong in ["--seconds", "--seconds x", "--seconds 5", "--interval 0", "--else 1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
