//! [`command`]: rules about the structure of the code that compilers and lints do not check.
//! The input is a [`Tree`]: the files of the crates in memory, so that tests can use small invented ones. Exceptions
//! are listed with their reasons in `tidy-allow.txt`; one without effect is itself a finding.

mod allowed;
mod cycles;
mod edges;
mod files;
mod finding;
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

use std::fs;
use std::path::Path;

use allowed::Allowed;
use anyhow::{Context as _, Result};
use finding::{Finding, Severity};
use tree::Tree;

/// Files that rules read in addition to sources and pages.
const FILES: [&str; 3] = [allowed::FILE, language::FILE, http_reference::ROUTES];

pub(crate) fn command(root: &Path) -> Result<bool> {
    let findings = check(&Tree::read(root, &FILES)?);
    for finding in &findings {
        println!("    {finding}");
    }
    Ok(holds(&findings))
}

pub(crate) fn lower(root: &Path) -> Result<bool> {
    let text = language::lowered(&Tree::read(root, &FILES)?);
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
