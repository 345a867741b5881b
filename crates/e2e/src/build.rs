//! Calls of cargo whose output is written to a log: [`build`] builds the `settee` program, [`finish`] runs any call.

use std::path::Path;

use anyhow::Result;

use crate::process;
use crate::tally::Tally;
use crate::workspace::Workspace;

pub const BUILD: &[&str] = &["build", "--release", "--package", "settee-server"];

/// Does nothing if a program was given.
pub fn build(workspace: &Workspace) -> Result<Tally> {
    build_with(workspace, &[])
}

/// Builds the program with further arguments of cargo. Does nothing if a program was given.
pub(crate) fn build_with(workspace: &Workspace, arguments: &[&str]) -> Result<Tally> {
    if workspace.program.is_some() {
        return Ok(Tally::one(true));
    }
    logged(workspace, "build", &[BUILD, arguments].concat())
}

pub fn logged(workspace: &Workspace, name: &str, arguments: &[&str]) -> Result<Tally> {
    finish(&mut workspace.cargo(arguments), &workspace.log(name)?)
}

pub fn finish(command: &mut std::process::Command, log: &Path) -> Result<Tally> {
    let succeeded = process::run_logged(command, log)?;
    if !succeeded {
        process::show_tail(log);
    }
    Ok(Tally::one(succeeded))
}
