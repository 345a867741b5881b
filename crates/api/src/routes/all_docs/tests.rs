//! Tests of the ids between the keys of a query.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::{json, query};

const KEYS: [Option<&str>; 6] = [None, Some("\"b\""), Some("\"d\""), Some("null"), Some("{}"), Some("\"\"")];

const IDS: [&str; 9] = ["A", "a", "b", "b\0", "bb", "c", "d", "d\0x", "é"];

/// The rule is that of CouchDB's documentation.
fn belongs(id: &str, params: &ViewParams) -> bool {
    let (first, last) = (params.start.as_ref(), params.end.as_ref());
    let text = |key: &Json| key.value().as_str().map(std::borrow::Cow::into_owned);
    let after = |key: &Json| text(key).is_none_or(|key| id >= key.as_str());
    let before = |key: &Json| text(key).is_some_and(|key| id <= key.as_str());
    let is_last = last.and_then(text).is_some_and(|key| id == key);
    let included = params.inclusive_end != Some(false) || !is_last;
    let in_range = if params.descending {
        first.is_none_or(before) && last.is_none_or(after)
    } else {
        first.is_none_or(after) && last.is_none_or(before)
    };
    in_range && included
}

#[test]
fn all_combinations_of_keys() {
    let mut checked = 0;
    for startkey in KEYS {
        for endkey in KEYS {
            for descending in [false, true] {
                for inclusive_end in [None, Some(true), Some(false)] {
                    let parsed = |text: Option<&str>| text.map(json);
                    let (start, end) = (parsed(startkey), parsed(endkey));
                    let mut params = ViewParams::default();
                    (params.start, params.end) = (start, end);
                    (params.descending, params.inclusive_end) = (descending, inclusive_end);
                    let range = id_range(&params);
                    for id in IDS {
                        assert_eq!(range.contains(id), belongs(id, &params), "{id:?} {range:?} {params:?}");
                        checked += 1;
                    }
                }
            }
        }
    }
    assert_eq!(checked, 6 * 6 * 2 * 3 * IDS.len());
}

#[test]
fn ranges_as_bytes() {
    let check = |text: &str, start: Option<&str>, end: Option<&str>| {
        let range = id_range(&ViewParams::from_query(&query(text), Source::Documents).unwrap());
        let bytes = |bound: Option<&str>| bound.map(|bound| bound.as_bytes().to_vec());
        assert_eq!((range.start, range.end), (bytes(start), bytes(end)), "{text}");
    };
    check("", None, None);
    check("startkey=%22a%22&endkey=%22c%22", Some("a"), Some("c\0"));
    check("startkey=%22a%22&endkey=%22c%22&inclusive_end=false", Some("a"), Some("c"));
    check("startkey=%22c%22&endkey=%22a%22&descending=true", Some("a"), Some("c\0"));
    check("startkey=%22c%22&endkey=%22a%22&descending=true&inclusive_end=false", Some("a\0"), Some("c\0"));
    check("key=%22a%22", Some("a"), Some("a\0"));
    check("key=1", None, Some(""));
    check("endkey=1", None, Some(""));
    check("startkey=1", None, None);
    check("startkey=%22%5Cu0000%22", Some("\0"), None);
    // Ids apply only without a key.
    check("startkey_docid=a&endkey_docid=c", Some("a"), Some("c\0"));
    check("startkey=%22b%22&startkey_docid=c", Some("b"), None);
    check("descending=true&startkey_docid=c", None, Some("c\0"));
}

#[test]
fn lists_of_keys_follow_the_order() {
    let keys = |text: &str| ViewParams::from_query(&query(text), Source::Documents).unwrap().key_list();
    assert_eq!(keys(""), None);
    assert_eq!(keys("keys=%5B%5D"), Some(Vec::new()));
    assert_eq!(keys("keys=%5B%22a%22,2%5D"), Some(vec![json("\"a\""), json("2")]));
    assert_eq!(keys("keys=%5B%22a%22,2%5D&descending=true"), Some(vec![json("2"), json("\"a\"")]));
}
