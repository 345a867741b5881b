//! [`check`]: the tests that pages name as `` `file.rs::test` `` exist.

use super::finding::{Finding, Severity};
use super::tree::Tree;

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.pages() {
        for (number, line) in text.lines().enumerate() {
            let code = line.split('`').skip(1).step_by(2);
            let named = code.filter_map(|code| code.split_once(".rs::")).filter(|named| !exists(tree, *named));
            findings.extend(named.map(|(file, test)| Finding {
                severity: Severity::Error,
                rule: "test-reference",
                path: path.to_owned(),
                line: number + 1,
                message: format!("{file}.rs has no test {test}"),
            }));
        }
    }
    findings
}

fn exists(tree: &Tree, (file, test): (&str, &str)) -> bool {
    let (file, test) = (format!("/{file}.rs"), format!("fn {test}("));
    tree.sources().any(|(_, path, text)| path.ends_with(&file) && text.contains(&test))
}
