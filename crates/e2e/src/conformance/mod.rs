//! Replays the recorded responses of CouchDB against this server and compares the outcome with
//! `conformance/expectations.toml` ([`run`]). Every scenario of an area must pass unless it is listed there with a
//! reason, and every listed one must fail. Whole revision ids are compared; the few scenarios for which that cannot
//! hold are replayed a second time without. `conformance/replay.py` performs the comparison.

mod evaluation;
mod expectations;
mod report;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use evaluation::{ScenarioResult, Verdict};
use expectations::Expectations;
use report::{Case, Outcome};

use crate::cluster::Nodes;
use crate::process;
use crate::s3::gateway::{self, Gateway};
use crate::scratch::{MISSING, Scratch};
use crate::server::{Access, Server};
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{build, server};

const EXPECTATIONS: &str = "conformance/expectations.toml";

/// Requirement of scenarios that were recorded without the older text search.
const WITHOUT_SEARCH: &str = "no_text_search";

#[derive(Debug)]
pub struct Options {
    areas: Vec<String>,
    url: Option<String>,
    storage: Storage,
    nodes: usize,
    jobs: usize,
    draft: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    Directory,
    Postgres,
    S3,
}

impl Default for Options {
    fn default() -> Self {
        Self { areas: Vec::new(), url: None, storage: Storage::Directory, nodes: 1, jobs: 4, draft: false }
    }
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            if name == "--draft" {
                options.draft = true;
                continue;
            }
            let value = rest.next().with_context(|| format!("`{name}` is unknown or lacks its value"))?;
            match name.as_str() {
                "--area" => options.areas.push(value.clone()),
                "--url" => options.url = Some(value.clone()),
                "--storage" => options.storage = Storage::named(value)?,
                "--nodes" => options.nodes = value.parse().context("--nodes takes a number")?,
                "--jobs" => options.jobs = value.parse().context("--jobs takes a number")?,
                _ => bail!("there is no option `{name}`; `cargo xtask help` lists them"),
            }
        }
        if options.nodes == 0 || (options.nodes > 1 && options.storage == Storage::Directory) {
            bail!("several nodes need --storage postgres or s3");
        }
        Ok(options)
    }
}

impl Storage {
    fn named(name: &str) -> Result<Self> {
        match name {
            "directory" => Ok(Self::Directory),
            "postgres" => Ok(Self::Postgres),
            "s3" => Ok(Self::S3),
            _ => bail!("--storage takes directory, postgres or s3"),
        }
    }
}

/// Scenarios write one document after the other.
const NO_INTERVAL: &str = "storage/commit_interval_ms=0";

/// The store of the started servers.
enum Store {
    Directory,
    Postgres(Scratch),
    S3(Gateway),
}

impl Store {
    fn start(workspace: &Workspace, storage: Storage) -> Result<Self> {
        Ok(match storage {
            Storage::Directory => Self::Directory,
            Storage::Postgres => Self::Postgres(Scratch::start("").context(MISSING)?),
            Storage::S3 => Self::S3(Gateway::start(workspace)?),
        })
    }

    /// Servers with different purposes share a PostgreSQL, but not a prefix of a bucket.
    fn settings(&self, purpose: &str) -> Vec<String> {
        match self {
            Self::Directory => Vec::new(),
            Self::Postgres(postgres) => vec![format!("storage/url={}", postgres.url())],
            Self::S3(gateway) => gateway.settings(purpose).into_iter().chain([NO_INTERVAL.to_owned()]).collect(),
        }
    }

    /// Returns the location that several servers share, and their further settings. `None` for a directory.
    fn shared(&self) -> Option<(String, Vec<String>)> {
        match self {
            Self::Directory => None,
            Self::Postgres(postgres) => Some((postgres.url(), Vec::new())),
            Self::S3(gateway) => {
                let access = gateway::access(gateway.port()).into_iter();
                Some((gateway::url("conformance"), access.chain([NO_INTERVAL.to_owned()]).collect()))
            }
        }
    }
}

struct Servers {
    url: String,
    main: Vec<Server>,
    plain: Server,
    /// Dropped after the servers.
    _store: Store,
}

