//! The web console's own checks ([`run`]): types, lints, unit tests, and each flow in Chromium against a server.
//! Packages are installed into the build directory, together with a copy of the sources.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::build;
use crate::clients;
use crate::process;
use crate::server::{Access, Server, stopped_tally};
use crate::tally::Tally;
use crate::workspace::Workspace;

const NOT_COPIED: [&str; 2] = ["node_modules", "dist"];
const FAILURES: &str = "✖ failing tests:";

pub(crate) fn command(workspace: &Workspace) -> Result<Tally> {
    let built = build::build(workspace)?;
    if built.holds() { run(workspace) } else { Ok(built) }
}

pub fn run(workspace: &Workspace) -> Result<Tally> {
    let place = workspace.packages("console");
    install(workspace, &place)?;
    let mut tally = check(workspace, &place)?;
    tally += browse(workspace, &place)?;
    Ok(tally)
}

fn install(workspace: &Workspace, place: &Path) -> Result<()> {
    let sources = workspace.root.join("console");
    if place.exists() {
        for entry in fs::read_dir(place).with_context(|| format!("cannot list {}", place.display()))?.flatten() {
            let name = entry.file_name();
            // Files that were deleted in the checkout must be removed from the copy.
            if !["node_modules", "installed.txt"].iter().any(|kept| name == *kept) {
                remove(&entry.path())?;
            }
        }
    }
    copy(&sources, place)?;
    let lock = fs::read_to_string(place.join("package-lock.json")).context("cannot read console/package-lock.json")?;
    let stamp = place.join("installed.txt");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    println!("    installing packages for the console");
    let log = workspace.log("console-install")?;
    let mut npm = npm(place, &["ci", "--no-audit", "--no-fund", "--ignore-scripts"]);
    if !process::run_logged(&mut npm, &log)? {
        process::show_tail(&log);
        bail!("the packages for the console could not be installed");
    }
    fs::write(&stamp, lock).with_context(|| format!("cannot write {}", stamp.display()))
}

fn check(workspace: &Workspace, place: &Path) -> Result<Tally> {
    let log = workspace.log("console-check")?;
    let succeeded = process::run_logged(&mut npm(place, &["run", "check"]), &log)?;
    let mut tally = count_vitest(&process::read_lossy(&log));
    if !succeeded {
        process::show_tail(&log);
        if tally.holds() {
            tally += Tally::one(false);
        }
    }
    println!("    sources: {} passed, {} failed", tally.passed, tally.failed);
    Ok(tally)
}

fn browse(workspace: &Workspace, place: &Path) -> Result<Tally> {
    let mut server = Server::start(workspace, "console", Access::Admin)?;
    let log = workspace.log("console-browser")?;
    let mut command = npm(place, &["run", "browser"]);
    command.env("SETTEE_URL", server.url()).env("SETTEE_BINARY", workspace.binary());
    command.env("SETTEE_DOCS", workspace.root.join("docs"));
    let succeeded = process::run_logged(&mut command, &log)?;
    let output = process::read_lossy(&log);
    let mut tally = clients::count_node(&output);
    if !succeeded && tally.holds() {
        tally += Tally::one(false);
    }
    println!("    browser: {} passed, {} failed", tally.passed, tally.failed);
    if !tally.holds() {
        match clients::from_line(&output, FAILURES) {
            Some(failures) => println!("    {}", failures.trim_end().replace('\n', "\n    ")),
            None => process::show_tail(&log),
        }
        println!("    the whole output: {}", log.display());
    }
    let stopped = server.stop();
    if let Err(error) = &stopped {
        println!("    {error:#}");
        process::show_tail(server.log());
    }
    tally += stopped_tally(&stopped);
    Ok(tally)
}

fn npm(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(place).env("NO_COLOR", "1");
    command
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot create {}", to.display()))?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?.flatten() {
        let name = entry.file_name();
        if NOT_COPIED.iter().any(|not| name == *not) {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        if from.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.with_context(|| format!("cannot remove {}", path.display()))
}

/// Reads `Tests  2 failed | 41 passed (43)`.
fn count_vitest(output: &str) -> Tally {
    let line = output.lines().rev().find_map(|line| line.trim_start().strip_prefix("Tests "));
    let words: Vec<&str> = line.unwrap_or_default().split_whitespace().collect();
    let count = |word: &str| {
        let at = words.iter().position(|each| *each == word)?;
        words.get(at.checked_sub(1)?)?.parse::<u64>().ok()
    };
    Tally::of(count("passed").unwrap_or(0), count("failed").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_tests_are_counted() {
        let check =
            |output: &str, passed, failed| assert_eq!(count_vitest(output), Tally::of(passed, failed), "{output}");
        check(" Test Files  3 passed (3)\n      Tests  41 passed (41)\n", 41, 0);
        check("      Tests  2 failed | 41 passed (43)\n", 41, 2);
        check("src/a.ts: error", 0, 0);
    }
}
