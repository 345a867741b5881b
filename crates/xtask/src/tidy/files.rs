//! Rules about whole files: their length and their first lines.

use super::finding::{Finding, Severity};
use super::tree::{Tree, is_test_file};

const LONG_LINES: usize = 600;
const TOO_LONG_LINES: usize = 900;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, path, text) in tree.sources() {
        findings.extend(length(path, text.lines().count()));
        findings.extend(head(path, text));
    }
    findings
}

fn length(path: &str, lines: usize) -> Option<Finding> {
    let (severity, message) = if lines > TOO_LONG_LINES {
        (Severity::Error, format!("{lines} lines are too many (the most is {TOO_LONG_LINES}): split it by concept"))
    } else if lines > LONG_LINES && !is_test_file(path) {
        (Severity::Warning, format!("{lines} lines; beyond {LONG_LINES}, think about splitting it by concept"))
    } else {
        return None;
    };
    Some(Finding { severity, rule: "file-length", path: path.to_owned(), line: 0, message })
}

fn head(path: &str, text: &str) -> Option<Finding> {
    if text.starts_with("//!") || !path.contains("/src/") {
        return None;
    }
    let message = "must start with `//!`: its purpose, its main type, and what it does not do".to_owned();
    Some(Finding { severity: Severity::Error, rule: "module-head", path: path.to_owned(), line: 1, message })
}
