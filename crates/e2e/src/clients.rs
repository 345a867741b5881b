//! Runs the suites of `clients/`, which test the server with clients of CouchDB ([`run`]). Packages are installed from
//! lockfiles into the build directory; the checkout stays clean. The suites define the tests: only their output is
//! parsed here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::build;
use crate::process;
use crate::server::{Access, Server, stopped_tally};
use crate::tally::Tally;
use crate::workspace::{ALLOW_MISSING, Workspace};

struct Suite {
    name: &'static str,
    lockfiles: &'static [&'static str],
    version: &'static [&'static str],
    install: fn(&SuiteDirectories) -> Result<Vec<Command>>,
    play: fn(&SuiteDirectories) -> Result<Command>,
    count: fn(&str) -> Tally,
    failures: &'static str,
}

struct SuiteDirectories {
    sources: PathBuf,
    installed: PathBuf,
}

const SUITES: [Suite; 2] = [
    Suite {
        name: "node",
        lockfiles: &["package.json", "package-lock.json"],
        version: &["node", "--version"],
        install: npm_ci,
        play: node_test,
        count: count_node,
        failures: "✖ failing tests:",
    },
    Suite {
        name: "python",
        lockfiles: &["requirements.txt"],
        version: &["python3", "--version"],
        install: pip_install,
        play: unittest,
        count: count_python,
        failures: "=====",
    },
];

pub(crate) fn command(workspace: &Workspace) -> Result<Tally> {
    let built = build::build(workspace)?;
    if built.holds() { run(workspace) } else { Ok(built) }
}

pub fn run(workspace: &Workspace) -> Result<Tally> {
    for suite in &SUITES {
        suite.install(workspace)?;
    }
    // The suites configure query servers over HTTP, as scripts for version 1 do.
    let settings = ["query_server_config/configure_over_http=true"];
    let mut server = Server::start_with(workspace, "clients", Access::Admin, &settings)?;
    let mut tally = Tally::default();
    for suite in &SUITES {
        tally += suite.run(workspace, &server.url())?;
    }
    let stopped = server.stop();
    if let Err(error) = &stopped {
        println!("    {error:#}");
        process::show_tail(server.log());
    }
    tally += stopped_tally(&stopped);
    Ok(tally)
}

impl Suite {
    fn directories(&self, workspace: &Workspace) -> SuiteDirectories {
        SuiteDirectories {
            sources: workspace.root.join("clients").join(self.name),
            installed: workspace.packages(self.name),
        }
    }

    /// Does nothing if the same packages were installed for the same version of the language.
    fn install(&self, workspace: &Workspace) -> Result<()> {
        let directories = self.directories(workspace);
        let mut wanted = self.language()?;
        for lockfile in self.lockfiles {
            let path = directories.sources.join(lockfile);
            let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
            wanted.push_str(&text);
        }
        let stamp = directories.installed.join("installed.txt");
        if fs::read_to_string(&stamp).is_ok_and(|installed| installed == wanted) {
            return Ok(());
        }
        println!("    installing packages for {}", self.name);
        if directories.installed.exists() {
            fs::remove_dir_all(&directories.installed)
                .with_context(|| format!("cannot empty {}", directories.installed.display()))?;
        }
        fs::create_dir_all(&directories.installed)
            .with_context(|| format!("cannot create {}", directories.installed.display()))?;
        for mut command in (self.install)(&directories)? {
            let log = workspace.log(&format!("clients-{}-install", self.name))?;
            if !process::run_logged(&mut command, &log)? {
                process::show_tail(&log);
                bail!("the packages for {} could not be installed", self.name);
            }
        }
        fs::write(&stamp, wanted).with_context(|| format!("cannot write {}", stamp.display()))
    }

