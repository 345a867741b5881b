//! Rewrite rules of design documents, as CouchDB's `chttpd_rewrite`: [`Rule`] constructs another path of a request.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use settee_model::json::{Kind, Value, write_array, write_string};

const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Parameters with JSON values, which CouchDB parses before it selects a rule.
pub const JSON_PARAMETERS: [&str; 6] = ["key", "startkey", "start_key", "endkey", "end_key", "keys"];

/// Maximum number of leading `..` in a target: from a design document to its database.
const PARENTS_MAX: usize = 2;

/// One rule.
#[derive(Debug)]
pub struct Rule {
    method: Option<String>,
    from: Vec<Part>,
    to: Vec<Part>,
    query: Vec<(String, Template)>,
    formats: Vec<(String, Format)>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Literal(String),
    Variable(String),
    Rest,
}

#[derive(Clone, Debug)]
enum Template {
    Text(String),
    List(Vec<Template>),
    Json(Vec<u8>),
}

#[derive(Clone, Copy, Debug)]
enum Format {
    Int,
    Bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Bound {
    Text(String),
    Json(Vec<u8>),
}

type Bindings = Vec<(String, Bound)>;

/// Cause of the rejection of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewriteError {
    /// A rule has no `to`.
    #[error("invalid_rewrite_target")]
    NoTarget,
    /// A rule refers to a path outside of its database.
    #[error("too many ../.. segments")]
    Insecure,
}

/// Result of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Rewritten {
    /// Path relative to the design document.
    pub path: String,
    /// Decoded parameters.
    pub query: Vec<(String, String)>,
}

/// Parses the rules of a design document. Fails if a rule has no target or, with `secure`, leaves the database.
pub fn parse(rewrites: Value<'_>, secure: bool) -> Result<Vec<Rule>, RewriteError> {
    rewrites.elements().filter(|rule| rule.is_object()).map(|rule| Rule::parse(rule, secure)).collect()
}

impl Rule {
    fn parse(rule: Value<'_>, secure: bool) -> Result<Self, RewriteError> {
        let text = |name| rule.get(name).and_then(Value::as_str);
        let to = text("to").ok_or(RewriteError::NoTarget)?;
        let formats = rule.get("formats").into_iter().flat_map(Value::members).filter_map(|(name, format)| {
            let format = match format.as_str().as_deref() {
                Some("int") => Format::Int,
                Some("bool") => Format::Bool,
                _ => return None,
            };
            Some((name.as_str()?.into_owned(), format))
        });
        let query = rule.get("query").into_iter().flat_map(Value::members);
        Ok(Self {
            method: text("method").filter(|method| method != "*").map(Into::into),
            from: match text("from") {
                Some(from) => parts(&from, secure)?,
                None => vec![Part::Rest],
            },
            to: parts(&to, secure)?,
            query: query.filter_map(|(name, value)| Some((name.as_str()?.into_owned(), Template::of(value)))).collect(),
            formats: formats.collect(),
        })
    }

    /// Applies the rule to a request. Returns `None` if the rule does not match.
    #[must_use]
    pub fn apply(&self, method: &str, path: &[&str], query: &[(String, String)]) -> Option<Rewritten> {
        if self.method.as_deref().is_some_and(|wanted| wanted != method) {
            return None;
        }
        let (mut bindings, rest) = bind(&self.from, path)?;
        for (name, value) in query {
            let bound = if JSON_PARAMETERS.contains(&name.as_str()) {
                Bound::Json(value.clone().into_bytes())
            } else {
                Bound::Text(value.clone())
            };
            bindings.push((name.clone(), bound));
        }
        let made: Bindings =
            self.query.iter().map(|(name, template)| (name.clone(), self.fill(template, &bindings))).collect();
        bindings.retain(|(name, _)| !made.iter().any(|(set, _)| set == name));
        bindings.extend(made);
        let path = self.make_path(&bindings, rest);
        let query = bindings.iter().filter(|(name, _)| name != "*");
        Some(Rewritten { path, query: query.map(|(name, bound)| (name.clone(), encode(name, bound))).collect() })
    }

    fn fill(&self, template: &Template, bindings: &Bindings) -> Bound {
        match template {
            Template::Text(text) => self.look_up(text, bindings),
            Template::Json(json) => Bound::Json(json.clone()),
            Template::List(list) => {
                let mut out = Vec::new();
                write_array(&mut out, list, |out, element| write_json(out, &self.fill(element, bindings)));
                Bound::Json(out)
            }
        }
    }

