//! [`SearchDefinition`]: a search index in a design document.
//! [`Language::index_program`](crate::Language::index_program) specifies the output of index functions.

use std::sync::Arc;

use settee_model::json::Value;

use crate::design_document::{raw, text};

/// Types of search indexes in CouchDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SearchKind {
    /// Member `nouveau`; functions call `index(type, name, value, options)`.
    Nouveau,
    /// The older member `indexes`; functions call `index(name, value, options)`.
    Clouseau,
}

impl SearchKind {
    /// All types.
    pub const ALL: [Self; 2] = [Self::Nouveau, Self::Clouseau];

    /// Member of a design document that contains the definitions.
    #[must_use]
    pub const fn member(self) -> &'static str {
        match self {
            Self::Nouveau => "nouveau",
            Self::Clouseau => "indexes",
        }
    }

    const fn analyzer(self) -> &'static str {
        match self {
            Self::Nouveau => "default_analyzer",
            Self::Clouseau => "analyzer",
        }
    }
}

/// A search index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchDefinition {
    /// Type of the index.
    pub kind: SearchKind,
    /// Name; an index of the other type may have the same.
    pub name: Arc<str>,
    /// Source of the index function; JSON text if it is not a string. CouchDB accepts definitions without a function.
    pub index: Option<Arc<str>>,
    /// True if `index` is a declarative definition instead of a function. Its fields have Nouveau's form and any names.
    pub is_declared: bool,
    /// `default_analyzer` or `analyzer` as JSON text.
    pub analyzer: Option<Arc<str>>,
    /// `field_analyzers` as JSON text.
    pub field_analyzers: Option<Arc<str>>,
    /// `vectors` as JSON text: vector fields of a Nouveau index. CouchDB has none.
    pub vectors: Option<Arc<str>>,
}

/// Version of Lucene whose results Nouveau indexes reproduce. CouchDB writes it into new definitions.
const LUCENE_VERSION: u64 = 10;

/// Adds the version of Lucene to Nouveau definitions, as CouchDB does; `None` if all have it.
#[must_use]
pub fn with_lucene_version(body: Value<'_>) -> Option<Vec<u8>> {
    let lacks = |definition: Value<'_>| definition.is_object() && definition.get("lucene_version").is_none();
    let nouveau = body.get(SearchKind::Nouveau.member()).filter(|nouveau| nouveau.is_object())?;
    if !nouveau.members().any(|(_, definition)| lacks(definition)) {
        return None;
    }
    let mut out = Vec::with_capacity(body.raw().len() + 64);
    write_members(&mut out, body, |out, name, value| match name.is_string(SearchKind::Nouveau.member()) {
        false => out.extend_from_slice(value.raw()),
        true => write_members(out, value, |out, _, definition| {
            out.extend_from_slice(definition.raw());
            if lacks(definition) {
                out.pop();
                let separator = if definition.members().next().is_some() { "," } else { "" };
                out.extend_from_slice(format!("{separator}\"lucene_version\":{LUCENE_VERSION}}}").as_bytes());
            }
        }),
    });
    Some(out)
}

fn write_members<'a>(out: &mut Vec<u8>, object: Value<'a>, mut write: impl FnMut(&mut Vec<u8>, Value<'a>, Value<'a>)) {
    out.push(b'{');
    for (number, (name, value)) in object.members().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name.raw());
        out.push(b':');
        write(out, name, value);
    }
    out.push(b'}');
}

pub(crate) fn definitions(body: Value<'_>) -> Vec<SearchDefinition> {
    let of = |kind: SearchKind| {
        let members = body.get(kind.member()).into_iter().flat_map(Value::members);
        members.filter_map(move |(name, definition)| {
            let is_declared = definition.get("index").is_some_and(Value::is_object);
            let analyzer = if is_declared { SearchKind::Clouseau.analyzer() } else { kind.analyzer() };
            let index = definition.get("index").map(|index| text(Some(index)).unwrap_or_else(|| raw(index)));
            Some(SearchDefinition {
                kind,
                name: text(Some(name))?,
                index,
                is_declared,
                analyzer: definition.get(analyzer).map(raw),
                field_analyzers: definition.get("field_analyzers").filter(|_| kind == SearchKind::Nouveau).map(raw),
                vectors: definition.get("vectors").filter(|_| kind == SearchKind::Nouveau).map(raw),
            })
        })
    };
    SearchKind::ALL.into_iter().flat_map(of).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;
    use crate::DesignDocument;

    #[test]
    fn new_definitions_contain_the_version_of_lucene() {
        let check = |text: &str, expected: Option<&str>| {
            let json = Json::parse(text.as_bytes()).unwrap();
            let completed = with_lucene_version(json.value()).map(|body| String::from_utf8(body).unwrap());
            assert_eq!(completed.as_deref(), expected, "{text}");
        };
        check("{}", None);
        check(r#"{"nouveau":5,"indexes":{"i":{}}}"#, None);
        check(r#"{"nouveau":{"i":{"lucene_version":9}}}"#, None);
        check(
            r#"{"a":1,"nouveau":{"i":{"index":"f"},"j":{"lucene_version":9},"k":{},"l":"x"},"b":[{}]}"#,
            Some(
                r#"{"a":1,"nouveau":{"i":{"index":"f","lucene_version":10},"j":{"lucene_version":9},"k":{"lucene_version":10},"l":"x"},"b":[{}]}"#,
            ),
        );
    }

    #[test]
    fn definitions_are_parsed() {
        let text = r#"{"nouveau": {"i": {"index": "f", "default_analyzer": "english", "field_analyzers": {"a": "keyword"},
                "vectors": {}, "lucene_version": 10}, "none": {}, "odd": 5},
            "indexes": {"i": {"index": {"fields": []}, "analyzer": {"name": "perfield"}, "field_analyzers": {}}}}"#;
        let json = Json::parse(text.as_bytes()).unwrap();
        let design = DesignDocument::parse("_design/d", json.value()).unwrap();
        let expected = |kind, name: &str, parts: [Option<&str>; 4]| {
            let [index, analyzer, field_analyzers, vectors] = parts.map(|part| part.map(Arc::from));
            let is_declared = index.as_deref().is_some_and(|index: &str| index.starts_with('{'));
            SearchDefinition { kind, name: name.into(), index, is_declared, analyzer, field_analyzers, vectors }
        };
        assert_eq!(
            design.searches,
            [
                expected(
                    SearchKind::Nouveau,
                    "i",
                    [Some("f"), Some("\"english\""), Some(r#"{"a":"keyword"}"#), Some("{}")]
                ),
                expected(SearchKind::Nouveau, "none", [None; 4]),
                expected(SearchKind::Nouveau, "odd", [None; 4]),
                expected(
                    SearchKind::Clouseau,
                    "i",
                    [Some(r#"{"fields":[]}"#), Some(r#"{"name":"perfield"}"#), None, None]
                ),
            ]
        );
        assert_eq!(design.search(SearchKind::Clouseau, "i"), Some(&design.searches[3]));
        assert_eq!(design.search(SearchKind::Clouseau, "none"), None);
        // CouchDB accepts malformed members and finds no index in them.
        for text in [r#"{"nouveau": 5, "indexes": []}"#, "{}"] {
            let json = Json::parse(text.as_bytes()).unwrap();
            assert!(DesignDocument::parse("_design/d", json.value()).unwrap().searches.is_empty());
        }
    }
}
