//! [`Contents`]: the common contents of all packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::dist::target::Target;
use crate::dist::tree::Tree;
use settee_e2e::process::output;
use settee_e2e::workspace::Workspace;

/// The version of the workspace is also that of this program.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

#[derive(Clone, Debug)]
pub(crate) struct Release {
    /// With `-dirty` if the checkout has uncommitted changes.
    pub(crate) commit: String,
    /// Seconds of the epoch. All files in packages have this time.
    pub(crate) time: u64,
    pub(crate) date: String,
    pub(crate) url: String,
}

impl Release {
    pub(crate) fn of(workspace: &Workspace, url: String) -> Self {
        let git = |arguments: &[&str]| {
            let mut command = Command::new("git");
            command.args(arguments).current_dir(&workspace.root).env("TZ", "UTC");
            output(&mut command).ok().map(|text| text.trim().to_owned())
        };
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|text| !text.is_empty());
        let commit = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
        let time = git(&["log", "-1", "--format=%ct"]).and_then(|text| text.parse().ok());
        let date = git(&["log", "-1", "--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--format=%cd"]);
        Self {
            commit: if changed { format!("{commit}-dirty") } else { commit },
            time: time.unwrap_or_default(),
            date: date.unwrap_or_else(|| "1970-01-01T00:00:00Z".to_owned()),
            url,
        }
    }
}

pub(crate) struct Contents {
    pub(crate) target: Target,
    pub(crate) release: Release,
    pub(crate) program: Vec<u8>,
    pub(crate) pages: Vec<(String, Vec<u8>)>,
    pub(crate) bash: Vec<u8>,
    pub(crate) zsh: Vec<u8>,
    pub(crate) fish: Vec<u8>,
    pub(crate) unit: String,
    pub(crate) compose: String,
    pub(crate) readme: String,
    pub(crate) changelog: String,
    pub(crate) license: String,
    pub(crate) notice: String,
    pub(crate) libraries: String,
    pub(crate) console_lock: String,
}

impl Contents {
    pub(crate) fn gather(workspace: &Workspace, mut release: Release, program: &Path) -> Result<Self> {
        let read = |path: &str| {
            fs::read_to_string(workspace.root.join(path)).with_context(|| format!("{path} cannot be read"))
        };
        let bytes = fs::read(program).with_context(|| format!("{} cannot be read", program.display()))?;
        let target = target_of(&bytes).with_context(|| format!("{} cannot be packed", program.display()))?;
        let asked = |arguments: &[&str]| output(target.call(program).args(arguments).env_remove("SETTEE_DATA"));
        let printed_text = asked(&["--version"])?;
        ensure!(
            printed_text.starts_with(&format!("settee {VERSION}\n")),
            "this is not the program of version {VERSION}: {printed_text}"
        );
        // A given program may be built from another commit.
        if let Some(commit) = commit_of(&printed_text) {
            release.commit = commit;
        }
        Ok(Self {
            target,
            program: bytes,
            pages: pages(workspace, target.call(program))?,
            bash: asked(&["completions", "bash"])?.into_bytes(),
            zsh: asked(&["completions", "zsh"])?.into_bytes(),
            fish: asked(&["completions", "fish"])?.into_bytes(),
            unit: read("packaging/settee.service")?,
            compose: read("packaging/compose.yaml")?,
            readme: read("README.md")?,
            changelog: read("CHANGELOG.md")?,
            license: read("LICENSE")?,
            notice: read("NOTICE")?,
            libraries: libraries(workspace, target)?,
            console_lock: read("console/package-lock.json")?,
            release,
        })
    }

    pub(crate) fn legal(&self, tree: &mut Tree, folder: &str) {
        tree.file(&format!("{folder}/LICENSE"), self.license.as_str());
        tree.file(&format!("{folder}/NOTICE"), self.notice.as_str());
        tree.file(&format!("{folder}/LIBRARIES"), self.libraries.as_str());
    }
}

pub(crate) fn commit_of(version: &str) -> Option<String> {
    let commit = version.lines().find_map(|line| line.strip_prefix("commit: "))?;
    (commit != "unknown").then(|| commit.to_owned())
}

