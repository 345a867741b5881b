//! [`TextDefinition`]: the fields of a text index, and their analyzers.

use std::borrow::Cow;
use std::collections::BTreeSet;

use settee_design::SearchKind;
use settee_model::json::{Json, Kind, ObjectWriter, Value, append_object, object, write_array};

use super::clause::{BOOLEAN, NUMBER, STRING};
use super::path::Path;
use crate::error::Refusal;
use crate::options::Members;
use crate::selector::Selector;

/// Member `lucene_version` of new indexes of type `nouveau`, which determines the rules of analyzers.
const LUCENE_VERSION: u8 = 10;

#[derive(Debug)]
pub struct TextDefinition {
    pub(crate) kind: SearchKind,
    default_analyzer: Json,
    default_field: Json,
    partial_filter: Json,
    /// Former name of the filter.
    selector: Json,
    fields: Option<Vec<(String, String)>>,
    pub(crate) has_lengths: bool,
    pub(crate) filter: Option<Selector>,
}

/// CouchDB's name for indexes of a type.
pub(crate) const fn type_name(kind: SearchKind) -> &'static str {
    match kind {
        SearchKind::Nouveau => "nouveau",
        SearchKind::Clouseau => "text",
    }
}

impl TextDefinition {
    pub(crate) fn parse(kind: SearchKind, value: Value<'_>) -> Result<Self, Refusal> {
        if !value.is_object() {
            return Err(Refusal::TextIndexNotAnObject(crate::shown(value)));
        }
        let mut members = Members::new(value);
        let mut taken = |name: &str, default: &str| match members.take(name) {
            Some(value) => Json::trusted(value.raw().to_vec()),
            None => Json::trusted(default.as_bytes().to_vec()),
        };
        let default_analyzer = taken("default_analyzer", "\"keyword\"");
        let default_field = taken("default_field", "{}");
        let (partial, selector) = (taken("partial_filter_selector", "{}"), taken("selector", "{}"));
        if !matches!(default_field.value().kind(), Kind::Bool | Kind::Object) {
            return Err(Refusal::InvalidBoolean(crate::shown(default_field.value())));
        }
        let (partial_filter, selector) = (filter(&partial)?, filter(&selector)?);
        let fields = members.take("fields").map(fields).transpose()?.flatten();
        let has_lengths = match members.take("index_array_lengths") {
            None => true,
            Some(value) => value.as_bool().ok_or_else(|| Refusal::InvalidBoolean(crate::shown(value)))?,
        };
        members.finish()?;
        let (partial_filter, selector) = (partial_filter.to_json(), selector.to_json());
        let effective = if is_empty(&partial_filter) { &selector } else { &partial_filter };
        let filter = (!is_empty(effective)).then(|| Selector::parse_unchecked(effective.value())).transpose()?;
        Ok(Self { kind, default_analyzer, default_field, partial_filter, selector, fields, has_lengths, filter })
    }

    /// True if the strings of documents are also indexed as one text, `$default`.
    pub(crate) fn has_default_field(&self) -> bool {
        let value = self.default_field.value();
        value.as_bool().or_else(|| value.get("enabled").and_then(Value::as_bool)).unwrap_or(true)
    }

    pub(crate) fn is_keyword(&self) -> bool {
        self.default_analyzer.value().is_string("keyword") || !self.has_default_field()
    }

    /// Returns the names of the fields, as [`Path::shown`], with their types; `None` for all fields.
    pub(crate) fn columns(&self) -> Option<BTreeSet<(String, &str)>> {
        let fields = self.fields.as_ref()?;
        let mut columns: BTreeSet<(String, &str)> = BTreeSet::new();
        if self.has_default_field() {
            columns.insert(("$default".to_owned(), ""));
        }
        for (name, kind) in fields {
            if let Ok(path) = Path::parse(name) {
                columns.insert((path.shown(), kind));
            }
        }
        Some(columns)
    }

    pub(crate) fn field_names(&self) -> Option<BTreeSet<String>> {
        let fields = self.fields.as_ref()?.iter();
        Some(fields.filter_map(|(name, kind)| Some(Path::parse(name).ok()?.field(kind))).collect())
    }

    /// In the format of design documents: one analyzer for `$default`, one for all other strings.
    fn analyzer(&self) -> Json {
        if !self.has_default_field() {
            return Json::trusted(b"\"keyword\"".to_vec());
        }
        let given = self.default_field.value().get("analyzer");
        let own = given.map_or(b"\"standard\"".as_slice(), Value::raw);
        Json::trusted(object(|object| {
            object.string("name", "perfield").json("default", self.default_analyzer.as_bytes());
            object.object("fields", |fields| {
                fields.json("$default", own);
            });
        }))
    }

    pub(crate) fn member(&self) -> Json {
        Json::trusted(object(|object| {
            object.object("index", |index| self.write_stored(index)).json("analyzer", self.analyzer().as_bytes());
            if self.kind == SearchKind::Nouveau {
                object.value("lucene_version", LUCENE_VERSION);
            }
        }))
    }

    fn write_stored(&self, object: &mut ObjectWriter<'_>) {
        self.write_head(object, true);
        match &self.fields {
            None => {
                object.string("fields", "all_fields");
            }
            Some(fields) => write_array(object.name("fields"), fields, |out, (name, kind)| {
                append_object(out, |field| {
                    field.string("name", name).string("type", kind);
                });
            }),
        }
        object.value("index_array_lengths", self.has_lengths);
    }

    pub(crate) fn write_listed(&self, out: &mut Vec<u8>) {
        append_object(out, |object| {
            self.write_head(object, !is_empty(&self.partial_filter));
            write_array(object.name("fields"), self.fields.iter().flatten(), |out, (name, kind)| {
                append_object(out, |field| {
                    field.string(name, kind);
                });
            });
            object.value("index_array_lengths", self.has_lengths);
        });
    }

    fn write_head(&self, object: &mut ObjectWriter<'_>, has_partial: bool) {
        object.json("default_analyzer", self.default_analyzer.as_bytes());
        object.json("default_field", self.default_field.as_bytes());
        if has_partial {
            object.json("partial_filter_selector", self.partial_filter.as_bytes());
        }
        object.json("selector", self.selector.as_bytes());
    }
}

fn is_empty(selector: &Json) -> bool {
    selector.as_bytes() == b"{}"
}

fn filter(text: &Json) -> Result<Selector, Refusal> {
    let filter = Selector::parse_unchecked(text.value())?;
    if filter.node().has_text() { Err(Refusal::NoTextIndex) } else { Ok(filter) }
}

/// An empty list, or CouchDB's word `all_fields`, means all fields.
fn fields(value: Value<'_>) -> Result<Option<Vec<(String, String)>>, Refusal> {
    let invalid = || Refusal::InvalidTextFields(crate::shown(value));
    if value.is_string("all_fields") {
        return Ok(None);
    }
    if !value.is_array() {
        return Err(invalid());
    }
    let one = |field: Value<'_>| {
        let name = field.get("name")?.as_str().filter(|name| !name.is_empty()).map(Cow::into_owned)?;
        let kind = field.get("type")?.as_str().map(Cow::into_owned)?;
        // `text` is an additional type of CouchDB's `nouveau`, equivalent to a string.
        let is_known = [STRING, NUMBER, BOOLEAN, "text"].contains(&kind.as_str());
        (is_known && field.members().count() == 2).then_some((name, kind))
    };
    let fields: Vec<(String, String)> = value.elements().map(one).collect::<Option<_>>().ok_or_else(invalid)?;
    Ok((!fields.is_empty()).then_some(fields))
}
