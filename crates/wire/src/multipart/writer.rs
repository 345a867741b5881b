//! [`Writer`] writes the text between parts in the form of CouchDB.

use super::ContentType;

/// Writes heads and ends of parts; the caller writes the data of each part after its head.
#[derive(Clone, Debug)]
pub struct Writer {
    boundary: String,
}

#[derive(Clone, Copy, Debug)]
pub struct Attached<'a> {
    pub name: &'a str,
    pub content_type: &'a str,
    pub length: u64,
    pub encoding: Option<&'a str>,
}

impl Writer {
    /// `boundary` must not occur in the data.
    #[must_use]
    pub fn new(boundary: String) -> Self {
        Self { boundary }
    }

    #[must_use]
    pub fn content_type(&self, essence: &str) -> String {
        format!("{essence}; boundary=\"{}\"", self.boundary)
    }

    pub fn begin(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"--");
        out.extend_from_slice(self.boundary.as_bytes());
    }

    pub fn part<'a>(&self, out: &mut Vec<u8>, headers: impl IntoIterator<Item = (&'a str, &'a str)>) {
        for (name, value) in headers {
            out.extend_from_slice(b"\r\n");
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            // Line ends are removed because they would start another header.
            out.extend(value.bytes().filter(|byte| !matches!(byte, b'\r' | b'\n')));
        }
        out.extend_from_slice(b"\r\n\r\n");
    }

    pub fn attachment(&self, out: &mut Vec<u8>, attached: Attached<'_>) {
        let disposition = format!("attachment; filename=\"{}\"", quotable(attached.name));
        let length = attached.length.to_string();
        let headers = [
            ("Content-Disposition", disposition.as_str()),
            ("Content-Type", attached.content_type),
            ("Content-Length", &length),
        ];
        self.part(out, headers.into_iter().chain(attached.encoding.map(|encoding| ("Content-Encoding", encoding))));
    }

    /// Ends a part. The caller must start another part or call [`Self::end`].
    pub fn part_end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"\r\n");
        self.begin(out);
    }

    pub fn end(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"--");
    }
}

fn quotable(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for character in name.chars() {
        if matches!(character, '"' | '\\') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}

impl ContentType {
    #[must_use]
    pub fn is_multipart(&self) -> bool {
        self.essence.starts_with("multipart/")
    }
}
