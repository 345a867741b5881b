//! The gate ([`run`]) and its individual steps, all in the release profile, so that RocksDB's C++ is compiled once.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::on_postgres;
use crate::setup;
use crate::suite;
use crate::tidy;
use settee_e2e::attack;
use settee_e2e::build::{finish, logged};
use settee_e2e::chaos;
use settee_e2e::clients;
use settee_e2e::conformance;
use settee_e2e::console;
use settee_e2e::process;
use settee_e2e::readme;
use settee_e2e::tally::Tally;
use settee_e2e::workspace::Workspace;

const FEATURES: &str = "--features=settee-server/wasm,settee-server/bucket";
const CLIPPY: &[&str] = &["clippy", "--release", "--workspace", FEATURES, "--all-targets", "--", "-D", "warnings"];
const TEST: &[&str] = &["test", "--release", "--config=.cargo/tests.toml", "--no-fail-fast"];
const DOC: &[&str] = &["doc", "--release", "--workspace", FEATURES, "--no-deps", "--document-private-items"];

const ON_POSTGRESQL: &str = "on_postgresql::";
/// `make test-all` repeats the tests with these names with more rounds.
const LONG: &[&str] = &["fuzz", "power::", "crash", "damage", "flipped", "converge", "random"];
const LONG_SCALE: (&str, &str) = ("SETTEE_TEST_SCALE", "5");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `make test`.
    Quick,
    /// `make test-all` without the quick steps.
    Rest,
    /// `make test-all`.
    All,
}

impl Part {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        match arguments {
            [] => Ok(Self::All),
            [one] if one == "--quick" => Ok(Self::Quick),
            [one] if one == "--rest" => Ok(Self::Rest),
            _ => bail!("ci takes --quick or --rest, and --allow-missing"),
        }
    }
}

/// Runs every step, even after a failure, and prints a table of the results.
pub(crate) fn run(workspace: &Workspace, part: Part) -> bool {
    let mut gate = Gate { allow_missing: workspace.allow_missing, steps: Vec::new() };
    if part != Part::Rest {
        quick(workspace, &mut gate);
    }
    if part != Part::Quick {
        rest(workspace, &mut gate);
    }
    gate.close()
}

fn quick(workspace: &Workspace, gate: &mut Gate) {
    gate.step("fmt", &[], || logged(workspace, "fmt", &["fmt", "--all", "--check"]));
    gate.step("tidy", &[], || Ok(Tally::one(tidy::command(&workspace.root)?)));
    gate.step("lint", &[], || logged(workspace, "lint", CLIPPY));
    // This also builds the program, with assertions, for the tests that start servers.
    if gate.step("compile tests", &[], || build_tests(workspace)) {
        gate.step("test", &["erlang-base"], || run_tests(workspace, "test", &["--skip", ON_POSTGRESQL], None));
        gate.step("conformance", &["python3"], || conformance::run(workspace, &conformance::Options::default()));
        gate.step("readme", &["curl", "python3"], || readme::run(workspace));
    }
    gate.step("docs", &[], || document(workspace));
}

fn rest(workspace: &Workspace, gate: &mut Gate) {
    if gate.step("compile tests", &[], || build_tests(workspace)) {
        gate.step("long loops", &[], || run_tests(workspace, "test-long", LONG, Some(LONG_SCALE)));
        let daemons = ["postgresql", "nginx-light", "haproxy", "caddy"];
        gate.step("nodes", &daemons, || run_tests(workspace, "test-nodes", &[ON_POSTGRESQL], None));
        gate.step("test on PostgreSQL", &["postgresql"], || on_postgres::command(workspace, &[]));
        let on_postgres = |nodes| move || conformance::run_on_postgres(workspace, nodes);
        gate.step("conformance on PostgreSQL", &["python3", "postgresql"], on_postgres(1));
        gate.step("conformance on two nodes", &["python3", "postgresql"], on_postgres(2));
        gate.step("readme on PostgreSQL", &["curl", "postgresql"], || readme::run_on_postgres(workspace));
        gate.step("chaos", &["postgresql"], || chaos::run(workspace, &chaos::Options::short()));
        gate.step("attack", &[], || attack::run(workspace, &attack::Options::short()));
        gate.step("clients", &["nodejs", "npm", "python3-venv", "pypy3", "erlang-base", "curl"], || {
            clients::run(workspace)
        });
        gate.step("console", &["nodejs", "npm", "chromium"], || console::run(workspace));
    }
}

pub(crate) fn lint(workspace: &Workspace) -> Result<bool> {
    let clippy = process::run_shown(&mut workspace.cargo(CLIPPY))?;
    Ok(tidy(workspace)? && clippy)
}

pub(crate) fn tidy(workspace: &Workspace) -> Result<bool> {
    tidy::command(&workspace.root)
}

