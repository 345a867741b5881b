//! `cargo xtask dist`: reproducible packages of the static program in `dist/` ([`command`]). The tool of each format makes
//! its package ([`FORMATS`]). `--try` installs each in an empty environment ([`trial`]).

mod archive;
mod contents;
mod deb;
mod formula;
mod image;
mod npm;
mod python;
mod rpm;
#[cfg(test)]
mod samples;
mod sbom;
mod target;
mod text;
mod tree;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
pub(crate) use contents::commit_of;
use contents::{Contents, Release, VERSION};
use target::Target;

use crate::setup;
use settee_e2e::process;
use settee_e2e::workspace::Workspace;

const SUMS: &str = "SHA256SUMS";

const COMPOSE: &str = "compose.yaml";

pub(crate) fn archive_name() -> Option<String> {
    Target::of_this_machine().ok().map(archive::name)
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    attempt: bool,
    url: Option<String>,
    /// Empty for the architecture of this machine.
    targets: Vec<Target>,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self::default();
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            if name == "--try" {
                options.attempt = true;
                continue;
            }
            let value = rest.next().with_context(|| format!("`{name}` is unknown or lacks its value"))?;
            match name.as_str() {
                "--url" => options.url = Some(value.trim_end_matches('/').to_owned()),
                "--target" => options.targets.push(Target::parse(value)?),
                _ => bail!("there is no option `{name}`; `cargo xtask help` lists them"),
            }
        }
        Ok(options)
    }
}

struct Format {
    /// The Debian package of the tool.
    tool: &'static str,
    name: fn(Target) -> String,
    /// Writes the file with that name into an empty directory.
    make: fn(&Contents, &Path) -> Result<()>,
}

const FORMATS: [Format; 4] = [
    Format { tool: "dpkg", name: deb::name, make: deb::make },
    Format { tool: "rpm", name: rpm::name, make: rpm::make },
    Format { tool: "python3-wheel", name: python::name, make: python::make },
    Format { tool: "npm", name: npm::name, make: npm::make },
];

struct Made {
    name: String,
    bytes: Vec<u8>,
}

/// Returns false if a trial failed.
pub(crate) fn command(workspace: &Workspace, options: &Options) -> Result<bool> {
    let folder = workspace.root.join("dist");
    let url = options.url.clone().unwrap_or_else(|| format!("file://{}", folder.display()));
    let release = Release::of(workspace, url);
    let contents: Vec<Contents> = programs(workspace, options, &release)?
        .iter()
        .map(|program| Contents::gather(workspace, release.clone(), program))
        .collect::<Result<_>>()?;
    let scratch = workspace.scratch("dist");
    let made = all(&contents, &scratch);
    let _ = fs::remove_dir_all(&scratch);
    write(&folder, &made?)?;
    for Contents { release, target, .. } in &contents {
        println!(
            "packages of settee {VERSION} ({}) for {} are in {}",
            release.commit,
            target.linux(),
            folder.display()
        );
    }
    if !options.attempt {
        return Ok(true);
    }
    let targets: Vec<Target> = contents.iter().map(|contents| contents.target).collect();
    Ok(trial::run(workspace, &folder, &targets)?.closing_line())
}

fn programs(workspace: &Workspace, options: &Options, release: &Release) -> Result<Vec<PathBuf>> {
    if let Some(program) = &workspace.program {
        ensure!(options.targets.is_empty(), "a program states its target; use either --program or --target");
        return Ok(vec![program.clone()]);
    }
    let own = [Target::of_this_machine()?];
    let targets = if options.targets.is_empty() { &own[..] } else { options.targets.as_slice() };
    targets.iter().map(|target| build(workspace, *target, release)).collect()
}

/// Libraries are already compiled in the build directory of this program.
fn build(workspace: &Workspace, target: Target, release: &Release) -> Result<PathBuf> {
    let directory = workspace.target()?;
    let own = target.emulator().is_none();
    let program = if own { directory.clone() } else { directory.join(target.triple()) }.join("static/settee");
    let mut script = Command::new(workspace.root.join("packaging/static.sh"));
    script.arg(&program).arg(target.triple());
    script.env("CARGO_TARGET_DIR", &directory).env("SETTEE_COMMIT", &release.commit);
    ensure!(process::run_shown(&mut script)?, "packaging/static.sh failed; its messages above say why");
    Ok(program)
}

