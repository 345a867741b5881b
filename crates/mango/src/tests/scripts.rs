//! The scripts in `scripts`: commands with the responses of CouchDB.
//!
//! | line | means |
//! |---|---|
//! | `== TEXT` | a new database, and the purpose of the part |
//! | `set NAME` | the following commands are stored until they are used |
//! | `use NAME` | executes the stored commands |
//! | `each NAME` | the whole part is executed without the stored commands and with them |
//! | `doc JSON`, `remove ID` | writes or deletes a document |
//! | `index BODY`, `drop DDOC TYPE NAME`, `drop-all BODY`, `list` | requests for indexes |
//! | `find BODY`, `explain BODY` | a query |
//! | `ids SELECTOR`, `values MEMBER BODY` | a query, of which only one member of each document is compared |
//! | `pages MEMBER LIMIT BODY` | the same, page by page |
//!
//! The expected response follows: `= ` with the results (`nothing` where CouchDB ends without a bookmark), or `! ` with
//! error and reason. A `*` matches anything; an explanation may have more members than listed. Further expectations
//! follow after `~ `.

use std::collections::{BTreeMap, VecDeque};

use settee_model::json::{Kind, Value};

use super::{Place, SEARCH, json};
use crate::index::edit::{self, NewIndex};
use crate::{FindOptions, Found, MangoError, explain};

struct Answer {
    shown: String,
    found: Option<Found>,
}

impl Answer {
    fn new(shown: impl Into<String>) -> Self {
        Self { shown: shown.into(), found: None }
    }

    fn refused(error: &MangoError) -> Self {
        match error {
            MangoError::Refused(refusal) => Self::new(format!("! {}: {refusal}", refusal.name())),
            MangoError::NoSuchIndex => Self::new("= missing"),
            other => Self::new(format!("! {other:?}")),
        }
    }
}

struct Command<'s> {
    line: usize,
    text: &'s str,
    answers: Vec<&'s str>,
}

fn commands(script: &str) -> Vec<Command<'_>> {
    let mut commands: Vec<Command<'_>> = Vec::new();
    for (number, text) in (1..).zip(script.lines()) {
        match text.chars().next() {
            None | Some('#') => {}
            Some('=' | '!' | '~') if !text.starts_with("== ") => {
                commands.last_mut().expect("a command comes first").answers.push(text);
            }
            Some(_) => commands.push(Command { line: number, text, answers: Vec::new() }),
        }
    }
    commands
}

fn run_file(name: &str) {
    let path = format!("{}/src/tests/scripts/{name}.txt", env!("CARGO_MANIFEST_DIR"));
    run(&std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}")));
}

fn run(script: &str) {
    let mut sets: BTreeMap<&str, Vec<Command<'_>>> = BTreeMap::new();
    let mut parts: Vec<Vec<Command<'_>>> = Vec::new();
    let mut set = None;
    for command in commands(script) {
        if let Some(name) = command.text.strip_prefix("set ") {
            set = Some(name);
        } else if command.text.starts_with("== ") {
            set = None;
            parts.push(Vec::new());
        } else if let Some(name) = set {
            sets.entry(name).or_default().push(command);
        } else {
            parts.last_mut().expect("a title comes first").push(command);
        }
    }
    let mut faults = Vec::new();
    for part in &parts {
        let is_twofold = part.iter().any(|command| command.text.starts_with("each "));
        for with in if is_twofold { vec![false, true] } else { vec![true] } {
            let place = Place::new();
            let mut todo: VecDeque<&Command<'_>> = part.iter().collect();
            while let Some(command) = todo.pop_front() {
                let (word, rest) = command.text.split_once(' ').unwrap_or((command.text, ""));
                match word {
                    "use" => sets[rest].iter().rev().for_each(|command| todo.push_front(command)),
                    "each" if with => sets[rest].iter().rev().for_each(|command| todo.push_front(command)),
                    "each" => {}
                    _ => faults.extend(check(command, &answer(&place, word, rest))),
                }
            }
        }
    }
    assert!(!parts.is_empty() && faults.is_empty(), "{} faults\n{}", faults.len(), faults.join("\n"));
}

