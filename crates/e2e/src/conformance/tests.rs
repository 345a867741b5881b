//! Tests of the parsers of expectations and reports, and of the evaluation, with samples written by `replay.py`.

use super::expectations::Expectations;
use super::report::{Outcome, parse, parse_list};
use super::*;

const REPORT: &str = r#"<?xml version='1.0' encoding='utf-8'?>
<testsuites><testsuite name="server" tests="4" failures="2"><testcase classname="server" name="server-db-updates" time="0.010"><failure message="The feed of &quot;databases&quot;; a &gt; b.">  step 1
    &gt; GET /_db_updates
    status: expected 200, got 404: {"error":"not_found","reason":"a &amp;lt; b"}</failure></testcase><testcase classname="server" name="server-up" time="0.001" /><testcase classname="server" name="server-uuids" time="0.001"><failure message="x">  stopped: no answer to step 1</failure></testcase><testcase classname="server" name="server-utils" time="0.000"><skipped message="needs utils" /></testcase></testsuite></testsuites>"#;

const LIST: &str = "\
auth           auth-default-closed                          A new database is closed to all but admins.
server         server-db-updates                            The feed.
server         server-up                                    Up = yes.
server         server-utils                                 Console.
server         server-uuids                                 Ids.
";

fn expectations(text: &str) -> Expectations {
    Expectations::parse(text).expect("the sample is right")
}

#[track_caller]
fn check_results(text: &str, expected: &[&str]) {
    let cases = parse(REPORT).expect("the sample is right");
    let show = |results: &ScenarioResult| {
        let verdict = match &results.verdict {
            Verdict::Passed => "passed",
            Verdict::Known => "known",
            Verdict::Failed(_) => "failed",
            Verdict::UnexpectedPass(_) => "unexpected pass",
            Verdict::Skipped => "skipped",
        };
        format!("{}: {verdict}", results.name.trim_start_matches("server-"))
    };
    let results: Vec<String> = evaluation::exact(&cases, &expectations(text)).iter().map(show).collect();
    assert_eq!(results, expected, "{text}");
}

#[test]
fn reports_are_read() {
    let cases = parse(REPORT).expect("the sample is right");
    let names: Vec<&str> = cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(names, ["server-db-updates", "server-up", "server-uuids", "server-utils"]);
    assert!(cases.iter().all(|case| case.area == "server"));
    let difference = "  step 1\n    > GET /_db_updates\n    \
                      status: expected 200, got 404: {\"error\":\"not_found\",\"reason\":\"a &lt; b\"}";
    assert_eq!(cases[0].outcome, Outcome::Failed(difference.to_owned()));
    assert_eq!(cases[1].outcome, Outcome::Passed);
    assert_eq!(cases[3].outcome, Outcome::Skipped("needs utils".to_owned()));
}

#[test]
fn a_report_that_breaks_off_is_an_error() {
    for end in ["server-up\"", "<failure", "step 1", "<skipped message"] {
        let at = REPORT.find(end).expect("the sample has it") + end.len();
        assert!(parse(&REPORT[..at]).is_err(), "cut after {end}");
    }
}

#[test]
fn scenarios_are_judged() {
    check_results("[server]", &["db-updates: failed", "up: passed", "uuids: failed", "utils: skipped"]);
    check_results(
        "[server]\nserver-db-updates = \"later\"\nserver-up = \"odd\"\nserver-utils = \"odd\"",
        &["db-updates: known", "up: unexpected pass", "uuids: failed", "utils: skipped"],
    );
    check_results(
        "[server]\n[inexact]\nserver-uuids = \"random\"\nserver-up = \"random\"",
        &["db-updates: failed", "up: unexpected pass", "utils: skipped"],
    );
}

#[test]
fn inexact_scenarios_are_judged_without_whole_revisions() {
    let cases = parse(REPORT).expect("the sample is right");
    let results = evaluation::plain(&cases[1..3], &expectations("[server]\n[inexact]\nserver-up = \"random\""));
    assert_eq!(results[0].verdict, Verdict::Passed);
    assert!(results[1].verdict.is_unexpected());
}

