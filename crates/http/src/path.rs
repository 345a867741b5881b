//! Paths: their segments, [`Captures`] of a pattern, and names as segments. Which path is which resource, the router knows.

use std::borrow::Cow;

use hyper::StatusCode;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use settee_service::Place;

use crate::Error;
use crate::params::{Plus, decode};

/// The characters that CouchDB leaves as they are in addresses.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':');

/// Encodes a name as one segment of a path.
pub(crate) fn encode_path(name: &str) -> String {
    utf8_percent_encode(name, PATH).to_string()
}

/// The decoded parts of a path, by their names in the pattern.
#[derive(Clone, Debug, Default)]
pub(crate) struct Captures {
    pub(crate) parts: Vec<(&'static str, String)>,
    /// Whether the name of an attachment is no text: what is in its place is nobody's name.
    pub(crate) is_garbled: bool,
}

impl Captures {
    /// The part of this name; empty if the pattern has none.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.parts.iter().find(|(key, _)| *key == name).map_or("", |(_, value)| value)
    }

    /// The properties of it that decide who may go there.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { database: self.get("db"), design_document: self.get("ddoc") }
    }

    /// Refuses a name of an attachment that is no text. Who reads finds nothing under it.
    pub(crate) fn require_text(&self) -> Result<(), Error> {
        if self.is_garbled { Err(Error::bad_request("Attachment name is not UTF-8 encoded")) } else { Ok(()) }
    }
}

/// The decoded segments of a path. `/db/_design%2Fx` is `/db/_design/x`, likewise `_local`.
pub(crate) fn segments(path: &str, plus: Plus) -> Result<Vec<Cow<'_, str>>, Error> {
    let Split { parts, garbled } = split(path, plus);
    if garbled.is_some() { Err(not_text()) } else { Ok(parts) }
}

pub(crate) fn not_text() -> Error {
    Error::new(StatusCode::BAD_REQUEST, "illegal_docid", "Document id must be valid UTF-8")
}

/// The segments of a path, and the first of them that is no text. It is replaced by what text there is.
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
            Some("_local") if segment.len() == "_local/".len() => parts.push(Cow::Borrowed("_local")),
            Some(prefix) => {
                parts.push(Cow::Borrowed(prefix));
                parts.push(Cow::Owned(segment[prefix.len() + 1..].to_owned()));
            }
            None => parts.push(segment),
        }
    }
    Split { parts, garbled }
}
