//! Creation and deletion of indexes in design documents.

use std::borrow::Cow;
use std::sync::Arc;

use settee_database::{Database, DocUpdate, EditMode, Layout, Origin, UpdateOutcome, Waiting, Work};
use settee_design::SearchKind;
use settee_model::json::{Json, Kind, Value, object, write_array, write_string};
use settee_model::{Document, Rev, RevisionHasher};

use super::name::{self, Option as NameOption};
use super::{Definition, Indexes, LANGUAGE, TextSearch};
use crate::error::{MangoError, Refusal, Result};
use crate::options::{Members, positive};
use crate::planner::usable::Source;
use crate::text::definition::{TextDefinition, type_name};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    pub id: String,
    pub name: String,
    pub existed: bool,
}

#[derive(Debug)]
pub struct NewIndex {
    location: &'static str,
    member: Json,
    id: String,
    name: String,
    partitioned: Option<bool>,
}

impl NewIndex {
    /// Parses the body of `POST _index`, which must be an object.
    pub fn parse(body: Value<'_>, search: TextSearch) -> Result<Self> {
        let mut members = Members::new(body);
        let given = members.take("index").ok_or(Refusal::MissingKey("index"))?;
        let kind = members.take("type").map(string).transpose()?.unwrap_or_else(|| "json".to_owned());
        let name = members.take("name").map(named).transpose()?;
        let design = members.take("ddoc").map(named).transpose()?;
        let quorum = members.take("w").map(positive).transpose()?.unwrap_or(2);
        let partitioned = members.take("partitioned").map(boolean).transpose()?;
        members.finish()?;
        let text = SearchKind::ALL.into_iter().find(|text| type_name(*text) == kind);
        let (location, member) = match text {
            None if kind == "json" => (VIEWS, view(&Definition::parse(given)?, given)),
            None => return Err(Refusal::InvalidIndexType(kind).into()),
            Some(text) if !search.has(text) => return Err(MangoError::ServiceUnavailable(kind)),
            Some(text) => (text.member(), TextDefinition::parse(text, given)?.member()),
        };
        if let Some(design) = design.as_ref().filter(|design| *design == "_design/") {
            return Err(Refusal::IllegalDesign(design.clone()).into());
        }
        let parts =
            NameParts { given, kind: &kind, design: design.as_deref(), name: name.as_deref(), partitioned, quorum };
        let generated = || parts.generate();
        let id = design_id(&design.clone().unwrap_or_else(generated));
        let name = name.clone().unwrap_or_else(generated);
        Ok(Self { location, member, id, name, partitioned })
    }
}

const VIEWS: &str = "views";

fn view(definition: &Definition, given: Value<'_>) -> Json {
    Json::trusted(object(|object| {
        definition.write_map(object.name("map"));
        object.string("reduce", "_count").object("options", |options| {
            options.json("def", given.raw());
        });
    }))
}

struct NameParts<'a> {
    given: Value<'a>,
    kind: &'a str,
    design: Option<&'a str>,
    name: Option<&'a str>,
    partitioned: Option<bool>,
    quorum: u64,
}

impl NameParts<'_> {
    fn generate(&self) -> String {
        let partitioned = match self.partitioned {
            Some(true) => NameOption::Default("true"),
            Some(false) => NameOption::Default("false"),
            None => NameOption::Default("db_default"),
        };
        name::generated(
            self.given,
            &[
                ("ddoc", self.design.map_or(NameOption::Default("auto_name"), NameOption::Text)),
                ("def", NameOption::Given(self.given)),
                ("name", self.name.map_or(NameOption::Default("auto_name"), NameOption::Text)),
                ("partitioned", partitioned),
                ("type", NameOption::Text(self.kind)),
                ("w", NameOption::Number(self.quorum)),
            ],
        )
    }
}

fn design_id(name: &str) -> String {
    if name.starts_with("_design/") { name.to_owned() } else { format!("_design/{name}") }
}

fn string(value: Value<'_>) -> Result<String, Refusal> {
    value.as_str().map(Cow::into_owned).ok_or_else(|| Refusal::InvalidString(crate::shown(value)))
}

fn named(value: Value<'_>) -> Result<String, Refusal> {
    let text = string(value)?;
    if text.is_empty() { Err(Refusal::EmptyName) } else { Ok(text) }
}

