//! The chosen index, its ranges, and the output of `_explain` and warnings.

use super::{Place, SEARCH, json};
use crate::{FindOptions, MangoError, Refusal, explain};

fn place(indexes: &[(&str, &str)]) -> Place {
    let place = Place::new();
    for number in 0..30 {
        place.write(&format!(r#"{{"_id":"d{number:02}","n":{number},"s":"s{}","t":{}}}"#, number % 3, number % 2 == 0));
    }
    indexes.iter().for_each(|(name, definition)| place.index(definition, name));
    place
}

fn explained(place: &Place, query: &str, path: &[&str]) -> String {
    let answer = place.explain(query);
    let value = path.iter().fold(answer.value(), |value, name| value.get(name).unwrap());
    String::from_utf8(value.raw().to_vec()).unwrap()
}

#[test]
fn the_choice_is_couchdbs() {
    let place = place(&[
        ("n", r#"{"fields":["n"]}"#),
        ("ns", r#"{"fields":["n","s"]}"#),
        ("s", r#"{"fields":["s"]}"#),
        ("p", r#"{"fields":["n"],"partial_filter_selector":{"t":true}}"#),
    ]);
    let check = |query: &str, name: &str| assert_eq!(explained(&place, query, &["index", "name"]), name, "{query}");
    check(r#"{"selector":{"n":1}}"#, r#""n""#);
    check(r#"{"selector":{"n":1,"s":"a"}}"#, r#""ns""#);
    check(r#"{"selector":{"n":{"$in":[1]},"s":"a"}}"#, r#""s""#);
    check(r#"{"selector":{"n":{"$gt":1}},"sort":["n","s"]}"#, r#""ns""#);
    check(r#"{"selector":{"n":1},"sort":["s"]}"#, r#""ns""#);
    check(r#"{"selector":{"t":true}}"#, r#""_all_docs""#);
    check(r#"{"selector":{"_id":"a"}}"#, r#""_all_docs""#);
    check(r#"{"selector":{"n":1},"use_index":"dp"}"#, r#""p""#);
    check(r#"{"selector":{"n":1},"use_index":["dns","ns"]}"#, r#""n""#);
    check(r#"{"selector":{"n":1,"s":{"$exists":true}},"use_index":["dns","ns"]}"#, r#""ns""#);
    check(r#"{"selector":{"n":1},"use_index":"nosuch"}"#, r#""n""#);
    check(r#"{"selector":{"n":1,"t":true}}"#, r#""n""#);
}

#[test]
fn a_partial_index_is_used_when_the_query_implies_its_filter() {
    let place = place(&[("p", r#"{"fields":["n"],"partial_filter_selector":{"t":true,"s":{"$exists":true}}}"#)]);
    let check = |members: &str, name: &str, is_read: bool| {
        let query = format!("{{{members}}}");
        assert_eq!(explained(&place, &query, &["index", "name"]), name, "{query}");
        assert_eq!(explained(&place, &query, &["access"]).contains(r#""p""#), is_read, "{query}");
    };
    check(r#""selector":{"n":1,"t":true}"#, r#""_all_docs""#, false);
    check(r#""selector":{"n":1,"t":true,"s":"a"}"#, r#""_all_docs""#, true);
    check(r#""selector":{"n":1,"t":true,"s":{"$exists":true}}"#, r#""_all_docs""#, true);
    check(r#""selector":{"n":{"$exists":true},"t":true,"s":"a"}"#, r#""_all_docs""#, true);
    check(r#""selector":{"t":true,"s":"a"}"#, r#""_all_docs""#, false);
    check(r#""selector":{"n":1,"t":{"$ne":false},"s":"a"}"#, r#""_all_docs""#, false);
    check(r#""selector":{"n":1},"use_index":"dp""#, r#""p""#, true);
}

#[test]
fn explanations_show_ranges_and_reasons() {
    let place = place(&[("ns", r#"{"fields":["n","s"]}"#), ("x", r#"{"fields":["x"]}"#), ("n", r#"{"fields":["n"]}"#)]);
    let check = |query: &str, path: &[&str], expected: &str| assert_eq!(explained(&place, query, path), expected);
    let query = r#"{"selector":{"n":{"$gt":1,"$lte":5},"s":"a"},"fields":["_id"]}"#;
    check(query, &["mrargs", "start_key"], r#"[1,"a"]"#);
    check(query, &["mrargs", "end_key"], r#"[5,"a","<MAX>"]"#);
    check(query, &["covering"], "true");
    let hints = ["json", "text", "nouveau"]
        .map(|kind| format!(r#"{{"type":"{kind}","indexable_fields":["n","s"],"unindexable_fields":[]}}"#));
    check(query, &["selector_hints"], &format!("[{}]", hints.join(",")));
    let query = r#"{"selector":{"n":{"$lt":5}},"sort":[{"n":"desc"}]}"#;
    check(query, &["mrargs", "start_key"], r#"[5,"<MAX>"]"#);
    check(query, &["mrargs", "end_key"], "[]");
    check(query, &["mrargs", "direction"], r#""rev""#);
    check(query, &["opts", "sort"], r#"{"n":"desc"}"#);
    let query = r#"{"selector":{"s":"x"}}"#;
    check(query, &["mrargs", "start_key"], "null");
    check(query, &["mrargs", "end_key"], r#""<MAX>""#);
    check(r#"{"selector":{"_id":{"$gte":"b"}}}"#, &["mrargs", "start_key"], r#""b""#);
    let query = r#"{"selector":{"n":1}}"#;
    let candidates = place.explain(query);
    let reasons: Vec<String> = candidates
        .value()
        .get("index_candidates")
        .unwrap()
        .elements()
        .map(|candidate| {
            let analysis = candidate.get("analysis").unwrap();
            let reason = analysis.get("reasons").unwrap().elements().next().unwrap().get("name").unwrap();
            format!(
                "{:?} {:?}",
                candidate.get("index").unwrap().get("name").unwrap().as_str().unwrap(),
                reason.as_str().unwrap()
            )
        })
        .collect();
    assert_eq!(reasons, [r#""x" "field_mismatch""#, r#""ns" "field_mismatch""#, r#""_all_docs" "unfavored_type""#]);
}

#[test]
fn a_list_of_documents_that_cannot_sort_says_why() {
    let place = place(&[]);
    let reasons = |query: &str| {
        let candidates = explained(&place, query, &["index_candidates"]);
        assert_eq!(explained(&place, query, &["index"]), "null");
        let reason =
            |name| candidates.contains(&format!(r#""usable":false,"reasons":[{{"name":"{name}"}}],"ranking":1"#));
        (reason("field_mismatch"), reason("sort_order_mismatch"))
    };
    assert_eq!(reasons(r#"{"selector":{"n":1},"sort":["s"]}"#), (true, false));
    assert_eq!(reasons(r#"{"selector":{"_id":{"$gt":1}},"sort":["s"]}"#), (false, true));
}

#[test]
fn names_of_indexes_have_two_parts_at_most() {
    let place = place(&[("n", r#"{"fields":["n"]}"#)]);
    for name in [r#""dn""#, r#""dn/n""#, r#""_design/dn""#, r#""_design/dn/n""#, r#"["dn","n"]"#] {
        let query = format!(r#"{{"selector":{{"n":1}},"use_index":{name}}}"#);
        assert_eq!(place.find(&query).unwrap().found.unwrap().warning, None, "{name}");
    }
    for name in [r#""dn/n/x""#, r#""_design/dn/n/x""#, r#""a/b/""#, r#"["dn","n","x"]"#, "[1]", "1"] {
        let query = format!(r#"{{"selector":{{"n":1}},"use_index":{name}}}"#);
        assert!(place.find(&query).is_err(), "{name}");
    }
}

#[test]
fn less_is_read_than_couchdb_reads() {
    let place = place(&[("n", r#"{"fields":["n"]}"#), ("s", r#"{"fields":["s","n"]}"#)]);
    let check = |query: &str, keys: u64, docs: u64, results: usize| {
        let page = place.find(query).unwrap();
        let stats = page.found.unwrap().stats;
        assert_eq!((stats.keys_examined, stats.docs_examined, page.documents.len()), (keys, docs, results), "{query}");
    };
    check(r#"{"selector":{"n":{"$in":[1,5,7,99]}}}"#, 3, 3, 3);
    check(r#"{"selector":{"n":{"$in":[1,5,7,99]}},"fields":["n"]}"#, 3, 0, 3);
    check(r#"{"selector":{"s":{"$in":["s0","s1"]},"n":{"$lt":6}},"use_index":"ds"}"#, 4, 4, 4);
    check(r#"{"selector":{"$or":[{"n":3},{"s":"s0","n":{"$gt":26}},{"_id":"d05"}]}}"#, 3, 3, 3);
    check(r#"{"selector":{"_id":{"$in":["d01","d07","x"]}}}"#, 2, 2, 2);
    check(r#"{"selector":{"n":{"$gt":27}}}"#, 2, 2, 2);
    check(r#"{"selector":{"n":{"$or":[{"$lt":2},{"$gt":27}]}}}"#, 4, 4, 4);
    check(r#"{"selector":{"t":{"$gt":5,"$lt":1}}}"#, 30, 30, 0);
}

#[test]
fn warnings_are_couchdbs() {
    let place = place(&[("n", r#"{"fields":["n"]}"#)]);
    let warning = |query: &str| place.find(query).unwrap().found.unwrap().warning;
    assert_eq!(warning(r#"{"selector":{"n":{"$gt":20}}}"#), None);
    let no_index = "No matching index found, create an index to optimize query time.";
    let many = "The number of documents examined is high in proportion to the number of results returned. Consider adding a more specific index to improve this.";
    assert_eq!(warning(r#"{"selector":{"s":"s1"}}"#).unwrap(), no_index);
    assert_eq!(warning(r#"{"selector":{"s":"none"}}"#).unwrap(), format!("{no_index}\n{many}"));
    assert_eq!(warning(r#"{"selector":{"n":{"$gte":0},"s":"none"}}"#).unwrap(), many);
    assert_eq!(
        warning(r#"{"selector":{"n":1},"use_index":"nosuch"}"#).unwrap(),
        "_design/nosuch was not used because it does not contain a valid index for this query."
    );
    assert_eq!(
        warning(r#"{"selector":{"n":1},"use_index":["dn","x"]}"#).unwrap(),
        "_design/dn, x was not used because it is not a valid index for this query."
    );
}

#[test]
fn queries_that_cannot_be_answered_are_refused() {
    let place = place(&[("n", r#"{"fields":["n"]}"#)]);
    let check = |query: &str, expected: Refusal| match place.find(query) {
        Err(MangoError::Refused(refusal)) => assert_eq!(refusal, expected, "{query}"),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{query} was answered"),
    };
    check(r#"{"selector":{"s":"a"},"sort":["s"]}"#, Refusal::NoSortIndex);
    check(r#"{"selector":{"n":1},"sort":["_id"]}"#, Refusal::NoSortIndex);
    check(r#"{"selector":{"$text":"a"}}"#, Refusal::NoTextIndex);
    check(
        r#"{"selector":{"n":1},"use_index":"x","allow_fallback":false}"#,
        Refusal::UnsuitableIndex("_design/x".to_owned()),
    );
    check(r#"{"selector":{"s":1},"allow_fallback":false}"#, Refusal::NoFallbackWithoutIndex);
    assert!(place.find(r#"{"selector":{"n":1},"use_index":"dn","allow_fallback":false}"#).is_ok());
    for named in ["", r#","use_index":"x""#, r#","use_index":"dn""#, r#","use_index":["dn","n"]"#] {
        for selector in [r#"{"s":"a"}"#, r#"{"n":1}"#, "{}", r#"{"s":{"$and":[]}}"#] {
            let query = format!(r#"{{"selector":{selector},"sort":["_id"],"allow_fallback":false{named}}}"#);
            check(&query, Refusal::NoSortIndex);
            let options = FindOptions::parse(json(&query).value()).unwrap();
            let explained = explain(&place.database, SEARCH, &options, &place.reader);
            let is_index = |error: &MangoError| {
                let MangoError::Refused(refusal) = error else { return false };
                matches!(refusal, Refusal::NoFallbackWithoutIndex | Refusal::UnsuitableIndex(_))
            };
            assert!(explained.is_err_and(|error| is_index(&error)), "{query}");
        }
    }
    assert_eq!(explained(&place, r#"{"selector":{"s":"a"},"sort":["s"]}"#, &["index"]), "null");
}

#[test]
fn nothing_is_answered_without_a_bookmark() {
    let place = place(&[("n", r#"{"fields":["n"]}"#)]);
    for selector in [r#"{"$and":[]}"#, r#"{"$or":[]}"#, r#"{"$nor":[]}"#, r#"{"n":{"$gt":5,"$lt":1}}"#] {
        let page = place.find(&format!(r#"{{"selector":{selector}}}"#)).unwrap();
        assert!(page.documents.is_empty() && page.found.is_none(), "{selector}");
    }
    for (range, has_bookmark) in [
        (r#"{"$gte":true,"$lte":3.5}"#, true),
        (r#"{"$gte":1,"$lte":true}"#, true),
        (r#"{"$gte":[1],"$lte":{"a":1}}"#, true),
        (r#"{"$gte":5,"$lte":3.5}"#, false),
        (r#"{"$gte":"b","$lte":"a"}"#, false),
    ] {
        let page = place.find(&format!(r#"{{"selector":{{"_id":{range}}}}}"#)).unwrap();
        assert!(page.documents.is_empty() && page.found.is_some() == has_bookmark, "{range}");
    }
    let page = place.find(r#"{"selector":{},"limit":0}"#).unwrap();
    assert!(page.documents.is_empty());
    assert_eq!(page.found.unwrap().bookmark, "nil");
}

#[test]
fn candidates_cover_the_requested_fields() {
    let place = place(&[("ns", r#"{"fields":["n","s"]}"#)]);
    for (query, covering) in [
        (r#"{"selector":{"t":true},"fields":["n"]}"#, "true"),
        (r#"{"selector":{"t":true},"fields":["_id"]}"#, "true"),
        (r#"{"selector":{"t":true},"fields":["n","t"]}"#, "false"),
        (r#"{"selector":{"t":true}}"#, "false"),
    ] {
        let answer = place.explain(query);
        let candidate = answer.value().get("index_candidates").unwrap().elements().next().unwrap();
        let found = candidate.get("analysis").unwrap().get("covering").unwrap();
        assert_eq!(found.raw(), covering.as_bytes(), "{query}");
        assert_eq!(explained(&place, query, &["covering"]), "false", "{query}");
    }
}

#[test]
fn a_requested_index_is_shown_as_it_was_named() {
    let place = place(&[("n", r#"{"fields":["n"]}"#)]);
    for (requested, shown) in [
        (r#""dn""#, r#"["dn"]"#),
        (r#""_design/dn""#, r#"["dn"]"#),
        (r#""_design/dn/n""#, r#"["dn","n"]"#),
        (r#"["dn"]"#, r#"["dn"]"#),
        (r#"["_design/dn"]"#, r#"["_design/dn"]"#),
        (r#"["_design/dn","n"]"#, r#"["_design/dn","n"]"#),
    ] {
        let query = format!(r#"{{"selector":{{"n":1}},"use_index":{requested}}}"#);
        assert_eq!(explained(&place, &query, &["opts", "use_index"]), shown, "{requested}");
        assert_eq!(explained(&place, &query, &["index", "name"]), r#""n""#, "{requested}");
    }
}

#[test]
fn only_a_search_reads_its_bookmark() {
    let place = place(&[("n", r#"{"fields":["n"]}"#)]);
    let refused = |body: &str| match place.find(body) {
        Err(MangoError::Refused(refusal)) => refusal.name(),
        _ => panic!("{body} is not refused"),
    };
    assert_eq!(refused(r#"{"selector":{"n":1},"limit":0,"bookmark":"x"}"#), "invalid_bookmark");
    assert_eq!(refused(r#"{"selector":{"a.":1},"bookmark":"x"}"#), "invalid_bookmark");
    assert_eq!(refused(r#"{"selector":{"a":1},"sort":["a"],"bookmark":"x"}"#), "no_usable_index");
    assert!(place.find(r#"{"selector":{"n":{"$gt":5,"$lt":1}},"bookmark":"x"}"#).unwrap().found.is_none());
    let explained = explained(&place, r#"{"selector":{"n":1},"bookmark":"x"}"#, &["opts", "bookmark"]);
    assert_eq!(explained, r#""x""#);
}

#[test]
fn a_bookmark_goes_on_although_another_index_came() {
    let place = place(&[]);
    let query = |bookmark: &str| {
        let page = place
            .find(&format!(r#"{{"selector":{{"n":{{"$gte":3}}}},"fields":["_id"],"limit":2,"bookmark":"{bookmark}"}}"#))
            .unwrap();
        (page.documents.join(""), page.found.unwrap().bookmark)
    };
    let (first, bookmark) = query("");
    assert_eq!(first, r#"{"_id":"d03"}{"_id":"d04"}"#);
    place.index(r#"{"fields":["n"]}"#, "n");
    let (second, bookmark) = query(&bookmark);
    assert_eq!(second, r#"{"_id":"d05"}{"_id":"d06"}"#);
    assert_eq!(query(&bookmark).0, r#"{"_id":"d07"}{"_id":"d08"}"#);

    let (_, bookmark) = query("");
    place.index(r#"{"fields":[]}"#, "0");
    assert_eq!(query(&bookmark).0, r#"{"_id":"d05"}{"_id":"d06"}"#);
    crate::index::edit::delete(&place.database, SEARCH, "dn", "json", "n").unwrap();
    let body = format!(r#"{{"selector":{{"n":{{"$gte":3}}}},"bookmark":"{bookmark}"}}"#);
    let refused = place.find(&body);
    assert!(matches!(refused, Err(MangoError::Refused(Refusal::InvalidBookmark(_)))));
    assert!(json(&body).value().is_object());
}

#[test]
fn skip_and_limit_count_matches() {
    let place = place(&[("n", r#"{"fields":["n"]}"#)]);
    let ids = |query: &str| {
        let page = place.find(query).unwrap();
        page.documents
            .iter()
            .map(|text| json(text).value().get("_id").unwrap().as_str().unwrap().into_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(r#"{"selector":{}}"#).len(), 25);
    assert_eq!(ids(r#"{"selector":{},"limit":2,"skip":28}"#), ["d28", "d29"]);
    assert_eq!(ids(r#"{"selector":{"n":{"$gt":20},"s":"s1"},"limit":2,"skip":1}"#), ["d25", "d28"]);
    assert_eq!(ids(r#"{"selector":{"n":{"$lt":4}},"sort":[{"n":"desc"}],"skip":1}"#), ["d02", "d01", "d00"]);
}

#[test]
fn partitions_are_looked_at_one_by_one_or_together() {
    let place = Place::partitioned();
    for (partition, number) in
        ["a", "b", "c"].iter().flat_map(|partition| (0..5).map(move |number| (partition, number)))
    {
        place.write(&format!(r#"{{"_id":"{partition}:{number}","n":{number}}}"#));
    }
    let ids = |query: &str| {
        let page = place.find(query).unwrap();
        page.documents
            .iter()
            .map(|text| json(text).value().get("_id").unwrap().as_str().unwrap().into_owned())
            .collect::<Vec<_>>()
    };
    let check = || {
        assert_eq!(ids(r#"{"selector":{"n":{"$gt":2}},"partition":"b"}"#), ["b:3", "b:4"]);
        assert_eq!(ids(r#"{"selector":{"_id":{"$gt":"a:3"}},"partition":"a"}"#), ["a:4"]);
        assert_eq!(
            ids(r#"{"selector":{"$or":[{"n":1},{"_id":"c:0"},{"_id":"b:0"}]},"partition":"b"}"#),
            ["b:0", "b:1"]
        );
        assert_eq!(ids(r#"{"selector":{"n":4}}"#), ["a:4", "b:4", "c:4"]);
        assert!(ids(r#"{"selector":{},"partition":"d"}"#).is_empty());
    };
    check();
    place.index(r#"{"fields":["n"]}"#, "p");
    check();
    let name = |query: &str| explained(&place, query, &["index", "name"]);
    assert_eq!(name(r#"{"selector":{"n":1},"partition":"a"}"#), r#""p""#);
    assert_eq!(name(r#"{"selector":{"n":1}}"#), r#""_all_docs""#);
    assert_eq!(ids(r#"{"selector":{"n":{"$in":[1,3]}},"sort":[{"n":"desc"}],"partition":"b"}"#), ["b:3", "b:1"]);
    let sorted = r#"{"selector":{"n":1},"sort":["n"]}"#;
    assert!(matches!(place.find(sorted), Err(MangoError::Refused(Refusal::NoGlobalSortIndex))));
    let body = json(r#"{"index":{"fields":["n"]},"name":"g","ddoc":"dg","partitioned":false}"#);
    let index = crate::index::edit::NewIndex::parse(body.value(), SEARCH).unwrap();
    crate::index::edit::create(&place.database, &index).unwrap();
    assert_eq!(name(sorted), r#""g""#);
    assert_eq!(ids(sorted), ["a:1", "b:1", "c:1"]);
    assert_eq!(explained(&place, sorted, &["partitioned"]), "true");
    check();
}

#[test]
fn scans_answer_in_the_order_of_ids_either_way() {
    let place = place(&[]);
    let all = |direction: &str, limit: usize| {
        let mut found = Vec::new();
        let mut bookmark = String::new();
        loop {
            let page = place
                .find(&format!(
                    r#"{{"selector":{{"_id":{{"$gt":null}},"s":"s1"}},"sort":[{{"_id":"{direction}"}}],"fields":["n"],"limit":{limit},"bookmark":"{bookmark}"}}"#
                ))
                .unwrap();
            found.extend(page.documents.iter().map(|text| json(text).value().get("n").unwrap().as_u64().unwrap()));
            bookmark = page.found.unwrap().bookmark;
            if page.documents.is_empty() {
                return found;
            }
        }
    };
    let expected: Vec<u64> = (0..30).filter(|number| number % 3 == 1).collect();
    let reversed: Vec<u64> = expected.iter().rev().copied().collect();
    for limit in [1, 2, 3, 7, 10, 100] {
        assert_eq!(all("asc", limit), expected, "{limit}");
        assert_eq!(all("desc", limit), reversed, "{limit}");
    }
}

#[test]
fn long_lists_read_only_their_matches() {
    let place = Place::new();
    for number in 0..30 {
        place.write(&format!(r#"{{"_id":"d{number:02}","a":{},"b":{number}}}"#, number % 10));
    }
    place.index(r#"{"fields":["a"]}"#, "a");
    let list = |count: usize| (5..5 + count).map(|number| number.to_string()).collect::<Vec<_>>().join(",");
    let page = place.find(&format!(r#"{{"selector":{{"a":{{"$in":[{}]}}}}}}"#, list(100_000))).unwrap();
    assert_eq!((page.documents.len(), page.found.unwrap().stats.keys_examined), (15, 15));
    let others: Vec<String> = (0..5_000).map(|number| format!(r#"{{"x{number}":{{"$exists":false}}}}"#)).collect();
    let selector = format!(r#"{{"$and":[{{"a":{{"$in":[{}]}}}},{}]}}"#, list(20_000), others.join(","));
    let page = place.find(&format!(r#"{{"selector":{selector}}}"#)).unwrap();
    assert_eq!((page.documents.len(), page.found.unwrap().stats.keys_examined), (15, 15));
    let branches: Vec<String> = (5..9_000).map(|number| format!(r#"{{"a":{number}}}"#)).collect();
    let page = place.find(&format!(r#"{{"selector":{{"$or":[{}]}}}}"#, branches.join(","))).unwrap();
    assert_eq!((page.documents.len(), page.found.unwrap().stats.keys_examined), (15, 15));
}

#[test]
fn reading_many_together_counts_as_reading_one_by_one() {
    let place = Place::new();
    for number in 0..40 {
        place.write(&format!(r#"{{"_id":"d{number:02}","a":1,"b":{}}}"#, number % 7));
    }
    place.index(r#"{"fields":["a"]}"#, "a");
    let matching = |number: &usize| number % 7 == 3;
    for skip in 0..4 {
        for limit in 1..8 {
            let body = format!(r#"{{"selector":{{"a":1,"b":3}},"limit":{limit},"skip":{skip}}}"#);
            let page = place.find(&body).unwrap();
            let expected: Vec<usize> = (0..40).filter(matching).skip(skip).take(limit).collect();
            let ids: Vec<String> = expected.iter().map(|number| format!(r#"{{"_id":"d{number:02}""#)).collect();
            assert_eq!(page.documents.len(), ids.len(), "{body}");
            assert!(page.documents.iter().zip(&ids).all(|(text, id)| text.starts_with(id.as_str())), "{body}");
            let examined = if ids.len() < limit { 40 } else { expected.last().map_or(40, |last| *last as u64 + 1) };
            let stats = page.found.unwrap().stats;
            assert_eq!((stats.keys_examined, stats.docs_examined), (examined, examined), "{body}");
        }
    }
}

#[test]
fn conditions_on_elements_read_the_whole_index() {
    let place = Place::new();
    for (number, tags) in [r#"["a"]"#, r#"["b"]"#, r#""a""#, "null", r#"{"a":1}"#].into_iter().enumerate() {
        place.write(&format!(r#"{{"_id":"d{number}","t":{tags}}}"#));
    }
    place.index(r#"{"fields":["t"]}"#, "t");
    for condition in
        [r#"{"$elemMatch":{"$eq":"a"}}"#, r#"{"$allMatch":{"$eq":"a"}}"#, r#"{"$keyMapMatch":{"$eq":"a"}}"#]
    {
        let page = place.find(&format!(r#"{{"selector":{{"t":{condition}}}}}"#)).unwrap();
        assert_eq!((page.documents.len(), page.found.unwrap().stats.keys_examined), (1, 5), "{condition}");
    }
}
