//! Expensive searches end early, use little memory, and return errors.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::limits::tests::Client;
use crate::limits::{Requester, SearchLimits};
use crate::request::{Grouping, Highlighting, Range};
use crate::{Boolean, Interval, Query, Sort, SortBy};

fn hostile_index() -> Index {
    let mut definition = definition("standard", &[("s", "keyword")]);
    let field = crate::VectorField { name: "v".to_owned(), dimensions: 2, similarity: crate::Similarity::L2 };
    definition.vectors = vec![field];
    let index = new_index(definition);
    let source = many_documents();
    write(&index, &source.iter().map(|(id, fields)| (id.as_str(), fields.clone())).collect::<Vec<_>>());
    index
}

const DOCUMENTS: u32 = 400;

fn many_documents() -> Vec<(String, Vec<Field>)> {
    let document = |number: u32| {
        let words = format!("common word{} word{} a{}", number % 7, number % 501, "b".repeat(number as usize % 40));
        let fields = vec![
            kept(text("default", &words)),
            kept(string("s", &format!("w{number}"))),
            double("n", f64::from(number)),
            vector("v", &[number as f32, 1.0]),
        ];
        (format!("{number:05}"), fields)
    };
    (0..DOCUMENTS).map(document).collect()
}

fn hostile(index: &Index) -> Vec<(&'static str, Request)> {
    let of = |query: &str| request(index, query, "").unwrap();
    let near = crate::Nearest {
        field: "v".to_owned(),
        vector: vec![1.0, 2.0],
        count: usize::MAX,
        candidates: 10,
        filter: Some(Box::new(Query::All)),
    };
    let any: Vec<Query> = (0..500).map(|number| Query::term("default", format!("word{number}"))).collect();
    let terms = |terms: u32| (0..terms).map(|number| Interval::Term(format!("word{number}"))).collect::<Vec<_>>();
    let grouping = Grouping { field: "s".to_owned(), limit: 10, sort: Vec::new() };
    let highlighting = Highlighting {
        fields: vec!["default".to_owned()],
        pre_tag: "<".repeat(1_000),
        post_tag: ">".to_owned(),
        number: usize::MAX,
        size: usize::MAX,
    };
    let all = of("*:*");
    let by_number = vec![Sort { by: SortBy::Field("n".to_owned()), descending: true }];
    vec![
        ("all hits", Request { limit: usize::MAX, ..all.clone() }),
        ("sorted hits", Request { limit: usize::MAX, sort: by_number, ..all.clone() }),
        ("hits by relevance", Request { limit: usize::MAX, ..of("common") }),
        ("a union", Request::new(Query::any_of(any.clone()))),
        ("an intersection", Request::new(Query::all_of([any, vec![Query::All]].concat()))),
        (
            "exclusion",
            Request::new(Query::Boolean(Boolean {
                must: vec![Query::All],
                must_not: vec![Query::term("default", "common")],
                ..Boolean::default()
            })),
        ),
        ("a fuzzy term", of("wors~2")),
        ("an expression", of(&format!("/{}/", ".?".repeat(499)))),
        ("a wildcard", of("w?r*1*")),
        ("a prefix", of("w*")),
        ("a range", of("[a TO z]")),
        ("numbers", of("n:[1 TO 100000]")),
        ("existing texts", Request::new(Query::exists("default"))),
        ("a sloppy phrase", of("\"word1 common\"~5")),
        (
            "intervals",
            Request::new(Query::Intervals { field: "default".to_owned(), source: Interval::AtLeast(1, terms(400)) }),
        ),
        ("near vectors", Request::new(Query::Nearest(near))),
        ("counts", Request { counts: vec!["s".to_owned()], top_n: None, ..all.clone() }),
        (
            "ranges",
            Request {
                ranges: vec![("n".to_owned(), vec![Range::parse_classic("r", "[0 TO 10]").unwrap(); 900])],
                ..all.clone()
            },
        ),
        ("groups", Request { group: Some(grouping), limit: 200, ..all.clone() }),
        (
            "drilldown",
            Request {
                drilldown: (0..600).map(|n| vec!["s".to_owned(), format!("w{n}"), "w1".to_owned()]).collect(),
                ..all.clone()
            },
        ),
        (
            "a drilldown with many values",
            Request {
                drilldown: vec![std::iter::once("s".to_owned()).chain((0..20_000).map(|n| format!("w{n}"))).collect()],
                ..all.clone()
            },
        ),
        ("highlights", Request { highlight: Some(highlighting), limit: usize::MAX, ..of("common OR word*") }),
    ]
}

fn limits_of(client: &Arc<Client>) -> SearchLimits {
    SearchLimits::of(Arc::clone(client) as Arc<dyn Requester>)
}

#[test]
fn every_search_ends_soon_after_its_client_has_gone() {
    let index = hostile_index();
    for (name, request) in hostile(&index) {
        let whole = Arc::new(Client::new());
        index.search(&request, &limits_of(&whole)).unwrap();
        let checks = whole.checks.load(Ordering::Relaxed);
        assert!(checks >= 2, "{name}: {checks}");
        for gone_after in [0, 1, checks / 3, checks / 2, checks - 1] {
            let client = Arc::new(Client { gone_after, ..Client::new() });
            let outcome = index.search(&request, &limits_of(&client)).map(|answer| answer.total_hits);
            assert!(matches!(outcome, Err(Error::Disconnected)), "{name} after {gone_after} of {checks}: {outcome:?}");
            assert_eq!(client.checks.load(Ordering::Relaxed), gone_after + 1, "{name}: nothing is done afterwards");
        }
        let late = Arc::new(Client { late_after: checks / 2, ..Client::new() });
        let outcome = index.search(&request, &limits_of(&late)).map(|answer| answer.total_hits);
        assert!(matches!(outcome, Err(Error::TimedOut)), "{name}: {outcome:?}");
    }
}

