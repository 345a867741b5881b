//! `settee doctor`: checks a data directory, its disk, its configuration and the server that runs on it, and gives
//! advice on each finding. It changes nothing, except for a small file that it writes to time the disk and removes
//! again.

mod checks;
mod settings;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
mod up;

use std::fmt::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use crate::config::{Configuration, Options};
use crate::environment;
use crate::output::print_text;
pub(crate) use up::is_up;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Good,
    Warning,
    /// Data is at risk, or the server will not serve.
    Error,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Good => "ok",
            Self::Warning => "WARNING",
            Self::Error => "ERROR",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    verdict: Verdict,
    found: String,
    /// The advice; empty if there is none.
    advice: String,
}

impl Finding {
    fn good(found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, found: found.into(), advice: String::new() }
    }

    fn warning(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, found: found.into(), advice: advice.into() }
    }

    fn error(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Error, found: found.into(), advice: advice.into() }
    }
}

/// Prints all findings. Returns a failure if one is an error.
pub(crate) fn run(data: &Path, config: Option<&Path>) -> ExitCode {
    let findings = examine(data, config);
    let mut text = String::new();
    for Finding { verdict, found, advice } in &findings {
        let _ = writeln!(text, "{verdict:<7}  {found}");
        for line in advice.lines() {
            let _ = writeln!(text, "         -> {line}");
        }
    }
    let count = |verdict| findings.iter().filter(|finding| finding.verdict == verdict).count();
    let (errors, warnings) = (count(Verdict::Error), count(Verdict::Warning));
    let _ = writeln!(text, "{errors} errors, {warnings} warnings");
    print_text(&text);
    if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn examine(data: &Path, config: Option<&Path>) -> Vec<Finding> {
    let mut findings = checks::directory(data);
    if findings.iter().any(|finding| finding.verdict == Verdict::Error) {
        return findings;
    }
    if let Err(error) = crate::regular::check_data(data) {
        findings.push(Finding::error(format!("{error:#}"), "Remove it, or restore the file from a backup."));
        return findings;
    }
    findings.extend(checks::layout(data));
    findings.extend(checks::damage(data));
    findings.extend(checks::disk(data));
    findings.push(checks::open_files());
    let options = Options {
        data_dir: data.to_owned(),
        file: config.map(Path::to_owned),
        overrides: environment::settings(),
        admin: None,
        entropy: std::sync::Arc::new(environment::random),
    };
    match Configuration::look(options) {
        Ok(configuration) => findings.extend(settings::examine(&configuration)),
        Err(error) => {
            findings.push(Finding::error(format!("the configuration cannot be read: {error}"), "Repair the file."));
        }
    }
    findings.extend(checks::server(data));
    findings
}
