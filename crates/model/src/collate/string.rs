//! Strings under Unicode collation: CLDR's root order as `icu_collator` implements it.
//!
//! Sort keys are those that the library writes, byte for byte, so the byte 0 never occurs in them. Two things are added.
//! Pure ASCII takes a short way to the same bytes ([`ascii`]). Han characters are exchanged for others before the library
//! sees them ([`han`]), because its data orders them by code point and CouchDB's by radical and stroke. Combining marks
//! are kept in the order in which they stand ([`marks`]), because CouchDB asks ICU not to normalize.

use std::borrow::Cow;
use std::cmp::Ordering;

use icu_collator::CollatorBorrowed;
use icu_collator::options::CollatorOptions;

use crate::collate::{ascii, han, marks};
use crate::json::Value;

/// Root locale, default options: three levels, nothing ignorable that the data does not say is.
pub(super) static COLLATOR: CollatorBorrowed<'static> = CollatorBorrowed::new_root(CollatorOptions::default());

/// The inside of a string literal, if it has no escapes, so that it is the string itself.
pub(super) fn literal(value: Value<'_>) -> Option<&[u8]> {
    match value.raw() {
        [b'"', inner @ .., b'"'] if memchr::memchr(b'\\', inner).is_none() => Some(inner),
        _ => None,
    }
}

/// Compares two strings without building their sort keys.
pub(super) fn compare(a: Value<'_>, b: Value<'_>) -> Ordering {
    if let (Some(a), Some(b)) = (literal(a), literal(b))
        && let Some(order) = ascii::compare(a, b)
    {
        return order;
    }
    let a = a.as_str().unwrap_or_default();
    let b = b.as_str().unwrap_or_default();
    ascii::compare(a.as_bytes(), b.as_bytes()).unwrap_or_else(|| COLLATOR.compare(&for_library(&a), &for_library(&b)))
}

/// Appends the sort key of a string, without an end mark.
pub(super) fn append_key(value: Value<'_>, out: &mut Vec<u8>) {
    if let [b'"', inside @ .., b'"'] = value.raw()
        && ascii::append_key_of_literal(inside, out)
    {
        return;
    }
    let text = value.as_str().unwrap_or_default();
    if !ascii::append_key(text.as_bytes(), out) {
        append_library_key(&for_library(&text), out);
    }
}

/// Appends the sort key as the library writes it.
pub(super) fn append_library_key(text: &str, out: &mut Vec<u8>) {
    let Ok(()) = COLLATOR.write_sort_key_to(text, out);
}

/// The text to give to the library so that it does what ICU does in CouchDB.
fn for_library(text: &str) -> Cow<'_, str> {
    match han::exchange(text) {
        Cow::Borrowed(text) => marks::keep_order(text),
        Cow::Owned(text) => Cow::Owned(marks::keep_order(&text).into_owned()),
    }
}
