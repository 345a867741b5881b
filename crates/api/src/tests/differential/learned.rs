//! Responses of CouchDB to invalid requests, extracted from the recorded scenarios. A [`Section`] names an endpoint and
//! the content of the database in addition to a document `a` (`a:1` in partitions) and a local document `a`. Only
//! responses that do not depend on the history of a scenario are extracted, see [`Learner::learn`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use settee_database::{DatabaseOptions, Layout};
use settee_model::json::{Json, Value};

use super::cases::{Answer, Asked};
use crate::tests::node::World;

/// Statuses that depend on the request alone: malformed, unsupported method or type.
const OF_THE_REQUEST: [u16; 3] = [400, 405, 415];

const SPECIAL: [&str; 4] = ["multipart", "body_base64", "chunked", "auth"];

/// Bodies are decompressed before a [`World`] receives them.
const OF_THE_CONNECTION: &str = "Content-Encoding";

/// Reasons that depend on stored data or on the messages of a compiler.
const OF_THE_STORY: [&str; 4] =
    ["no_usable_index", "You must specify an index", "compilation_error", "Compilation of "];

/// Replaces a zero byte in the message of a failed test.
const ZERO: &str = "\u{2400}";

type Section = (String, Vec<String>);

type Request = (String, Vec<String>, String);

type Table = BTreeMap<Section, BTreeMap<Request, Answer>>;

#[derive(Default)]
struct Learner {
    given: BTreeMap<String, BTreeMap<String, String>>,
}

impl Learner {
    fn learn(&mut self, step: Value<'_>, table: &mut Table) -> Option<()> {
        let (method, path) = (text(step, "method")?, text(step, "path")?);
        let expect = step.get("expect")?;
        let status = u16::try_from(expect.get("status").and_then(Value::as_u64)?).ok()?;
        let database = path.strip_prefix('/')?.split(['/', '?']).next()?.to_owned();
        let sent = sent(step);
        if status < 300 && method == "PUT" {
            self.add(&database, &path, &sent.as_ref()?.1);
            return None;
        }
        let answer = expect.get("body")?;
        let answer = Answer { status, error: text(answer, "error")?, reason: text(answer, "reason")? };
        let story = |words: &&str| answer.error == *words || answer.reason.starts_with(*words);
        if !OF_THE_REQUEST.contains(&status) || OF_THE_STORY.iter().any(story) {
            return None;
        }
        let (headers, body) = sent?;
        let line = format!("{method} {}", path.replacen(&database, &plain(&database), 1));
        let varies = |text: &str| ["${", "{user", "{host", "{db", "<<", "\n"].iter().any(|sign| text.contains(sign));
        if [&line, &body, &answer.reason].into_iter().chain(&headers).any(|text| varies(text)) {
            return None;
        }
        let given = self.given.get(&database).into_iter().flatten();
        let given = given.filter(|(name, _)| line.contains(name.as_str()) || *name == "partitions");
        let given = given.map(|(name, body)| format!("{name} {body}").trim_end().to_owned());
        let section = (endpoint(&line), given.collect());
        table.entry(section).or_default().insert((line, headers, body), answer);
        None
    }

    fn add(&mut self, database: &str, path: &str, body: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let given = self.given.entry(database.to_owned()).or_default();
        let mut segments = path[1..].splitn(2, '/').skip(1);
        match segments.next() {
            None if query.contains("partitioned=true") => drop(given.insert("partitions".to_owned(), String::new())),
            Some(name) if name.starts_with("_design/") && name.matches('/').count() == 1 => {
                given.insert(name.to_owned(), body.to_owned());
            }
            _ => {}
        }
    }
}

fn sent(step: Value<'_>) -> Option<(Vec<String>, String)> {
    let headers = step.get("headers");
    if SPECIAL.iter().any(|name| step.get(name).is_some())
        || headers.is_some_and(|headers| headers.get(OF_THE_CONNECTION).is_some())
    {
        return None;
    }
    let mut sent: BTreeMap<String, Option<String>> = BTreeMap::new();
    sent.insert("Accept".to_owned(), Some("application/json".to_owned()));
    let json = step.get("body").map(|body| String::from_utf8_lossy(Json::parse(body.raw()).unwrap().as_bytes()).into());
    if json.is_some() {
        sent.insert("Content-Type".to_owned(), Some("application/json".to_owned()));
    }
    for (name, value) in headers.into_iter().flat_map(Value::members) {
        sent.insert(name.as_str()?.into_owned(), value.as_str().map(std::borrow::Cow::into_owned));
    }
    let sent = sent.into_iter().filter_map(|(name, value)| Some(format!("{name}: {}", value?)));
    let sent = sent.filter(|header| header != "Accept: application/json").collect();
    Some((sent, json.or_else(|| text(step, "body_text")).unwrap_or_default()))
}

