//! [`FieldPath`]: the name of a field, possibly within objects and arrays.

use settee_model::json::{Kind, Value};

use crate::error::Refusal;

/// `a.b` is the member `b` of the member `a`; `a\.b` is the member `a.b`; a number also selects an element of an array,
/// from 0. The empty name is the value itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldPath {
    parts: Vec<String>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Found<'a> {
    Value(Value<'a>),
    /// An object lacks the member.
    Missing,
    /// A value has no members or no such element. CouchDB distinguishes this case: `{"$exists": false}` does not match.
    NoPath,
}

impl<'a> Found<'a> {
    pub(crate) fn value(self) -> Option<Value<'a>> {
        match self {
            Self::Value(value) => Some(value),
            Self::Missing | Self::NoPath => None,
        }
    }
}

impl FieldPath {
    pub(crate) fn parse(name: &str) -> Result<Self, Refusal> {
        if name.is_empty() {
            return Ok(Self { parts: Vec::new() });
        }
        let mut parts = vec![String::new()];
        let (mut escaped, mut length) = (false, 0);
        let empty = || Refusal::InvalidFieldName(name.to_owned());
        for character in name.chars() {
            let part = parts.last_mut().expect("there is always a part");
            match character {
                '.' if !escaped && length == 0 => return Err(empty()),
                '.' if !escaped => {
                    parts.push(String::new());
                    length = 0;
                    continue;
                }
                // As in CouchDB, every backslash is dropped, and a part may consist of one.
                '\\' => {}
                _ => part.push(character),
            }
            length += 1;
            escaped = character == '\\';
        }
        if length == 0 { Err(empty()) } else { Ok(Self { parts }) }
    }

    pub(crate) fn parts(&self) -> &[String] {
        &self.parts
    }

    pub(crate) fn find<'a>(&self, value: Value<'a>) -> Found<'a> {
        let mut current = value;
        for part in &self.parts {
            let next = match current.kind() {
                Kind::Object => match current.get(part) {
                    Some(next) => next,
                    None => return Found::Missing,
                },
                Kind::Array => match part.parse().ok().and_then(|index| current.elements().nth(index)) {
                    Some(next) => next,
                    None => return Found::NoPath,
                },
                Kind::Null | Kind::Bool | Kind::Number | Kind::String => return Found::NoPath,
            };
            current = next;
        }
        Found::Value(current)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    #[test]
    fn names_are_divided_at_dots_that_are_not_escaped() {
        let check =
            |name: &str, expected: &[&str]| assert_eq!(FieldPath::parse(name).unwrap().parts, expected, "{name}");
        check("ab", &["ab"]);
        check("a.b", &["a", "b"]);
        check(r"a\.b", &["a.b"]);
        check(r"a.b\.c", &["a", "b.c"]);
        check(r"a\b.c", &["ab", "c"]);
        check(r"\", &[""]);
        check(r"a.\", &["a", ""]);
        check("", &[]);
        for wrong in ["a..b", ".a", "a.", "."] {
            assert_eq!(FieldPath::parse(wrong), Err(Refusal::InvalidFieldName(wrong.to_owned())), "{wrong}");
        }
    }

    #[test]
    fn paths_lead_into_objects_and_arrays() {
        let document = Json::parse(br#"{"a":{"b":[1,{"c":2}]},"a.b":3,"n":null}"#).unwrap();
        let check = |name: &str, expected: &str| {
            let found = match FieldPath::parse(name).unwrap().find(document.value()) {
                Found::Value(value) => String::from_utf8(value.raw().to_vec()).unwrap(),
                Found::Missing => "missing".to_owned(),
                Found::NoPath => "no path".to_owned(),
            };
            assert_eq!(found, expected, "{name}");
        };
        check("a.b.0", "1");
        check("a.b.1.c", "2");
        check(r"a\.b", "3");
        check("n", "null");
        check("x", "missing");
        check("a.x", "missing");
        check("a.b.2", "no path");
        check("a.b.-1", "no path");
        check("a.b.x", "no path");
        check("n.x", "no path");
        check("a.b.0.x", "no path");
    }
}
