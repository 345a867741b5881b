//! Development commands: `cargo xtask COMMAND`. No crate of the product is linked, so that it compiles in seconds.

mod ci;
mod dist;
mod on_postgres;
mod run;
mod setup;
mod suite;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use settee_e2e::SUITES;
use settee_e2e::workspace::Workspace;

const HELP: &str = "\
cargo xtask COMMAND

  ci            every check: fmt, tidy, lint, tests, docs, conformance, chaos, attack, clients, console, readme
                  --quick      only `make test`: no other engine, no chaos, attack, clients or console
                  --rest       only the other checks
                  --allow-missing  skip checks whose packages are missing; they fail otherwise
  test          the Rust tests; further arguments are passed to `cargo test`
                  --storage postgres  tests above `storage`, on a PostgreSQL that is started for them; -p NAME
                                selects a crate, and arguments after -- are passed to the test programs
  lint          clippy and tidy
  tidy          crate edges, names that a crate must not use, file heads and lengths, language; with --lower it
                lowers the limits of the language rules to the current numbers
  fmt           formats the code
  docs          builds the documentation of all crates
  bench         builds and runs `settee-bench` with the further arguments
  dist          builds packages in dist/: tar.gz, deb, rpm, image, wheel, npm, formula, SBOM
                  --try        installs each in an empty environment and runs the README's session
                  --url URL    address of the packages, for the formula
                --target T   x86_64-unknown-linux-gnu or aarch64-unknown-linux-gnu, also several times (this machine's)
  run           builds and starts a server, or an available package of this version
                  --data D     the data directory (./data)
                  --port N     the port (5984)
  setup         checks for the programs that a command calls, and installs missing packages as root
                  --for P      run (compilation only), dist, dist-arm64, test, cluster or test-all
";

const PROGRAM_HELP: &str = "
attack, chaos, clients, cluster, cluster-bench, conformance, console, dist, readme and s3 run the server
`--program P` if it is given, and build none. `dist` writes `static/settee` in the build directory.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) = match arguments.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    match run(command, rest) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, arguments: &[String]) -> Result<bool> {
    let (program, mut arguments) = take_program(command, arguments)?;
    let all = arguments.len();
    arguments.retain(|argument| command != "ci" || argument != "--allow-missing");
    let (workspace, arguments) = (Workspace::find(program, arguments.len() < all)?, &arguments[..]);
    match command {
        "ci" => return Ok(ci::run(&workspace, ci::Part::parse(arguments)?)),
        "setup" => return setup::command(setup::parse(arguments)?),
        "dist" => return dist::command(&workspace, &dist::Options::parse(arguments)?),
        "run" => return run::command(&workspace, &run::Options::parse(arguments)?),
        suite if SUITES.contains(&suite) => return settee_e2e::command(suite, &workspace, arguments),
        "tidy" if arguments == ["--lower"] => return tidy::lower(&workspace.root),
        "test" => return ci::test(&workspace, arguments),
        "bench" => return ci::bench(&workspace, arguments),
        _ => {}
    }
    if let Some(argument) = arguments.first() {
        bail!("`{command}` takes no argument, got `{argument}`");
    }
    match command {
        "lint" => ci::lint(&workspace),
        "tidy" => ci::tidy(&workspace),
        "fmt" => ci::fmt(&workspace),
        "docs" => ci::docs(&workspace),
        "help" | "--help" | "-h" => {
            print!("{HELP}{}{PROGRAM_HELP}", settee_e2e::HELP);
            Ok(true)
        }
        unknown => bail!("there is no command `{unknown}`; `cargo xtask help` lists them"),
    }
}

fn take_program(command: &str, arguments: &[String]) -> Result<(Option<PathBuf>, Vec<String>)> {
    let mut rest = arguments.to_vec();
    let Some(place) = rest.iter().position(|argument| argument == "--program") else { return Ok((None, rest)) };
    ensure!(command == "dist" || SUITES.contains(&command), "`{command}` takes no --program");
    ensure!(place + 1 < rest.len(), "--program lacks its value");
    let program = PathBuf::from(rest.remove(place + 1));
    rest.remove(place);
    ensure!(program.is_file(), "there is no program {}", program.display());
    // Sessions of the documentation call the program by this name, and could find another one.
    ensure!(program.ends_with("settee"), "{} must be called `settee`", program.display());
    // Servers may be started in another directory.
    Ok((Some(program.canonicalize()?), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_taken_out() {
        let call = |command: &str, text: &str| {
            take_program(command, &text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        };
        let own = std::env::current_exe().expect("it runs").canonicalize().expect("it is there");
        let folder = std::env::temp_dir().join(format!("settee-program-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("it can be made");
        let given = folder.join("settee");
        std::fs::write(&given, b"").expect("it can be written");
        let (program, rest) = call("chaos", &format!("--short --program {} --seed 3", given.display())).expect("right");
        let wanted = given.canonicalize().expect("it is there");
        std::fs::remove_dir_all(&folder).expect("it can be removed");
        assert_eq!((program, rest.join(" ")), (Some(wanted), "--short --seed 3".to_owned()));
        let error = call("chaos", &format!("--program {}", own.display())).expect_err("another name");
        assert!(error.to_string().ends_with("must be called `settee`"), "{error}");
        assert_eq!(call("lint", "a b").expect("right"), (None, vec!["a".to_owned(), "b".to_owned()]));
        for (command, text, wanted) in [
            ("lint", "--program x", "`lint` takes no --program"),
            ("chaos", "--short --program", "--program lacks its value"),
            ("chaos", "--program /nowhere/settee", "there is no program /nowhere/settee"),
        ] {
            assert_eq!(call(command, text).expect_err("wrong").to_string(), wanted);
        }
    }
}
