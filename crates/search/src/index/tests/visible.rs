//! Restricted indexes answer as indexes that never contained the other documents.

use super::*;
use crate::query::Nearest;
use crate::request::{Grouping, Range, Request, Sort};
use crate::{Query, Similarity, VectorField};

fn restricted(index: &Index, ids: &[&str]) -> Index {
    let restricted: Result<Index> = index.restricted(&SearchLimits::none(), |position, each| {
        assert_eq!(position, Some(&b"position"[..]));
        ids.chunks(2).try_for_each(each)
    });
    restricted.unwrap()
}

fn visible() -> Vec<(&'static str, Vec<Field>)> {
    vec![
        ("p:a", vec![text("default", "quick brown fox"), string("s", "one"), double("n", 1.0)]),
        ("p:b", vec![text("default", "brown dog and brown cat"), string("s", "two"), string("s", "one")]),
        ("q:c", vec![text("default", "a slow fox"), kept(string("k", "x")), double("n", -2.0)]),
        ("q:d", vec![double("n", 7.5)]),
    ]
}

/// Has other terms, longer texts, and fields that no visible document has.
fn hidden() -> Vec<(&'static str, Vec<Field>)> {
    let words = "fox fox fox brown hidden hiding hideous words in a text that is longer than all the other texts";
    let other = || vec![text("default", words), string("s", "three"), double("n", 3.0), double("on", 1.0)];
    vec![
        ("p:e", [other(), vec![string("os", "secret"), text("ot", "a hidden fox")]].concat()),
        ("p:f", [other(), vec![kept(string("k", "y"))]].concat()),
        ("q:g", other()),
    ]
}

fn requests(index: &Index) -> Vec<(String, Result<Request>)> {
    let mut requests = Vec::new();
    let queries = [
        "*:*",
        "fox",
        "brown fox",
        "hidden",
        "hid*",
        "fo?",
        "fax~",
        "/fo./",
        "s:one",
        "s:three",
        "s:[a TO z]",
        "n:3",
        "n:[0 TO 8]",
        "on:1",
        "on:word",
        "os:secret",
        "os:\"a b\"",
        "ot:fox",
        "ot:\"hidden fox\"",
        "\"brown fox\"",
        "\"fox brown\"~3",
        "_id:p\\:e",
        "_id:p\\:a",
        "NOT fox",
        "fn:ordered(brown fox)",
        "os:fn:ordered(a b)",
        "k:*",
        "ot:*",
        "+brown -fox",
        "fox^3 dog",
        "n:x",
    ];
    for query in queries {
        for sort in ["", "n", "-s", "on", "os", "ot", "k n"] {
            let mut asked = request(index, query, sort);
            if let Ok(asked) = &mut asked {
                asked.limit = 3;
                asked.partition = (sort == "n").then(|| "p".to_owned());
            }
            requests.push((format!("{query} by {sort}"), asked));
        }
        let classic = index.parse_classic(query, &SearchLimits::none()).map(Request::new);
        requests.push((format!("classic {query}"), classic));
    }
    for field in ["s", "n", "k", "on", "os", "ot", "default", "none"] {
        let all = Range::parse_classic("all", "[* TO *]").unwrap();
        let by = Grouping { field: field.to_owned(), limit: 9, sort: vec![Sort::parse("n").unwrap()] };
        let of = |request: Request| (format!("{field} of {request:?}"), Ok(request));
        requests.push(of(Request { counts: vec![field.to_owned()], ..Request::new(Query::All) }));
        requests.push(of(Request { ranges: vec![(field.to_owned(), vec![all])], ..Request::new(Query::All) }));
        requests.push(of(Request { group: Some(by), ..Request::new(Query::All) }));
        let drilldown = vec![vec![field.to_owned(), "one".to_owned(), "secret".to_owned()]];
        requests.push(of(Request { drilldown, ..Request::new(Query::All) }));
    }
    requests
}

#[test]
fn other_documents_have_no_influence_on_answers() {
    let own = new_index(definition("standard", &[]));
    write(&own, &visible());
    let shared = new_index(definition("standard", &[]));
    let (visible, hidden) = (visible(), hidden());
    write(&shared, &[&hidden[..1], &visible[..2]].concat());
    write(&shared, &[&visible[2..], &hidden[1..]].concat());
    let part = restricted(&shared, &["p:a", "p:b", "q:c", "q:d", "missing"]);
    for ((name, on_part), (_, on_own)) in requests(&part).into_iter().zip(requests(&own)) {
        let answer = |index: &Index, request: Result<Request>| {
            let answer = request.and_then(|request| index.search(&request, &SearchLimits::none()));
            format!("{:?}", answer.map_err(|error| error.to_string()))
        };
        assert_eq!(answer(&part, on_part), answer(&own, on_own), "{name}");
    }
    // The whole index is unchanged.
    assert_eq!(find(&shared, "hidden"), "p:e p:f q:g");
    let nothing = restricted(&shared, &[]);
    assert_eq!((find(&nothing, "*:*"), find(&nothing, "fox")), (String::new(), String::new()));
}

#[test]
fn patterns_of_intervals_are_refused() {
    let index = new_index(definition("standard", &[]));
    write(&index, &visible());
    let part = restricted(&index, &["p:a"]);
    let query = "fn:ordered(brown fn:wildcard(fo?))";
    assert_eq!(find(&index, query), "p:a");
    assert!(find(&part, query).contains("only administrators"), "{}", find(&part, query));
}

#[test]
fn neighbours_are_the_nearest_visible_ones() {
    let vectors = vec![VectorField { name: "v".to_owned(), dimensions: 1, similarity: Similarity::L2 }];
    let index = new_index(Definition { vectors, ..definition("standard", &[]) });
    let point = |x: f32| vec![vector("v", &[x])];
    write(&index, &[("a", point(0.0)), ("b", point(1.0)), ("c", point(2.0)), ("d", point(3.0))]);
    let part = restricted(&index, &["c", "d"]);
    for filter in [None, Some(Box::new(Query::All))] {
        let near = Nearest { field: "v".to_owned(), vector: vec![0.1], count: 1, candidates: 1, filter };
        let answer = part.search(&Request::new(Query::Nearest(near)), &SearchLimits::none()).unwrap();
        assert_eq!((ids(&answer).as_str(), answer.total_hits), ("c", 1));
    }
}

#[test]
fn replaced_and_removed_documents_are_not_visible() {
    let index = new_index(definition("standard", &[]));
    write(&index, &visible());
    write(&index, &[("p:a", vec![text("default", "new fox")])]);
    let mut writer = index.writer(0).unwrap().unwrap();
    writer.delete("q:c").unwrap();
    writer.commit(b"position").unwrap();
    let part = restricted(&index, &["p:a", "q:c"]);
    assert_eq!(
        (find(&part, "fox"), find(&part, "quick"), find(&part, "slow")),
        ("p:a".to_owned(), String::new(), String::new())
    );
}
