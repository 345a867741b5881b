//! Responses to parameters and bodies, documented in files and compared with CouchDB. [`check`] derives invalid
//! requests from the valid request of an [`Endpoint`]. The response to a single invalid value is in a file next to the
//! table of the endpoint. The response to several follows from these by the rule that an endpoint declares, see
//! [`Parameter::stage`], or is in the file as well. [`learned`] contains responses of CouchDB to invalid requests,
//! taken from recordings. To add an endpoint, add a line to a table like that of [`documents`], [`queries`] or
//! [`server`] and run with `SETTEE_UPDATE=1`.

mod cases;
mod documents;
mod learned;
mod queries;
mod server;

use std::fmt::Write as _;

use self::cases::{Answer, Asked};
use super::check_file;
use super::node::World;

struct Endpoint {
    /// Method and path. `{n}` is replaced by a new number in each request.
    line: &'static str,
    parameters: &'static [Parameter],
    body: Option<&'static str>,
    members: &'static [(&'static str, &'static str)],
    /// Prefixes of reasons that are detected after all parameters are parsed.
    afterwards: &'static [&'static str],
}

struct Parameter {
    name: &'static str,
    /// Valid values, in addition to those that are tried with every parameter.
    right: &'static [&'static str],
    /// Order of validation: of several invalid values that of the lowest stage is reported, and within one
    /// stage the first in the query string.
    stage: u8,
    reads: Reads,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reads {
    All,
    First,
    Last,
}

impl Parameter {
    const fn new(name: &'static str, right: &'static [&'static str]) -> Self {
        Self { name, right, stage: 0, reads: Reads::All }
    }

    const fn read(self, stage: u8, reads: Reads) -> Self {
        Self { stage, reads, ..self }
    }

    fn values(&self) -> impl Iterator<Item = &'static str> {
        let right = self.right;
        right.iter().chain(ODD.iter().filter(|value| !right.contains(value))).copied()
    }
}

const fn switch(name: &'static str) -> Parameter {
    Parameter::new(name, &[])
}

const fn endpoint(line: &'static str, parameters: &'static [Parameter]) -> Endpoint {
    Endpoint { line, parameters, body: None, members: &[], afterwards: &[] }
}

const fn posted(line: &'static str, body: &'static str) -> Endpoint {
    Endpoint { line, parameters: &[], body: Some(body), members: &[], afterwards: &[] }
}

static ODD: [&str; 14] = ["", "true", "false", "TRUE", "1", "0", "-1", "1.5", "x", "null", r#""x""#, "[]", "[1]", "{}"];

const ODD_MEMBERS: [&str; 9] = ["null", "true", "0", "-1", "1.5", r#""x""#, r#""""#, "[]", "{}"];

const ODD_BODIES: [&str; 8] = ["", "{", "[]", "null", "1", r#""x""#, "{}", "{}x"];

const ODD_TYPES: [&str; 5] =
    ["", "text/plain", "application/json; charset=utf-8", "Application/JSON", "application/jsonx"];

/// Checks all endpoints of an area against the file `differential/{area}.txt`.
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

/// Writes the pairs whose response differs from that to the single values.
async fn write_contradictions(text: &mut String, asked: &mut Asked<'_>, endpoint: &Endpoint) {
    let mut samples: Vec<Sample<'_>> = Vec::new();
    for parameter in endpoint.parameters {
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

fn is_as_alone(answer: &Answer, first: &Sample<'_>, second: &Sample<'_>) -> bool {
    match (first.2.is_success(), second.2.is_success()) {
        (true, true) => answer.is_success(),
        (false, false) => answer.is_like(&first.2) || answer.is_like(&second.2),
        (false, true) => answer.is_like(&first.2),
        (true, false) => answer.is_like(&second.2),
    }
}

type Sample<'a> = (&'a Parameter, &'a str, Answer);

/// Faults that depend on stored data (404, 409, 412) or on other parameters are not compared.
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

#[derive(Default)]
struct Groups(Vec<(Answer, Vec<String>)>);

impl Groups {
    fn add(&mut self, label: &str, answer: Answer) {
        let label = if label.is_empty() { "(empty)".to_owned() } else { label.to_owned() };
        match self.0.iter_mut().find(|(known, _)| known.is_like(&answer)) {
            Some((_, others)) => others.push(label),
            None => self.0.push((answer, vec![label])),
        }
    }

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
