//! The gate ([`everything`]) and its steps one by one. All calls of cargo use the release profile, so
//! that RocksDB's C++ is compiled once for programs, tests, lints and documentation.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::attack;
use crate::build::{self, BUILD, finish, logged};
use crate::chaos;
use crate::clients;
use crate::conformance;
use crate::console;
use crate::on_postgres;
use crate::process;
use crate::readme;
use crate::suite;
use crate::tally::Tally;
use crate::tidy;
use crate::workspace::Workspace;

const CLIPPY: &[&str] = &["clippy", "--release", "--workspace", "--all-targets", "--", "-D", "warnings"];
const TEST: &[&str] = &["test", "--release", "--no-fail-fast"];
/// Debug assertions and overflow checks for tests, in the crates of this workspace only: `"*"` names all others, which
/// are those of every other build.
const CHECKED: &[&str] = &[
    "--config=profile.release.debug-assertions=true",
    "--config=profile.release.overflow-checks=true",
    "--config=profile.release.package.\"*\".debug-assertions=false",
    "--config=profile.release.package.\"*\".overflow-checks=false",
];
const DOC: &[&str] = &["doc", "--release", "--workspace", "--no-deps", "--document-private-items"];

/// Runs every step, also after one has failed, and closes with what was counted.
pub(crate) fn everything(workspace: &Workspace) -> bool {
    let mut gate = Gate::default();
    gate.step("fmt", || logged(workspace, "fmt", &["fmt", "--all", "--check"]));
    gate.step("tidy", || Ok(Tally::one(tidy::command(&workspace.root)?)));
    gate.step("lint", || logged(workspace, "lint", CLIPPY));
    if gate.step("compile tests", || build_tests(workspace)) {
        gate.step("test", || run_tests(workspace));
        gate.step("test on PostgreSQL", || on_postgres::run(workspace));
    }
    gate.step("docs", || document(workspace));
    if gate.step("build", || build::build(workspace)) {
        gate.step("conformance", || conformance::run(workspace, &conformance::Options::default()));
        gate.step("conformance on PostgreSQL", || conformance::run_on_postgres(workspace, 1));
        gate.step("conformance on two nodes", || conformance::run_on_postgres(workspace, 2));
        gate.step("chaos", || chaos::run(workspace, &chaos::Options::short()));
        gate.step("attack", || attack::run(workspace, &attack::Options::short()));
        gate.step("clients", || clients::run(workspace));
        gate.step("console", || console::run(workspace));
        gate.step("readme", || readme::run(workspace));
    }
    gate.close()
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
    if !process::run_shown(&mut workspace.cargo(BUILD))? {
        return Ok(false);
    }
    process::run_shown(std::process::Command::new(workspace.binary()).arg("bench").args(arguments))
}

fn document(workspace: &Workspace) -> Result<Tally> {
    finish(&mut doc_command(workspace), &workspace.log("docs")?)
}

fn doc_command(workspace: &Workspace) -> std::process::Command {
    let mut command = workspace.cargo(DOC);
    // Private items are documented too, so a link to one leads somewhere.
    command.env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links");
    command
}

/// Tests, with [`CHECKED`]: all, unless the arguments name packages.
pub(crate) fn checked_tests(workspace: &Workspace, arguments: &[String]) -> std::process::Command {
    let mut command = workspace.cargo(TEST);
    let names_package = |argument: &String| argument.starts_with("-p") || argument.starts_with("--package");
    if !arguments.iter().any(names_package) {
        command.arg("--workspace");
    }
    command.args(CHECKED).args(arguments);
    command
}

fn build_tests(workspace: &Workspace) -> Result<Tally> {
    finish(checked_tests(workspace, &[]).arg("--no-run"), &workspace.log("compile-tests")?)
}

fn run_tests(workspace: &Workspace) -> Result<Tally> {
    let command = |of_tests: &[&str]| {
        let mut command = checked_tests(workspace, &[]);
        command.arg("--").args(of_tests);
        command
    };
    suite::run(command, &workspace.log("test")?)
}

/// Steps that have run, for the table at the end.
#[derive(Default)]
struct Gate {
    steps: Vec<(String, Tally, Duration)>,
}

impl Gate {
    /// Runs a step; true if it holds. A step that could not run at all counts as one failure.
    fn step(&mut self, name: &str, work: impl FnOnce() -> Result<Tally>) -> bool {
        println!("{name} …");
        let started = Instant::now();
        let tally = match work() {
            Ok(tally) => tally,
            Err(error) => {
                println!("    {error:#}");
                Tally { remarks: vec![format!("{name}: {error:#}")], ..Tally::one(false) }
            }
        };
        let elapsed = started.elapsed();
        let holds = tally.holds();
        let verdict = if holds { "ok" } else { "FAILED" };
        println!("{name} {verdict} ({:.1} s)", elapsed.as_secs_f64());
        self.steps.push((name.to_owned(), tally, elapsed));
        holds
    }

    /// Prints the table and the closing line; false if something failed.
    fn close(&self) -> bool {
        let mut sum = Tally::default();
        println!("\n{:<14} {:>8} {:>8} {:>9}", "step", "passed", "failed", "seconds");
        for (name, tally, elapsed) in &self.steps {
            println!("{name:<14} {:>8} {:>8} {:>9.1}", tally.passed, tally.failed, elapsed.as_secs_f64());
            sum += tally.clone();
        }
        for remark in &sum.remarks {
            println!("{remark}");
        }
        sum.closing_line()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_cannot_run_fails_the_gate() {
        let mut gate = Gate::default();
        assert!(gate.step("one", || Ok(Tally::one(true))));
        assert!(gate.close());
        assert!(!gate.step("two", || anyhow::bail!("no such program")));
        assert!(!gate.close());
    }
}
