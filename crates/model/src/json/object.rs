//! [`ObjectWriter`]: appends an object member by member.

use std::fmt::Display;
use std::io::Write as _;

use crate::json::{Value, write_array, write_string};

/// Appends members with their separators.
#[derive(Debug)]
pub struct ObjectWriter<'o> {
    out: &'o mut Vec<u8>,
    /// Position after the opening brace.
    start: usize,
}

/// Returns the object whose members `write` appends.
pub fn object(write: impl FnOnce(&mut ObjectWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    append_object(&mut out, write);
    out
}

/// Appends the object whose members `write` appends.
pub fn append_object(out: &mut Vec<u8>, write: impl FnOnce(&mut ObjectWriter<'_>)) {
    out.push(b'{');
    let start = out.len();
    write(&mut ObjectWriter { out, start });
    out.push(b'}');
}

impl ObjectWriter<'_> {
    /// Appends a name. The caller must append the value.
    pub fn name(&mut self, name: &str) -> &mut Vec<u8> {
        self.separate();
        write_string(self.out, name);
        self.out.push(b':');
        self.out
    }

    /// Appends a string.
    pub fn string(&mut self, name: &str, text: &str) -> &mut Self {
        write_string(self.name(name), text);
        self
    }

    /// Appends an array of strings.
    pub fn strings(&mut self, name: &str, texts: impl IntoIterator<Item = impl AsRef<str>>) -> &mut Self {
        write_array(self.name(name), texts, |out, text| write_string(out, text.as_ref()));
        self
    }

    /// Appends a number or a boolean.
    pub fn value(&mut self, name: &str, value: impl Display) -> &mut Self {
        let written = write!(self.name(name), "{value}");
        debug_assert!(written.is_ok(), "a vector takes all bytes");
        self
    }

    /// Appends a number, a boolean or `null`.
    pub fn value_or_null(&mut self, name: &str, value: Option<impl Display>) -> &mut Self {
        match value {
            Some(value) => self.value(name, value),
            None => self.json(name, b"null"),
        }
    }

    /// Appends a string or `null`.
    pub fn string_or_null(&mut self, name: &str, text: Option<&str>) -> &mut Self {
        match text {
            Some(text) => self.string(name, text),
            None => self.json(name, b"null"),
        }
    }

    /// Appends valid JSON text.
    pub fn json(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.name(name).extend_from_slice(value);
        self
    }

    /// Appends the members of another object.
    pub fn members(&mut self, object: Value<'_>) -> &mut Self {
        if let [b'{', members @ .., b'}'] = object.raw()
            && !members.is_empty()
        {
            self.separate();
            self.out.extend_from_slice(members);
        }
        self
    }

    /// Appends an object.
    pub fn object(&mut self, name: &str, write: impl FnOnce(&mut ObjectWriter<'_>)) -> &mut Self {
        append_object(self.name(name), write);
        self
    }

    fn separate(&mut self) {
        if self.out.len() > self.start {
            self.out.push(b',');
        }
    }
}
