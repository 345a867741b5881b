//! Runs the tests of the layers above `storage` on a PostgreSQL, where each store of a test is a schema.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::ci::checked_tests;
use crate::suite;
use settee_e2e::build::finish;
use settee_e2e::process;
use settee_e2e::scratch::{MISSING, Scratch};
use settee_e2e::tally::Tally;
use settee_e2e::workspace::Workspace;

/// Their tests use stores of `storage-testing`.
const CRATES: [&str; 5] = ["storage-testing", "database", "views", "search", "mango"];

const VARIABLE: &str = "SETTEE_TEST_STORAGE";

/// Tests mostly wait for PostgreSQL, so the number of threads exceeds that of processors.
const THREADS: &str = "--test-threads=6";

/// Runs the tests of the packages in `arguments`, or of all [`CRATES`].
pub(crate) fn command(workspace: &Workspace, arguments: &[String]) -> Result<Tally> {
    let split = arguments.iter().position(|argument| argument == "--").unwrap_or(arguments.len());
    let (of_cargo, of_tests) = arguments.split_at(split);
    let log = workspace.log("compile-tests-on-postgres")?;
    let built = finish(checked_tests(workspace, of_cargo).arg("--no-run"), &log)?;
    if !built.holds() {
        return Ok(built);
    }
    let programs = programs(&process::read_lossy(&log));
    ensure!(!programs.is_empty(), "none of these packages has tests that are of no engine: {}", CRATES.join(", "));
    let postgres = Scratch::start("").context(MISSING)?;
    let mut tally = Tally::default();
    for (name, program) in programs {
        let folder = workspace.root.join("crates").join(name);
        let program = workspace.root.join(program);
        let command = |of_suite: &[&str]| {
            let mut command = Command::new(&program);
            command.env(VARIABLE, postgres.url_of_server()).env("CARGO_MANIFEST_DIR", &folder).current_dir(&folder);
            command.arg(THREADS).args(of_tests.iter().skip(1)).args(of_suite);
            command
        };
        let log = workspace.log(&format!("test-{name}-on-postgres"))?;
        let found = suite::run(command, &log)?;
        println!("    {name}: {} passed, {} failed", found.passed, found.failed);
        tally += found;
    }
    Ok(tally)
}

fn programs(output: &str) -> Vec<(&'static str, PathBuf)> {
    let reply = output.lines().filter_map(|line| {
        let path = line.trim().strip_prefix("Executable unittests src/lib.rs (")?.strip_suffix(')')?;
        let (name, _) = Path::new(path).file_name()?.to_str()?.rsplit_once('-')?;
        Some((name.strip_prefix("settee_")?.replace('_', "-"), PathBuf::from(path)))
    });
    let reply: Vec<(String, PathBuf)> = reply.collect();
    let of = |name: &'static str| reply.iter().find(|(found, _)| found == name).map(|(_, path)| (name, path.clone()));
    CRATES.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_the_output_of_cargo() {
        let output = "   Compiling settee-views v0.1.0 (/x/crates/views)
    Finished `release` profile [optimized] target(s) in 2m 47s
  Executable unittests src/lib.rs (target/release/deps/settee_views-d14510378f7e0b3a)
  Executable unittests src/lib.rs (/else/release/deps/settee_storage_testing-4288b6b45bd837bb)
  Executable unittests src/lib.rs (target/release/deps/settee_model-4288b6b45bd837bb)
  Executable tests/it/main.rs (target/release/deps/it-4288b6b45bd837bb)
";
        let found = programs(output);
        let expected = [
            ("storage-testing", "/else/release/deps/settee_storage_testing-4288b6b45bd837bb"),
            ("views", "target/release/deps/settee_views-d14510378f7e0b3a"),
        ];
        assert_eq!(found, expected.map(|(name, path)| (name, PathBuf::from(path))));
    }
}
