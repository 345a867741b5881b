//! Paths: their segments, [`Captures`] of a pattern, and the encoding of names.

use std::borrow::Cow;

use hyper::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use settee_service::Place;

use crate::Error;
use crate::params::{Plus, decode};

/// Characters that CouchDB does not escape in addresses.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':');

pub(crate) fn encode_path(name: &str) -> String {
    utf8_percent_encode(name, PATH).to_string()
}

/// Returns an error if a percent sign in the path or the query starts no escape.
pub(crate) fn require_escapes(target: &str) -> Result<(), Error> {
    let is_escape = |rest: &str| rest.len() >= 2 && rest.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    let are_escapes = target.split('%').skip(1).all(is_escape);
    if are_escapes { Ok(()) } else { Err(Error::bad_request("invalid_url_encoding")) }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Captures {
    pub(crate) parts: Vec<(&'static str, String)>,
    /// True if the name of the attachment is not UTF-8; the captured name then contains replacement characters.
    pub(crate) is_garbled: bool,
}

impl Captures {
    /// Returns the part with this name, or an empty text if the pattern has no such part.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.find(name).unwrap_or_default()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&str> {
        self.parts.iter().find(|(key, _)| *key == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn place(&self) -> Place<'_> {
        Place { database: self.get("db"), design_document: self.get("ddoc") }
    }

    /// Returns an error if the attachment name is not UTF-8. Reads need no check, because no attachment has such a name.
    pub(crate) fn require_text(&self) -> Result<(), Error> {
        if self.is_garbled { Err(Error::bad_request("Attachment name is not UTF-8 encoded")) } else { Ok(()) }
    }
}

/// Returns the decoded segments of a path. `/db/_design%2Fx` is `/db/_design/x`, likewise `_local`.
pub(crate) fn segments(path: &str, plus: Plus) -> Result<Vec<Cow<'_, str>>, Error> {
    let Split { parts, garbled } = split(path, plus);
    if garbled.is_some() { Err(not_text()) } else { Ok(parts) }
}

pub(crate) fn not_text() -> Error {
    Error::new(StatusCode::BAD_REQUEST, "illegal_docid", "Document id must be valid UTF-8")
}

/// The segments of a path, and the index of the first one that is not UTF-8. Invalid bytes are replaced.
pub(crate) struct Split<'p> {
    pub(crate) parts: Vec<Cow<'p, str>>,
    pub(crate) garbled: Option<usize>,
}

pub(crate) fn split(path: &str, plus: Plus) -> Split<'_> {
    let (mut parts, mut garbled) = (Vec::new(), None);
    for raw in path.split('/').filter(|raw| !raw.is_empty()) {
        let segment = decode(raw, plus).unwrap_or_else(|| {
            garbled.get_or_insert(parts.len());
            Cow::Owned(percent_decode_str(raw).decode_utf8_lossy().into_owned())
        });
        let prefix = ["_design", "_local"]
            .into_iter()
            .find(|prefix| parts.len() == 1 && segment.strip_prefix(prefix).is_some_and(|name| name.starts_with('/')));
        match prefix {
            Some(prefix) => {
                parts.push(Cow::Borrowed(prefix));
                parts.push(Cow::Owned(segment[prefix.len() + 1..].to_owned()));
            }
            None => parts.push(segment),
        }
    }
    // Without a name `_local%2F` is `_local/`. With further segments the name stays empty, because these name an
    // attachment and not a local document.
    if parts.len() == 3 && parts[1] == "_local" && parts[2].is_empty() {
        parts.pop();
    }
    Split { parts, garbled }
}
