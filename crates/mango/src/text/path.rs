//! [`Path`]: the position of a value in a document, in the notation of the fields of a text index.

use crate::error::Refusal;
use crate::field::FieldPath;

pub(crate) const ELEMENT: &str = "[]";

/// Names of members, with [`ELEMENT`] for elements of arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Path(Vec<String>);

impl Path {
    /// The empty name is the value itself.
    pub(crate) fn parse(name: &str) -> Result<Self, Refusal> {
        Ok(Self(FieldPath::parse(name)?.parts().to_vec()))
    }

    pub(crate) fn member(&self, name: &str) -> Self {
        Self(self.0.iter().map(String::as_str).chain([name]).map(str::to_owned).collect())
    }

    pub(crate) fn elements(&self) -> Self {
        self.member(ELEMENT)
    }

    pub(crate) fn join(&self, other: &Self) -> Self {
        Self(self.0.iter().chain(&other.0).cloned().collect())
    }

    /// Replaces positions in arrays by [`ELEMENT`]. Returns `None` without positions.
    pub(crate) fn of_elements(&self) -> Option<Self> {
        let is_position = |part: &String| part.parse::<i64>().is_ok();
        let parts = || self.0.iter().map(|part| if is_position(part) { ELEMENT.to_owned() } else { part.clone() });
        self.0.iter().any(is_position).then(|| Self(parts().collect()))
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn has_elements(&self) -> bool {
        self.0.iter().any(|part| part == ELEMENT)
    }

    pub(crate) fn shown(&self) -> String {
        self.0.iter().map(|part| part.replace('.', "\\.")).collect::<Vec<_>>().join(".")
    }

    pub(crate) fn escaped(&self) -> String {
        let mut out = String::new();
        for (position, part) in self.0.iter().enumerate() {
            if position > 0 {
                out.push('.');
            }
            escape(part.as_bytes(), &mut out);
        }
        out
    }

    pub(crate) fn field(&self, kind: &str) -> String {
        let mut name = self.escaped();
        close(&mut name, kind);
        name
    }
}

/// CouchDB's encoding for text indexes escapes all bytes except letters and digits.
pub(crate) fn escape(part: &[u8], out: &mut String) {
    for &byte in part {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let digit = |bits: u8| char::from_digit(u32::from(bits), 16).unwrap_or('0');
            out.extend(['_', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

pub(crate) fn close(name: &mut String, kind: &str) {
    name.push_str("_3a");
    name.push_str(kind);
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_couchdb() {
        let check = |name: &str, field: &str| assert_eq!(Path::parse(name).unwrap().field("string"), field, "{name}");
        check("name", "name_3astring");
        check("a.b", "a.b_3astring");
        check(r"a\.b", "a_2eb_3astring");
        check("favorites.[]", "favorites._5b_5d_3astring");
        check("_id", "_5fid_3astring");
        check("é", "_c3_a9_3astring");
        check("$fieldnames", "_24fieldnames_3astring");
        assert_eq!(Path::parse("").unwrap(), Path::default());
        assert!(Path::parse("a..b").is_err());
    }

    #[test]
    fn positions_stand_for_elements() {
        let elements = |name: &str| Path::parse(name).unwrap().of_elements().map(|path| path.shown());
        assert_eq!(elements("a.0.b").as_deref(), Some("a.[].b"));
        assert_eq!(elements("0").as_deref(), Some("[]"));
        assert_eq!(elements("a.-1").as_deref(), Some("a.[]"));
        assert_eq!((elements("a.b"), elements("a.x1")), (None, None));
        assert_eq!(Path::parse(r"a\.b.c").unwrap().shown(), r"a\.b.c");
    }
}
