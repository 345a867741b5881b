//! Random documents and queries: after any changes, the results of an index equal those of the model.

use std::sync::Arc;

use settee_design::DesignDocument;
use settee_model::json::Json;
use settee_storage_testing::engine;

use super::host::{Documents, TestHost};
use super::{Rows, ask, core, ddoc, model, settings};
use crate::error::QueryError;
use crate::error::ViewError;
use crate::pace::Urgency;
use crate::query::{Bounds, End, Inclusion, Keys, Order, Reduce, Start, Update, ViewQuery};
use crate::shared::Core;
use settee_model::testing::Random;

/// Views in four indexes. The last one may emit many rows per document, including equal ones.
pub(super) const VIEWS: &str = r#"
    "plain": {"map": "value k v"},
    "sum": {"map": "value k v", "reduce": "_sum"},
    "count": {"map": "value k v", "reduce": "count"},
    "summary": {"map": "value k v", "reduce": "summary"},
    "stats": {"map": "value k v", "reduce": "_stats"},
    "distinct": {"map": "value k v", "reduce": "_approx_count_distinct"},
    "top": {"map": "value k v", "reduce": "_top_3"},
    "bottom": {"map": "value k v", "reduce": "_bottom_2"},
    "first": {"map": "value k v", "reduce": "_first"},
    "last": {"map": "value k v", "reduce": "_last"},
    "raw": {"map": "value k v", "reduce": "_count", "options": {"collation": "raw"}},
    "none": {"map": "none", "reduce": "_sum"},
    "each": {"map": "each list", "reduce": "_count"}"#;
pub(super) const NAMES: [&str; 13] =
    ["plain", "sum", "count", "summary", "stats", "distinct", "top", "bottom", "first", "last", "raw", "none", "each"];

fn key(random: &mut Random) -> String {
    match random.below(12) {
        0 => "null".to_owned(),
        1 => (random.below(2) == 0).to_string(),
        2 => format!("{}.5", random.below(5)),
        3 => format!("\"{}\"", random.pick(&["", "a", "A", "b", "ä", "aa"])),
        4 => "{}".to_owned(),
        5 => format!("{{\"a\":{}}}", random.below(3)),
        6 => "[]".to_owned(),
        7 => format!("[{}]", random.below(4)),
        8 | 9 => format!("[{},{}]", random.below(4), random.below(12)),
        10 => format!("[{},\"{}\",[{}]]", random.below(4), random.below(3), random.below(3)),
        _ => random.below(20).to_string(),
    }
}

pub(super) fn id(random: &mut Random, space: u64) -> String {
    match random.below(40) {
        0 => format!("_design/{}", random.below(3)),
        1 => format!("a\0{}", random.below(3)),
        _ => format!("doc{:04}", random.below(space)),
    }
}

pub(super) fn change(host: &TestHost, random: &mut Random, count: u64, space: u64) {
    change_ids(host, random, count, |random| id(random, space));
}

pub(super) fn change_ids(host: &TestHost, random: &mut Random, count: u64, id: impl Fn(&mut Random) -> String) {
    for _ in 0..count {
        let id = id(random);
        if random.below(5) == 0 {
            host.put(&id, None);
            continue;
        }
        host.put(&id, Some(&body(random)));
    }
}

/// Returns the inside of a JSON object.
pub(super) fn body(random: &mut Random) -> String {
    let (v, pair) = (random.below(100), [random.below(10), random.below(1_000)]);
    let mut body = format!(
        "\"v\":{v},\"pair\":[{},{}],\"object\":{{\"a\":{v},\"b\":{{\"c{}\":1}}}}",
        pair[0],
        pair[1],
        pair[0] % 3
    );
    if random.one_in(7) {
        body.push_str(",\"t\":1");
    }
    if random.below(4) > 0 {
        body.push_str(&format!(",\"k\":{}", key(random)));
    }
    let list: Vec<String> = (0..random.below(8)).map(|_| key(random)).collect();
    body.push_str(&format!(",\"list\":[{}]", list.join(",")));
    body
}

pub(super) fn query(random: &mut Random) -> ViewQuery {
    let json = |text: String| Json::parse(text.as_bytes()).unwrap();
    let docid = |random: &mut Random| (random.below(3) == 0).then(|| id(random, 300));
    let keys = match random.below(5) {
        0 => Keys::Many((0..random.below(4)).map(|_| json(key(random))).collect(), Bounds::default()),
        1 => Keys::one(json(key(random))),
        _ => Keys::Range {
            start: (random.below(3) > 0).then(|| Start { key: json(key(random)), docid: docid(random) }),
            end: (random.below(3) > 0).then(|| End {
                key: json(key(random)),
                docid: docid(random),
                inclusion: if random.below(3) == 0 { Inclusion::Exclusive } else { Inclusion::Inclusive },
            }),
        },
    };
    ViewQuery {
        keys,
        order: if random.below(3) == 0 { Order::Descending } else { Order::Ascending },
        reduce: match random.below(6) {
            0 => Reduce::Off,
            1 => Reduce::Exact,
            2 | 3 => Reduce::Level(random.below(4)),
            _ => Reduce::Default,
        },
        skip: if random.below(3) == 0 { random.below(30) } else { 0 },
        limit: (random.below(3) == 0).then(|| random.below(20)),
        ..ViewQuery::default()
    }
}

