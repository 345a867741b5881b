//! [`run`]: runs test programs, counts their tests, prints failed tests, and retries each of them once. Load
//! occasionally fails a test that uses real processes, disks and clocks. The retry runs it alone, with the same seed.
//! If it passes then, the closing lines list it as *unsteady*.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use settee_e2e::process;
use settee_e2e::tally::Tally;

/// More failures are no coincidence, and are not retried.
const RETRIES_MAX: usize = 5;

/// Tests print their seed in this variable, which repeats it.
const SEED: &str = "SETTEE_SEED";

const NOTE_LINES: usize = 3;

/// `command` builds the command from arguments of the test programs. `log` receives all output.
pub(crate) fn run(command: impl Fn(&[&str]) -> Command, log: &Path) -> Result<Tally> {
    let succeeded = process::run_logged(&mut command(&[]), log)?;
    let output = process::read_lossy(log);
    let mut tally = count_tests(&output);
    if succeeded {
        return Ok(tally);
    }
    let failed = failures(&output);
    for failure in &failed {
        println!("    {} failed:\n    {}", failure.name, failure.output.replace('\n', "\n    "));
    }
    if failed.is_empty() {
        process::show_tail(log);
    } else {
        println!("    the whole output: {}", log.display());
    }
    if tally.holds() || ended_early(&output) {
        tally += Tally::one(false);
        tally.notes.push(format!("a test program ended before its tests did: {}", log.display()));
    }
    let try_again = failed.len() <= RETRIES_MAX;
    for failure in &failed {
        let unsteady = try_again && passes_alone(&command, failure, log)?;
        if unsteady {
            tally.passed += 1;
            tally.failed = tally.failed.saturating_sub(1);
        }
        tally.notes.push(failure.note(if unsteady { "unsteady" } else { "failed" }));
    }
    Ok(tally)
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Failure {
    name: String,
    output: String,
}

impl Failure {
    fn seed(&self) -> Option<&str> {
        self.output.lines().find_map(|line| line.strip_prefix(SEED)?.strip_prefix('='))
    }

    fn note(&self, verdict: &str) -> String {
        let printed_text = self.output.lines().skip_while(|line| !line.contains("panicked at"));
        let printed_text = printed_text.filter(|line| !line.is_empty()).take(NOTE_LINES);
        let printed_text: String = printed_text.map(|line| format!("\n    {line}")).collect();
        format!("{verdict}: {}{printed_text}", self.name)
    }
}

fn passes_alone(command: impl Fn(&[&str]) -> Command, failure: &Failure, log: &Path) -> Result<bool> {
    let mut again = command(&["--exact", &failure.name]);
    if let Some(seed) = failure.seed() {
        again.env(SEED, seed);
    }
    let log = log.with_extension("again.log");
    let succeeded = process::run_logged(&mut again, &log)?;
    let passed = succeeded && count_tests(&process::read_lossy(&log)).passed > 0;
    println!("    {} tried again: {}", failure.name, if passed { "passed" } else { "failed" });
    Ok(passed)
}

fn count_tests(output: &str) -> Tally {
    let mut tally = Tally::default();
    for line in output.lines() {
        let Some(result) = line.strip_prefix("test result: ") else {
            continue;
        };
        let count = |word: &str| -> u64 {
            let mut words = result.split([' ', ';', '.']).filter(|part| !part.is_empty()).peekable();
            while let Some(number) = words.next() {
                if words.peek() == Some(&word) {
                    return number.parse().unwrap_or(0);
                }
            }
            0
        };
        tally += Tally::of(count("passed"), count("failed"));
    }
    tally
}

/// Returns true if a program started its tests and printed no result.
fn ended_early(output: &str) -> bool {
    let is_begin = |line: &&str| {
        let number = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
        number.is_some_and(|(number, rest)| number.parse::<u64>().is_ok() && matches!(rest, "" | "s"))
    };
    let begun = output.lines().filter(is_begin).count();
    begun > output.lines().filter(|line| line.starts_with("test result: ")).count()
}

fn failures(output: &str) -> Vec<Failure> {
    let mut inside = false;
    let mut found: Vec<Failure> = Vec::new();
    for line in output.lines() {
        if let Some(name) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            inside = true;
            found.push(Failure { name: name.to_owned(), output: String::new() });
        } else if line == "failures:" || line.starts_with("test result:") {
            inside = false;
        } else if inside && let Some(failure) = found.last_mut() {
            failure.output.push_str(line);
            failure.output.push('\n');
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const OUTPUT: &str = "\
running 3 tests
test a ... ok
test b ... FAILED

failures:

---- b stdout ----
SETTEE_SEED=17
thread 'b' panicked at here.rs:1:2:
assertion failed

failures:
    b

test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running unittests src/main.rs
running 41 tests
test result: ok. 40 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.25s
";

    #[test]
    fn test_results_are_added_up() {
        assert_eq!(count_tests(OUTPUT), Tally::of(42, 1));
        assert_eq!(count_tests("error: could not compile"), Tally::default());
    }

    #[test]
    fn only_failures_are_shown() {
        let [failure] = &failures(OUTPUT)[..] else { panic!("{:?}", failures(OUTPUT)) };
        assert_eq!((failure.name.as_str(), failure.seed()), ("b", Some("17")));
        assert!(failure.output.contains("assertion failed") && !failure.output.contains("result"), "{failure:?}");
        let note = "unsteady: b\n    thread 'b' panicked at here.rs:1:2:\n    assertion failed";
        assert_eq!(failure.note("unsteady"), note);
    }

    #[test]
    fn a_program_without_a_result_has_ended_early() {
        assert!(!ended_early(OUTPUT));
        assert!(ended_early(&format!("{OUTPUT}running 1 test\ntest c ... running late\n")));
    }

    fn run_script(script: &str) -> Result<Tally> {
        let folder = tempfile::tempdir()?;
        let (program, log) = (folder.path().join("program"), folder.path().join("log"));
        fs::write(&program, script)?;
        let shell = |arguments: &[&str]| {
            let mut command = Command::new("sh");
            command.arg(&program).args(arguments);
            command
        };
        run(shell, &log)
    }

    const FAILS: &str = "printf 'running 1 test\\n---- b stdout ----\\nSETTEE_SEED=17\\nthread panicked at x\\n\\n'; \
        echo 'test result: FAILED. 0 passed; 1 failed;'; exit 101";

    #[test]
    fn a_test_that_passes_alone_with_its_seed_is_unsteady() -> Result<()> {
        let passes = "echo 'test result: ok. 1 passed; 0 failed;'; exit 0";
        let script = format!("if [ \"$* $SETTEE_SEED\" = '--exact b 17' ]; then {passes}; fi; {FAILS}");
        let tally = run_script(&script)?;
        assert_eq!((tally.passed, tally.failed), (1, 0));
        assert!(tally.notes[0].starts_with("unsteady: b\n"), "{tally:?}");
        Ok(())
    }

    #[test]
    fn a_test_that_fails_twice_or_is_not_found_has_failed() -> Result<()> {
        for second in ["true", "if [ $# = 2 ]; then echo 'test result: ok. 0 passed; 0 failed;'; exit 0; fi"] {
            let tally = run_script(&format!("{second}; {FAILS}"))?;
            assert_eq!((tally.passed, tally.failed), (0, 1), "{second}");
            assert!(tally.notes[0].starts_with("failed: b\n"), "{tally:?}");
        }
        Ok(())
    }

    #[test]
    fn a_program_that_is_killed_has_failed() -> Result<()> {
        let tally = run_script("echo 'running 2 tests'; kill -9 $$")?;
        assert_eq!((tally.passed, tally.failed), (0, 1));
        Ok(())
    }
}
