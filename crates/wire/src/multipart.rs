//! Multipart bodies (RFC 2046) in the forms that CouchDB sends and accepts: [`Parser`] and [`Writer`]. The parser
//! accepts input in pieces of any size. Its buffer is bounded by [`MAX_HEAD_BYTES`] and the largest piece.

mod parser;
#[cfg(test)]
mod tests;
mod writer;

pub use parser::{Event, Head, Parser};
pub use writer::{Attached, Writer};

/// Maximum length of the head of a part, and of a line before the first part.
pub const MAX_HEAD_BYTES: usize = 16 << 10;

pub const MAX_BOUNDARY_BYTES: usize = 70;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MultipartError {
    #[error("the multipart body has no boundary")]
    NoBoundary,
    #[error("the head of a part is too long")]
    HeadTooLong,
    #[error("the head of a part is malformed")]
    MalformedHead,
    #[error("the multipart body ended early")]
    EndedEarly,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContentType {
    pub essence: String,
    parameters: Vec<(String, String)>,
}

impl ContentType {
    /// Parses the value of a header. Malformed parameters are skipped.
    #[must_use]
    pub fn parse(value: &str) -> Self {
        let mut fields = split_unquoted(value);
        let essence = fields.next().unwrap_or_default().trim().to_ascii_lowercase();
        let parameters = fields.filter_map(|field| {
            let (name, value) = field.split_once('=')?;
            Some((name.trim().to_ascii_lowercase(), unquote(value.trim())))
        });
        Self { essence, parameters: parameters.collect() }
    }

    /// `name` must be in lower case.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn boundary(&self) -> Result<&str, MultipartError> {
        let boundary = self.parameter("boundary").unwrap_or_default();
        let usable = !boundary.is_empty() && boundary.len() <= MAX_BOUNDARY_BYTES && !boundary.contains(['\r', '\n']);
        if usable { Ok(boundary) } else { Err(MultipartError::NoBoundary) }
    }
}

fn split_unquoted(value: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    value.split(move |character| {
        let separates = character == ';' && !quoted;
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => {}
        }
        separates
    })
}

fn unquote(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else {
        return value.to_owned();
    };
    let mut out = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        out.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    out
}
