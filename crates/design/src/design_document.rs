//! [`DesignDocument`]: the views and search indexes of a design document, and the validation of its members.

use std::fmt;
use std::sync::Arc;

use settee_model::collate::Collation;
use settee_model::json::{Kind, Value};

use crate::search::{self, SearchDefinition, SearchKind};

/// Views and search indexes of a design document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignDocument {
    /// Id of the document, including `_design/`.
    pub id: Arc<str>,
    /// `language`; `javascript` if absent.
    pub language: Arc<str>,
    /// `views.lib` as JSON text.
    pub library: Option<Arc<str>>,
    /// The part of `options` that affects map functions.
    pub options: DesignOptions,
    /// Members of `views` with a map function, in order.
    pub views: Vec<ViewDefinition>,
    /// Members of `nouveau` and `indexes`, in order.
    pub searches: Vec<SearchDefinition>,
    /// `options.partitioned`: true if views are queried per partition; `None` for the default of the database.
    pub partitioned: Option<bool>,
    /// `autoupdate`: false if indexes must not be updated without a query.
    pub autoupdate: bool,
    /// `options.swap`: index for queries while that of a changed view is built.
    pub swap: Swap,
}

/// Index that serves a view whose own index is not ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Swap {
    /// None: queries wait for the index of the view.
    #[default]
    AtOnce,
    /// `online`: the index of the previous definition of the view.
    Online,
    /// None. The index does not serve a later definition either, because it is not recorded.
    Never,
}

/// Documents and members that a map function sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DesignOptions {
    /// `include_design`: design documents are mapped as well.
    pub include_design: bool,
    /// `local_seq`: documents contain `_local_seq`.
    pub local_seq: bool,
}

/// A view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewDefinition {
    /// Name.
    pub name: Arc<str>,
    /// Source of the map function; JSON text if the map functions of the language are not strings.
    pub map: Arc<str>,
    /// Source of the reduce function, or the name of a built-in one.
    pub reduce: Option<Arc<str>>,
    /// `options.collation`.
    pub collation: Collation,
}

/// Defect of a design document. CouchDB: 400 `invalid_design_doc`, with this text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMember {
    /// A member has the wrong type.
    #[error("`{path}` field must have {expected} type")]
    Type {
        /// Name of the member, after those of its parents.
        path: String,
        /// Permitted types.
        expected: Types,
    },
    /// A view has no map function.
    #[error("View `{0}` must contain map function")]
    NoMap(String),
}

/// Permitted types of a member, in the order in which CouchDB names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Types(&'static [Kind]);

const STRING: Types = Types(&[Kind::String]);
const OBJECT: Types = Types(&[Kind::Object]);
const BOOLEAN: Types = Types(&[Kind::Bool]);
const STRING_OR_OBJECT: Types = Types(&[Kind::String, Kind::Object]);
const ARRAY_OR_STRING: Types = Types(&[Kind::Array, Kind::String]);

impl fmt::Display for Types {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kind) in self.0.iter().enumerate() {
            let name = match kind {
                Kind::Null => "null",
                Kind::Bool => "boolean",
                Kind::Number => "number",
                Kind::String => "string",
                Kind::Array => "array",
                Kind::Object => "object",
            };
            write!(f, "{}{name}", if index == 0 { "" } else { " or " })?;
        }
        Ok(())
    }
}

impl DesignDocument {
    /// `body` is the JSON object. Fails if a member has the wrong type. Skips views without a map function.
    pub fn parse(id: &str, body: Value<'_>) -> Result<Self, InvalidMember> {
        check_types(body)?;
        let language: Arc<str> = text(body.get("language")).unwrap_or_else(|| "javascript".into());
        let views = body.get("views");
        let option = |name| body.get("options").and_then(|options| options.get(name)).and_then(Value::as_bool);
        Ok(Self {
            id: id.into(),
            language,
            library: views.and_then(|views| views.get("lib")).map(raw),
            options: DesignOptions {
                include_design: option("include_design").unwrap_or(false),
                local_seq: option("local_seq").unwrap_or(false),
            },
            views: views
                .into_iter()
                .flat_map(Value::members)
                .filter_map(|(name, view)| definition(name, view))
                .collect(),
            searches: search::definitions(body),
            partitioned: option("partitioned"),
            autoupdate: body.get("autoupdate").and_then(Value::as_bool).unwrap_or(true),
            swap: swap(body.get("options")),
        })
    }

