//! Runs a test of this program in a separate process, which can be killed.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const DIRECTORY: &str = "SETTEE_TEST_CHILD_DIRECTORY";

pub(crate) fn command(name: &str, directory: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// `None` in the process that runs all tests, where child tests do nothing.
pub(crate) fn directory() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}
