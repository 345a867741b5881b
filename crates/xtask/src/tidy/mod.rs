//! [`command`]: rules about the structure of the code that compilers and lints do not check.
//! The input is a [`Tree`]: the files of the crates in memory, so that tests can use small invented ones. Exceptions
//! are listed with their reasons in `tidy-allow.txt`; one without effect is itself a finding.

mod allowed;
mod cycles;
mod edges;
mod files;
mod http_reference;
mod language;
mod manifest;
mod prose;
mod references;
#[cfg(test)]
mod tests;
mod tokens;
mod tree;
mod words;

use std::path::Path;
use std::{fmt, fs};

use allowed::Allowed;
use anyhow::{Context as _, Result};
use tree::Tree;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Error,
    Warning,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Finding {
    severity: Severity,
    rule: &'static str,
    path: String,
    /// Counted from 1; 0 for the file as a whole.
    line: usize,
    message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        write!(f, "{severity}[{}] {}", self.rule, self.path)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        write!(f, ": {}", self.message)
    }
}

pub(crate) fn command(root: &Path) -> Result<bool> {
    let findings = check(&Tree::read(root)?);
    for finding in &findings {
        println!("    {finding}");
    }
    Ok(holds(&findings))
}

pub(crate) fn lower(root: &Path) -> Result<bool> {
    let text = language::lowered(&Tree::read(root)?);
    let path = root.join(language::FILE);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(true)
}

fn holds(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.severity == Severity::Warning)
}

/// Omits findings with an exception. Ordered by file.
fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = edges::check(tree);
    findings.extend(words::check(tree));
    findings.extend(files::check(tree));
    findings.extend(cycles::check(tree));
    findings.extend(language::check(tree));
    findings.extend(references::check(tree));
    findings.extend(http_reference::check(tree));
    let (allowed, mut problems) = Allowed::parse(tree.text(allowed::FILE).unwrap_or_default());
    problems.extend(allowed.apply(&mut findings));
    findings.extend(problems);
    findings.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    findings
}
