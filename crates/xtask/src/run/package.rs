//! [`find_available`]: a package of this checkout's version, made by `make dist` or installed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::dist;
use settee_e2e::workspace::Workspace;

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) struct Package {
    pub(super) program: PathBuf,
    found: PathBuf,
    commit: Option<String>,
    here: Option<String>,
}

impl Package {
    pub(super) fn offer(&self) -> String {
        let found = self.found.display();
        match (&self.commit, &self.here) {
            (Some(commit), Some(here)) if commit == here => {
                format!("{found} holds Settee {VERSION} of this very commit, {commit}.")
            }
            (Some(commit), Some(here)) => {
                format!("{found} holds Settee {VERSION}, of commit {commit}; this checkout is at {here}.")
            }
            _ => format!("{found} holds Settee {VERSION}."),
        }
    }
}

pub(super) fn find_available(workspace: &Workspace) -> Option<Package> {
    let archive = dist::archive_name().map(|name| workspace.root.join("dist").join(name));
    let archive = archive.filter(|archive| archive.is_file());
    let unpacked = archive.and_then(|archive| Some((unpack(workspace, &archive)?, archive)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed =
        std::env::split_paths(&path).map(|folder| folder.join("settee")).map(|program| (program.clone(), program));
    let (found, program, version) = unpacked
        .map(|(program, archive)| (archive, program))
        .into_iter()
        .chain(installed)
        .filter(|(_, program)| program.is_file())
        .find_map(|(found, program)| Some((found, program.clone(), asked(&program)?)))?;
    Some(Package { program, found, commit: dist::commit_of(&version), here: here(workspace) })
}

/// Returns the version output of a program of this version; `None` for any other.
fn asked(program: &Path) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let printed_text = String::from_utf8(output.stdout).ok()?;
    printed_text.starts_with(&format!("settee {VERSION}\n")).then_some(printed_text)
}

fn here(workspace: &Workspace) -> Option<String> {
    let mut git = Command::new("git");
    let output = git.args(["rev-parse", "--short=12", "HEAD"]).current_dir(&workspace.root).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| commit.trim().to_owned())
}

fn unpack(workspace: &Workspace, archive: &Path) -> Option<PathBuf> {
    let folder = workspace.packages("settee");
    fs::create_dir_all(&folder).ok()?;
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--gzip", "--strip-components=1", "--directory"]).arg(&folder).arg("--file").arg(archive);
    let output = tar.output().ok()?;
    output.status.success().then(|| folder.join("bin/settee"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_says_of_which_commit() {
        let cases = [
            (Some("a"), Some("a"), "of this very commit, a."),
            (Some("a"), Some("b"), "of commit a; this checkout is at b."),
            (None, Some("b"), VERSION),
            (Some("a"), None, VERSION),
        ];
        for (commit, here, expected) in cases {
            let package = Package {
                program: PathBuf::new(),
                found: PathBuf::from("/p"),
                commit: commit.map(str::to_owned),
                here: here.map(str::to_owned),
            };
            let offer = package.offer();
            assert!(offer.starts_with("/p holds Settee ") && offer.contains(expected), "{offer}");
        }
    }
}