pub(super) fn compare(core: &Core, host: &TestHost, ddoc: &DesignDocument, random: &mut Random, count: u64) {
    for _ in 0..count {
        let name = random.pick(&NAMES);
        let documents = Arc::clone(&host.documents.lock());
        compare_one(core, host, ddoc, name, &query(random), &documents);
    }
}

pub(super) fn compare_one(
    core: &Core,
    host: &TestHost,
    ddoc: &DesignDocument,
    name: &str,
    query: &ViewQuery,
    documents: &Documents,
) {
    check_answer(ask(core, host, ddoc, name, query), ddoc, name, query, documents);
}

pub(super) fn check_answer(
    answer: Result<Rows, ViewError>,
    ddoc: &DesignDocument,
    name: &str,
    query: &ViewQuery,
    documents: &Documents,
) {
    match answer {
        Ok(rows) => assert_eq!(rows, model::answer(documents, ddoc, name, query), "{name} {query:?}"),
        Err(ViewError::Query(QueryError::GroupingOnMap)) => assert_eq!(name, "plain"),
        Err(ViewError::Query(QueryError::ManyKeysOnReduce)) => assert!(matches!(query.keys, Keys::Many(..))),
        Err(ViewError::Query(QueryError::RangeNotAscending)) => assert_eq!(query.order, Order::Ascending),
        Err(ViewError::Query(QueryError::RangeNotDescending)) => assert_eq!(query.order, Order::Descending),
        Err(error) => panic!("{name} {query:?}: {error}"),
    }
}

fn check(seed: u64, threads: usize, memory_bytes: usize) {
    println!("seed {seed}");
    let mut random = Random::of(seed);
    let engine = engine();
    let host = TestHost::new(engine);
    let ddoc = ddoc(VIEWS);
    let mut core_now = core(settings(threads, memory_bytes));
    for _ in 0..12 {
        let count = random.pick(&[1, 5, 60, 900]);
        change(&host, &mut random, count, 300 + 700 * (seed % 2));
        compare(&core_now, &host, &ddoc, &mut random, 12);
        if random.below(4) == 0 {
            core_now = core(settings(threads, memory_bytes));
        }
    }
}

#[test]
fn answers_are_those_of_the_model() {
    (0..6).for_each(|seed| check(seed, 1, 1 << 20));
}

#[test]
fn answers_do_not_depend_on_threads_and_spilling() {
    (10..16).for_each(|seed| check(seed, 3, 2_000));
}

#[test]
fn an_index_that_is_far_behind_is_rebuilt() {
    let mut random = Random::of(77);
    let host = TestHost::new(engine());
    let ddoc = ddoc(VIEWS);
    let core = core(settings(2, 100_000));
    for count in [300, 9_000, 200, 12_000, 1] {
        change(&host, &mut random, count, 20_000);
        compare(&core, &host, &ddoc, &mut random, 6);
    }
}

#[test]
fn the_old_index_answers_until_it_is_brought_up_to_date() {
    let mut random = Random::of(3);
    let host = TestHost::new(engine());
    let ddoc = ddoc(VIEWS);
    let core = core(settings(1, 1 << 20));
    let with = |update| ViewQuery { update, ..ViewQuery::default() };
    for name in NAMES {
        assert!(ask(&core, &host, &ddoc, name, &with(Update::False)).unwrap().map.is_empty());
    }
    change(&host, &mut random, 200, 100);
    assert!(ask(&core, &host, &ddoc, "plain", &with(Update::Lazy)).unwrap().map.is_empty());
    core.update(&host, &ddoc, Urgency::Client).unwrap();
    let before: Vec<_> =
        NAMES.iter().map(|name| ask(&core, &host, &ddoc, name, &with(Update::False)).unwrap()).collect();
    for (name, rows) in NAMES.iter().zip(&before) {
        assert_eq!(*rows, model::answer(&host.documents.lock().clone(), &ddoc, name, &with(Update::True)));
    }
    change(&host, &mut random, 200, 100);
    for (name, rows) in NAMES.iter().zip(&before) {
        assert_eq!(ask(&core, &host, &ddoc, name, &with(Update::Lazy)).unwrap(), *rows);
    }
}