fn answer(place: &Place, word: &str, rest: &str) -> Answer {
    match word {
        "doc" => {
            place.write(rest);
            Answer::new("")
        }
        "remove" => {
            place.write(&format!(r#"{{"_id":"{rest}","_deleted":true}}"#));
            Answer::new("")
        }
        "index" => {
            match NewIndex::parse(json(rest).value(), SEARCH).and_then(|index| edit::create(&place.database, &index)) {
                Ok(created) => {
                    let result = if created.existed { "exists" } else { "created" };
                    Answer::new(format!("= {result} {} {}", created.id, created.name))
                }
                Err(error) => Answer::refused(&error),
            }
        }
        "drop" => {
            let parts: Vec<&str> = rest.split(' ').collect();
            match edit::delete(&place.database, SEARCH, parts[0], parts[1], parts[2]) {
                Ok(()) => Answer::new("= ok"),
                Err(error) => Answer::refused(&error),
            }
        }
        "drop-all" => {
            let ids = edit::parse_bulk_delete(json(rest).value()).unwrap();
            let (done, failed): (Vec<String>, Vec<String>) =
                ids.into_iter().partition(|id| edit::delete_all_of(&place.database, SEARCH, id).is_ok());
            let done: Vec<String> = done.iter().map(|id| format!(r#"{{"id":"{id}","ok":true}}"#)).collect();
            let failed: Vec<String> =
                failed.iter().map(|id| format!(r#"{{"id":"{id}","error":"not_found"}}"#)).collect();
            Answer::new(format!(r#"= {{"success":[{}],"fail":[{}]}}"#, done.join(","), failed.join(",")))
        }
        "list" => {
            let mut out = Vec::new();
            edit::write_list(&place.database, SEARCH, edit::Page { skip: 0, limit: None }, &mut out).unwrap();
            Answer::new(format!("= {}", String::from_utf8(out).unwrap()))
        }
        "find" => found(place, rest, |documents| format!("[{}]", documents.join(","))),
        "ids" => {
            let body = format!(r#"{{"selector":{rest},"limit":100,"fields":["_id"]}}"#);
            found(place, &body, |documents| members(documents, "_id").replace('"', ""))
        }
        "values" => {
            let (member, body) = rest.split_once(' ').unwrap();
            found(place, body, |documents| members(documents, member))
        }
        "pages" => {
            let (member, rest) = rest.split_once(' ').unwrap();
            let (limit, body) = rest.split_once(' ').unwrap();
            pages(place, body, limit.parse().unwrap(), |documents| members(documents, member))
        }
        "explain" => {
            let options = FindOptions::parse(json(rest).value()).map_err(MangoError::from);
            match options.and_then(|options| explain(&place.database, SEARCH, &options, &place.reader)) {
                Ok(text) => Answer::new(format!("= {}", String::from_utf8(text).unwrap())),
                Err(error) => Answer::refused(&error),
            }
        }
        other => panic!("no command {other}"),
    }
}

fn found(place: &Place, body: &str, show: impl Fn(&[String]) -> String) -> Answer {
    match place.find(body) {
        Ok(page) if page.found.is_none() => Answer::new("= nothing"),
        Ok(page) => Answer { shown: format!("= {}", show(&page.documents)), found: page.found },
        Err(error) => Answer::refused(&error),
    }
}

fn pages(place: &Place, body: &str, limit: usize, show: impl Fn(&[String]) -> String) -> Answer {
    let body = body.strip_suffix('}').unwrap();
    let (mut all, mut bookmark) = (Vec::new(), String::new());
    for _ in 0..100 {
        match place.find(&format!(r#"{body},"limit":{limit},"bookmark":"{bookmark}"}}"#)) {
            Ok(page) if page.documents.is_empty() => return Answer::new(format!("= {}", show(&all))),
            Ok(page) => {
                assert!(page.documents.len() <= limit);
                all.extend(page.documents);
                bookmark = page.found.unwrap().bookmark;
            }
            Err(error) => return Answer::refused(&error),
        }
    }
    panic!("the pages of {body} do not end")
}

fn members(documents: &[String], name: &str) -> String {
    let member = |text: &String| {
        let document = json(text);
        String::from_utf8(document.value().get(name).unwrap_or(Value::NULL).raw().to_vec()).unwrap()
    };
    documents.iter().map(member).collect::<Vec<_>>().join(" ")
}

fn check(command: &Command<'_>, answer: &Answer) -> Option<String> {
    let is_any_order = command.answers.contains(&"~ any order");
    let wrong = command.answers.iter().find(|expected| !holds(command.text, expected, answer, is_any_order))?;
    let rest = answer.found.as_ref().map(|found| format!("\n  with {found:?}")).unwrap_or_default();
    Some(format!("line {}: {}\n  expected {wrong}\n  answered {}{rest}", command.line, command.text, answer.shown))
}

fn holds(command: &str, expected: &str, answer: &Answer, is_any_order: bool) -> bool {
    let found = answer.found.as_ref();
    let warning = || found.and_then(|found| found.warning.as_deref()).unwrap_or_default().replace('\n', " | ");
    match expected {
        "~ any order" => true,
        "~ no warning" => warning().is_empty(),
        "~ bookmark nil" => found.is_some_and(|found| found.bookmark == "nil"),
        "= *" => answer.shown.starts_with('='),
        _ => match expected.split_at_checked(2).unwrap_or((expected, "")) {
            ("~ ", rest) => match rest.split_once(' ') {
                Some(("warning", text)) => is_like(text, &warning()),
                Some(("returned", count)) => {
                    found.is_some_and(|found| found.stats.results_returned == count.parse::<u64>().unwrap())
                }
                Some(("keys", count)) => {
                    found.is_some_and(|found| found.stats.keys_examined == count.parse::<u64>().unwrap())
                }
                _ => panic!("no condition {expected}"),
            },
            ("= ", text) if text.starts_with(['{', '[']) && answer.shown.starts_with("= ") => {
                let actual = json(&answer.shown[2..]);
                is_same(json(text).value(), actual.value(), command.starts_with("explain") || command == "list")
            }
            _ if is_any_order => words(expected.trim_end()) == words(answer.shown.trim_end()),
            _ => is_like(expected.trim_end(), answer.shown.trim_end()),
        },
    }
}

fn words(text: &str) -> Vec<&str> {
    let mut words: Vec<&str> = text.split(' ').collect();
    words.sort_unstable();
    words
}

fn is_like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last.is_some_and(|last| last.is_empty() || rest.ends_with(last))
}

fn is_same(expected: Value<'_>, actual: Value<'_>, may_have_more: bool) -> bool {
    match (expected.kind(), actual.kind()) {
        (Kind::String, _) if expected.is_string("*") => true,
        (Kind::Object, Kind::Object) => {
            let same = |(name, value): (Value<'_>, Value<'_>)| {
                actual.get(&name.as_str().unwrap()).is_some_and(|other| is_same(value, other, may_have_more))
            };
            expected.members().all(same) && (may_have_more || expected.members().count() == actual.members().count())
        }
        (Kind::Array, Kind::Array) => {
            expected.elements().count() == actual.elements().count()
                && expected.elements().zip(actual.elements()).all(|(a, b)| is_same(a, b, may_have_more))
        }
        (Kind::String, Kind::String) => expected.as_str() == actual.as_str(),
        _ => expected.raw() == actual.raw(),
    }
}

#[test]
fn every_type_of_value_is_compared_as_recorded() {
    run_file("types");
}

#[test]
fn operators_answer_as_recorded() {
    run_file("operators");
}

#[test]
fn arguments_are_refused_as_recorded() {
    run_file("arguments");
}

#[test]
fn options_are_taken_as_recorded() {
    run_file("options");
}

#[test]
fn plans_are_those_recorded() {
    run_file("plans");
}

#[test]
fn indexes_are_made_as_recorded() {
    run_file("indexes");
}

#[test]
fn people_are_found_as_in_the_tests_of_couchdb() {
    run_file("people");
}

#[test]
fn text_indexes_pass_the_tests_of_couchdb() {
    run_file("text");
}

#[test]
fn text_indexes_answer_as_recorded_with_nouveau() {
    run_file("nouveau");
}

#[test]
fn a_script_that_asks_for_something_else_fails() {
    let fails = |lines: &str| {
        let script = format!("== x\ndoc {{\"_id\":\"a\",\"n\":1}}\n{lines}");
        std::panic::catch_unwind(|| run(&script)).is_err()
    };
    assert!(!fails("ids {\"n\":1}\n= a\n"));
    assert!(fails("ids {\"n\":1}\n= b\n") && fails("ids {\"n\":1}\n=\n") && fails("ids {\"n\":2}\n= a\n"));
    assert!(fails("ids {\"n\":1}\n= a\n~ no warning\n") && fails("ids {\"n\":1}\n! not_found: *\n"));
    assert!(fails("find {\"selector\":{\"n\":1}}\n= [{\"_id\":\"a\"}]\n"), "a document has no more members than those");
    assert!(!fails("explain {\"selector\":{\"n\":1}}\n= {\"index\":{\"type\":\"special\"}}\n"));
    assert!(fails("explain {\"selector\":{\"n\":1}}\n= {\"index\":{\"type\":\"json\"}}\n"));
    assert!(is_like("a*c", "abc") && is_like("*", "") && !is_like("a*c", "abd") && !is_like("ab", "abc"));
}
