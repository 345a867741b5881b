//! [`FindOptions`]: the parsed body of `_find` and `_explain`.

use settee_database::Layout;
use settee_model::json::{Kind, Value, append_object};
use settee_model::partition::{IllegalPartition, validate_partition};

use crate::bookmark::Bookmark;
use crate::error::Refusal;
use crate::projection::Projection;
use crate::selector::Selector;
use crate::sort::{Order, Sort};

pub const DEFAULT_LIMIT: u64 = 25;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UseIndex {
    pub(crate) design: String,
    pub(crate) name: Option<String>,
    /// In the form of `_explain`: CouchDB omits `_design/` from a text, but not from a list.
    pub(crate) display_text: String,
}

#[derive(Debug)]
pub struct FindOptions {
    pub(crate) selector: Selector,
    pub(crate) use_index: Option<UseIndex>,
    pub(crate) bookmark: Option<Bookmark>,
    /// Returned to the client if no document matches.
    pub(crate) bookmark_text: Option<String>,
    pub(crate) limit: u64,
    pub(crate) skip: u64,
    pub(crate) sort: Sort,
    pub(crate) fields: Projection,
    pub(crate) partition: Option<String>,
    pub(crate) quorum: u64,
    pub(crate) conflicts: bool,
    pub(crate) stale: bool,
    pub(crate) update: bool,
    pub(crate) stable: bool,
    pub execution_stats: bool,
    pub(crate) allow_fallback: bool,
}

impl FindOptions {
    /// The body must be an object. Errors have CouchDB's names and texts.
    pub fn parse(body: Value<'_>) -> Result<Self, Refusal> {
        let mut members = Members::new(body);
        let selector = members.take("selector").ok_or(Refusal::MissingKey("selector"))?;
        let selector = Selector::parse_unchecked(selector)?;
        let use_index = members.take("use_index").map(use_index).transpose()?.flatten();
        let bookmark_text = members.take("bookmark").map(bookmark_text).transpose()?.flatten();
        let limit = members.take("limit").map(non_negative).transpose()?.unwrap_or(DEFAULT_LIMIT);
        let skip = members.take("skip").map(non_negative).transpose()?.unwrap_or(0);
        let sort = members.take("sort").map(Sort::parse).transpose()?.unwrap_or_default();
        let fields = members.take("fields").map(Projection::parse).transpose()?.unwrap_or_default();
        let partition = members.take("partition").map(partition).transpose()?.flatten();
        let quorum = members.take("r").map(positive).transpose()?.unwrap_or(1);
        let conflicts = members.boolean("conflicts", false)?;
        let stale = members.take("stale").map(stale).transpose()?.unwrap_or(false);
        let update = members.boolean("update", true)?;
        let stable = members.boolean("stable", false)?;
        let execution_stats = members.boolean("execution_stats", false)?;
        let allow_fallback = members.boolean("allow_fallback", true)?;
        members.finish()?;
        // An invalid bookmark is an error of the execution that uses it, not of the query.
        let bookmark = bookmark_text.as_deref().and_then(|text| Bookmark::parse(text).ok());
        Ok(Self {
            selector,
            use_index,
            bookmark,
            bookmark_text,
            limit,
            skip,
            sort,
            fields,
            partition,
            quorum,
            conflicts,
            stale,
            update,
            stable,
            execution_stats,
            allow_fallback,
        })
    }

    /// Restricts the query to the partition in the path of the request. Another partition in the body is an error.
    pub fn within(mut self, partition: String) -> Result<Self, Refusal> {
        match &self.partition {
            Some(other) if *other != partition => Err(Refusal::BadPartition(other.clone())),
            Some(_) | None => {
                self.partition = named_partition(partition)?;
                Ok(self)
            }
        }
    }

    /// Rejects names of fields that are not paths. The caller must call this before execution; `_explain` accepts them.
    pub(crate) fn check_names(&self) -> Result<(), Refusal> {
        self.selector.check_names()?;
        self.fields.check_names()
    }

    pub(crate) fn check_layout(&self, layout: Layout) -> Result<(), Refusal> {
        match (&self.partition, layout) {
            (Some(_), Layout::Whole) => Err(Refusal::NotPartitioned),
            (Some(_), Layout::Partitioned) | (None, _) => Ok(()),
        }
    }

    pub(crate) fn no_sort_index(&self, layout: Layout) -> Refusal {
        match (layout, &self.partition) {
            (Layout::Whole, _) => Refusal::NoSortIndex,
            (Layout::Partitioned, Some(_)) => Refusal::NoPartitionedSortIndex,
            (Layout::Partitioned, None) => Refusal::NoGlobalSortIndex,
        }
    }

