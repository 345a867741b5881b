//! [`Value`]: a lazy view of validated text. Finding a member costs one scan over the members before it. The text must
//! have passed [`compact`](fn@super::compact).

use std::borrow::Cow;

use crate::json::scan;

/// One JSON value: a slice of validated, compact text.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(&'a [u8]);

/// The type of a [`Value`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// `null`
    Null,
    /// `true` or `false`
    Bool,
    /// Any number.
    Number,
    /// A string.
    String,
    /// An array.
    Array,
    /// An object.
    Object,
}

impl<'a> Value<'a> {
    /// The literal `null`.
    pub const NULL: Value<'static> = Value(b"null");

    /// Wraps text that must be exactly one valid, compact value.
    pub const fn trusted(text: &'a [u8]) -> Value<'a> {
        Value(text)
    }

    /// Returns the text.
    pub const fn raw(self) -> &'a [u8] {
        self.0
    }

    /// Returns the type of the value.
    pub fn kind(self) -> Kind {
        match self.0.first() {
            Some(b'{') => Kind::Object,
            Some(b'[') => Kind::Array,
            Some(b'"') => Kind::String,
            Some(b't' | b'f') => Kind::Bool,
            Some(b'n') | None => Kind::Null,
            Some(_) => Kind::Number,
        }
    }

    /// Returns true for `null`.
    pub fn is_null(self) -> bool {
        self.kind() == Kind::Null
    }

    /// Returns true for objects.
    pub fn is_object(self) -> bool {
        self.kind() == Kind::Object
    }

    /// Returns true for arrays.
    pub fn is_array(self) -> bool {
        self.kind() == Kind::Array
    }

    /// Returns the boolean, if it is one.
    pub fn as_bool(self) -> Option<bool> {
        match self.0.first() {
            Some(b't') => Some(true),
            Some(b'f') => Some(false),
            _ => None,
        }
    }

    /// Returns the string without quotation marks and escapes. Borrowed unless it has escapes.
    pub fn as_str(self) -> Option<Cow<'a, str>> {
        Some(match self.string_bytes()? {
            Cow::Borrowed(bytes) => {
                std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed)
            }
            Cow::Owned(bytes) => Cow::Owned(
                String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()),
            ),
        })
    }

    /// Returns the text of a string; for other types the JSON text.
    pub fn to_text(self) -> String {
        self.as_str().unwrap_or_else(|| String::from_utf8_lossy(self.0)).into_owned()
    }

    /// As [`Value::as_str`], without validating UTF-8 again.
    pub fn string_bytes(self) -> Option<Cow<'a, [u8]>> {
        let inner = self.string_inner()?;
        if memchr::memchr(b'\\', inner).is_none() {
            return Some(Cow::Borrowed(inner));
        }
        let mut out = Vec::with_capacity(inner.len());
        unescape(inner, &mut out);
        Some(Cow::Owned(out))
    }

    /// Appends the unescaped bytes of a string. Returns false and appends nothing for other types.
    pub fn unescape_into(self, out: &mut Vec<u8>) -> bool {
        match self.string_inner() {
            Some(inner) => {
                unescape(inner, out);
                true
            }
            None => false,
        }
    }

    /// Returns true if this is the string `text`.
    pub fn is_string(self, text: &str) -> bool {
        match self.string_inner() {
            None => false,
            Some(inner) if inner == text.as_bytes() => !inner.contains(&b'\\'),
            Some(inner) => inner.len() > text.len() && self.string_bytes().as_deref() == Some(text.as_bytes()),
        }
    }

    fn string_inner(self) -> Option<&'a [u8]> {
        match self.0 {
            [b'"', inner @ .., b'"'] => Some(inner),
            _ => None,
        }
    }

    /// Returns true for a number of any size without fraction and exponent.
    pub fn is_integer(self) -> bool {
        self.kind() == Kind::Number && !self.0.iter().any(|byte| matches!(byte, b'.' | b'e' | b'E'))
    }

    /// Returns the number if it is written without fraction and exponent, is not negative and fits.
    pub fn as_u64(self) -> Option<u64> {
        self.number_text()?.parse().ok()
    }

    /// Returns the number if it is written without fraction and exponent and fits.
    pub fn as_i64(self) -> Option<i64> {
        self.number_text()?.parse().ok()
    }

    /// Returns the number as the nearest double; infinite for integers beyond the range of doubles.
    pub fn as_f64(self) -> Option<f64> {
        self.number_text()?.parse().ok()
    }

    fn number_text(self) -> Option<&'a str> {
        if self.kind() == Kind::Number { std::str::from_utf8(self.0).ok() } else { None }
    }

    /// Returns the elements of an array; empty for other types.
    pub fn elements(self) -> Elements<'a> {
        let text = if self.is_array() { self.0 } else { b"" };
        Elements { text, at: 1 }
    }

    /// Returns names (strings) and values of the members of an object; empty for other types.
    pub fn members(self) -> Members<'a> {
        let text = if self.is_object() { self.0 } else { b"" };
        Members { text, at: 1 }
    }

    /// Returns the member `name` of an object.
    pub fn get(self, name: &str) -> Option<Value<'a>> {
        self.members().find(|(key, _)| key.is_string(name)).map(|(_, value)| value)
    }
}