impl Servers {
    fn start(workspace: &Workspace, options: &Options) -> Result<Self> {
        let store = Store::start(workspace, options.storage)?;
        let start = |purpose: &str, setting: Option<&str>| {
            let settings = store.settings(purpose);
            let settings: Vec<&str> = settings.iter().map(String::as_str).chain(setting).collect();
            Server::start_with(workspace, purpose, Access::Admin, &settings)
        };
        let plain = start("conformance-plain", Some("dreyfus/enable=false"))?;
        let (url, main) = match store.shared().filter(|_| options.nodes > 1) {
            Some((location, further)) => {
                let further: Vec<&str> = further.iter().map(String::as_str).collect();
                let nodes = Nodes::start(workspace, "conformance", &vec![location; options.nodes], &further)?;
                (nodes.url(), nodes.servers)
            }
            _ => {
                let server = start("conformance", None)?;
                (server.url(), vec![server])
            }
        };
        Ok(Self { url, main, plain, _store: store })
    }
}

pub(crate) fn command(workspace: &Workspace, options: &Options) -> Result<Tally> {
    if options.url.is_none() {
        let features: &[&str] = if options.storage == Storage::S3 { &["--features=bucket"] } else { &[] };
        let built = build::build_with(workspace, features)?;
        if !built.holds() {
            return Ok(built);
        }
    }
    run(workspace, options)
}

/// A known failure counts neither as passed nor as failed.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Tally> {
    let folder = workspace.conformance();
    let file = workspace.root.join(EXPECTATIONS);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let expectations = Expectations::parse(&text).with_context(|| format!("in {EXPECTATIONS}"))?;
    // Nodes on buckets report groups.
    let expectations = expectations.for_nodes(options.nodes > 1 || options.storage == Storage::S3);
    let scenarios = list(&folder)?;
    let mut tally = Tally::default();
    for problem in expectations.problems(&scenarios) {
        println!("    {EXPECTATIONS}: {problem}");
        tally += Tally::one(false);
    }
    let areas = chosen_areas(options, &expectations)?;
    let mut own = match &options.url {
        Some(_) => None,
        None => Some(Servers::start(workspace, options)?),
    };
    let url = match (&options.url, &own) {
        (Some(url), _) => url.clone(),
        (None, Some(servers)) => servers.url.clone(),
        (None, None) => bail!("no server was started"),
    };
    let plain_url = own.as_ref().map(|servers| servers.plain.url());
    let replay = Replay { folder, url, plain_url, jobs: options.jobs, report: workspace.log("conformance-report")? };
    tally += play(&replay, &areas, &expectations, options)?;
    for server in own.iter_mut().flat_map(|servers| servers.main.iter_mut().chain([&mut servers.plain])) {
        tally += stop(server, tally.holds());
    }
    for (area, reason) in expectations.later() {
        println!("    {area}: not expected yet ({reason})");
    }
    Ok(tally)
}

pub fn run_on_postgres(workspace: &Workspace, nodes: usize) -> Result<Tally> {
    run(workspace, &Options { storage: Storage::Postgres, nodes, ..Options::default() })
}

fn chosen_areas<'a>(options: &'a Options, expectations: &'a Expectations) -> Result<Vec<&'a str>> {
    let all = expectations.areas();
    if options.areas.is_empty() {
        return Ok(all);
    }
    for area in &options.areas {
        if !all.contains(&area.as_str()) && expectations.later().all(|(later, _)| later != area) {
            bail!("{EXPECTATIONS} has no area `{area}`");
        }
    }
    Ok(options.areas.iter().map(String::as_str).collect())
}

fn play(replay: &Replay, areas: &[&str], expectations: &Expectations, options: &Options) -> Result<Tally> {
    println!("    {:<14} {:>7} {:>7} {:>7} {:>7}", "area", "passed", "known", "failed", "skipped");
    let mut all = Vec::new();
    for area in areas {
        let results = evaluate_area(replay, area, expectations)?;
        let count = |wanted: fn(&Verdict) -> bool| results.iter().filter(|one| wanted(&one.verdict)).count();
        println!(
            "    {area:<14} {:>7} {:>7} {:>7} {:>7}",
            count(|verdict| matches!(verdict, Verdict::Passed)),
            count(|verdict| matches!(verdict, Verdict::Known)),
            count(Verdict::is_unexpected),
            count(|verdict| matches!(verdict, Verdict::Skipped)),
        );
        all.extend(results);
    }
    let mut tally = Tally::default();
    for one in &all {
        if let Some(unexpected) = one.unexpected() {
            println!("    {unexpected}");
        }
        match one.verdict {
            Verdict::Passed => tally += Tally::one(true),
            Verdict::Known | Verdict::Skipped => {}
            Verdict::Failed(_) | Verdict::UnexpectedPass(_) => tally += Tally::one(false),
        }
    }
    if options.draft {
        println!("{}", evaluation::draft(&all));
    }
    Ok(tally)
}