fn boolean(value: Value<'_>) -> Result<bool, Refusal> {
    value.as_bool().ok_or_else(|| Refusal::InvalidBoolean(crate::shown(value)))
}

/// Creates an index, unless it exists. A design document of another language is an error.
pub fn create(database: &Arc<Database>, index: &NewIndex) -> Result<Created> {
    if index.partitioned == Some(true) && database.layout() == Layout::Whole {
        return Err(Refusal::PartitionedIndex.into());
    }
    let (rev, old) = load(database, &index.id)?;
    let mut new = with_index(old.value(), index.location, &index.name, &index.member);
    let old_option = old.value().get("options").and_then(|options| options.get("partitioned")).and_then(Value::as_bool);
    if index.partitioned != old_option {
        match (rev.is_some(), index.partitioned) {
            (true, _) => return Err(Refusal::PartitionedMismatch(index.id.clone()).into()),
            (false, Some(partitioned)) => {
                let options = Json::trusted(format!("{{\"partitioned\":{partitioned}}}").into_bytes());
                new = with_member(new.value(), "options", &options);
            }
            (false, None) => {}
        }
    }
    let existed = new.as_bytes() == old.as_bytes();
    if !existed {
        save(database, &index.id, rev, new, false)?;
    }
    Ok(Created { id: index.id.clone(), name: index.name.clone(), existed })
}

/// Deletes an index, and its design document with the last one. The prefix `_design/` of `design` is optional.
pub fn delete(database: &Arc<Database>, search: TextSearch, design: &str, kind: &str, name: &str) -> Result<()> {
    let id = design_id(design);
    let indexes = super::all(database, Waiting::Allowed)?;
    let locations = locations(&indexes, search);
    let wanted = |(location, found): &(&'static str, (&str, &str))| {
        let is_kind = match SearchKind::ALL.into_iter().find(|text| text.member() == *location) {
            Some(text) => type_name(text) == kind,
            None => kind == "json",
        };
        is_kind && *found == (id.as_str(), name)
    };
    match locations.into_iter().find(wanted) {
        Some((location, _)) => remove(database, &id, &[(location, name)]),
        None => Err(MangoError::NoSuchIndex),
    }
}

fn locations(indexes: &Indexes, search: TextSearch) -> Vec<(&'static str, (&str, &str))> {
    let json = indexes.json.iter().map(|index| (VIEWS, (index.design_id(), index.name())));
    let text = indexes.text(search);
    let text = text.map(|index| (index.definition.kind.member(), (index.design_id(), index.name())));
    json.chain(text).collect()
}

/// Parses the body of `_index/_bulk_delete`: ids of design documents, whose prefix is optional.
pub fn parse_bulk_delete(body: Value<'_>) -> Result<Vec<String>> {
    let mut members = Members::new(body);
    let ids = members.take("docids").ok_or(Refusal::MissingKey("docids"))?;
    members.take("w").map(positive).transpose()?;
    members.finish()?;
    if ids.kind() != Kind::Array {
        return Err(Refusal::InvalidBulkDocs(crate::shown(ids)).into());
    }
    let id =
        |id: Value<'_>| id.as_str().map(|id| design_id(&id)).ok_or_else(|| Refusal::InvalidIndexName(crate::shown(id)));
    Ok(ids.elements().map(id).collect::<Result<_, _>>()?)
}

/// Deletes all indexes of a design document; it is an error if it has none.
pub fn delete_all_of(database: &Arc<Database>, search: TextSearch, id: &str) -> Result<()> {
    let indexes = super::all(database, Waiting::Allowed)?;
    let locations = locations(&indexes, search).into_iter();
    let own: Vec<_> =
        locations.filter(|(_, (design, _))| *design == id).map(|(location, (_, name))| (location, name)).collect();
    if own.is_empty() {
        return Err(MangoError::NoSuchIndex);
    }
    remove(database, id, &own)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub skip: usize,
    pub limit: Option<usize>,
}

pub fn write_list(database: &Arc<Database>, search: TextSearch, page: Page, out: &mut Vec<u8>) -> Result<()> {
    let indexes = super::all(database, Waiting::Allowed)?;
    let mut all: Vec<Source<'_>> = indexes.json.iter().map(Source::Json).collect();
    all.extend(indexes.text(search).map(Source::Text));
    all.sort_by(|a, b| a.place().0.cmp(b.place().0));
    all.insert(0, Source::Primary);
    out.extend_from_slice(format!("{{\"total_rows\":{},\"indexes\":", all.len()).as_bytes());
    write_array(out, all.into_iter().skip(page.skip).take(page.limit.unwrap_or(usize::MAX)), |out, source| {
        source.write(out);
    });
    out.push(b'}');
    Ok(())
}