    fn look_up(&self, text: &str, bindings: &Bindings) -> Bound {
        let Some(name) = text.strip_prefix(':').or_else(|| (text == "*").then_some(text)) else {
            return Bound::Text(text.to_owned());
        };
        let found = bindings.iter().find(|(bound, _)| bound == name).map(|(_, value)| value.clone());
        let value = found.unwrap_or_else(|| Bound::Text(text.to_owned()));
        let format = self.formats.iter().find(|(formatted, _)| formatted == name);
        match (format, &value) {
            (Some((_, Format::Int)), Bound::Text(text)) if text.parse::<i64>().is_ok() => {
                Bound::Json(text.clone().into_bytes())
            }
            (Some((_, Format::Bool)), Bound::Text(text)) => match text.to_ascii_lowercase().as_str() {
                word @ ("true" | "false") => Bound::Json(word.as_bytes().to_vec()),
                _ => value,
            },
            _ => value,
        }
    }

    fn make_path(&self, bindings: &Bindings, rest: &[&str]) -> String {
        let mut made: Vec<String> = Vec::new();
        for part in &self.to {
            match part {
                Part::Literal(text) if text == ".." || text == "." => made.push(text.clone()),
                Part::Literal(text) => made.push(quote(text)),
                Part::Variable(name) => {
                    let bound = bindings.iter().find(|(bound, _)| bound == name);
                    made.push(bound.map_or_else(|| "undefined".to_owned(), |(_, value)| quote_segment(&plain(value))));
                }
                Part::Rest => {
                    made.extend(rest.iter().map(|part| quote_segment(part)));
                    break;
                }
            }
        }
        made.join("/")
    }
}

impl Template {
    fn of(value: Value<'_>) -> Self {
        match (value.kind(), value.as_str()) {
            (_, Some(text)) => Self::Text(text.into_owned()),
            (Kind::Array, _) => Self::List(value.elements().map(Self::of).collect()),
            _ => Self::Json(value.raw().to_vec()),
        }
    }
}

/// Encodes a client's text as one segment. Escaped dots cannot change the level.
fn quote_segment(text: &str) -> String {
    if matches!(text, "." | "..") { text.replace('.', "%2E") } else { quote(text) }
}

fn quote(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}

fn plain(bound: &Bound) -> String {
    match bound {
        Bound::Text(text) => text.clone(),
        Bound::Json(json) => {
            let value = Value::trusted(json);
            value.as_str().map_or_else(|| String::from_utf8_lossy(json).into_owned(), Into::into)
        }
    }
}

fn encode(name: &str, bound: &Bound) -> String {
    match bound {
        Bound::Text(text) if JSON_PARAMETERS.contains(&name) => {
            let mut out = Vec::new();
            write_string(&mut out, text);
            String::from_utf8_lossy(&out).into_owned()
        }
        Bound::Text(text) => text.clone(),
        Bound::Json(json) => String::from_utf8_lossy(json).into_owned(),
    }
}

fn write_json(out: &mut Vec<u8>, bound: &Bound) {
    match bound {
        Bound::Text(text) => write_string(out, text),
        Bound::Json(json) => out.extend_from_slice(json),
    }
}

fn parts(path: &str, secure: bool) -> Result<Vec<Part>, RewriteError> {
    let mut parents = 0;
    let mut parts = Vec::new();
    for part in path.split('/').filter(|part| !part.is_empty()) {
        parents += usize::from(part == "..");
        if secure && parents > PARENTS_MAX {
            return Err(RewriteError::Insecure);
        }
        parts.push(match part.strip_prefix(':') {
            Some(name) => Part::Variable(name.to_owned()),
            None if part == "*" => Part::Rest,
            None => Part::Literal(part.to_owned()),
        });
    }
    Ok(parts)
}

