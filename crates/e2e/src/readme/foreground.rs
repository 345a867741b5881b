//! [`defect`]: executes a command that serves until a signal.

use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

use super::stage::{ADDRESS, Stage};
use crate::server::{Access, Server, free_port};
use crate::workspace::Workspace;

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The server must listen, and end after SIGTERM.
pub(super) fn defect(workspace: &Workspace, stage: &Stage, text: &str) -> Result<Option<String>> {
    if !is_single_command(text) {
        return Ok(Some("a block `sh serve` is one command".to_owned()));
    }
    let folder = stage.path(&format!("served-{}", COUNT.fetch_add(1, Ordering::Relaxed)));
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {folder}"))?;
    let port = free_port()?.to_string();
    let script = stage.adapted(text).replace(ADDRESS, &format!("http://127.0.0.1:{port}"));
    let mut command = stage.shell(&format!("exec env {script}"));
    command.current_dir(&folder).env("SETTEE_CHTTPD__PORT", port);
    match Server::start_prepared(workspace, "readme-served", Access::Admin, &mut command, folder.into()) {
        Ok(mut server) => Ok(server.stop().err().map(|error| format!("{error:#}"))),
        Err(error) => Ok(Some(format!("{error:#}"))),
    }
}

fn is_single_command(text: &str) -> bool {
    let mut lines = text.trim_end().lines().rev();
    let ends = lines.next().is_some_and(|line| !line.ends_with('\\'));
    ends && lines.all(|line| line.ends_with('\\')) && text.contains("settee serve")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_started_by_one_command() {
        assert!(is_single_command("A=b settee serve\n"));
        assert!(is_single_command("settee serve \\\n  --port 1\n"));
        assert!(!is_single_command("settee serve\nsettee serve\n"));
        assert!(!is_single_command("settee doctor\n"));
        assert!(!is_single_command(""));
    }
}