#[test]
fn unexpected_results_are_reported() {
    let cases = parse(REPORT).expect("the sample is right");
    let results = evaluation::exact(&cases, &expectations("[server]\nserver-up = \"odd\""));
    let reply: Vec<String> = results.iter().filter_map(ScenarioResult::unexpected).collect();
    assert_eq!(reply.len(), 3);
    assert!(reply[0].starts_with("FAILED server/server-db-updates\n      step 1\n        > GET"), "{}", reply[0]);
    assert!(reply[1].starts_with("PASSED server/server-up although"), "{}", reply[1]);
}

#[test]
fn a_draft_can_be_pasted_into_the_list() {
    let cases = parse(REPORT).expect("the sample is right");
    let draft = evaluation::draft(&evaluation::exact(&cases, &expectations("[server]")));
    let lines: Vec<&str> = draft.lines().collect();
    assert_eq!(lines[0], "[server]");
    assert!(lines[1].starts_with("server-db-updates = \"WHY? status: expected 200, got 404: {'error'"), "{draft}");
    assert_eq!(lines[2], "server-uuids = \"WHY? stopped: no answer to step 1\"");
    check_results(&draft, &["db-updates: known", "up: passed", "uuids: known", "utils: skipped"]);
}

#[test]
fn expectations_are_read() {
    let text = "# Known.\n[server]\nserver-up = \"says \\\"no\\\"\"\n\n[views]\n[inexact]\n\"a-b\" = \"c\"\n[later]\nauth = \"d\"\n[nodes]\nx = \"e\"\n";
    let found = expectations(text);
    assert_eq!((found.known("x"), found.is_of_nodes("x")), (None, false));
    let of_nodes = expectations(text).for_nodes(true);
    assert_eq!(
        (of_nodes.known("x"), of_nodes.is_of_nodes("x"), of_nodes.is_of_nodes("server-up")),
        (Some("e"), true, false)
    );
    assert_eq!(found.areas(), ["server", "views"]);
    assert_eq!(found.known("server-up"), Some("says \"no\""));
    assert_eq!(found.known("a-b"), None);
    assert_eq!(found.inexact("a-b"), Some("c"));
    assert_eq!(found.later().collect::<Vec<_>>(), [("auth", "d")]);
}

#[test]
fn wrong_expectations_are_refused() {
    let cases = [
        ("a = \"b\"", "line 1: an entry before"),
        ("[a", "line 1: a table lacks"),
        ("[a]\n[a]", "line 2: the table `a`"),
        ("[a]\nb", "line 2: must be"),
        ("[a]\nb = c", "line 2: the reason must"),
        ("[a]\nb = \" \"", "line 2: the reason is missing"),
        ("[a]\nb = \"c\"\nb = \"d\"", "line 3: `b` is listed twice"),
    ];
    for (text, expected) in cases {
        let error = Expectations::parse(text).expect_err(text);
        assert!(format!("{error:#}").starts_with(expected), "{text}: {error:#}");
    }
}

#[test]
fn expectations_must_fit_the_recorded_scenarios() {
    let scenarios = parse_list(LIST);
    assert_eq!(scenarios.len(), 5);
    let cases: &[(&str, &[&str])] = &[
        ("[server]\nserver-up = \"x\"\n[later]\nauth = \"y\"", &[]),
        ("[server]", &["the area `auth` is recorded"]),
        ("[server]\n[auth]\n[mango]", &["there is no recorded area `mango`"]),
        ("[server]\nauth-default-closed = \"x\"\n[auth]", &["there is no scenario `auth-default-closed` in the area"]),
        ("[server]\n[auth]\n[inexact]\nserver-down = \"x\"", &["there is no scenario `server-down`"]),
        ("[server]\nserver-up = \"x\"\n[auth]\n[inexact]\nserver-up = \"x\"", &["`server-up` is listed as a failure"]),
    ];
    for (text, expected) in cases {
        let found = expectations(text).problems(&scenarios);
        let agree = found.len() == expected.len()
            && found.iter().zip(*expected).all(|(problem, expectation)| problem.starts_with(expectation));
        assert!(agree, "{text}: {found:?}");
    }
}

#[test]
fn options_are_read() {
    let parse = |line: &str| Options::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
    let options = parse("--area views --area bulk --url http://a:b@c:1 --jobs 2 --draft").expect("the line is right");
    assert_eq!((options.areas.len(), options.url.as_deref(), options.jobs), (2, Some("http://a:b@c:1"), 2));
    assert!(options.draft);
    for line in ["--area", "--jobs many", "--nosuch 1", "views"] {
        assert!(parse(line).is_err(), "{line}");
    }
}
