//! Request parameters: collected unparsed ([`Query`]), then resolved once into a type without contradictory states.

pub(crate) mod attachments;
pub(crate) mod changes;
mod converted;
pub(crate) mod document;
pub(crate) mod filter;
pub(crate) mod search;
pub(crate) mod view;

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use settee_model::json::{self, Json, Kind, Value};

use crate::Error;

#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Raw {
    Text(String),
    Json(Json),
}

impl Query {
    /// Semicolons separate parameters like ampersands, as in CouchDB.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Error> {
        let pairs = text.unwrap_or_default().split(['&', ';']).filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name, Plus::Space)?.into_owned(), decode(value, Plus::Space)?.into_owned()))
        });
        let pairs: Option<Vec<_>> = pairs.collect();
        Ok(Self { pairs: pairs.ok_or_else(|| Error::bad_request("The query string is not valid UTF-8."))? })
    }

    /// Sorts the parameters by name and keeps the first of several values, as CouchDB does.
    pub(crate) fn set_partition(&mut self, partition: &str) -> Result<(), Error> {
        if self.get("partition").is_some_and(|named| named != partition) {
            return Err(Error::bad_request("Conflicting value for `partition` in query string"));
        }
        self.pairs.insert(0, ("partition".to_owned(), partition.to_owned()));
        self.pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.pairs.dedup_by(|(later, _), (first, _)| later == first);
        Ok(())
    }

    /// Returns the first value. Where CouchDB iterates over the parameters instead, the last one applies ([`Self::pairs`]).
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.pairs().any(|pair| pair == (name, "true"))
    }

    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(crate) fn raw(&self) -> impl Iterator<Item = (&str, Raw)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), Raw::Text(value.clone())))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plus {
    /// A space: always in query strings and forms, and in paths unless `[chttpd] decode_plus_to_space` is off.
    Space,
    Plus,
}

/// A percent sign that starts no escape is kept. Returns `None` if the bytes are not UTF-8.
pub(crate) fn decode(text: &str, plus: Plus) -> Option<Cow<'_, str>> {
    if plus == Plus::Space && text.contains('+') {
        let spaced = text.replace('+', " ");
        return Some(Cow::Owned(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned()));
    }
    percent_decode_str(text).decode_utf8().ok()
}

impl Raw {
    pub(crate) fn of(value: Value<'_>) -> Self {
        Self::Json(Json::trusted(value.raw().to_vec()))
    }

    pub(crate) fn json(self) -> Result<Json, Error> {
        match self {
            Self::Text(text) => Ok(Json::parse(text.as_bytes())?),
            Self::Json(json) => Ok(json),
        }
    }

    pub(crate) fn boolean(&self) -> Result<bool, Error> {
        match self.word().as_deref() {
            Some(word) if word.eq_ignore_ascii_case("true") => Ok(true),
            Some(word) if word.eq_ignore_ascii_case("false") => Ok(false),
            // CouchDB converts the text first, also that of a body, and shows an empty list.
            Some("") => Err(Error::query_parse("Invalid boolean parameter: []")),
            _ => Err(Error::query_parse(format!("Invalid boolean parameter: {}", self.shown()))),
        }
    }

    /// A value that exceeds 64 bits becomes the maximum.
    pub(crate) fn natural(&self) -> Result<u64, Error> {
        let text = match self {
            Self::Text(text) => Some(Cow::Borrowed(text.as_str())),
            Self::Json(json) if json.value().kind() == Kind::Number => self.word(),
            Self::Json(_) => None,
        };
        let text = text.unwrap_or_default();
        let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(Error::query_parse(format!("Invalid value for integer: {}", self.shown())));
        }
        let number = digits.parse().unwrap_or(u64::MAX);
        if text.starts_with('-') && number > 0 {
            return Err(Error::query_parse(format!("Invalid value for positive integer: {}", self.shown())));
        }
        Ok(number)
    }

    /// Returns text unchanged, the content of a JSON string, or the text of another JSON value.
    pub(crate) fn word(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Json(json) => {
                json.value().as_str().or_else(|| std::str::from_utf8(json.as_bytes()).ok().map(Cow::Borrowed))
            }
        }
    }

    pub(crate) fn converted(&self) -> Cow<'_, str> {
        match self {
            Self::Text(text) => Cow::Borrowed(text),
            Self::Json(json) => Cow::Owned(converted::converted(json.value())),
        }
    }

    /// Formats the value for error messages. An empty text is formatted as Erlang's empty list.
    fn shown(&self) -> String {
        let mut out = Vec::new();
        match self {
            Self::Text(text) if text.is_empty() => out.extend_from_slice(b"[]"),
            Self::Text(text) => json::write_string(&mut out, text),
            Self::Json(json) => out.extend_from_slice(json.as_bytes()),
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

#[cfg(test)]
mod tests;