    /// Returns the view `name`.
    #[must_use]
    pub fn view(&self, name: &str) -> Option<&ViewDefinition> {
        self.views.iter().find(|view| &*view.name == name)
    }

    /// Returns the search index `name`.
    #[must_use]
    pub fn search(&self, kind: SearchKind, name: &str) -> Option<&SearchDefinition> {
        self.searches.iter().find(|search| search.kind == kind && &*search.name == name)
    }
}

fn swap(options: Option<Value<'_>>) -> Swap {
    let swap = options.and_then(|options| options.get("swap"));
    if swap.is_some_and(|swap| swap.is_string("online")) { Swap::Online } else { Swap::AtOnce }
}

/// `views.lib` contains modules. As in CouchDB it is a view as well if it has a map function.
fn definition(name: Value<'_>, view: Value<'_>) -> Option<ViewDefinition> {
    let map = view.get("map")?;
    let raw_collation = view.get("options").and_then(|options| options.get("collation"));
    let raw_collation = raw_collation.is_some_and(|collation| collation.is_string("raw"));
    Some(ViewDefinition {
        name: text(Some(name))?,
        map: text(Some(map)).unwrap_or_else(|| raw(map)),
        reduce: text(view.get("reduce")),
        collation: if raw_collation { Collation::Raw } else { Collation::Unicode },
    })
}

pub(crate) fn text(value: Option<Value<'_>>) -> Option<Arc<str>> {
    value.and_then(Value::as_str).map(Arc::from)
}

pub(crate) fn raw(value: Value<'_>) -> Arc<str> {
    String::from_utf8_lossy(value.raw()).into()
}

/// Validates members as CouchDB does, in its order: first all types, then that views have a map function.
pub fn validate_members(body: Value<'_>) -> Result<(), InvalidMember> {
    check_types(body)?;
    for (name, view) in body.get("views").into_iter().flat_map(Value::members) {
        if view.get("map").is_none() && !name.is_string("lib") {
            return Err(InvalidMember::NoMap(name.as_str().unwrap_or_default().into_owned()));
        }
    }
    Ok(())
}

fn check_types(body: Value<'_>) -> Result<(), InvalidMember> {
    let language = body.get("language");
    // Mango's map and validation functions are objects.
    let query = language.is_some_and(|language| language.is_string("query"));
    let function = if query { OBJECT } else { STRING };
    members_of(body, "filters", STRING_OR_OBJECT)?;
    check("language", language, STRING)?;
    members_of(body, "lists", STRING_OR_OBJECT)?;
    let options = body.get("options");
    check("options", options, OBJECT)?;
    for name in ["include_design", "local_seq", "partitioned"] {
        check(&format!("options.{name}"), options.and_then(|options| options.get(name)), BOOLEAN)?;
    }
    check("rewrites", body.get("rewrites"), ARRAY_OR_STRING)?;
    members_of(body, "shows", STRING_OR_OBJECT)?;
    members_of(body, "updates", STRING_OR_OBJECT)?;
    check("validate_doc_update", body.get("validate_doc_update"), function)?;
    members_of(body, "views", OBJECT)?;
    for (member, expected) in [("map", function), ("reduce", STRING)] {
        for (name, view) in body.get("views").into_iter().flat_map(Value::members) {
            let name = name.as_str().unwrap_or_default();
            check(&format!("views.{name}.{member}"), view.get(member), expected)?;
        }
    }
    Ok(())
}

fn members_of(body: Value<'_>, name: &str, expected: Types) -> Result<(), InvalidMember> {
    let value = body.get(name);
    check(name, value, OBJECT)?;
    value.into_iter().flat_map(Value::members).try_for_each(|(member, value)| {
        check(&format!("{name}.{}", member.as_str().unwrap_or_default()), Some(value), expected)
    })
}