    fn language(&self) -> Result<String> {
        let (program, arguments) = self.version.split_first().expect("a command has a program");
        let output =
            Command::new(program).args(arguments).output().with_context(|| format!("cannot start {program}"))?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn run(&self, workspace: &Workspace, url: &str) -> Result<Tally> {
        let log = workspace.log(&format!("clients-{}", self.name))?;
        let mut command = (self.play)(&self.directories(workspace))?;
        command.env("SETTEE_URL", url).env("SETTEE_BINARY", workspace.binary());
        if workspace.allow_missing {
            command.env(ALLOW_MISSING, "1");
        }
        let succeeded = process::run_logged(&mut command, &log)?;
        let output = process::read_lossy(&log);
        let mut tally = (self.count)(&output);
        if !succeeded && tally.holds() {
            tally += Tally::one(false);
        }
        println!("    {}: {} passed, {} failed", self.name, tally.passed, tally.failed);
        if !tally.holds() {
            match from_line(&output, self.failures) {
                Some(failures) => {
                    println!("    {}", failures.trim_end().replace('\n', "\n    "));
                    println!("    the whole output: {}", log.display());
                }
                None => process::show_tail(&log),
            }
        }
        Ok(tally)
    }
}

fn npm_ci(directories: &SuiteDirectories) -> Result<Vec<Command>> {
    for file in ["package.json", "package-lock.json"] {
        fs::copy(directories.sources.join(file), directories.installed.join(file))
            .with_context(|| format!("cannot copy {file} into {}", directories.installed.display()))?;
    }
    let mut npm = Command::new("npm");
    // leveldb is precompiled, so no install script of the packages needs to run.
    npm.args(["ci", "--no-audit", "--no-fund", "--ignore-scripts"]).current_dir(&directories.installed);
    Ok(vec![npm])
}

fn node_test(directories: &SuiteDirectories) -> Result<Command> {
    let mut files: Vec<PathBuf> = fs::read_dir(&directories.sources)
        .with_context(|| format!("cannot list {}", directories.sources.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(".test.js"))
        .collect();
    files.sort();
    let mut node = Command::new("node");
    node.args(["--test", "--test-reporter=spec"])
        .args(files)
        .env("NODE_PATH", directories.installed.join("node_modules"))
        .env("NO_COLOR", "1");
    Ok(node)
}

/// Adds up the lines `ℹ pass 7`, `ℹ fail 0` and `ℹ cancelled 0` at the end.
pub(crate) fn count_node(output: &str) -> Tally {
    let count = |word: &str| -> u64 {
        let mut numbers = output.lines().filter_map(|line| {
            let (_, rest) = line.split_once(' ')?;
            rest.strip_prefix(word)?.trim().parse::<u64>().ok()
        });
        numbers.next_back().unwrap_or(0)
    };
    Tally::of(count("pass "), count("fail ") + count("cancelled "))
}

fn pip_install(directories: &SuiteDirectories) -> Result<Vec<Command>> {
    let mut venv = Command::new("python3");
    venv.args(["-m", "venv"]).arg(&directories.installed);
    let mut pip = Command::new(python(&directories.installed));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"])
        .args(["--require-hashes", "--only-binary", ":all:", "--requirement"])
        .arg(directories.sources.join("requirements.txt"));
    Ok(vec![venv, pip])
}

fn unittest(directories: &SuiteDirectories) -> Result<Command> {
    let mut python = Command::new(python(&directories.installed));
    python.args(["-B", "-m", "unittest", "discover", "--verbose", "--start-directory"]).arg(&directories.sources);
    Ok(python)
}

fn python(installed: &Path) -> PathBuf {
    installed.join("bin/python")
}

/// Reads `Ran 35 tests in 0.4s` and `FAILED (failures=1, errors=2, expected failures=3)`.
fn count_python(output: &str) -> Tally {
    let mut total = 0;
    let mut failed = 0;
    let mut skipped = 0;
    for line in output.lines() {
        let words = line.strip_prefix("Ran ").and_then(|rest| rest.split_once(' '));
        if let Some((number, _)) = words {
            total = number.parse().unwrap_or(0);
        }
        let Some((_, details)) = line.strip_suffix(')').and_then(|line| line.split_once(" (")) else {
            continue;
        };
        if !line.starts_with("FAILED (") && !line.starts_with("OK (") {
            continue;
        }
        for (label, number) in details.split(", ").filter_map(|detail| detail.split_once('=')) {
            let number: u64 = number.parse().unwrap_or(0);
            match label {
                "failures" | "errors" | "unexpected successes" => failed += number,
                "skipped" => skipped += number,
                _ => {}
            }
        }
    }
    Tally::of(u64::saturating_sub(total, failed + skipped), failed)
}

/// Starts at the first line that starts with `start`.
pub(crate) fn from_line<'a>(text: &'a str, start: &str) -> Option<&'a str> {
    if text.starts_with(start) {
        return Some(text);
    }
    let at = text.find(&format!("\n{start}"))?;
    Some(&text[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "\
✔ pass 5 of something (3 ms)
✖ another (4 ms)
  Error: pass 9
ℹ tests 9
ℹ pass 6
ℹ fail 2
ℹ cancelled 1

✖ failing tests:

✖ another (4 ms)
";

    const PYTHON: &str = "\
test_a (test.Test) ... ok
test_b (test.Test) ... FAIL
======================================================================
FAIL: test_b (test.Test)
Traceback
----------------------------------------------------------------------
Ran 10 tests in 0.444s

FAILED (failures=1, errors=2, skipped=1, expected failures=3, unexpected successes=1)
";

    #[test]
    fn results_of_node_are_counted() {
        assert_eq!(count_node(NODE), Tally::of(6, 3));
        assert_eq!(count_node("Error: Cannot find module"), Tally::default());
    }

    #[test]
    fn results_of_python_are_counted() {
        assert_eq!(count_python(PYTHON), Tally::of(5, 4));
        let cases = [
            ("Ran 3 tests in 0.1s\n\nOK\n", 3),
            ("Ran 3 tests in 0.1s\n\nOK (expected failures=1)\n", 3),
            ("Ran 1 test in 0.1s\n\nOK\n", 1),
            ("No module named couchdb\n", 0),
        ];
        for (output, passed) in cases {
            assert_eq!(count_python(output), Tally::of(passed, 0), "{output}");
        }
    }

    #[test]
    fn failures_are_found_in_outputs() {
        let [node, python] = SUITES;
        let shown = from_line(NODE, node.failures);
        assert_eq!(shown, Some("✖ failing tests:\n\n✖ another (4 ms)\n"));
        let shown = from_line(PYTHON, python.failures).unwrap_or_default();
        assert!(shown.contains("Traceback") && !shown.contains("test_a"), "{shown}");
        assert_eq!(from_line("ok\n", node.failures), None);
    }
}