/// Iterator of [`Value::elements`].
#[derive(Clone, Debug)]
pub struct Elements<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    #[inline]
    fn next(&mut self) -> Option<Value<'a>> {
        if self.at + 1 >= self.text.len() {
            return None;
        }
        let end = scan::skip_value(self.text, self.at);
        let value = Value(&self.text[self.at..end]);
        self.at = end + 1;
        Some(value)
    }
}

/// Iterator of [`Value::members`].
#[derive(Clone, Debug)]
pub struct Members<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = (Value<'a>, Value<'a>);

    #[inline]
    fn next(&mut self) -> Option<(Value<'a>, Value<'a>)> {
        if self.at + 1 >= self.text.len() {
            return None;
        }
        let key_end = scan::skip_string(self.text, self.at);
        let value_end = scan::skip_value(self.text, key_end + 1);
        let key = self.text.get(self.at..key_end)?;
        let value = self.text.get(key_end + 1..value_end)?;
        self.at = value_end + 1;
        Some((Value(key), Value(value)))
    }
}

impl<'a> Members<'a> {
    /// As [`Iterator::next`]. Also appends the elements of an array to `elements`, to scan its text only once.
    pub fn next_with_elements(&mut self, elements: &mut Vec<Value<'a>>) -> Option<(Value<'a>, Value<'a>)> {
        let (text, start) = (self.text, self.at);
        if start + 1 >= text.len() {
            return None;
        }
        let key_end = scan::skip_string(text, start);
        let value_start = key_end + 1;
        if text.get(value_start) != Some(&b'[') {
            return self.next();
        }
        let mut at = value_start + 1;
        while text.get(at).is_some_and(|&byte| byte != b']') {
            let end = scan::skip_value(text, at);
            elements.push(Value(&text[at..end]));
            at = if text.get(end) == Some(&b',') { end + 1 } else { end };
        }
        let value_end = (at + 1).min(text.len());
        self.at = value_end + 1;
        Some((Value(text.get(start..key_end)?), Value(text.get(value_start..value_end)?)))
    }
}

/// Appends the unescaped inside of a valid string literal.
pub fn unescape(mut inner: &[u8], out: &mut Vec<u8>) {
    while let Some(escape) = memchr::memchr(b'\\', inner) {
        out.extend_from_slice(&inner[..escape]);
        let Some(&kind) = inner.get(escape + 1) else { return };
        inner = &inner[escape + 2..];
        out.push(match kind {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                inner = unescape_unicode(inner, out);
                continue;
            }
            itself => itself,
        });
    }
    out.extend_from_slice(inner);
}

/// `rest` starts after `\u`. In valid text an escaped low surrogate follows each high one.
fn unescape_unicode<'r>(mut rest: &'r [u8], out: &mut Vec<u8>) -> &'r [u8] {
    let mut code = hex4(rest).unwrap_or(0xfffd);
    rest = rest.get(4..).unwrap_or_default();
    if (0xd800..0xdc00).contains(&code) {
        let low = rest.get(2..).and_then(hex4).unwrap_or(0xdc00);
        code = 0x10000 + ((code & 0x3ff) << 10) + (low & 0x3ff);
        rest = rest.get(6..).unwrap_or_default();
    }
    let character = char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
    out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
    rest
}

pub(super) fn hex4(text: &[u8]) -> Option<u32> {
    text.get(..4)?.iter().try_fold(0, |code, &digit| Some(code << 4 | char::from(digit).to_digit(16)?))
}
