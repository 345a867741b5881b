//! `cargo xtask run`: builds the server and replaces this process by it ([`command`]). An available package of the same
//! version is offered instead of a first build ([`package`]).

mod package;
mod progress;

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::num::NonZero;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use settee_e2e::build::BUILD;
use settee_e2e::process;
use settee_e2e::workspace::Workspace;

const FIRST_BUILD_CPU_MINUTES: [usize; 2] = [22, 50];

/// Minimum with any number of processors, because libraries depend on each other.
const FIRST_BUILD_MINUTES_MIN: usize = 4;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    data: String,
    port: String,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { data: "./data".to_owned(), port: "5984".to_owned() };
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let value = rest.next().with_context(|| format!("`{name}` is unknown or lacks its value"))?;
            match name.as_str() {
                "--data" => options.data.clone_from(value),
                "--port" => options.port.clone_from(value),
                _ => bail!("there is no option `{name}`; `cargo xtask help` lists them"),
            }
        }
        Ok(options)
    }

    fn arguments(&self) -> [&str; 5] {
        ["serve", "--data", &self.data, "--port", &self.port]
    }
}

/// Returns only after a failure.
pub(crate) fn command(workspace: &Workspace, options: &Options) -> Result<bool> {
    if workspace.binary().is_file() {
        if !process::run_shown(&mut workspace.cargo(BUILD))? {
            return Ok(false);
        }
        return become_server(&workspace.binary(), options);
    }
    println!("{}", announcement(std::thread::available_parallelism().map_or(1, NonZero::get)));
    if let Some(package) = package::find_available(workspace) {
        println!("{}", package.offer());
        if agreed()? {
            return become_server(&package.program, options);
        }
        println!(
            "Building. This would start the package: {} {}",
            package.program.display(),
            options.arguments().join(" ")
        );
    }
    if !progress::build(workspace)? {
        return Ok(false);
    }
    become_server(&workspace.binary(), options)
}

fn announcement(processors: usize) -> String {
    let minutes = FIRST_BUILD_CPU_MINUTES.map(|minutes| (minutes / processors).max(FIRST_BUILD_MINUTES_MIN));
    let minutes = match minutes {
        [least, most] if least == most => format!("about {least}"),
        [least, most] => format!("{least} to {most}"),
    };
    let processors = if processors == 1 { "one processor".to_owned() } else { format!("{processors} processors") };
    format!(
        "The first build takes {minutes} minutes on {processors}; a third of that is the storage engine RocksDB. \
         Later builds take seconds."
    )
}

fn agreed() -> Result<bool> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Ok(false);
    }
    print!("Start it instead of building? [Y/n] ");
    std::io::stdout().flush().context("the terminal is gone")?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).context("the terminal is gone")?;
    Ok(is_yes(&answer))
}

fn is_yes(answer: &str) -> bool {
    ["", "y", "yes"].contains(&answer.trim().to_lowercase().as_str()) && answer.ends_with('\n')
}

/// Signals then reach the server directly.
fn become_server(program: &Path, options: &Options) -> Result<bool> {
    let mut command = Command::new(program);
    command.args(options.arguments());
    #[cfg(unix)]
    {
        use std::os::unix::process::CommandExt as _;
        Err(command.exec()).with_context(|| format!("cannot start {}", program.display()))
    }
    #[cfg(not(unix))]
    process::run_shown(&mut command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_processors_take_less_time() {
        for (processors, expected) in [
            (1, "22 to 50 minutes on one"),
            (2, "11 to 25 minutes on 2 processors"),
            (64, "about 4 minutes on 64 processors"),
        ] {
            let printed_text = announcement(processors);
            assert!(printed_text.contains(expected), "{printed_text}");
        }
    }

    #[test]
    fn only_an_answer_is_an_answer() {
        for (answer, expected) in [
            ("\n", true),
            ("y\n", true),
            ("Yes \n", true),
            ("n\n", false),
            ("no\n", false),
            ("what\n", false),
            ("", false),
        ] {
            assert_eq!(is_yes(answer), expected, "{answer:?}");
        }
    }

    #[test]
    fn options_are_read() {
        let parse = |words: &[&str]| Options::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        let defaults = parse(&[]).expect("no option is required");
        assert_eq!(defaults.arguments(), ["serve", "--data", "./data", "--port", "5984"]);
        let given = parse(&["--port", "0", "--data", "/d"]).expect("both options are valid");
        assert_eq!(given.arguments(), ["serve", "--data", "/d", "--port", "0"]);
        assert!(parse(&["--port"]).is_err() && parse(&["--what", "x"]).is_err());
    }
}
