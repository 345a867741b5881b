//! What parameters and bodies are answered, as a document and against CouchDB.
//!
//! An [`Endpoint`] is a request that is right, the parameters it takes and the members of its body. From it [`check`] makes
//! requests that are wrong in every way: each parameter with each odd value, twice, and together with each other one; each
//! member of the body with values of all kinds; bodies of other kinds and types. What is answered to one wrong value is
//! written into a file beside the table of the endpoint, which is reviewed when it changes; what is answered to several follows
//! from that by the one rule that an endpoint declares, see [`Parameter::stage`], or stands in the file as well.
//!
//! [`learned`] holds the other side: answers of CouchDB to wrong requests, taken from recordings.
//!
//! To add an endpoint, give it a line in a table like that of [`documents`], [`queries`] or [`server`] and run with
//! `SETTEE_UPDATE=1`.

mod cases;
mod documents;
mod learned;
mod queries;
mod server;

use std::fmt::Write as _;

use self::cases::{Answer, Asked};
use super::check_file;
use super::node::World;

/// A request and all that may be wrong with it.
struct Endpoint {
    /// Method and path. `{n}` is another number each time.
    line: &'static str,
    parameters: &'static [Parameter],
    /// A body that is right, for methods that take one.
    body: Option<&'static str>,
    /// The members that a body may have, each with a value that is right.
    members: &'static [(&'static str, &'static str)],
    /// How reasons begin that are looked for when all parameters were read, and that other parameters may change.
    afterwards: &'static [&'static str],
}

/// A parameter of the query string.
struct Parameter {
    name: &'static str,
    /// Values that are right, besides those that are tried with every parameter.
    right: &'static [&'static str],
    /// Of several wrong values the one that is looked at first is named: that of the lowest stage, and of one stage the
    /// first in the query string.
    stage: u8,
    /// Which of several values of the parameter count.
    reads: Reads,
}

/// Which of several values of a parameter are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    /// Each as it comes.
    All,
    /// The first alone.
    First,
    /// The last alone, when all were read.
    Last,
}

impl Parameter {
    /// One that is read when its turn comes.
    const fn new(name: &'static str, right: &'static [&'static str]) -> Self {
        Self { name, right, stage: 0, reads: Reads::All }
    }

    const fn read(self, stage: u8, reads: Reads) -> Self {
        Self { stage, reads, ..self }
    }

    /// Its right values, then odd ones.
    fn values(&self) -> impl Iterator<Item = &'static str> {
        let right = self.right;
        right.iter().chain(ODD.iter().filter(|value| !right.contains(value))).copied()
    }
}

/// A parameter without right values of its own.
const fn switch(name: &'static str) -> Parameter {
    Parameter::new(name, &[])
}

const fn endpoint(line: &'static str, parameters: &'static [Parameter]) -> Endpoint {
    Endpoint { line, parameters, body: None, members: &[], afterwards: &[] }
}

const fn posted(line: &'static str, body: &'static str) -> Endpoint {
    Endpoint { line, parameters: &[], body: Some(body), members: &[], afterwards: &[] }
}

