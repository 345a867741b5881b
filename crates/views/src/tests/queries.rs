//! Recorded documents and responses of CouchDB's scenarios `views` and `reduces`.

use settee_model::json::Json;
use settee_storage_testing::engine;

use super::host::TestHost;
use super::{Rows, ask, core, ddoc, settings};
use crate::error::QueryError;
use crate::query::{Bounds, Docs, End, Header, Inclusion, Keys, MapRow, Order, Reduce, Start, ViewQuery};
use crate::shared::Core;
use crate::{ViewError, tests::text};

const VIEWS: &str = r#"
    "age": {"map": "value age name"},
    "ta": {"map": "value ta one", "reduce": "_sum"}"#;

const PEOPLE: [(&str, &str); 6] = [
    ("p1", r#""name":"Ann","age":30,"ta":["Oslo",30],"one":1"#),
    ("p2", r#""name":"Bob","age":25,"ta":["Rome",25],"one":1"#),
    ("p3", r#""name":"Cid","age":30,"ta":["Oslo",30],"one":1"#),
    ("p4", r#""name":"Dan","age":41,"ta":["Kyiv",41],"one":1"#),
    ("p5", r#""name":"Eve","age":25,"ta":["Oslo",25],"one":1"#),
    ("x1", r#""kind":"other""#),
];

fn people() -> (Core, TestHost) {
    let host = TestHost::new(engine());
    PEOPLE.iter().for_each(|(id, body)| host.put(id, Some(body)));
    (core(settings(1, 1 << 20)), host)
}

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

fn start(key: &str, docid: Option<&str>) -> Option<Start> {
    Some(Start { key: json(key), docid: docid.map(str::to_owned) })
}

fn end(key: &str, docid: Option<&str>, inclusion: Inclusion) -> Option<End> {
    Some(End { key: json(key), docid: docid.map(str::to_owned), inclusion })
}

fn many(keys: &[&str]) -> Keys {
    Keys::Many(keys.iter().map(|key| json(key)).collect(), Bounds::default())
}

fn range(start: Option<Start>, end: Option<End>) -> ViewQuery {
    ViewQuery { keys: Keys::Range { start, end }, ..ViewQuery::default() }
}

fn descending(query: ViewQuery) -> ViewQuery {
    ViewQuery { order: Order::Descending, ..query }
}

fn offset(rows: &Rows) -> u64 {
    let Some(Header::Map { total_rows: 5, offset, .. }) = rows.header else {
        panic!("{:?}", rows.header);
    };
    offset
}

#[test]
fn map_rows_are_those_of_couchdb() {
    let (core, host) = people();
    let ddoc = ddoc(VIEWS);
    let check = |query: ViewQuery, expected_offset: u64, ids: &str| {
        let rows = ask(&core, &host, &ddoc, "age", &query).unwrap();
        let found: Vec<&str> = rows.map.iter().map(|(_, id, _)| id.as_str()).collect();
        assert_eq!((offset(&rows), found.join(" ").as_str()), (expected_offset, ids), "{query:?}");
    };
    let all = ViewQuery::default;
    let yes = Inclusion::Inclusive;
    let no = Inclusion::Exclusive;
    check(all(), 0, "p2 p5 p1 p3 p4");
    check(descending(all()), 0, "p4 p3 p1 p5 p2");
    check(descending(range(start("30", None), end("25", None, yes))), 1, "p3 p1 p5 p2");
    check(descending(range(start("30", None), end("25", None, no))), 1, "p3 p1");
    check(descending(ViewQuery { limit: Some(2), skip: 1, ..all() }), 1, "p3 p1");
    check(descending(range(start("30", Some("p1")), None)), 2, "p1 p5 p2");
    check(range(start("26", None), end("40", None, yes)), 2, "p1 p3");
    check(range(None, end("30", None, no)), 0, "p2 p5");
    check(range(start("99", None), None), 5, "");
    check(range(start("25", Some("p3")), None), 1, "p5 p1 p3 p4");
    check(range(start("25", None), end("30", Some("p1"), yes)), 0, "p2 p5 p1");
    check(range(start("25", None), end("30", Some("p1"), no)), 0, "p2 p5");
    check(range(start("30", Some("p3")), end("30", Some("p1"), yes)), 3, "");
    check(ViewQuery { limit: Some(0), ..all() }, 0, "");
    check(ViewQuery { skip: 50, ..all() }, 5, "");
    let key = |key: &str| ViewQuery { keys: Keys::one(json(key)), ..ViewQuery::default() };
    check(key("25"), 0, "p2 p5");
    check(key("26"), 2, "");
    check(key("\"25\""), 5, "");
    check(ViewQuery { skip: 1, ..key("30") }, 3, "p3");
    check(ViewQuery { keys: many(&["41", "30"]), ..all() }, 4, "p4 p1 p3");
    check(ViewQuery { keys: many(&["30", "25", "30"]), ..all() }, 2, "p1 p3 p2 p5 p1 p3");
    check(descending(ViewQuery { keys: many(&["25", "30"]), ..all() }), 1, "p3 p1 p5 p2");
    check(ViewQuery { keys: many(&["30", "25"]), skip: 1, limit: Some(3), ..all() }, 3, "p3 p2 p5");
    check(ViewQuery { keys: many(&[]), ..all() }, 0, "");
    check(ViewQuery { reduce: Reduce::Off, limit: Some(1), ..all() }, 0, "p2");
    check(ViewQuery { docs: Docs::Include, limit: Some(1), ..all() }, 0, "p2");
}

#[test]
fn reductions_are_those_of_couchdb() {
    let (core, host) = people();
    let ddoc = ddoc(VIEWS);
    let check = |query: ViewQuery, expected: &str| {
        let rows = ask(&core, &host, &ddoc, "ta", &query).unwrap();
        let found: Vec<String> = rows.reduce.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(found.join(" "), expected, "{query:?}");
    };
    let level = |level: u32, query: ViewQuery| ViewQuery { reduce: Reduce::Level(level), ..query };
    let exact = |query: ViewQuery| ViewQuery { reduce: Reduce::Exact, ..query };
    let all = ViewQuery::default;
    let yes = Inclusion::Inclusive;
    check(all(), "null=5");
    check(ViewQuery { reduce: Reduce::Whole, ..all() }, "null=5");
    check(range(start("[\"Oslo\"]", None), end("[\"Oslo\",{}]", None, yes)), "null=3");
    check(range(start("[\"Z\"]", None), None), "");
    check(exact(all()), "[\"Kyiv\",41]=1 [\"Oslo\",25]=1 [\"Oslo\",30]=2 [\"Rome\",25]=1");
    check(level(1, all()), "[\"Kyiv\"]=1 [\"Oslo\"]=3 [\"Rome\"]=1");
    check(level(5, all()), "[\"Kyiv\",41]=1 [\"Oslo\",25]=1 [\"Oslo\",30]=2 [\"Rome\",25]=1");
    check(level(0, all()), "null=5");
    check(level(1, descending(all())), "[\"Rome\"]=1 [\"Oslo\"]=3 [\"Kyiv\"]=1");
    check(level(1, ViewQuery { limit: Some(2), ..all() }), "[\"Kyiv\"]=1 [\"Oslo\"]=3");
    check(level(1, ViewQuery { skip: 1, ..all() }), "[\"Oslo\"]=3 [\"Rome\"]=1");
    let oslo = range(start("[\"Oslo\",{}]", None), end("[\"Oslo\"]", None, yes));
    check(exact(descending(oslo)), "[\"Oslo\",30]=2 [\"Oslo\",25]=1");
    let cut = range(start("[\"Oslo\",26]", None), end("[\"Rome\",25]", None, Inclusion::Exclusive));
    check(level(1, cut), "[\"Oslo\"]=2");
    let keys = many(&["[\"Rome\",25]", "[\"Oslo\",30]", "[\"X\",1]"]);
    check(exact(ViewQuery { keys, ..all() }), "[\"Rome\",25]=1 [\"Oslo\",30]=2");
    check(ViewQuery { keys: many(&["[\"Rome\",25]"]), ..all() }, "null=1");
    check(ViewQuery { skip: 1, ..all() }, "");
    check(ViewQuery { limit: Some(0), ..all() }, "");
}

#[test]
fn parameters_that_do_not_fit_are_refused() {
    let (core, host) = people();
    let ddoc = ddoc(VIEWS);
    let check = |view: &str, query: ViewQuery, expected: QueryError| match ask(&core, &host, &ddoc, view, &query) {
        Err(ViewError::Query(error)) => assert_eq!(error, expected),
        other => panic!("{query:?}: {other:?}"),
    };
    let with = |reduce| ViewQuery { reduce, ..ViewQuery::default() };
    check("age", with(Reduce::Whole), QueryError::ReduceOnMap);
    check("age", with(Reduce::Exact), QueryError::GroupingOnMap);
    check("age", with(Reduce::Level(1)), QueryError::GroupingOnMap);
    check("ta", ViewQuery { docs: Docs::Include, ..ViewQuery::default() }, QueryError::DocsOnReduce);
    let two = many(&["[\"Rome\",25]", "[\"Oslo\",30]"]);
    check("ta", ViewQuery { keys: two.clone(), ..ViewQuery::default() }, QueryError::ManyKeysOnReduce);
    check("ta", ViewQuery { keys: two, ..with(Reduce::Level(1)) }, QueryError::ManyKeysOnReduce);
    let yes = Inclusion::Inclusive;
    check("age", range(start("40", None), end("20", None, yes)), QueryError::RangeNotAscending);
    check("age", descending(range(start("20", None), end("40", None, yes))), QueryError::RangeNotDescending);
    assert!(matches!(ask(&core, &host, &ddoc, "nosuch", &ViewQuery::default()), Err(ViewError::MissingView)));
    assert_eq!(host.index_count(), 0, "nothing is built for a query that is refused");
}

#[test]
fn rows_name_the_documents_beside_them() {
    let check = |value: &[u8], id: Option<&str>, rev: Option<&str>| {
        let linked = MapRow { key: b"1", id: "own", value }.document();
        assert_eq!((linked.id.as_deref(), linked.rev.as_deref()), (id, rev), "{}", text(value));
    };
    check(b"1", Some("own"), None);
    check(br#"{"a":1}"#, Some("own"), None);
    check(br#"{"_id":"t"}"#, Some("t"), None);
    check(br#"{"_id":"t\u0041","_rev":"1-x"}"#, Some("tA"), Some("1-x"));
    for no_id in ["null", "7", "true", "{}", "[]", r#"["own"]"#] {
        check(format!(r#"{{"_id":{no_id}}}"#).as_bytes(), None, None);
    }
}