fn bind<'a>(pattern: &[Part], path: &'a [&'a str]) -> Option<(Bindings, &'a [&'a str])> {
    let mut bindings = Vec::new();
    let mut rest = path;
    for (index, part) in pattern.iter().enumerate() {
        if *part == Part::Rest && index + 1 == pattern.len() {
            return Some((bindings, rest));
        }
        let (first, others) = rest.split_first()?;
        match part {
            Part::Literal(text) if text != first => return None,
            Part::Literal(_) => {}
            Part::Variable(name) => bindings.push((name.clone(), Bound::Text((*first).to_owned()))),
            Part::Rest => bindings.push(("*".to_owned(), Bound::Text((*first).to_owned()))),
        }
        rest = others;
    }
    rest.is_empty().then_some((bindings, rest))
}

/// Returns path and query of a request to `path`, which is relative to `prefix`. The result never leaves the root.
#[must_use]
pub fn target(prefix: &str, path: &str, query: &[(String, String)]) -> String {
    let mut made: Vec<&str> = Vec::new();
    for part in prefix.split('/').chain(path.split('/')).filter(|part| !part.is_empty()) {
        match part {
            "." => {}
            ".." => {
                made.pop();
            }
            _ => made.push(part),
        }
    }
    let mut target = format!("/{}", made.join("/"));
    for (index, (name, value)) in query.iter().enumerate() {
        target.push(if index == 0 && !target.contains('?') { '?' } else { '&' });
        target.push_str(&format!("{}={}", quote(name), quote(value)));
    }
    target
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.as_bytes()).unwrap()
    }

    const RULES: &str = r#"[
        {"from": "/docs/:id", "to": "../../:id"},
        {"from": "/v/*", "to": "_view/v/*", "query": {"reduce": "false"}},
        {"from": "/key/:k", "to": "_view/v", "query": {"key": ":k", "limit": ":n"}},
        {"from": "/put/:id", "to": "../../:id", "method": "PUT"},
        {"from": "/int/:n/:flag", "to": "_list/l/v", "query": {"key": [":n", "x", 5, ":flag"], "q": {"a": 1}},
            "formats": {"n": "int", "flag": "bool"}},
        {"from": "", "to": "_view/v", "query": {"limit": "1"}},
        {"from": "/up", "to": "../../../db/x y"}
    ]"#;

    fn check(method: &str, path: &str, query: &[(&str, &str)], expected: Option<&str>) {
        let json = json(RULES);
        let rules = parse(json.value(), false).unwrap();
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let query: Vec<(String, String)> =
            query.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let found = rules.iter().find_map(|rule| rule.apply(method, &parts, &query));
        let found = found.map(|found| target("/db/_design/d", &found.path, &found.query));
        assert_eq!(found.as_deref(), expected, "{method} {path}");
    }

    #[test]
    fn rules_lead_paths_elsewhere() {
        check("GET", "/docs/a", &[], Some("/db/a?id=a"));
        check("GET", "/docs/a b", &[("x", "1&2")], Some("/db/a%20b?id=a%20b&x=1%262"));
        check("GET", "/v/x/y", &[], Some("/db/_design/d/_view/v/x/y?reduce=false"));
        check("GET", "/v/", &[("reduce", "true")], Some("/db/_design/d/_view/v?reduce=false"));
        check("GET", "/key/7", &[], Some("/db/_design/d/_view/v?k=7&key=%227%22&limit=%3An"));
        check("GET", "/key/7", &[("n", "2")], Some("/db/_design/d/_view/v?k=7&n=2&key=%227%22&limit=2"));
        check("PUT", "/put/c", &[], Some("/db/c?id=c"));
        check("GET", "/put/c", &[], None);
        check("GET", "/nosuch", &[], None);
        check("GET", "/docs/a/b", &[], None);
        check("GET", "/", &[], Some("/db/_design/d/_view/v?limit=1"));
        check("GET", "/up", &[], Some("/db/x%20y"));
        check("GET", "/docs/..", &[], Some("/db/%2E%2E?id=.."));
        check(
            "GET",
            "/v/../../../../_all_dbs",
            &[],
            Some("/db/_design/d/_view/v/%2E%2E/%2E%2E/%2E%2E/%2E%2E/_all_dbs?reduce=false"),
        );
        check("GET", "/docs/..%2F..", &[], Some("/db/..%252F..?id=..%252F.."));
        check(
            "GET",
            "/int/5/TRUE",
            &[],
            Some("/db/_design/d/_list/l/v?n=5&flag=TRUE&key=%5B5%2C%22x%22%2C5%2Ctrue%5D&q=%7B%22a%22%3A1%7D"),
        );
    }

    #[test]
    fn rules_that_lead_out_of_the_database_are_refused() {
        let refused = |rules: &str| parse(json(rules).value(), true).err();
        assert_eq!(refused(r#"[{"to": "../../a"}]"#), None);
        assert_eq!(refused(r#"[{"to": "../../../a"}]"#), Some(RewriteError::Insecure));
        assert_eq!(refused(r#"[{"from": "a"}]"#), Some(RewriteError::NoTarget));
    }

    #[test]
    fn targets_stay_below_the_root() {
        let table = [
            ("x", "/db/_design/d/x"),
            ("../../x", "/db/x"),
            ("../../../../../x", "/x"),
            ("./a/./b/../c", "/db/_design/d/a/c"),
            ("/abs", "/db/_design/d/abs"),
        ];
        for (path, expected) in table {
            assert_eq!(target("/db/_design/d", path, &[]), expected);
        }
    }
}
