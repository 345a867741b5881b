//! [`TextDefinition`]: the fields of a text index, and their analyzers.

use std::borrow::Cow;
use std::collections::BTreeSet;

use settee_design::SearchKind;
use settee_model::json::{Json, Kind, Value, write_array, write_string};

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
        let parts: [&[u8]; 5] = [
            b"{\"name\":\"perfield\",\"default\":",
            self.default_analyzer.as_bytes(),
            b",\"fields\":{\"$default\":",
            own,
            b"}}",
        ];
        Json::trusted(parts.concat())
    }

    pub(crate) fn member(&self) -> Json {
        let mut out = b"{\"index\":".to_vec();
        self.write_stored(&mut out);
        out.extend_from_slice(b",\"analyzer\":");
        out.extend_from_slice(self.analyzer().as_bytes());
        if self.kind == SearchKind::Nouveau {
            out.extend_from_slice(format!(",\"lucene_version\":{LUCENE_VERSION}").as_bytes());
        }
        out.push(b'}');
        Json::trusted(out)
    }

    fn write_stored(&self, out: &mut Vec<u8>) {
        self.write_head(out, true);
        match &self.fields {
            None => out.extend_from_slice(b"\"all_fields\""),
            Some(fields) => write_fields(fields, out, |name, kind, out| {
                out.extend_from_slice(b"{\"name\":");
                write_string(out, name);
                out.extend_from_slice(b",\"type\":");
                write_string(out, kind);
                out.push(b'}');
            }),
        }
        self.write_tail(out);
    }

    pub(crate) fn write_listed(&self, out: &mut Vec<u8>) {
        self.write_head(out, !is_empty(&self.partial_filter));
        write_fields(self.fields.as_deref().unwrap_or_default(), out, |name, kind, out| {
            out.push(b'{');
            write_string(out, name);
            out.push(b':');
            write_string(out, kind);
            out.push(b'}');
        });
        self.write_tail(out);
    }

    fn write_head(&self, out: &mut Vec<u8>, has_partial: bool) {
        out.push(b'{');
        let mut member = |name: &str, value: &Json| {
            out.extend_from_slice(format!("\"{name}\":").as_bytes());
            out.extend_from_slice(value.as_bytes());
            out.push(b',');
        };
        member("default_analyzer", &self.default_analyzer);
        member("default_field", &self.default_field);
        if has_partial {
            member("partial_filter_selector", &self.partial_filter);
        }
        member("selector", &self.selector);
        out.extend_from_slice(b"\"fields\":");
    }

    fn write_tail(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!(",\"index_array_lengths\":{}}}", self.has_lengths).as_bytes());
    }
}

fn write_fields(fields: &[(String, String)], out: &mut Vec<u8>, one: impl Fn(&str, &str, &mut Vec<u8>)) {
    write_array(out, fields, |out, (name, kind)| one(name, kind, out));
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