fn load(database: &Arc<Database>, id: &str) -> Result<(Option<Rev>, Json)> {
    let view = database.read()?;
    let new = || Ok((None, Json::trusted(format!("{{\"language\":\"{LANGUAGE}\"}}").into_bytes())));
    let Some(head) = view.head(id)?.filter(|head| !head.stored.deleted) else {
        return new();
    };
    let mut body = Vec::new();
    if !view.read_body(head.stored, &mut body)? {
        return new();
    }
    let body = Json::trusted(body);
    match body.value().get("language") {
        Some(language) if language.is_string(LANGUAGE) => {}
        Some(language) => return Err(Refusal::InvalidDesignLanguage(crate::shown(language)).into()),
        None => return Err(Refusal::InvalidDesignLanguage("false".to_owned()).into()),
    }
    Ok((Some(head.rev), body))
}

fn remove(database: &Arc<Database>, id: &str, indexes: &[(&str, &str)]) -> Result<()> {
    let (rev, mut body) = load(database, id)?;
    for &(location, name) in indexes {
        let kept = without(body.value().get(location).unwrap_or(Value::NULL), &[name]);
        body = if kept.as_bytes() == b"{}" {
            without(body.value(), &[location])
        } else {
            with_member(body.value(), location, &kept)
        };
    }
    if body.value().members().all(|(name, _)| name.is_string("language")) {
        save(database, id, rev, Json::empty_object(), true)
    } else {
        save(database, id, rev, body, false)
    }
}

fn save(database: &Arc<Database>, id: &str, rev: Option<Rev>, body: Json, deleted: bool) -> Result<()> {
    let document = Document { id: None, rev, deleted, body, attachments: None, revisions: None };
    let mode = EditMode::Interactive;
    let update = DocUpdate::prepare(id.to_owned(), document, mode, &mut RevisionHasher::default());
    let outcomes = database.update_for(Origin::Client, Work::Documents(update.into_iter().collect()))?;
    match outcomes.first() {
        Some(UpdateOutcome::Saved(_)) => Ok(()),
        _ => Err(MangoError::DesignConflict),
    }
}

fn with_index(body: Value<'_>, location: &str, name: &str, member: &Json) -> Json {
    let indexes = body.get(location).filter(|indexes| indexes.is_object());
    let indexes = with_member(indexes.unwrap_or(Value::trusted(b"{}")), name, member);
    with_member(body, location, &indexes)
}

fn with_member(object: Value<'_>, name: &str, value: &Json) -> Json {
    let mut out = b"{".to_vec();
    let mut write = |key: &[u8], value: &[u8]| {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(key);
        out.push(b':');
        out.extend_from_slice(value);
    };
    let mut replaced = false;
    for (key, old) in object.members() {
        let same = key.is_string(name);
        replaced |= same;
        write(key.raw(), if same { value.as_bytes() } else { old.raw() });
    }
    if !replaced {
        let mut key = Vec::new();
        write_string(&mut key, name);
        write(&key, value.as_bytes());
    }
    out.push(b'}');
    Json::trusted(out)
}

fn without(object: Value<'_>, names: &[&str]) -> Json {
    let mut out = b"{".to_vec();
    for (key, value) in object.members().filter(|(key, _)| !names.iter().any(|name| key.is_string(name))) {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(key.raw());
        out.push(b':');
        out.extend_from_slice(value.raw());
    }
    out.push(b'}');
    Json::trusted(out)
}

#[must_use]
pub fn page(limit: Option<&str>, skip: Option<&str>) -> Option<Page> {
    let limit = match limit.map(number) {
        Some(None | Some(0)) => return None,
        Some(limit) => limit,
        None => None,
    };
    Some(Page { skip: skip.map_or(Some(0), number)?, limit })
}

/// Parses a number in Erlang's syntax. A number that exceeds the machine word is larger than any list.
fn number(text: &str) -> Option<usize> {
    let (digits, is_negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text.strip_prefix('+').unwrap_or(text), false),
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse().unwrap_or(usize::MAX);
    (number == 0 || !is_negative).then_some(number)
}
