//! Parsers of the output of `replay.py`: its JUnit report ([`parse`]) and its list of scenarios ([`parse_list`]).

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) area: String,
    pub(super) name: String,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed(String),
    Skipped(String),
}

pub(super) fn parse(xml: &str) -> Result<Vec<Case>> {
    xml.split("<testcase ").skip(1).map(case).collect()
}

fn case(text: &str) -> Result<Case> {
    // The writer escapes `>` in attributes, so the first one ends the start tag.
    let (head, rest) = text.split_once('>').context("the report is incomplete")?;
    let area = attribute(head, "classname").context("a case without its area")?;
    let name = attribute(head, "name").context("a case without its name")?;
    if head.ends_with('/') {
        return Ok(Case { area, name, outcome: Outcome::Passed });
    }
    let (body, _) = rest.split_once("</testcase>").context("the report is incomplete")?;
    let (inner, text) = body.split_once('>').context("the report is incomplete")?;
    let outcome = if inner.starts_with("<skipped") {
        Outcome::Skipped(attribute(inner, "message").unwrap_or_default())
    } else {
        Outcome::Failed(unescape(text.trim_end_matches("</failure>")))
    };
    Ok(Case { area, name, outcome })
}

fn attribute(head: &str, name: &str) -> Option<String> {
    let start = format!("{name}=\"");
    let at = head.match_indices(&start).find(|(at, _)| *at == 0 || head[..*at].ends_with(' '))?.0 + start.len();
    Some(unescape(head[at..].split('"').next().unwrap_or_default()))
}

fn unescape(text: &str) -> String {
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#10;", "\n"), ("&amp;", "&")];
    entities.iter().fold(text.to_owned(), |text, (entity, character)| text.replace(entity, character))
}

pub(super) fn parse_list(text: &str) -> BTreeSet<(String, String)> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_owned(), words.next()?.to_owned()))
        })
        .collect()
}
