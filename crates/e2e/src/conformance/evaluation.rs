//! Compares results of scenarios with the expectations: [`exact`] with whole revision ids, [`plain`] without.

use super::expectations::Expectations;
use super::report::{Case, Outcome};

const SHOWN_LINES: usize = 30;
/// In characters.
const DRAFT_LEN: usize = 160;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Passed,
    Known,
    Failed(String),
    /// The scenario passed but is listed. The text names the line to delete.
    UnexpectedPass(&'static str),
    Skipped,
}

impl Verdict {
    pub(super) fn is_unexpected(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::UnexpectedPass(_))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScenarioResult {
    pub(super) area: String,
    pub(super) name: String,
    pub(super) verdict: Verdict,
}

impl ScenarioResult {
    pub(super) fn unexpected(&self) -> Option<String> {
        match &self.verdict {
            Verdict::Failed(text) => {
                let mut lines: Vec<&str> = text.lines().take(SHOWN_LINES).collect();
                if lines.len() < text.lines().count() {
                    lines.push("  …");
                }
                Some(format!("FAILED {}/{}\n    {}", self.area, self.name, lines.join("\n    ")))
            }
            Verdict::UnexpectedPass(advice) => {
                Some(format!("PASSED {}/{} although it is listed: {advice}", self.area, self.name))
            }
            Verdict::Passed | Verdict::Known | Verdict::Skipped => None,
        }
    }
}

/// Drafts lines for the list of known failures, with the first difference as the reason.
pub(super) fn draft(results: &[ScenarioResult]) -> String {
    let mut lines = Vec::new();
    let mut area = "";
    for one in results {
        let Verdict::Failed(text) = &one.verdict else { continue };
        if one.area != area {
            area = &one.area;
            lines.push(format!("[{area}]"));
        }
        let difference = text.lines().map(str::trim).find(|line| !line.starts_with("step ") && !line.starts_with("> "));
        let short: String = difference.unwrap_or_default().replace('"', "'").chars().take(DRAFT_LEN).collect();
        lines.push(format!("{} = \"WHY? {short}\"", one.name));
    }
    lines.join("\n")
}

/// Evaluates a run with whole revision ids, in which scenarios listed as inexact must fail.
pub(super) fn exact(cases: &[Case], expectations: &Expectations) -> Vec<ScenarioResult> {
    let results = cases.iter().filter_map(|case| match (&case.outcome, expectations.inexact(&case.name)) {
        (Outcome::Passed, Some(_)) => Some(with(case, Verdict::UnexpectedPass("delete its line from [inexact]"))),
        (Outcome::Failed(_) | Outcome::Skipped(_), Some(_)) => None,
        (_, None) => Some(with(case, verdict(case, expectations))),
    });
    results.collect()
}

pub(super) fn plain(cases: &[Case], expectations: &Expectations) -> Vec<ScenarioResult> {
    cases.iter().map(|case| with(case, verdict(case, expectations))).collect()
}

fn verdict(case: &Case, expectations: &Expectations) -> Verdict {
    match (&case.outcome, expectations.known(&case.name)) {
        (Outcome::Passed, None) => Verdict::Passed,
        // The result depends on the node.
        (Outcome::Passed, Some(_)) if expectations.is_of_nodes(&case.name) => Verdict::Passed,
        (Outcome::Passed, Some(_)) => {
            Verdict::UnexpectedPass("delete its line, and the difference from COMPAT.md if it is listed there")
        }
        (Outcome::Failed(_), Some(_)) => Verdict::Known,
        (Outcome::Failed(text), None) => Verdict::Failed(text.clone()),
        (Outcome::Skipped(_), _) => Verdict::Skipped,
    }
}

fn with(case: &Case, verdict: Verdict) -> ScenarioResult {
    ScenarioResult { area: case.area.clone(), name: case.name.clone(), verdict }
}
