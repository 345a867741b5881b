//! `cargo xtask dist`: reproducible packages of the static program in `dist/` ([`command`]); all except the RPM package
//! are made without the tools of their target systems. `--try` installs each in an empty environment ([`trial`]).

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
mod text;
mod tree;
mod trial;
mod zip;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
pub(crate) use contents::commit_of;
use contents::{Contents, Release, VERSION};

use settee_e2e::process;
use settee_e2e::workspace::Workspace;

const SUMS: &str = "SHA256SUMS";

const COMPOSE: &str = "compose.yaml";

pub(crate) fn archive_name() -> String {
    archive::name()
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    attempt: bool,
    url: Option<String>,
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
                _ => bail!("there is no option `{name}`; `cargo xtask help` lists them"),
            }
        }
        Ok(options)
    }
}

struct Made {
    name: String,
    bytes: Vec<u8>,
}

/// Returns false if a trial failed.
pub(crate) fn command(workspace: &Workspace, options: &Options) -> Result<bool> {
    let folder = workspace.root.join("dist");
    let url = options.url.clone().unwrap_or_else(|| format!("file://{}", folder.display()));
    let release = Release::of(workspace, url);
    let program = match &workspace.program {
        Some(program) => program.clone(),
        None => build(workspace, &release)?,
    };
    let contents = Contents::gather(workspace, release, &program)?;
    let mut made = all(&contents)?;
    if process::exists("rpmbuild") {
        made.push(Made { name: rpm::name(), bytes: rpm::make(&contents, &workspace.scratch("rpm"))? });
    } else {
        println!("no rpm is built, because rpmbuild is not installed (Debian package rpm)");
    }
    made.push(sums(&made));
    write(&folder, &made)?;
    println!("packages of settee {VERSION} ({}) are in {}", contents.release.commit, folder.display());
    if options.attempt { Ok(trial::run(workspace, &folder)?.closing_line()) } else { Ok(true) }
}

/// Libraries are already compiled in the build directory of this program.
fn build(workspace: &Workspace, release: &Release) -> Result<PathBuf> {
    let target = workspace.target()?;
    let program = target.join("static/settee");
    let mut script = Command::new(workspace.root.join("packaging/static.sh"));
    script.arg(&program).env("CARGO_TARGET_DIR", &target).env("SETTEE_COMMIT", &release.commit);
    ensure!(process::run_shown(&mut script)?, "packaging/static.sh failed; its messages above say why");
    Ok(program)
}

fn all(contents: &Contents) -> Result<Vec<Made>> {
    let archive = Made { name: archive::name(), bytes: archive::make(contents)? };
    let formula = formula::make(&contents.release, &text::sha256(&archive.bytes));
    Ok(vec![
        archive,
        Made { name: deb::name(), bytes: deb::make(contents)? },
        Made { name: image::name(), bytes: image::make(contents)? },
        Made { name: COMPOSE.to_owned(), bytes: contents.compose.clone().into_bytes() },
        Made { name: python::name(), bytes: python::make(contents)? },
        Made { name: npm::name(), bytes: npm::make(contents)? },
        Made { name: formula::NAME.to_owned(), bytes: formula.into_bytes() },
        Made { name: sbom::name(), bytes: sbom::make(contents).into_bytes() },
    ])
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

    #[test]
    fn every_file_has_a_checksum() -> Result<()> {
        let files = all(&samples::contents())?;
        let sums = sums(&files);
        let listed = String::from_utf8(sums.bytes.clone())?;
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
        let all = parse(&["--try", "--url", "https://example.org/a/"]);
        assert_eq!(all.ok(), Some(Options { attempt: true, url }));
        assert_eq!(parse(&[]).ok(), Some(Options::default()));
        for wrong in [&["--url"][..], &["--what", "x"], &["x"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
