//! Parameters of views and of `_all_docs` and its kin, which are views to clients.

use settee_model::json::{Json, Kind, Value};
use settee_views::{Docs, End, Inclusion, Keys, Order, Reduce, Start, Update, ViewQuery};

use super::attachments::Shown;
use super::{Query, Raw};
use crate::Error;

/// All parameters as far as they were given.
#[derive(Clone, Debug, Default)]
pub(crate) struct ViewParams {
    pub(crate) key: Option<Json>,
    pub(crate) keys: Option<Vec<Json>>,
    pub(crate) startkey: Option<Json>,
    pub(crate) endkey: Option<Json>,
    pub(crate) startkey_docid: Option<String>,
    pub(crate) endkey_docid: Option<String>,
    pub(crate) inclusive_end: Option<bool>,
    pub(crate) descending: bool,
    pub(crate) skip: u64,
    pub(crate) limit: Option<u64>,
    pub(crate) reduce: Option<bool>,
    pub(crate) group: Option<bool>,
    pub(crate) group_level: Option<u64>,
    pub(crate) include_docs: bool,
    pub(crate) conflicts: bool,
    pub(crate) attachments: bool,
    pub(crate) att_encoding_info: bool,
    pub(crate) update_seq: bool,
    pub(crate) sorted: Option<bool>,
    pub(crate) update: Update,
    pub(crate) partition: Option<String>,
}

/// Where the member `keys` of a body stands: its errors differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// `_all_docs` and its kin.
    Documents,
    /// A view.
    View,
}

impl ViewParams {
    /// Parameters of a GET.
    pub(crate) fn from_query(query: &Query) -> Result<Self, Error> {
        let mut params = Self::default();
        query.raw().try_for_each(|(name, raw)| params.set(name, raw))?;
        Ok(params)
    }

    /// Parameters of a POST: those of the query string win.
    pub(crate) fn from_body(body: Value<'_>, query: &Query, source: Source) -> Result<Self, Error> {
        let mut params = Self::default();
        params.set_members(body, source)?;
        query.raw().try_for_each(|(name, raw)| params.set(name, raw))?;
        Ok(params)
    }

    /// Parameters of a temporary view: of its body only `keys`, the other members say what it is.
    pub(crate) fn of_temporary(body: Value<'_>, query: &Query) -> Result<Self, Error> {
        let mut params = Self::default();
        if let Some(keys) = body.get("keys") {
            params.set_member("keys", keys, Source::View)?;
        }
        query.raw().try_for_each(|(name, raw)| params.set(name, raw))?;
        Ok(params)
    }

    /// Adds the members of a body.
    pub(crate) fn set_members(&mut self, body: Value<'_>, source: Source) -> Result<(), Error> {
        if body.kind() != Kind::Object {
            return Err(Error::bad_request("Request body must be a JSON object"));
        }
        for (name, value) in body.members() {
            self.set_member(&name.as_str().unwrap_or_default(), value, source)?;
        }
        Ok(())
    }

    fn set_member(&mut self, name: &str, value: Value<'_>, source: Source) -> Result<(), Error> {
        if name == "keys" && value.kind() != Kind::Array {
            return Err(Error::bad_request(match source {
                Source::Documents => "`keys` body member must be an array.",
                Source::View => "`keys` member must be an array.",
            }));
        }
        self.set(name, Raw::Json(Json::trusted(value.raw().to_vec())))
    }

    fn set(&mut self, name: &str, raw: Raw) -> Result<(), Error> {
        match name {
            "key" => self.key = Some(raw.json()?),
            "keys" => self.keys = Some(list(&raw.json()?)?),
            "startkey" | "start_key" => self.startkey = Some(raw.json()?),
            "endkey" | "end_key" => self.endkey = Some(raw.json()?),
            "startkey_docid" | "start_key_doc_id" => self.startkey_docid = raw.word().map(Into::into),
            "endkey_docid" | "end_key_doc_id" => self.endkey_docid = raw.word().map(Into::into),
            "inclusive_end" => self.inclusive_end = Some(raw.boolean()?),
            "descending" => self.descending = raw.boolean()?,
            "skip" => self.skip = raw.natural()?,
            "limit" => self.limit = Some(raw.natural()?),
            "reduce" => self.reduce = Some(raw.boolean()?),
            "group" => self.group = Some(raw.boolean()?),
            "group_level" => self.group_level = Some(raw.natural()?),
            "include_docs" => self.include_docs = raw.boolean()?,
            "conflicts" => self.conflicts = raw.boolean()?,
            "attachments" => self.attachments = raw.boolean()?,
            "att_encoding_info" => self.att_encoding_info = raw.boolean()?,
            "update_seq" => self.update_seq = raw.boolean()?,
            "sorted" => self.sorted = Some(raw.boolean()?),
            "stable" => {
                raw.boolean()?;
            }
            "stale" => self.update = stale(&raw)?,
            "update" => self.update = update(&raw)?,
            "partition" => self.partition = raw.word().map(Into::into),
            _ => {}
        }
        Ok(())
    }

    /// How documents beside rows show their attachments.
    pub(crate) fn shown(&self) -> Shown {
        Shown::switches(self.attachments, self.att_encoding_info)
    }

    /// The query of a view.
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
        if let Some(keys) = &self.keys {
            return Keys::Many(keys.clone());
        }
        let start = self.key.as_ref().or(self.startkey.as_ref());
        let end = self.key.as_ref().or(self.endkey.as_ref());
        let inclusion = if self.inclusive_end == Some(false) { Inclusion::Exclusive } else { Inclusion::Inclusive };
        Keys::Range {
            start: start.map(|key| Start { key: key.clone(), docid: self.startkey_docid.clone() }),
            end: end.map(|key| End { key: key.clone(), docid: self.endkey_docid.clone(), inclusion }),
        }
    }

    fn reduction(&self) -> Reduce {
        let grouping = match (self.group, self.group_level) {
            (Some(true), None) => Some(Reduce::Exact),
            (_, Some(level)) if level > 0 => Some(Reduce::Level(u32::try_from(level).unwrap_or(u32::MAX))),
            _ => None,
        };
        match (self.reduce, grouping) {
            (Some(false), _) => Reduce::Off,
            (_, Some(grouping)) => grouping,
            (Some(true), None) => Reduce::Whole,
            (None, None) => Reduce::Default,
        }
    }

    /// Whether rows of a map function were asked for together with grouping.
    pub(crate) fn groups_map_rows(&self) -> bool {
        self.reduce == Some(false) && (self.group == Some(true) || self.group_level.is_some_and(|level| level > 0))
    }
}

fn list(json: &Json) -> Result<Vec<Json>, Error> {
    if json.value().kind() != Kind::Array {
        return Err(Error::bad_request("`keys` parameter must be an array."));
    }
    Ok(json.value().elements().map(|key| Json::trusted(key.raw().to_vec())).collect())
}

fn stale(raw: &Raw) -> Result<Update, Error> {
    match raw.word().as_deref() {
        Some("ok") => Ok(Update::False),
        Some("update_after") => Ok(Update::Lazy),
        _ => Err(Error::query_parse("Invalid value for `stale`.")),
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