fn all(targets: &[Contents], scratch: &Path) -> Result<Vec<Made>> {
    let mut made = Vec::new();
    let mut archives = Vec::new();
    for contents in targets {
        let target = contents.target;
        let archive = archive::make(contents)?;
        archives.push((target, text::sha256(&archive)));
        made.push(Made { name: archive::name(target), bytes: archive });
        for format in &FORMATS {
            let name = (format.name)(target);
            if setup::missing(&[format.tool]).is_empty() {
                made.push(Made { bytes: by_tool(format, contents, &scratch.join(&name))?, name });
            } else {
                println!("{name} is not built, because the Debian package {} is missing", format.tool);
            }
        }
        made.push(Made { name: image::name(target), bytes: image::make(contents)? });
        made.push(Made { name: sbom::name(target), bytes: sbom::make(contents).into_bytes() });
    }
    let first = targets.first().context("no program is packed")?;
    made.push(Made { name: COMPOSE.to_owned(), bytes: first.compose.clone().into_bytes() });
    let formula = formula::make(&first.release, &archives);
    made.push(Made { name: formula::NAME.to_owned(), bytes: formula.into_bytes() });
    made.push(sums(&made));
    Ok(made)
}

fn by_tool(format: &Format, contents: &Contents, folder: &Path) -> Result<Vec<u8>> {
    fs::create_dir_all(folder).with_context(|| format!("{} cannot be created", folder.display()))?;
    (format.make)(contents, folder)?;
    let package = folder.join((format.name)(contents.target));
    fs::read(&package).with_context(|| format!("the tool of the format did not write {}", package.display()))
}

fn sums(all: &[Made]) -> Made {
    let sums = all.iter().map(|made| format!("{}  {}\n", text::sha256(&made.bytes), made.name)).collect::<String>();
    Made { name: SUMS.to_owned(), bytes: sums.into_bytes() }
}

fn write(folder: &Path, all: &[Made]) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    for made in all {
        let path = folder.join(&made.name);
        fs::write(&path, &made.bytes).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{:>7.1} MB  {}", made.bytes.len() as f64 / 1e6, made.name);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packages() -> Result<Vec<Made>> {
        let scratch = tempfile::tempdir()?;
        all(&Target::ALL.map(samples::contents), scratch.path())
    }

    #[test]
    fn two_builds_have_the_same_bytes() -> Result<()> {
        let (files, again) = (packages()?, packages()?);
        assert_eq!(files.len(), again.len());
        for (made, again) in files.iter().zip(&again) {
            assert_eq!(made.name, again.name);
            assert!(made.bytes == again.bytes, "{} differs between two builds", made.name);
        }
        let allow_missing = std::env::var_os(settee_e2e::workspace::ALLOW_MISSING).is_some();
        assert!(files.len() == 2 * (3 + FORMATS.len()) + 3 || allow_missing, "a package was not built");
        Ok(())
    }

    #[test]
    fn every_file_has_a_checksum() -> Result<()> {
        let mut files = packages()?;
        let sums = files.pop().expect("the checksums are the last file");
        let listed = String::from_utf8(sums.bytes)?;
        let listed: Vec<(&str, &str)> = listed.lines().filter_map(|line| line.split_once("  ")).collect();
        assert_eq!(listed.len(), files.len());
        for (made, (sum, name)) in files.iter().zip(listed) {
            assert_eq!((made.name.as_str(), text::sha256(&made.bytes).as_str()), (name, sum));
        }
        let formula = files.iter().find(|made| made.name == formula::NAME).expect("there is a formula");
        assert!(String::from_utf8_lossy(&formula.bytes).contains(&text::sha256(&files[0].bytes)));
        Ok(())
    }

    #[test]
    fn options_are_read() {
        let parse = |words: &[&str]| Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let url = Some("https://example.org/a".to_owned());
        let all = parse(&["--try", "--url", "https://example.org/a/", "--target", "aarch64-unknown-linux-gnu"]);
        assert_eq!(all.ok(), Some(Options { attempt: true, url, targets: vec![Target::Arm64] }));
        assert_eq!(parse(&[]).ok(), Some(Options::default()));
        for wrong in [&["--url"][..], &["--what", "x"], &["x"], &["--target", "arm64"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
