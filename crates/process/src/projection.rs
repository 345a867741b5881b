//! [`Projection`]: the members of a document that a query server gets. Interpreters spend most of their time parsing
//! large documents, even if a function uses two members.

use std::collections::BTreeSet;

use settee_design::MapSource;
use settee_model::json::Value;

use crate::python;

/// Engine names of programs, which differ in performance only.
pub(crate) const PROJECTED: &str = "projected";
pub(crate) const WHOLE: &str = "whole";

/// Members that servers use in messages.
const REQUIRED_MEMBERS: [&str; 2] = ["_id", "_rev"];

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Projection {
    names: Vec<Box<[u8]>>,
}

impl Projection {
    /// Returns the members that any function of `source` can see, because all get the same document; `None` for whole
    /// documents.
    pub(crate) fn of(language: &str, source: &MapSource) -> Option<Self> {
        if language != python::LANGUAGE || source.library.is_some() {
            return None;
        }
        let mut names = BTreeSet::from(REQUIRED_MEMBERS);
        for function in &source.functions {
            names.append(&mut python::members(function)?);
        }
        Some(Self { names: names.into_iter().map(|name| name.as_bytes().into()).collect() })
    }

    pub(crate) fn write(&self, document: &[u8], out: &mut Vec<u8>) {
        out.push(b'{');
        let first = out.len();
        for (name, value) in Value::trusted(document).members() {
            if self.has(name.raw()) {
                if out.len() > first {
                    out.push(b',');
                }
                out.extend_from_slice(name.raw());
                out.push(b':');
                out.extend_from_slice(value.raw());
            }
        }
        out.push(b'}');
    }

    /// Keeps names with escapes always, because such a name may equal any other.
    fn has(&self, literal: &[u8]) -> bool {
        let name = literal.get(1..literal.len() - 1).unwrap_or_default();
        self.names.binary_search_by(|known| (**known).cmp(name)).is_ok() || memchr::memchr(b'\\', name).is_some()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use std::sync::Arc;

    use super::*;

    fn source(functions: &[&str]) -> MapSource {
        MapSource { functions: functions.iter().map(|function| Arc::from(*function)).collect(), library: None }
    }

    fn names(functions: &[&str]) -> Option<Vec<String>> {
        let projection = Projection::of("python", &source(functions))?;
        Some(projection.names.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
    }

    #[test]
    fn the_functions_of_a_design_document_share_a_document() {
        let [a, b, whole] =
            ["def a(d):\n yield d['a'], 1", "def b(doc):\n yield doc['b'], 1", "def w(d):\n yield 1, d"];
        assert_eq!(names(&[a]).unwrap(), ["_id", "_rev", "a"]);
        assert_eq!(names(&[a, b]).unwrap(), ["_id", "_rev", "a", "b"]);
        assert_eq!(names(&[a, whole, b]), None);
    }

    #[test]
    fn other_languages_and_libraries_get_whole_documents() {
        let source = source(&["def a(d):\n yield d['a'], 1"]);
        assert!(Projection::of("python", &source).is_some());
        assert_eq!(Projection::of("python3", &source), None);
        let with_library = MapSource { library: Some("{}".into()), ..source };
        assert_eq!(Projection::of("python", &with_library), None);
    }

    #[test]
    fn members_are_sent_as_they_are() {
        #[track_caller]
        fn check(document: &str, expected: &str) {
            let projection = Projection::of("python", &source(&["def a(d):\n yield d['b'], d.get('')"])).unwrap();
            let mut out = b"before".to_vec();
            projection.write(document.as_bytes(), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), format!("before{expected}"));
        }
        check("{}", "{}");
        check(r#"{"a":1}"#, "{}");
        check(r#"{"_id":"x","_rev":"1-a"}"#, r#"{"_id":"x","_rev":"1-a"}"#);
        check(r#"{"a":1,"b":[1.50,{"a":"}\""}],"c":{}}"#, r#"{"b":[1.50,{"a":"}\""}]}"#);
        check(r#"{"_rev":"1-a","":0,"bb":1,"_id":"x","b":2}"#, r#"{"_rev":"1-a","":0,"_id":"x","b":2}"#);
        check(r#"{"é":1,"\u0062":2,"b":3,"a\"":4,"a":5}"#, r#"{"\u0062":2,"b":3,"a\"":4}"#);
    }
}