fn pages(workspace: &Workspace, mut program: Command) -> Result<Vec<(String, Vec<u8>)>> {
    let folder = workspace.scratch("man");
    let written = output(program.arg("man").arg(&folder).env_remove("SETTEE_DATA"));
    let read = written.and_then(|paths| {
        let mut pages = Vec::new();
        for path in paths.lines().map(PathBuf::from) {
            let name = path.file_name().context("a page has no name")?.to_string_lossy().into_owned();
            pages.push((name, fs::read(&path).with_context(|| format!("{} cannot be read", path.display()))?));
        }
        Ok(pages)
    });
    let _ = fs::remove_dir_all(&folder);
    read
}

fn libraries(workspace: &Workspace, target: Target) -> Result<String> {
    let mut tree = workspace.cargo(&["tree", "--quiet", "--locked", "--package", "settee-server", "--edges", "normal"]);
    tree.args(["--features", "wasm,bucket", "--target", target.triple()]);
    tree.args(["--prefix", "none", "--format", "{p} | {l} | {r}"]);
    let printed = output(&mut tree)?;
    let mut lines: Vec<&str> = printed.lines().filter_map(library).collect();
    lines.sort_unstable();
    lines.dedup();
    Ok(format!(
        "The program settee contains these libraries: name and version, license, sources. glibc (LGPL-2.1-or-later) and\n\
         libstdc++ (GPL-3.0 with the GCC Runtime Library Exception) are linked in as well.\n\n{}\n",
        lines.join("\n")
    ))
}

/// Parses a line of `cargo tree`; `None` for crates of this workspace and repetitions.
fn library(line: &str) -> Option<&str> {
    let line = line.strip_suffix(" (*)").unwrap_or(line);
    (!line.is_empty() && !line.contains("(/")).then_some(line)
}

/// Fails unless the program runs on every Linux of a supported architecture.
fn target_of(program: &[u8]) -> Result<Target> {
    /// The segment names the loader of shared libraries.
    const INTERPRETER: u64 = 3;
    let number = |at: usize, length: usize| {
        let bytes = program.get(at..at + length).context("the program is cut off")?;
        Ok::<u64, anyhow::Error>(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    ensure!(program.starts_with(b"\x7fELF\x02\x01"), "it is not a program for 64-bit Linux");
    let target = Target::from_elf(number(18, 2)?).context("it is neither for x86-64 nor for arm64")?;
    let (segments, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let at = usize::try_from(segments + index * size).context("the program is cut off")?;
        ensure!(number(at, 4)? != INTERPRETER, "it needs shared libraries: make it with packaging/static.sh");
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(machine: u8, segments: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18] = machine;
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = u8::try_from(segments.len()).expect("few segments");
        for kind in segments {
            bytes.push(*kind);
            bytes.extend([0; 55]);
        }
        bytes
    }

    #[test]
    fn only_static_programs_are_packed() {
        let cases: [(&[u8], Result<Target, &str>); 6] = [
            (b"#!/bin/sh", Err("not a program")),
            (&program(62, &[1, 1, 6]), Ok(Target::X86_64)),
            (&program(183, &[1]), Ok(Target::Arm64)),
            (&program(62, &[1, 3]), Err("shared libraries")),
            (&program(243, &[1]), Err("neither for x86-64 nor for arm64")),
            (&program(62, &[1, 1])[..100], Err("cut off")),
        ];
        for (program, expected) in cases {
            match (target_of(program).map_err(|error| error.to_string()), expected) {
                (Err(reply), Err(part)) => assert!(reply.contains(part), "{reply}"),
                (reply, expected) => assert_eq!(reply.ok(), expected.ok()),
            }
        }
    }

    #[test]
    fn programs_say_their_commit() {
        let cases = [
            ("settee 0.1.0\ncommit: 0123\nfeatures: bench\n", Some("0123")),
            ("settee 0.1.0\ncommit: unknown\n", None),
            ("settee 0.1.0\n", None),
        ];
        for (printed_text, expected) in cases {
            assert_eq!(commit_of(printed_text).as_deref(), expected, "{printed_text}");
        }
    }

    #[test]
    fn libraries_are_those_of_others() {
        let cases = [
            (
                "anyhow v1.0.104 | MIT OR Apache-2.0 | https://x",
                Some("anyhow v1.0.104 | MIT OR Apache-2.0 | https://x"),
            ),
            ("anyhow v1.0.104 | MIT |  (*)", Some("anyhow v1.0.104 | MIT | ")),
            ("settee-model v0.1.0 (/src/crates/model) | Apache-2.0 | ", None),
            ("", None),
        ];
        for (line, expected) in cases {
            assert_eq!(library(line), expected, "{line}");
        }
    }
}