fn plain(name: &str) -> String {
    name.replace("{db}", "db").replace("{db2}", "db").replace("{db3}", "db")
}

/// Returns a line with placeholders for varying parts: `GET /{db}/_design/{name}/_view/{name}`.
fn endpoint(line: &str) -> String {
    let (method, path) = line.split_once(' ').unwrap();
    let path = path.split('?').next().unwrap_or_default();
    let mut segments = path[1..].split('/');
    let first = segments.next().unwrap_or_default();
    let of_database = !first.starts_with('_') && !first.is_empty();
    let mut out = format!("{method} /{}", if of_database { "{db}" } else { first });
    for segment in segments {
        out.push_str(if segment.starts_with('_') { "/" } else { "/{name}" });
        out.push_str(if segment.starts_with('_') { segment } else { "" });
    }
    out
}

fn text(value: Value<'_>, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(std::borrow::Cow::into_owned)
}

fn learned(scenarios: &Path) -> Table {
    let mut files = BTreeSet::new();
    for area in std::fs::read_dir(scenarios).unwrap() {
        files.extend(std::fs::read_dir(area.unwrap().path()).unwrap().map(|file| file.unwrap().path()));
    }
    let mut table = Table::new();
    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "json")) {
        let scenario = Json::parse(&std::fs::read(file).unwrap()).unwrap();
        let scenario = scenario.value();
        // Exclusive scenarios change the settings of the server, and index functions are not executed here.
        if scenario.get("exclusive").is_some() || text(scenario, "area").as_deref() == Some("search") {
            continue;
        }
        let mut learner = Learner::default();
        for (name, query) in scenario.get("databases").into_iter().flat_map(Value::members) {
            let path = format!("/{{{}}}?{}", name.as_str().unwrap(), query.as_str().unwrap_or_default());
            learner.add(path[1..].split('?').next().unwrap(), &path, "");
        }
        for step in scenario.get("steps").into_iter().flat_map(Value::elements) {
            learner.learn(step, &mut table);
        }
    }
    table
}

fn show(table: &Table) -> String {
    let mut out = String::new();
    for ((endpoint, given), requests) in table {
        writeln!(out, "== {endpoint}").unwrap();
        for given in given {
            writeln!(out, "with {given}").unwrap();
        }
        for ((line, headers, body), answer) in requests {
            writeln!(out, "{line}").unwrap();
            for header in headers {
                writeln!(out, "    {header}").unwrap();
            }
            if !body.is_empty() {
                writeln!(out, "    > {}", body.replace('\0', ZERO)).unwrap();
            }
            writeln!(out, "    {} {}: {}", answer.status, answer.error, answer.reason).unwrap();
        }
        out.push('\n');
    }
    out
}

async fn world(given: &[String]) -> World {
    let world = World::new();
    let layout = if given.iter().any(|given| given == "partitions") { Layout::Partitioned } else { Layout::Whole };
    world.node.catalog.create("db", DatabaseOptions { created_ms: 0, instance: 7, layout, q: 1 }).unwrap();
    world.admin(if layout == Layout::Whole { "PUT /db/a" } else { "PUT /db/a:1" }, "{}").await;
    world.admin("PUT /db/_local/a", "{}").await;
    for (name, body) in given.iter().filter_map(|given| given.split_once(' ')) {
        world.admin(&format!("PUT /db/{name}"), body).await;
    }
    world
}

#[tokio::test(start_paused = true)]
async fn wrong_requests_are_answered_as_couchdb_was_recorded_to_answer_them() {
    let table = learned(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conformance/scenarios"));
    assert!(!table.is_empty());
    let (mut theirs, mut ours) = (Table::new(), Table::new());
    for (section, requests) in table {
        let world = world(&section.1).await;
        let mut asked = Asked::new(&world);
        for (request, answer) in requests {
            let (line, headers, body) = &request;
            let here = asked.ask(line, headers.iter().map(String::as_str), body).await;
            if here != answer {
                theirs.entry(section.clone()).or_default().insert(request.clone(), answer);
                ours.entry(section.clone()).or_default().insert(request, here);
            }
        }
    }
    assert!(ours.is_empty(), "CouchDB answers\n\n{}and here it is\n\n{}", show(&theirs), show(&ours));
}
