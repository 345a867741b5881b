//! What parameters and bodies are answered, as a document and against CouchDB.
//!
//! An [`Endpoint`] is a request that is right, the parameters it takes and the members of its body. From it [`check`] makes
//! requests that are wrong in every way: each parameter with each odd value, twice, and together with each other one; each
//! member of the body with values of all kinds; bodies of other kinds and types. What is answered to one wrong value is
//! written into a file beside the table of the endpoint, which is reviewed when it changes; what is answered to several follows
//! from that by the one rule that an endpoint declares, see [`Parameter::stage`].
//!
//! [`learned`] holds the other side: answers of CouchDB to wrong requests, taken from recordings.
//!
//! To add an endpoint, give it a line in a table like that of [`documents`] and run with `SETTEE_UPDATE=1`.

mod cases;
mod documents;
mod learned;

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
}

/// Values that are tried with every parameter.
const ODD: [&str; 14] = ["", "true", "false", "TRUE", "1", "0", "-1", "1.5", "x", "null", r#""x""#, "[]", "[1]", "{}"];

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
    for value in parameter.right.iter().chain(&ODD) {
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
/// those that are right alone and wrong together.
async fn write_contradictions(text: &mut String, asked: &mut Asked<'_>, endpoint: &Endpoint) {
    let mut samples: Vec<(&Parameter, &str, Answer)> = Vec::new();
    for parameter in endpoint.parameters {
        // One value of each kind of answer, and all that are right by themselves.
        let mut seen: Vec<Answer> = Vec::new();
        for value in parameter.right.iter().chain(&ODD) {
            let answer = asked.query(endpoint, &[(parameter.name, value)]).await;
            if answer.is_success() && !parameter.right.is_empty() && !parameter.right.contains(value) {
                continue;
            }
            if !seen.iter().any(|known| known.is_like(&answer)) {
                seen.push(answer.clone());
                samples.push((parameter, value, answer));
            }
        }
    }
    let mut groups = Groups::default();
    for first in &samples {
        for second in &samples {
            let answer = asked.query(endpoint, &[(first.0.name, first.1), (second.0.name, second.1)]).await;
            let shown = format!("{}={}&{}={}", first.0.name, first.1, second.0.name, second.1);
            if let Some(fault) = first_fault(first, second) {
                assert_eq!(&answer, fault, "{} {shown}: which fault is named first", endpoint.line);
            } else if first.2.is_success() && second.2.is_success() && !answer.is_success() {
                groups.add(&shown, answer);
            }
        }
    }
    groups.write(text, "(right alone, wrong together)");
}

/// The fault of the request that two values are answered if each alone is answered as told. What depends on what is stored
/// (404, 409, 412) is found later than all of these, and not compared.
fn first_fault<'a>(
    first: &'a (&Parameter, &str, Answer),
    second: &'a (&Parameter, &str, Answer),
) -> Option<&'a Answer> {
    let fault = |one: &'a (&Parameter, &str, Answer)| {
        let is_fault = !one.2.is_success() && ![404, 409, 412].contains(&one.2.status);
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
