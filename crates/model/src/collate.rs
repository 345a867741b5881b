//! CouchDB's order of JSON values, as a comparison ([`compare`]) and as bytes that sort the same way ([`encode`]).
//!
//! With [`Collation::Unicode`], the order of views: `null`, `false`, `true`, numbers by value, strings by the root
//! collation of CLDR (as in ICU, three levels), arrays element by element, objects member by member **in textual
//! order**, first the name, then the value. With [`Collation::Raw`], the order of Erlang terms: numbers, `false`,
//! `null`, `true`, objects, arrays, strings by their bytes.
//!
//! An encoding is a tag for the type, then the content:
//!
//! | type | content |
//! |---|---|
//! | `null`, `false`, `true` | none |
//! | number | see `number.rs`; as many bytes as the value needs, two to five for most |
//! | string | sort key (see `string.rs`) or escaped bytes (see `raw.rs`), never 0, then 0 |
//! | array | the encodings of the elements, then 0 |
//! | object | name (encoded as a string) and value of each member, then 0 |
//!
//! Tags are never 0, so the end of an array sorts before any further element. No encoding is a prefix of another, so
//! encodings can be concatenated. They cannot be decoded; those of the same [`version`] are comparable.

mod ascii;
mod han;
mod marks;
mod number;
mod raw;
mod skip;
mod string;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;

use crate::json::{Kind, Value};

pub use crate::collate::skip::{encoded_len, group_prefix};

/// Order of JSON values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Collation {
    /// The default order of views and of `_find`, with linguistic order of strings.
    Unicode,
    /// The view option `"collation": "raw"`: the order of Erlang terms.
    Raw,
}

/// Ends an array, an object or a string; strings contain no 0.
const END: u8 = 0;

/// First bytes of encodings. Only numbers share theirs between collations, so [`encoded_len`] needs none.
mod tag {
    pub(super) const HUGE_NEGATIVE: u8 = 0x20;
    pub(super) const NEGATIVE: u8 = 0x21;
    pub(super) const POSITIVE: u8 = 0x22;
    pub(super) const HUGE_POSITIVE: u8 = 0x23;

    pub(super) const UNICODE: Tags =
        Tags { null: 0x10, boolean: [0x11, 0x12], string: 0x30, array: 0x31, object: 0x32 };
    pub(super) const RAW: Tags = Tags { null: 0x41, boolean: [0x40, 0x42], string: 0x52, array: 0x51, object: 0x50 };

    pub(super) struct Tags {
        pub(super) null: u8,
        pub(super) boolean: [u8; 2],
        pub(super) string: u8,
        pub(super) array: u8,
        pub(super) object: u8,
    }
}

impl Collation {
    fn tags(self) -> &'static tag::Tags {
        match self {
            Collation::Unicode => &tag::UNICODE,
            Collation::Raw => &tag::RAW,
        }
    }

    fn rank(self, value: Value<'_>) -> u8 {
        let tags = self.tags();
        match value.kind() {
            Kind::Null => tags.null,
            Kind::Bool => tags.boolean[usize::from(value.as_bool() == Some(true))],
            Kind::Number => tag::POSITIVE,
            Kind::String => tags.string,
            Kind::Array => tags.array,
            Kind::Object => tags.object,
        }
    }
}

/// Compares two values as CouchDB does. `Equal` values may have different texts: `1` equals `1.0`, and with
/// [`Collation::Unicode`] strings are equal that differ in ignorable characters or in canonically equivalent spellings.
pub fn compare(a: Value<'_>, b: Value<'_>, collation: Collation) -> Ordering {
    let rank = collation.rank(a);
    let by_type = rank.cmp(&collation.rank(b));
    if by_type.is_ne() {
        return by_type;
    }
    match a.kind() {
        Kind::Null | Kind::Bool => Ordering::Equal,
        Kind::Number => number::compare(a.raw(), b.raw()),
        Kind::String => compare_strings(a, b, collation),
        Kind::Array => {
            let mut others = b.elements();
            for element in a.elements() {
                let Some(other) = others.next() else {
                    return Ordering::Greater;
                };
                let order = compare(element, other, collation);
                if order.is_ne() {
                    return order;
                }
            }
            if others.next().is_some() { Ordering::Less } else { Ordering::Equal }
        }
        Kind::Object => {
            let mut others = b.members();
            for (name, member) in a.members() {
                let Some((other_name, other)) = others.next() else {
                    return Ordering::Greater;
                };
                let order =
                    compare_strings(name, other_name, collation).then_with(|| compare(member, other, collation));
                if order.is_ne() {
                    return order;
                }
            }
            if others.next().is_some() { Ordering::Less } else { Ordering::Equal }
        }
    }
}

fn compare_strings(a: Value<'_>, b: Value<'_>, collation: Collation) -> Ordering {
    // Different literals may be equal strings, because of escapes.
    if a.raw() == b.raw() {
        return Ordering::Equal;
    }
    match collation {
        Collation::Unicode => string::compare(a, b),
        Collation::Raw => raw::compare(a, b),
    }
}

/// Appends the sortable encoding of `value`. Encodings of one collation compare, as bytes, like their values under
/// [`compare`]; none is a prefix of another.
pub fn encode(value: Value<'_>, collation: Collation, out: &mut Vec<u8>) {
    match value.kind() {
        Kind::Null | Kind::Bool => out.push(collation.rank(value)),
        Kind::Number => number::encode(value.raw(), out),
        Kind::String => encode_string(value, collation, out),
        Kind::Array => {
            out.push(collation.tags().array);
            for element in value.elements() {
                encode(element, collation, out);
            }
            out.push(END);
        }
        Kind::Object => {
            out.push(collation.tags().object);
            for (name, member) in value.members() {
                encode_string(name, collation, out);
                encode(member, collation, out);
            }
            out.push(END);
        }
    }
}

fn encode_string(value: Value<'_>, collation: Collation, out: &mut Vec<u8>) {
    out.push(collation.tags().string);
    match collation {
        Collation::Unicode => string::append_key(value, out),
        Collation::Raw => raw::append_key(value, out),
    }
    out.push(END);
}

/// Identifies the layout, the library and its data. An index of another version must be rebuilt.
pub fn version() -> &'static str {
    // Parts: the layout; the library, which Cargo.toml pins; its data; the table of `han`; the treatment of `marks`.
    concat!(
        "settee-1 icu_collator-2.4.0 cldr-",
        icu_collator_data::cldr_tag!(),
        " unicode-",
        icu_collator_data::unicode_tag!(),
        " han-1 marks-1"
    )
}
