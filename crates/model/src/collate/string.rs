//! Strings under Unicode collation: CLDR's root order as `icu_collator` implements it.
//! Sort keys are those of the library, so the byte 0 never occurs in them. Pure ASCII has a fast path ([`ascii`]). Han
//! characters ([`han`]) and combining marks ([`marks`]) are prepared, because ICU in CouchDB treats both differently.

use std::borrow::Cow;
use std::cmp::Ordering;

use icu_collator::CollatorBorrowed;
use icu_collator::options::CollatorOptions;

use crate::collate::{ascii, han, marks};
use crate::json::Value;

/// Root locale, default options: three levels; only characters that the data marks as ignorable are ignored.
pub(super) static COLLATOR: CollatorBorrowed<'static> = CollatorBorrowed::new_root(CollatorOptions::default());

/// Returns the inside of a string literal; `None` if it has escapes.
pub(super) fn literal(value: Value<'_>) -> Option<&[u8]> {
    match value.raw() {
        [b'"', inner @ .., b'"'] if memchr::memchr(b'\\', inner).is_none() => Some(inner),
        _ => None,
    }
}

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

pub(super) fn append_library_key(text: &str, out: &mut Vec<u8>) {
    let Ok(()) = COLLATOR.write_sort_key_to(text, out);
}

/// Returns a text whose order in the library is that of `text` in CouchDB's ICU.
fn for_library(text: &str) -> Cow<'_, str> {
    match han::exchange(text) {
        Cow::Borrowed(text) => marks::keep_order(text),
        Cow::Owned(text) => Cow::Owned(marks::keep_order(&text).into_owned()),
    }
}