pub(crate) fn fmt(workspace: &Workspace) -> Result<bool> {
    process::run_shown(&mut workspace.cargo(&["fmt", "--all"]))
}

pub(crate) fn docs(workspace: &Workspace) -> Result<bool> {
    process::run_shown(&mut doc_command(workspace))
}

pub(crate) fn test(workspace: &Workspace, arguments: &[String]) -> Result<bool> {
    if let [option, storage, rest @ ..] = arguments
        && option == "--storage"
    {
        ensure!(storage == "postgres", "--storage takes postgres");
        return Ok(on_postgres::command(workspace, rest)?.closing_line());
    }
    process::run_shown(&mut checked_tests(workspace, arguments))
}

pub(crate) fn bench(workspace: &Workspace, arguments: &[String]) -> Result<bool> {
    let command = ["run", "--release", "--package", "settee-bench", "--"];
    process::run_shown(workspace.cargo(&command).args(arguments))
}

fn document(workspace: &Workspace) -> Result<Tally> {
    finish(&mut doc_command(workspace), &workspace.log("docs")?)
}

fn doc_command(workspace: &Workspace) -> std::process::Command {
    let mut command = workspace.cargo(DOC);
    command.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links");
    command
}

/// Enables assertions. Runs all tests unless the arguments name packages.
pub(crate) fn checked_tests(workspace: &Workspace, arguments: &[String]) -> std::process::Command {
    let mut command = workspace.cargo(TEST);
    let names_package = |argument: &String| argument.starts_with("-p") || argument.starts_with("--package");
    if !arguments.iter().any(names_package) {
        command.args(["--workspace", FEATURES]);
    }
    command.args(arguments);
    command
}

fn build_tests(workspace: &Workspace) -> Result<Tally> {
    finish(checked_tests(workspace, &[]).arg("--no-run"), &workspace.log("compile-tests")?)
}

fn run_tests(workspace: &Workspace, log: &str, filter: &[&str], scale: Option<(&str, &str)>) -> Result<Tally> {
    let command = |of_retry: &[&str]| {
        let mut command = checked_tests(workspace, &[]);
        command.envs(scale).arg("--").args(if of_retry.is_empty() { filter } else { of_retry });
        command
    };
    suite::run(command, &workspace.log(log)?)
}

struct Gate {
    /// Skips a step whose packages are missing. Otherwise such a step fails.
    allow_missing: bool,
    steps: Vec<(String, Tally, Duration)>,
}

impl Gate {
    /// Runs a step that calls programs of `packages`. A step that cannot run counts as one failure.
    fn step(&mut self, name: &str, packages: &[&str], work: impl FnOnce() -> Result<Tally>) -> bool {
        let missing = setup::missing(packages).join(", ");
        if self.allow_missing && !missing.is_empty() {
            println!("{name} skipped: the packages {missing} are missing");
            return false;
        }
        let work = || if missing.is_empty() { work() } else { bail!("these packages are missing: {missing}") };
        println!("{name} …");
        let started = Instant::now();
        let tally = match work() {
            Ok(tally) => tally,
            Err(error) => {
                println!("    {error:#}");
                Tally { notes: vec![format!("{name}: {error:#}")], ..Tally::one(false) }
            }
        };
        let elapsed = started.elapsed();
        let holds = tally.holds();
        let verdict = if holds { "ok" } else { "FAILED" };
        println!("{name} {verdict} ({:.1} s)", elapsed.as_secs_f64());
        self.steps.push((name.to_owned(), tally, elapsed));
        holds
    }

    fn close(&self) -> bool {
        let mut sum = Tally::default();
        println!("\n{:<14} {:>8} {:>8} {:>9}", "step", "passed", "failed", "seconds");
        for (name, tally, elapsed) in &self.steps {
            println!("{name:<14} {:>8} {:>8} {:>9.1}", tally.passed, tally.failed, elapsed.as_secs_f64());
            sum += tally.clone();
        }
        for note in &sum.notes {
            println!("{note}");
        }
        sum.closing_line()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_cannot_run_fails_the_gate() {
        let mut gate = Gate { allow_missing: false, steps: Vec::new() };
        assert!(gate.step("one", &[], || Ok(Tally::one(true))));
        assert!(gate.close());
        assert!(!gate.step("two", &[], || bail!("no such program")));
        assert!(!gate.close());
    }

    #[test]
    fn parts_are_read() {
        let parse = |words: &[&str]| Part::parse(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()).ok();
        assert_eq!(parse(&[]), Some(Part::All));
        assert_eq!(parse(&["--quick"]), Some(Part::Quick));
        assert_eq!(parse(&["--rest"]), Some(Part::Rest));
        assert_eq!(parse(&["--rest", "--quick"]), None);
        assert_eq!(parse(&["all"]), None);
    }
}