fn check(path: &str, value: Option<Value<'_>>, expected: Types) -> Result<(), InvalidMember> {
    match value {
        Some(value) if !expected.0.contains(&value.kind()) => {
            Err(InvalidMember::Type { path: path.to_owned(), expected })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    fn parse(text: &str) -> Result<DesignDocument, InvalidMember> {
        DesignDocument::parse("_design/d", Json::parse(text.as_bytes()).unwrap().value())
    }

    #[test]
    fn members_of_wrong_types_are_refused_with_couchdb_texts() {
        let check = |text: &str, expected: &str| assert_eq!(parse(text).unwrap_err().to_string(), expected, "{text}");
        check(r#"{"language": 1}"#, "`language` field must have string type");
        check(r#"{"filters": "x"}"#, "`filters` field must have object type");
        check(r#"{"filters": {"f": 5}}"#, "`filters.f` field must have string or object type");
        check(r#"{"validate_doc_update": 1}"#, "`validate_doc_update` field must have string type");
        check(r#"{"validate_doc_update": {}}"#, "`validate_doc_update` field must have string type");
        check(
            r#"{"language": "query", "validate_doc_update": "x"}"#,
            "`validate_doc_update` field must have object type",
        );
        check(r#"{"options": 1}"#, "`options` field must have object type");
        check(r#"{"options": {"local_seq": 1}}"#, "`options.local_seq` field must have boolean type");
        check(r#"{"rewrites": 1}"#, "`rewrites` field must have array or string type");
        check(r#"{"views": []}"#, "`views` field must have object type");
        check(r#"{"views": {"v": 5}}"#, "`views.v` field must have object type");
        check(r#"{"views": {"v": {"map": null}}}"#, "`views.v.map` field must have string type");
        check(r#"{"views": {"v": {"map": "", "reduce": 1}}}"#, "`views.v.reduce` field must have string type");
        check(r#"{"language": "query", "views": {"v": {"map": ""}}}"#, "`views.v.map` field must have object type");
        check(r#"{"views": {"lib": {"map": 1}}}"#, "`views.lib.map` field must have string type");
        check(
            r#"{"views": {"v": {"map": "", "reduce": 1}, "w": {"map": 1}}}"#,
            "`views.w.map` field must have string type",
        );
    }

    #[test]
    fn views_need_a_map_function_when_they_are_written() {
        let check = |text: &str, expected: Result<(), &str>| {
            let checked = validate_members(Json::parse(text.as_bytes()).unwrap().value());
            assert_eq!(checked.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{text}");
            assert!(parse(text).is_ok(), "what is stored is read: {text}");
        };
        check(r#"{"views": {"lib": {}, "v": {"map": ""}}}"#, Ok(()));
        check(r#"{"views": {"v": {}}}"#, Err("View `v` must contain map function"));
        check(r#"{"views": {"v": {"reduce": "_sum"}}}"#, Err("View `v` must contain map function"));
    }

    #[test]
    fn views_are_parsed() {
        let ddoc = parse(
            r#"{"_id": "_design/d", "autoupdate": "x", "options": {"local_seq": true, "collation": "raw"}, "views": {
                "lib": {"m": "exports.x = 1"}, "none": {"reduce": "_sum"},
                "a": {"map": "f\n"}, "b": {"map": "g", "reduce": "_sum", "options": {"collation": "raw"}}}}"#,
        )
        .unwrap();
        assert_eq!((&*ddoc.id, &*ddoc.language, ddoc.autoupdate), ("_design/d", "javascript", true));
        assert_eq!(ddoc.library.as_deref(), Some(r#"{"m":"exports.x = 1"}"#));
        assert_eq!(ddoc.options, DesignOptions { include_design: false, local_seq: true });
        let view = |name: &str, map: &str, reduce: Option<&str>, collation| ViewDefinition {
            name: name.into(),
            map: map.into(),
            reduce: reduce.map(Arc::from),
            collation,
        };
        let expected = [view("a", "f\n", None, Collation::Unicode), view("b", "g", Some("_sum"), Collation::Raw)];
        assert_eq!(ddoc.views, expected);
        assert_eq!(ddoc.view("b"), Some(&expected[1]));
        assert_eq!(ddoc.view("lib"), None);
    }

    #[test]
    fn a_design_document_may_be_empty() {
        assert!(parse(r#"{"language": "query", "validate_doc_update": {}}"#).is_ok());
        let ddoc = parse("{}").unwrap();
        assert_eq!((ddoc.views, ddoc.library, ddoc.options), (Vec::new(), None, DesignOptions::default()));
    }
}
