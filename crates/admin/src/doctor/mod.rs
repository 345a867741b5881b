//! `settee doctor`: checks a data directory, its disk, its configuration and the server that runs on it. It writes only
//! a small file to time the disk.

mod checks;
mod up;

use std::fmt::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use crate::output::print_text;
pub use checks::readable;
pub use up::is_up;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
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
pub struct Finding {
    pub verdict: Verdict,
    pub found: String,
    pub advice: String,
}

impl Finding {
    pub fn good(found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Good, found: found.into(), advice: String::new() }
    }

    pub fn warning(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Warning, found: found.into(), advice: advice.into() }
    }

    pub fn error(found: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { verdict: Verdict::Error, found: found.into(), advice: advice.into() }
    }
}

pub fn run(data: &Path, settings: &dyn Fn() -> Vec<Finding>) -> ExitCode {
    let findings = examine(data, settings);
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

/// `settings` examines the configuration, unless the directory is unusable.
pub fn examine(data: &Path, settings: &dyn Fn() -> Vec<Finding>) -> Vec<Finding> {
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
    findings.extend(settings());
    findings.extend(checks::server(data));
    findings
}