/// Replays an area with whole revision ids, then the inexact scenarios without.
fn evaluate_area(replay: &Replay, area: &str, expectations: &Expectations) -> Result<Vec<ScenarioResult>> {
    let mut exact = replay.play(area, &[], true)?;
    replay.play_without_search(area, &mut exact)?;
    let mut results = evaluation::exact(&exact, expectations);
    let inexact: Vec<&str> =
        exact.iter().map(|case| case.name.as_str()).filter(|name| expectations.inexact(name).is_some()).collect();
    if !inexact.is_empty() {
        results.extend(evaluation::plain(&replay.play(area, &inexact, false)?, expectations));
    }
    Ok(results)
}

/// The server must end in time and without being killed. Prints its log after an error.
fn stop(server: &mut Server, held: bool) -> Tally {
    let stopped = server.stop();
    if let Err(error) = &stopped {
        println!("    {error:#}");
    }
    if !held || stopped.is_err() {
        println!("    the end of the server's log:");
        process::show_tail(server.log());
    }
    server::stopped_tally(&stopped)
}

struct Replay {
    folder: PathBuf,
    url: String,
    plain_url: Option<String>,
    jobs: usize,
    report: PathBuf,
}

impl Replay {
    fn play(&self, area: &str, names: &[&str], exact: bool) -> Result<Vec<Case>> {
        self.play_at(&self.url, &["--without", WITHOUT_SEARCH], area, names, exact)
    }

    fn play_without_search(&self, area: &str, cases: &mut [Case]) -> Result<()> {
        let is_left = |case: &Case| matches!(&case.outcome, Outcome::Skipped(need) if need.contains(WITHOUT_SEARCH));
        let names: Vec<String> = cases.iter().filter(|case| is_left(case)).map(|case| case.name.clone()).collect();
        let (Some(url), false) = (&self.plain_url, names.is_empty()) else { return Ok(()) };
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        for played in self.play_at(url, &[], area, &names, true)? {
            if let Some(case) = cases.iter_mut().find(|case| case.name == played.name) {
                case.outcome = played.outcome;
            }
        }
        Ok(())
    }

    fn play_at(&self, url: &str, options: &[&str], area: &str, names: &[&str], exact: bool) -> Result<Vec<Case>> {
        let mut command = replay_command(&self.folder);
        command.args(options);
        command.args(["--url", url, "--area", area, "--jobs", &self.jobs.to_string()]);
        command.arg("--junit").arg(&self.report);
        if exact {
            command.arg("--exact-revs");
        }
        for name in names {
            command.args(["--scenario", name]);
        }
        // A stale report of an earlier run must not be read.
        let _ = std::fs::remove_file(&self.report);
        let output = command.output().context("cannot start python3")?;
        let text = std::fs::read_to_string(&self.report).with_context(|| {
            format!("replay.py wrote no report about `{area}`: {}", String::from_utf8_lossy(&output.stderr).trim())
        })?;
        let cases = report::parse(&text)?;
        if cases.is_empty() {
            bail!("no scenario of `{area}` was played");
        }
        Ok(cases)
    }
}

fn replay_command(folder: &Path) -> Command {
    let mut command = Command::new("python3");
    // Prevents Python from writing its cache among the scenarios.
    command.arg("-B").arg(folder.join("replay.py"));
    command
}

fn list(folder: &Path) -> Result<BTreeSet<(String, String)>> {
    let output = replay_command(folder).arg("--list").output().context("cannot start python3")?;
    if !output.status.success() {
        bail!("replay.py --list failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(report::parse_list(&String::from_utf8_lossy(&output.stdout)))
}
