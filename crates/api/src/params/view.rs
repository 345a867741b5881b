//! Parameters of views, `_all_docs` and related resources. Parameters are collected in CouchDB's order, members of a
//! body before the query string, and later values replace earlier ones. [`ViewParams::check`] then detects
//! contradictions, also in CouchDB's order. The query checks the order of the keys, because it depends on the view.

mod check;

use settee_model::json::{Json, Kind, Value};
use settee_model::partition::validate_partition;
use settee_views::{Bounds, Docs, End, Inclusion, Keys, Order, Start, Update, ViewQuery};

pub(crate) use check::Kind as ViewKind;

use super::attachments::Shown;
use super::{Query, Raw};
use crate::Error;

#[derive(Clone, Debug, Default)]
pub(crate) struct ViewParams {
    keys: Option<KeyList>,
    /// The last of `startkey`, `key`, and the single element of `keys`.
    pub(crate) start: Option<Json>,
    pub(crate) end: Option<Json>,
    pub(crate) startkey_docid: Option<String>,
    pub(crate) endkey_docid: Option<String>,
    pub(crate) inclusive_end: Option<bool>,
    pub(crate) descending: bool,
    pub(crate) skip: u64,
    pub(crate) limit: Option<u64>,
    reduce: Option<bool>,
    group: Option<bool>,
    group_level: Option<u64>,
    pub(crate) include_docs: bool,
    conflicts: Option<bool>,
    attachments: bool,
    att_encoding_info: bool,
    pub(crate) update_seq: bool,
    update: Update,
    pub(crate) partition: Option<String>,
    /// True if a list of local documents includes CouchDB's internal ones.
    pub(crate) include_system: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum KeyList {
    List(Vec<Json>),
    NoList,
}

/// The kind of request. A single element of `keys` is equivalent to `key` for a view. For a list of documents
/// it has a row even if no such document exists, and a list function treats it as one of several keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Documents,
    View,
    List,
}

impl ViewParams {
    pub(crate) fn from_query(query: &Query, source: Source) -> Result<Self, Error> {
        if source == Source::Documents {
            require_lists(query)?;
        }
        let keys = query.get("keys").map(|text| Raw::Text(text.to_owned()).json()).transpose()?;
        let mut params = Self::with_keys(keys.as_ref().map(Json::value), source);
        query.raw().try_for_each(|(name, raw)| params.set(name, raw))?;
        Ok(params)
    }

    /// Parameters of the query string take precedence.
    pub(crate) fn from_body(body: Value<'_>, query: &Query, source: Source) -> Result<Self, Error> {
        let mut params = Self::with_keys(keys_of_body(body, source)?, source);
        params.set_members(body)?;
        query.raw().try_for_each(|(name, raw)| params.set(name, raw))?;
        Ok(params)
    }

    /// Of the body only `keys` is a parameter; the other members define the view.
    pub(crate) fn of_temporary(body: Value<'_>, query: &Query) -> Result<Self, Error> {
        let mut params = Self::with_keys(keys_of_body(body, Source::View)?, Source::View);
        if let Some(keys) = body.get("keys") {
            params.set_member("keys", keys)?;
        }
        query.raw().try_for_each(|(name, raw)| params.set(name, raw))?;
        Ok(params)
    }

    /// The query string applies to each query, without its `keys` and its grouping.
    pub(crate) fn of_queries(queries: Value<'_>, query: &Query) -> Result<Vec<Self>, Error> {
        let mut common = Self::default();
        query.raw().try_for_each(|(name, raw)| common.set(name, raw))?;
        common = Self { keys: None, group: None, group_level: None, ..common };
        let of = |query| {
            let mut params = common.clone();
            params.set_members(query)?;
            Ok(params)
        };
        queries.elements().map(of).collect()
    }

    fn with_keys(keys: Option<Value<'_>>, source: Source) -> Self {
        let keys = keys.map(list).filter(|keys| source != Source::View || keys.only().is_none());
        Self { keys, ..Self::default() }
    }

    fn set_members(&mut self, body: Value<'_>) -> Result<(), Error> {
        if body.kind() != Kind::Object {
            return Err(no_object());
        }
        for (name, value) in body.members() {
            self.set_member(&name.as_str().unwrap_or_default(), value)?;
        }
        Ok(())
    }

    fn set_member(&mut self, name: &str, value: Value<'_>) -> Result<(), Error> {
        self.set(name, Raw::Json(Json::trusted(value.raw().to_vec())))
    }

    fn set(&mut self, name: &str, raw: Raw) -> Result<(), Error> {
        match name {
            "key" => self.set_key(raw.json()?),
            "keys" => {
                let keys = list(raw.json()?.value());
                match keys.only() {
                    Some(key) => self.set_key(key.clone()),
                    None => self.keys = Some(keys),
                }
            }
            "startkey" | "start_key" => self.start = Some(raw.json()?),
            "endkey" | "end_key" => self.end = Some(raw.json()?),
            "startkey_docid" | "start_key_doc_id" => self.startkey_docid = Some(raw.converted().into()),
            "endkey_docid" | "end_key_doc_id" => self.endkey_docid = Some(raw.converted().into()),
            "inclusive_end" => self.inclusive_end = Some(raw.boolean()?),
            "descending" => self.descending = raw.boolean()?,
            "skip" => self.skip = raw.natural()?,
            "limit" => self.limit = Some(raw.natural()?),
            "reduce" => self.reduce = Some(raw.boolean()?),
            "group" => self.group = Some(raw.boolean()?),
            "group_level" => self.group_level = Some(raw.natural()?),
            "include_docs" => self.include_docs = raw.boolean()?,
            "conflicts" => self.conflicts = Some(raw.boolean()?),
            // These cannot be reset by later values.
            "attachments" => self.attachments |= raw.boolean()?,
            "att_encoding_info" => self.att_encoding_info |= raw.boolean()?,
            "update_seq" => self.update_seq = raw.boolean()?,
            "sorted" => {
                raw.boolean()?;
            }
            "stable" => stable(&raw)?,
            "stale" => self.update = stale(&raw)?,
            "update" => self.update = update(&raw)?,
            "partition" => {
                let partition = raw.converted();
                validate_partition(&partition)?;
                self.partition = Some(partition.into_owned());
            }
            "include_system" => self.include_system = raw.converted() == "true",
            _ => {}
        }
        Ok(())
    }