/// Values that are tried with every parameter.
static ODD: [&str; 14] = ["", "true", "false", "TRUE", "1", "0", "-1", "1.5", "x", "null", r#""x""#, "[]", "[1]", "{}"];

/// Values that are tried with every member of a body.
const ODD_MEMBERS: [&str; 9] = ["null", "true", "0", "-1", "1.5", r#""x""#, r#""""#, "[]", "{}"];

/// Bodies that are tried with every endpoint that takes one.
const ODD_BODIES: [&str; 8] = ["", "{", "[]", "null", "1", r#""x""#, "{}", "{}x"];

/// Types by which bodies that are right are called.
const ODD_TYPES: [&str; 5] =
    ["", "text/plain", "application/json; charset=utf-8", "Application/JSON", "application/jsonx"];

/// Checks all endpoints of an area, whose answers are in the file `differential/{area}.txt`.
async fn check(area: &str, world: &World, endpoints: &[Endpoint]) {
    let mut text = String::new();
    let mut asked = Asked::new(world);
    for endpoint in endpoints {
        writeln!(text, "== {}", endpoint.line).unwrap();
        if endpoint.parameters.is_empty() && endpoint.body.is_none() {
            writeln!(text, "    {}", asked.query(endpoint, &[]).await).unwrap();
        }
        for parameter in endpoint.parameters {
            write_parameter(&mut text, &mut asked, endpoint, parameter).await;
        }
        write_bodies(&mut text, &mut asked, endpoint).await;
        write_contradictions(&mut text, &mut asked, endpoint).await;
        text.push('\n');
    }
    check_file(&format!("differential/{area}.txt"), &text);
}

/// The answers to one value each, those alike together.
async fn write_parameter(text: &mut String, asked: &mut Asked<'_>, endpoint: &Endpoint, parameter: &Parameter) {
    let mut groups = Groups::default();
    for value in parameter.values() {
        let answer = asked.query(endpoint, &[(parameter.name, value)]).await;
        groups.add(value, answer);
    }
    groups.write(text, parameter.name);
}

async fn write_bodies(text: &mut String, asked: &mut Asked<'_>, endpoint: &Endpoint) {
    let Some(right) = endpoint.body else { return };
    let mut groups = Groups::default();
    for body in ODD_BODIES {
        groups.add(body, asked.body(endpoint, "application/json", body).await);
    }
    groups.write(text, "(body)");
    let mut groups = Groups::default();
    for content_type in ODD_TYPES {
        groups.add(content_type, asked.body(endpoint, content_type, right).await);
    }
    groups.write(text, "(type of the body)");
    for (name, right) in endpoint.members {
        let mut groups = Groups::default();
        for value in std::iter::once(right).chain(&ODD_MEMBERS) {
            let body = with_member(endpoint.body.unwrap_or("{}"), name, value);
            groups.add(value, asked.body(endpoint, "application/json", &body).await);
        }
        groups.write(text, &format!("(member {name})"));
    }
}

/// The body with this member, in the place of one of the same name.
fn with_member(body: &str, name: &str, value: &str) -> String {
    let json = super::json(body);
    let others = json.value().members().filter(|(key, _)| !key.is_string(name));
    let mut members: Vec<String> =
        others.map(|(key, value)| format!("{}:{}", show_raw(key.raw()), show_raw(value.raw()))).collect();
    members.push(format!("\"{name}\":{value}"));
    format!("{{{}}}", members.join(","))
}

fn show_raw(raw: &[u8]) -> &str {
    std::str::from_utf8(raw).unwrap()
}

/// Checks every pair of parameters, in both orders, and every repetition, against what each value is answered alone; writes
/// those that are answered otherwise together.
async fn write_contradictions(text: &mut String, asked: &mut Asked<'_>, endpoint: &Endpoint) {
    let mut samples: Vec<Sample<'_>> = Vec::new();
    for parameter in endpoint.parameters {
        // One value of each kind of answer, and all that are right by themselves.
        let mut seen: Vec<Answer> = Vec::new();
        for value in parameter.values() {
            let answer = asked.query(endpoint, &[(parameter.name, value)]).await;
            if answer.is_success() && !parameter.right.is_empty() && !parameter.right.contains(&value) {
                continue;
            }
            if !seen.iter().any(|known| known.is_like(&answer)) {
                seen.push(answer.clone());
                samples.push((parameter, value, answer));
            }
        }
    }
    let mut groups = Groups::default();
    for (index, first) in samples.iter().enumerate() {
        for (other, second) in samples.iter().enumerate() {
            let answer = asked.query(endpoint, &[(first.0.name, first.1), (second.0.name, second.1)]).await;
            let shown = format!("{}={}&{}={}", first.0.name, first.1, second.0.name, second.1);
            if let Some(fault) = first_fault(endpoint, first, second) {
                assert_eq!(&answer, fault, "{} {shown}: which fault is named first", endpoint.line);
            } else if !is_as_alone(&answer, first, second) && (index <= other || !groups.has(&answer, second, first)) {
                groups.add(&shown, answer);
            }
        }
    }
    groups.write(text, "(together otherwise than alone)");
}

/// Whether two values are answered as one of them alone is: the first fault of them, or with success.
fn is_as_alone(answer: &Answer, first: &Sample<'_>, second: &Sample<'_>) -> bool {
    match (first.2.is_success(), second.2.is_success()) {
        (true, true) => answer.is_success(),
        (false, false) => answer.is_like(&first.2) || answer.is_like(&second.2),
        (false, true) => answer.is_like(&first.2),
        (true, false) => answer.is_like(&second.2),
    }
}

/// A value of a parameter, and what it is answered alone.
type Sample<'a> = (&'a Parameter, &'a str, Answer);

/// The fault of the request that two values are answered if each alone is answered as told. What depends on what is stored
/// (404, 409, 412) or on other parameters is found later than all of these, and not compared.
fn first_fault<'a>(endpoint: &Endpoint, first: &'a Sample<'_>, second: &'a Sample<'_>) -> Option<&'a Answer> {
    let fault = |one: &'a Sample<'_>| {
        let is_later = endpoint.afterwards.iter().any(|reason| one.2.reason.starts_with(reason));
        let is_fault = !one.2.is_success() && ![404, 409, 412].contains(&one.2.status) && !is_later;
        is_fault.then_some(&one.2)
    };
    if std::ptr::eq(first.0, second.0) {
        return match first.0.reads {
            Reads::All => fault(first).or_else(|| fault(second)),
            Reads::First => fault(first),
            Reads::Last => fault(second),
        };
    }
    match (fault(first), fault(second)) {
        (Some(_), Some(later)) if second.0.stage < first.0.stage => Some(later),
        (Some(fault), _) | (None, Some(fault)) => Some(fault),
        (None, None) => None,
    }
}

/// Answers and what they answer.
#[derive(Default)]
struct Groups(Vec<(Answer, Vec<String>)>);

impl Groups {
    fn add(&mut self, what: &str, answer: Answer) {
        let what = if what.is_empty() { "(empty)".to_owned() } else { what.to_owned() };
        match self.0.iter_mut().find(|(known, _)| known.is_like(&answer)) {
            Some((_, others)) => others.push(what),
            None => self.0.push((answer, vec![what])),
        }
    }

    /// Whether the two in this order are answered like that.
    fn has(&self, answer: &Answer, first: &Sample<'_>, second: &Sample<'_>) -> bool {
        let shown = format!("{}={}&{}={}", first.0.name, first.1, second.0.name, second.1);
        self.0.iter().any(|(known, values)| known.is_like(answer) && values.contains(&shown))
    }

    fn write(&self, text: &mut String, title: &str) {
        if self.0.is_empty() {
            return;
        }
        if let [(answer, values)] = &self.0[..]
            && values.len() > 1
        {
            writeln!(text, "{title}\n    {answer}\n        whatever it is").unwrap();
            return;
        }
        writeln!(text, "{title}").unwrap();
        for (answer, values) in &self.0 {
            writeln!(text, "    {answer}").unwrap();
            for line in values.chunks(8) {
                writeln!(text, "        {}", line.join("  ")).unwrap();
            }
        }
    }
}
