//! [`check`]: the tests that pages name as `` `file.rs::test` `` exist, links between pages lead to existing pages and
//! headings, and [`SUMMARY`] lists every page of the book.

use std::collections::BTreeSet;

use super::finding::{Finding, Severity};
use super::tree::{Tree, is_page};

const SUMMARY: &str = "docs/SUMMARY.md";

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
    findings.extend(check_links(tree));
    findings
}

fn exists(tree: &Tree, (file, test): (&str, &str)) -> bool {
    let (file, test) = (format!("/{file}.rs"), format!("fn {test}("));
    tree.sources().any(|(_, path, text)| path.ends_with(&file) && text.contains(&test))
}

fn check_links(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.pages() {
        for (line, target) in links(text) {
            findings.extend(defect(tree, path, target).map(|message| finding(path, line, message)));
        }
    }
    if let Some(summary) = tree.text(SUMMARY) {
        let listed: BTreeSet<String> = links(summary).map(|(_, target)| resolved(SUMMARY, target)).collect();
        let pages = tree.pages().map(|(path, _)| path).filter(|path| path.starts_with("docs/") && *path != SUMMARY);
        let unlisted = pages.filter(|path| !listed.contains(*path));
        findings.extend(unlisted.map(|path| finding(path, 0, format!("{SUMMARY} must list this page"))));
    }
    findings
}

fn finding(path: &str, line: usize, message: String) -> Finding {
    Finding { severity: Severity::Error, rule: "link", path: path.to_owned(), line, message }
}

/// Describes a link that leads nowhere. Links to other files than pages are not checked.
fn defect(tree: &Tree, page: &str, target: &str) -> Option<String> {
    if target.contains(':') {
        return None;
    }
    let (path, heading) = target.split_once('#').map_or((target, None), |(path, heading)| (path, Some(heading)));
    let path = if path.is_empty() { page.to_owned() } else { resolved(page, path) };
    match (tree.text(&path), heading) {
        (None, _) if is_page(&path) && path.starts_with("docs/") => Some(format!("{path} does not exist")),
        (Some(text), Some(heading)) if !anchors(text).contains(heading) => {
            Some(format!("{path} has no heading #{heading}"))
        }
        _ => None,
    }
}

fn resolved(page: &str, target: &str) -> String {
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().zip(1..).map(|(line, number)| (number, line)).filter(move |(_, line)| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn links(text: &str) -> impl Iterator<Item = (usize, &str)> {
    prose(text).flat_map(|(number, line)| {
        let targets = line.split("](").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0));
        targets.map(move |target| (number, target))
    })
}

/// The fragments of the headings as mdBook and GitHub derive them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, line) in prose(text).filter(|(_, line)| line.starts_with('#')) {
        let title = line.trim_start_matches('#').trim();
        let kept = title.chars().filter(|char| char.is_alphanumeric() || matches!(char, ' ' | '-' | '_'));
        let name: String = kept.flat_map(char::to_lowercase).map(|char| if char == ' ' { '-' } else { char }).collect();
        let free = (1..).map(|number| format!("{name}-{number}")).find(|repeated| !found.contains(repeated));
        found.insert(if found.contains(&name) { free.unwrap_or_default() } else { name });
    }
    found
}
