//! [`Value`]: JSON text that is read in place. The text must be valid, compact JSON; the server guarantees this.

/// One JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value<'a>(&'a str);

impl<'a> Value<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self(text)
    }

    /// Returns the value as JSON text.
    pub fn text(self) -> &'a str {
        self.0
    }

    /// Returns true if the value is null.
    pub fn is_null(self) -> bool {
        self.0 == "null"
    }

    /// Returns a number, or `None` for values of other types.
    pub fn as_f64(self) -> Option<f64> {
        if self.0.starts_with(|first: char| first == '-' || first.is_ascii_digit()) { self.0.parse().ok() } else { None }
    }

    /// Returns the content of a string without escapes. Returns `None` for other strings; read those from [`Value::text`].
    pub fn as_plain_str(self) -> Option<&'a str> {
        let text = self.0.strip_prefix('"')?.strip_suffix('"')?;
        (!text.contains('\\')).then_some(text)
    }

    /// Returns a member of an object. The name must not need escapes.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        if !self.0.starts_with('{') {
            return None;
        }
        let mut rest = &self.0[1..];
        while rest.starts_with('"') {
            let (key, after) = rest.split_at(end_of(rest));
            let value = &after[1..];
            let (value, after) = value.split_at(end_of(value));
            if key.len() == name.len() + 2 && &key[1..key.len() - 1] == name {
                return Some(Value(value));
            }
            rest = after.strip_prefix(',').unwrap_or("");
        }
        None
    }

    /// Returns the elements of an array. Values of other types have no elements.
    pub fn elements(self) -> impl Iterator<Item = Value<'a>> {
        let mut rest = self.0.strip_prefix('[').filter(|rest| !rest.starts_with(']')).unwrap_or("");
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (value, after) = rest.split_at(end_of(rest));
            rest = after.strip_prefix(',').unwrap_or("");
            Some(Value(value))
        })
    }
}

/// Returns the end offset of the value at the beginning of `text`.
fn end_of(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                at += 1;
                while bytes[at] != b'"' {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                if depth == 0 {
                    return at + 1;
                }
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return at,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            b',' | b':' if depth == 0 => return at,
            _ => {}
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::Value;

    #[test]
    fn members_and_elements_are_found() {
        let value = Value::new(r#"{"a":"x,}\"","b":[1,[2,{"c":3}],-4.5],"d":{},"e":[],"f":null}"#);
        assert_eq!(value.get("a").unwrap().text(), r#""x,}\"""#);
        assert_eq!(value.get("a").unwrap().as_plain_str(), None);
        let elements: Vec<_> = value.get("b").unwrap().elements().map(Value::text).collect();
        assert_eq!(elements, ["1", r#"[2,{"c":3}]"#, "-4.5"]);
        assert_eq!(value.get("b").unwrap().elements().last().unwrap().as_f64(), Some(-4.5));
        assert_eq!(value.get("d").unwrap().get("x"), None);
        assert_eq!(value.get("e").unwrap().elements().count(), 0);
        assert!(value.get("f").unwrap().is_null());
        assert_eq!(value.get("g"), None);
    }
}
