//! [`Allowed`]: exceptions from the rules. A line of the file is `RULE PATH REASON`; a path that ends with a slash
//! names all files below it.

use super::finding::{Finding, Severity};

pub(super) const FILE: &str = "crates/xtask/tidy-allow.txt";
const RULE: &str = "exception";

pub(super) struct Allowed {
    entries: Vec<Entry>,
}

struct Entry {
    rule: String,
    path: String,
    line: usize,
}

impl Entry {
    fn covers(&self, finding: &Finding) -> bool {
        let below = self.path.ends_with('/') && finding.path.starts_with(&self.path);
        finding.rule == self.rule && (finding.path == self.path || below)
    }
}

impl Allowed {
    pub(super) fn parse(text: &str) -> (Self, Vec<Finding>) {
        let mut entries = Vec::new();
        let mut problems = Vec::new();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        for (line, text) in lines.filter(|(_, text)| !text.is_empty() && !text.starts_with('#')) {
            let mut words = text.split_whitespace();
            match (words.next(), words.next(), words.next()) {
                (Some(rule), Some(path), Some(_)) => {
                    entries.push(Entry { rule: rule.to_owned(), path: path.to_owned(), line });
                }
                _ => problems.push(error(line, "a line must be `RULE PATH REASON`: add the reason")),
            }
        }
        (Self { entries }, problems)
    }

    /// Removes the findings that an exception covers. Returns a finding for each exception that covers nothing.
    pub(super) fn apply(&self, findings: &mut Vec<Finding>) -> Vec<Finding> {
        let unused = self.entries.iter().filter(|entry| !findings.iter().any(|finding| entry.covers(finding)));
        let unused = unused.map(|entry| error(entry.line, "this exception is no longer needed: delete it")).collect();
        findings.retain(|finding| !self.entries.iter().any(|entry| entry.covers(finding)));
        unused
    }
}

fn error(line: usize, message: &str) -> Finding {
    let message = message.to_owned();
    Finding { severity: Severity::Error, rule: RULE, path: FILE.to_owned(), line, message }
}
