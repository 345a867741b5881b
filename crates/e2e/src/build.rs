//! Calls of cargo whose output is written to a log: [`build`] builds the `settee` program, [`finish`] runs any call.

use std::path::Path;

use anyhow::Result;

use crate::process;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// The arguments that build the `settee` program.
pub const BUILD: &[&str] = &["build", "--release", "--package", "settee-server"];

/// Builds the `settee` program, unless one was given.
pub fn build(workspace: &Workspace) -> Result<Tally> {
    if workspace.program.is_some() {
        return Ok(Tally::one(true));
    }
    logged(workspace, "build", BUILD)
}

pub fn logged(workspace: &Workspace, name: &str, arguments: &[&str]) -> Result<Tally> {
    finish(&mut workspace.cargo(arguments), &workspace.log(name)?)
}

/// Runs a command, and shows the end of its log if it fails.
pub fn finish(command: &mut std::process::Command, log: &Path) -> Result<Tally> {
    let succeeded = process::run_logged(command, log)?;
    if !succeeded {
        process::show_tail(log);
    }
    Ok(Tally::one(succeeded))
}
