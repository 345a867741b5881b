//! Parameters: collected raw from the query string ([`Query`]) or a JSON body, then resolved once into a type
//! that cannot be contradictory.

pub(crate) mod attachments;
pub(crate) mod changes;
pub(crate) mod document;
pub(crate) mod filter;
pub(crate) mod view;

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use settee_model::json::{self, Json};

use crate::Error;

/// The parameters of a query string, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pairs: Vec<(String, String)>,
}

/// The value of a parameter as it came.
#[derive(Clone, Debug)]
pub(crate) enum Raw {
    /// From the query string.
    Text(String),
    /// From a JSON body.
    Json(Json),
}

impl Query {
    /// Takes a query string apart.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self, Error> {
        let pairs = text.unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?.into_owned(), decode(value)?.into_owned()))
        });
        let pairs: Option<Vec<_>> = pairs.collect();
        Ok(Self { pairs: pairs.ok_or_else(|| Error::bad_request("The query string is not valid UTF-8."))? })
    }

    /// The first value of a parameter: CouchDB looks for parameters by their names, or goes through all of them and has the
    /// last value ([`Self::pairs`]).
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.pairs().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// Whether any value of a parameter is `true`; others count for nothing.
    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.pairs().any(|pair| pair == (name, "true"))
    }

    /// All parameters, in order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// All parameters as raw values, in order.
    pub(crate) fn raw(&self) -> impl Iterator<Item = (&str, Raw)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), Raw::Text(value.clone())))
    }
}

/// Decodes a part of a path or a query: percent escapes, and a plus as a space. A percent sign that begins no
/// escape stays as it is. `None` if the bytes are no UTF-8.
pub(crate) fn decode(text: &str) -> Option<Cow<'_, str>> {
    if text.contains('+') {
        let spaced = text.replace('+', " ");
        return Some(Cow::Owned(percent_decode_str(&spaced).decode_utf8().ok()?.into_owned()));
    }
    percent_decode_str(text).decode_utf8().ok()
}

impl Raw {
    /// A JSON value: text is parsed.
    pub(crate) fn json(self) -> Result<Json, Error> {
        match self {
            Self::Text(text) => Ok(Json::parse(text.as_bytes())?),
            Self::Json(json) => Ok(json),
        }
    }

    /// `true` or `false`.
    pub(crate) fn boolean(&self) -> Result<bool, Error> {
        match self.word().as_deref() {
            Some("true") => Ok(true),
            Some("false") => Ok(false),
            _ => Err(Error::query_parse(format!("Invalid boolean parameter: {}", self.shown()))),
        }
    }

    /// An integer that is not negative.
    pub(crate) fn natural(&self) -> Result<u64, Error> {
        let integer: Option<i128> = self.word().and_then(|word| word.trim().parse().ok());
        match integer.map(u64::try_from) {
            Some(Ok(number)) => Ok(number),
            Some(Err(_)) => Err(Error::query_parse(format!("Invalid value for positive integer: {}", self.shown()))),
            None => Err(Error::query_parse(format!("Invalid value for integer: {}", self.shown()))),
        }
    }

    /// A word: text as it is, a JSON string, or the text of another scalar.
    pub(crate) fn word(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Text(text) => Some(Cow::Borrowed(text)),
            Self::Json(json) => {
                json.value().as_str().or_else(|| std::str::from_utf8(json.as_bytes()).ok().map(Cow::Borrowed))
            }
        }
    }

    /// As error messages show it: text in quotes, JSON as it is.
    fn shown(&self) -> String {
        let mut out = Vec::new();
        match self {
            Self::Text(text) => json::write_string(&mut out, text),
            Self::Json(json) => out.extend_from_slice(json.as_bytes()),
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

#[cfg(test)]
mod tests;