    pub(crate) fn updates(&self) -> bool {
        self.update && !self.stale
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let design = self.use_index.iter().map(|index| Some(&index.display_text));
        let use_index = design.chain(self.use_index.iter().map(|index| index.name.as_ref())).flatten();
        let direction = match self.sort.order {
            Order::Ascending => "asc",
            Order::Descending => "desc",
        };
        append_object(out, |object| {
            object.strings("use_index", use_index).string("bookmark", self.bookmark_text.as_deref().unwrap_or("nil"));
            object.value("limit", self.limit).value("skip", self.skip).object("sort", |sort| {
                self.sort.fields.iter().for_each(|field| {
                    sort.string(field, direction);
                });
            });
            object.json("fields", self.fields.to_json().as_bytes());
            object.string("partition", self.partition.as_deref().unwrap_or_default());
            object.value("r", self.quorum).value("conflicts", self.conflicts);
            object.json("stale", if self.stale { b"\"ok\"" } else { b"false" });
            object.value("update", self.update).value("stable", self.stable);
            object.value("execution_stats", self.execution_stats).value("allow_fallback", self.allow_fallback);
        });
    }
}

pub(crate) struct Members<'a> {
    members: Vec<(String, Value<'a>)>,
}

impl<'a> Members<'a> {
    pub(crate) fn new(body: Value<'a>) -> Self {
        let members = body.members().filter_map(|(name, value)| Some((name.as_str()?.into_owned(), value)));
        Self { members: members.collect() }
    }

    pub(crate) fn take(&mut self, name: &str) -> Option<Value<'a>> {
        let index = self.members.iter().position(|(member, _)| member == name)?;
        Some(self.members.remove(index).1)
    }

    fn boolean(&mut self, name: &str, default: bool) -> Result<bool, Refusal> {
        match self.take(name) {
            None => Ok(default),
            Some(value) => value.as_bool().ok_or_else(|| Refusal::InvalidBoolean(crate::shown(value))),
        }
    }

    pub(crate) fn finish(self) -> Result<(), Refusal> {
        match self.members.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(Refusal::InvalidKey(name)),
        }
    }
}

pub(crate) fn positive(value: Value<'_>) -> Result<u64, Refusal> {
    value.as_u64().filter(|number| *number > 0).ok_or_else(|| Refusal::NotPositive(crate::shown(value)))
}

pub(crate) fn non_negative(value: Value<'_>) -> Result<u64, Refusal> {
    value.as_u64().ok_or_else(|| Refusal::Negative(crate::shown(value)))
}

fn stale(value: Value<'_>) -> Result<bool, Refusal> {
    match value.as_str().as_deref() {
        Some("ok") => Ok(true),
        Some("false") => Ok(false),
        _ if value.as_bool() == Some(false) => Ok(false),
        _ => Err(Refusal::InvalidStale(crate::shown(value))),
    }
}

fn partition(value: Value<'_>) -> Result<Option<String>, Refusal> {
    match value.as_str() {
        Some(text) => named_partition(text.into_owned()),
        None => Err(IllegalPartition::NoText.into()),
    }
}

fn named_partition(name: String) -> Result<Option<String>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    validate_partition(&name)?;
    Ok(Some(name))
}

fn bookmark_text(value: Value<'_>) -> Result<Option<String>, Refusal> {
    match value.as_str() {
        Some(text) if text.is_empty() => Ok(None),
        Some(text) => Ok(Some(text.into_owned())),
        None if value.is_null() => Ok(None),
        None => Err(Refusal::InvalidBookmark(crate::shown(value))),
    }
}

/// Parses a design document and an optional name: a text with a slash, or a list.
fn use_index(value: Value<'_>) -> Result<Option<UseIndex>, Refusal> {
    let invalid = || Refusal::InvalidIndexName(crate::shown(value));
    let named = |display_text: &str, name: Option<&str>| {
        let design = if display_text.starts_with("_design/") {
            display_text.to_owned()
        } else {
            format!("_design/{display_text}")
        };
        Ok(Some(UseIndex { design, name: name.map(str::to_owned), display_text: display_text.to_owned() }))
    };
    match value.kind() {
        Kind::Null => Ok(None),
        Kind::String => {
            let text = value.as_str().unwrap_or_default();
            match text.strip_prefix("_design/").unwrap_or(&text).split('/').collect::<Vec<_>>()[..] {
                [design] => named(design, None),
                [design, name] => named(design, Some(name)),
                _ => Err(invalid()),
            }
        }
        Kind::Array => {
            let parts: Option<Vec<_>> = value.elements().map(Value::as_str).collect();
            match parts.ok_or_else(invalid)?.as_slice() {
                [] => Ok(None),
                [design] => named(design, None),
                [design, name] => named(design, Some(name)),
                _ => Err(invalid()),
            }
        }
        Kind::Bool | Kind::Number | Kind::Object => Err(invalid()),
    }
}