#[test]
fn memory_is_charged_before_it_is_taken_and_given_back() {
    let index = hostile_index();
    for (name, request) in hostile(&index) {
        let little = Arc::new(Client { memory: Arc::new(AtomicUsize::new(60 << 10)), ..Client::new() });
        let outcome = index.search(&request, &limits_of(&little)).map(|answer| answer.total_hits);
        let is_small = matches!(name, "exclusion" | "numbers");
        assert!(is_small || matches!(outcome, Err(Error::OutOfMemory)), "{name}: {outcome:?}");
        assert_eq!(little.memory.load(Ordering::Relaxed), 60 << 10, "{name}");
        let enough = Arc::new(Client { memory: Arc::new(AtomicUsize::new(64 << 20)), ..Client::new() });
        index.search(&request, &limits_of(&enough)).unwrap();
        assert_eq!(enough.memory.load(Ordering::Relaxed), 64 << 20, "{name}");
    }
}

#[test]
fn five_thousand_drilldowns_are_one_flat_query() {
    let index = hostile_index();
    let mut request = request(&index, "*:*", "").unwrap();
    request.drilldown = vec![vec!["s".to_owned(), "w7".to_owned()]; 5_000];
    assert_eq!(ids(&index.search(&request, &SearchLimits::none()).unwrap()), "00007");
    request.drilldown.push(vec!["s".to_owned(), "w8".to_owned()]);
    assert_eq!(index.search(&request, &SearchLimits::none()).unwrap().total_hits, 0);
    let values = (0..5_000).map(|number| format!("w{number}"));
    request.drilldown = vec![std::iter::once("s".to_owned()).chain(values).collect()];
    assert_eq!(index.search(&request, &SearchLimits::none()).unwrap().total_hits, u64::from(DOCUMENTS));
}

#[test]
fn each_value_of_a_drilldown_is_charged() {
    let index = hostile_index();
    let client = Arc::new(Client { memory: Arc::new(AtomicUsize::new(1 << 20)), ..Client::new() });
    for (lists, values, is_served) in [(1, 20, true), (1, 5_000, false), (5_000, 1, false)] {
        let mut request = request(&index, "*:*", "").unwrap();
        let values = (0..values).map(|number| format!("w{number}"));
        request.drilldown = vec![std::iter::once("s".to_owned()).chain(values).collect(); lists];
        let found = index.search(&request, &limits_of(&client));
        assert_eq!(found.is_ok(), is_served, "{lists}: {found:?}");
    }
}

#[test]
fn a_fuzzy_term_takes_as_many_bytes_as_it_has_letters() {
    let index = hostile_index();
    let query = format!("{}~2", "a".repeat(7_000));
    let client = Arc::new(Client { memory: Arc::new(AtomicUsize::new(1 << 20)), ..Client::new() });
    let limits = limits_of(&client);
    let request = Request::new(index.parse(&query, Locale::default(), &limits).unwrap());
    assert_eq!(index.search(&request, &limits).unwrap().total_hits, 0);
}

#[test]
fn deep_and_long_queries_are_refused_as_syntax_errors() {
    let index = hostile_index();
    let nested = |open: &str, inner: &str, close: &str, times: usize| {
        format!("{}{inner}{}", open.repeat(times), close.repeat(times))
    };
    for query in [
        nested("(", "a", ")", 100_000),
        nested("-(", "a", ")", 100_000),
        nested("(", "a", ")^2", 50_000),
        nested("fn:ordered(", "a", ")", 20_000),
        nested("fn:unorderednooverlaps(a ", "a", ")", 20_000),
        "a ".repeat(100_000),
        "a AND ".repeat(100_000),
        "NOT ".repeat(100_000),
        "+-".repeat(100_000),
        "x-".repeat(100_000),
        format!("fn:or({})", "a ".repeat(100_000)),
        format!("\"{}\"", "a ".repeat(100_000)),
        "[".repeat(100_000),
        "a:".repeat(100_000),
        "\\".repeat(100_001),
    ] {
        for outcome in [
            index.parse(&query, Locale::default(), &SearchLimits::none()),
            index.parse_classic(&query, &SearchLimits::none()),
        ] {
            let error = outcome.expect_err(&query[..20]);
            assert!(matches!(error, Error::Syntax { .. } | Error::BadRequest(_)), "{error:?}");
            assert!(error.to_string().len() < 20_000, "{}", &query[..20]);
        }
    }
}

#[test]
fn intervals_without_overlaps_do_not_double_with_their_depth() {
    let index = hostile_index();
    let nested = format!("{}common{}", "fn:unorderedNoOverlaps(word1 ".repeat(30), ")".repeat(30));
    let client = Arc::new(Client::new());
    index.search(&request(&index, &nested, "").unwrap(), &limits_of(&client)).unwrap();
    assert!(client.checks.load(Ordering::Relaxed) < 5_000);
}

#[test]
fn bookmarks_that_belong_to_no_search_are_refused() {
    let index = hostile_index();
    for bookmark in ["AAAA".repeat(500_000), "A".repeat(5_000_000), "AwAA".to_owned(), "____".to_owned()] {
        let request = Request { bookmark: Some(bookmark), ..request(&index, "*:*", "").unwrap() };
        assert!(matches!(index.search(&request, &SearchLimits::none()), Err(Error::BadRequest(_))));
    }
}