    fn set_key(&mut self, key: Json) {
        self.start = Some(key.clone());
        self.end = Some(key);
    }

    pub(crate) fn key_list(&self) -> Option<Vec<Json>> {
        let KeyList::List(keys) = self.keys.as_ref()? else { return None };
        let mut keys = keys.clone();
        if self.descending {
            keys.reverse();
        }
        Some(keys)
    }

    pub(crate) fn shown(&self) -> Shown {
        Shown::switches(self.attachments, self.att_encoding_info)
    }

    pub(crate) fn conflicts(&self) -> bool {
        self.conflicts == Some(true)
    }

    pub(crate) fn inclusion(&self) -> Inclusion {
        if self.inclusive_end == Some(false) { Inclusion::Exclusive } else { Inclusion::Inclusive }
    }

    pub(crate) fn view_query(&self) -> ViewQuery {
        ViewQuery {
            keys: self.view_keys(),
            order: if self.descending { Order::Descending } else { Order::Ascending },
            reduce: self.reduction(),
            skip: self.skip,
            limit: self.limit,
            docs: if self.include_docs { Docs::Include } else { Docs::Without },
            update: self.update,
            partition: self.partition.clone(),
        }
    }

    fn view_keys(&self) -> Keys {
        let (start, end) = (self.startkey_docid.clone(), self.endkey_docid.clone());
        let inclusion = self.inclusion();
        if let Some(KeyList::List(keys)) = &self.keys {
            return Keys::Many(keys.clone(), Bounds { start, end, inclusion });
        }
        // As in CouchDB the rows of a partition start at the key `null`: a document id without a key selects among the
        // rows with this key.
        let null = || self.partition.as_ref().map(|_| Json::trusted(b"null".to_vec()));
        let (first, last) = match self.descending {
            false if start.is_some() => (self.start.clone().or_else(null), self.end.clone()),
            true if end.is_some() => (self.start.clone(), self.end.clone().or_else(null)),
            _ => (self.start.clone(), self.end.clone()),
        };
        Keys::Range {
            start: first.map(|key| Start { key, docid: start }),
            end: last.map(|key| End { key, docid: end, inclusion }),
        }
    }
}

impl KeyList {
    fn only(&self) -> Option<&Json> {
        match self {
            Self::List(keys) if keys.len() == 1 => keys.first(),
            Self::List(_) | Self::NoList => None,
        }
    }
}

fn list(keys: Value<'_>) -> KeyList {
    match keys.kind() {
        Kind::Array => KeyList::List(keys.elements().map(|key| Json::trusted(key.raw().to_vec())).collect()),
        _ => KeyList::NoList,
    }
}

/// Validates `keys` before the other parameters are parsed, as CouchDB does.
fn require_lists(query: &Query) -> Result<(), Error> {
    for (_, text) in query.pairs().filter(|(name, _)| *name == "keys") {
        if !Raw::Text(text.to_owned()).json()?.value().is_array() {
            return Err(Error::bad_request("`keys` parameter must be an array."));
        }
    }
    Ok(())
}

fn keys_of_body(body: Value<'_>, source: Source) -> Result<Option<Value<'_>>, Error> {
    if body.kind() != Kind::Object {
        return Err(no_object());
    }
    let keys = body.get("keys");
    let is_list = keys.is_none_or(|keys| keys.kind() == Kind::Array);
    match source {
        Source::Documents if !is_list => Err(Error::bad_request("`keys` body member must be an array.")),
        Source::View if !is_list => Err(Error::bad_request("`keys` member must be an array.")),
        // For a list function the view refuses these keys.
        Source::Documents | Source::View | Source::List => Ok(keys),
    }
}

fn no_object() -> Error {
    Error::bad_request("Request body must be a JSON object")
}

fn stale(raw: &Raw) -> Result<Update, Error> {
    match raw.word().as_deref() {
        Some("ok") => Ok(Update::False),
        Some("update_after") => Ok(Update::Lazy),
        _ => Err(Error::query_parse("Invalid value for `stale`.")),
    }
}

fn stable(raw: &Raw) -> Result<(), Error> {
    match raw.word().as_deref() {
        Some("true" | "false") => Ok(()),
        _ => Err(Error::query_parse("Invalid value for `stable`.")),
    }
}

fn update(raw: &Raw) -> Result<Update, Error> {
    match raw.word().as_deref() {
        Some("true") => Ok(Update::True),
        Some("false") => Ok(Update::False),
        Some("lazy") => Ok(Update::Lazy),
        _ => Err(Error::query_parse("Invalid value for `update`.")),
    }
}

#[cfg(test)]
mod tests;
