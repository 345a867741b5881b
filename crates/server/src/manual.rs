//! Manual pages and shell completions, generated from the command line ([`pages`], [`completions`]), and [`VERSION`].

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, CommandFactory as _};
use clap_complete::Shell;
use clap_mangen::Man;
use settee_storage::durable::{self, Readers};

use crate::cli::Cli;
use settee_admin::output::print_text;

macro_rules! version {
    ($linked:literal) => {
        concat!(
            env!("CARGO_PKG_VERSION"),
            "\ncommit: ",
            env!("SETTEE_COMMIT"),
            "\nfeatures: ",
            env!("SETTEE_FEATURES"),
            "\nbuilt for: ",
            env!("SETTEE_TARGET"),
            $linked
        )
    };
}

#[cfg(not(target_feature = "crt-static"))]
pub(crate) const VERSION: &str = version!("");
#[cfg(target_feature = "crt-static")]
pub(crate) const VERSION: &str = version!(", without shared libraries");

/// Arguments of `settee completions`
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `settee man`
#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The directory; it is created if it is missing
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

impl CompletionsArgs {
    pub(crate) fn run(&self) {
        print_text(&completions(self.shell));
    }
}

impl ManArgs {
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        write(&self.directory)
    }
}

fn public_command() -> clap::Command {
    let all = Cli::command();
    let shown = all.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    let mut shown = clap::Command::new("settee")
        .version(env!("CARGO_PKG_VERSION"))
        .about("a CouchDB-compatible document database in one program")
        .long_about(all.get_long_about().cloned().unwrap_or_default())
        .subcommands(shown.collect::<Vec<_>>())
        .disable_help_subcommand(true);
    shown.build();
    shown
}

fn completions(shell: Shell) -> String {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut public_command(), "settee", &mut out);
    String::from_utf8_lossy(&out).into_owned()
}

fn pages() -> anyhow::Result<Vec<(String, Vec<u8>)>> {
    fn add(command: &clap::Command, pages: &mut Vec<(String, Vec<u8>)>) -> anyhow::Result<()> {
        for below in command.get_subcommands() {
            add(below, pages)?;
        }
        let page = Man::new(command.clone()).manual("Settee").source(concat!("settee ", env!("CARGO_PKG_VERSION")));
        let mut text = Vec::new();
        page.render(&mut text).context("a page cannot be created")?;
        pages.push((page.get_filename(), preserve_examples(&String::from_utf8_lossy(&text)).into_bytes()));
        Ok(())
    }
    let mut pages = Vec::new();
    add(&public_command(), &mut pages)?;
    Ok(pages)
}

/// Lines that start with a space are examples, which must be neither filled nor hyphenated.
fn preserve_examples(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut inside = false;
    for line in page.lines() {
        let is_example = line.starts_with(' ');
        if is_example != inside {
            out.push_str(if is_example { ".nf\n" } else { ".fi\n" });
            inside = is_example;
        }
        out.push_str(line);
        out.push('\n');
    }
    out
}

fn write(directory: &Path) -> anyhow::Result<()> {
    for (name, text) in pages()? {
        let path = directory.join(name);
        durable::write(&path, Readers::Default, &text)
            .with_context(|| format!("{} cannot be written", path.display()))?;
        print_text(&format!("{}\n", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn every_command_that_is_shown_has_a_page_and_a_completion() {
        let names: Vec<String> = pages().unwrap().into_iter().map(|(name, _)| name).collect();
        let bash = completions(Shell::Bash);
        for command in Cli::command().get_subcommands() {
            let page = format!("settee-{}.1", command.get_name());
            let word = format!("settee,{})", command.get_name());
            assert_eq!(names.contains(&page), !command.is_hide_set(), "{page} in {names:?}");
            assert_eq!(bash.contains(&word), !command.is_hide_set(), "{word}");
        }
        assert_eq!(names.last().map(String::as_str), Some("settee.1"));
        assert!(names.contains(&"settee-config-check.1".to_owned()), "{names:?}");
    }

    #[test]
    fn examples_are_not_filled() {
        let cases =
            [("a\n  b\n  c\nd\n", "a\n.nf\n  b\n  c\n.fi\nd\n"), ("  a\n", ".nf\n  a\n"), (".SH A\nb\n", ".SH A\nb\n")];
        for (page, expected) in cases {
            assert_eq!(preserve_examples(page), expected);
        }
    }

    #[test]
    fn pages_equal_the_help() {
        let pages = pages().unwrap();
        let check = |name: &str, expected: &[&str]| {
            let (_, text) = pages.iter().find(|(found, _)| found == name).unwrap();
            let text = String::from_utf8_lossy(text);
            for expected in expected {
                assert!(text.contains(expected), "{name} does not say {expected:?}:\n{text}");
            }
        };
        check("settee.1", &[".TH settee 1", "settee \\- a CouchDB", "curl \\-X PUT", "settee\\-serve(1)"]);
        check("settee-serve.1", &[".TH settee-serve 1", "\\-\\-data", "COUCHDB_USER", "`admins`"]);
    }
}
