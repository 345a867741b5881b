//! Runs a test of this program in a separate process, which can be killed, limited and measured.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const DIRECTORY: &str = "SETTEE_TEST_CHILD_DIRECTORY";

pub(crate) fn command(name: &str, directory: &Path) -> Command {
    as_child(Command::new(env::current_exe().unwrap()), name, directory)
}

/// As [`command`], with files limited to `blocks` of 512 bytes, beyond which writes fail until [`raise_file_limit`].
pub(crate) fn limited_command(name: &str, directory: &Path, blocks: u32) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$@\""), "sh"]);
    shell.arg(env::current_exe().unwrap());
    as_child(shell, name, directory)
}

pub(crate) fn raise_file_limit() {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
}

fn as_child(mut command: Command, name: &str, directory: &Path) -> Command {
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env(DIRECTORY, directory).stdin(Stdio::null()).stdout(Stdio::piped());
    command
}

/// `None` in the process that runs all tests, where child tests do nothing.
pub(crate) fn directory() -> Option<PathBuf> {
    env::var_os(DIRECTORY).map(PathBuf::from)
}
