//! Sorts, bookmarks, counts, ranges, groups, highlights, types of fields, segments.

use std::ops::Bound;

use super::*;
use crate::answer::OrderValue;
use crate::request::{Grouping, Highlighting, Range};
use crate::{Boolean, Interval, Query, Sort};

#[test]
fn bookmarks_lead_through_all_hits_once() {
    let index = new_index(definition("standard", &[]));
    for round in 0..4 {
        let ids: Vec<String> = (0..7).map(|number| format!("d{number}{round}")).collect();
        let documents: Vec<_> = ids
            .iter()
            .enumerate()
            .map(|(at, id)| {
                let mut fields = vec![double("n", (at % 3) as f64), text("default", "word")];
                if at % 2 == 0 {
                    fields.push(string("s", &format!("s{}", (at * 5 + round) % 7)));
                }
                (id.as_str(), fields)
            })
            .collect();
        write(&index, &documents);
    }
    for sort in ["", "_id", "-_id", "n", "-n", "s", "-s", "-n s", "n -s -_id", "relevance", "nosuch"] {
        let all = ids(&index
            .search(&Request { limit: 100, ..request(&index, "*:*", sort).unwrap() }, &SearchLimits::none())
            .unwrap());
        for (query, limit) in [("*:*", 1), ("word", 5), ("*:*", 27), ("*:*", 28)] {
            let mut request = Request { limit, ..request(&index, query, sort).unwrap() };
            let mut seen = Vec::new();
            loop {
                let answer = index.search(&request, &SearchLimits::none()).unwrap();
                assert_eq!(answer.total_hits, 28);
                if answer.hits.is_empty() {
                    break;
                }
                seen.push(ids(&answer));
                request.bookmark = Some(answer.bookmark);
            }
            assert_eq!(seen.join(" "), all, "{sort} {limit}");
        }
    }
    let mut broken = request(&index, "*:*", "n").unwrap();
    broken.bookmark = Some("nonsense".to_owned());
    assert!(matches!(index.search(&broken, &SearchLimits::none()), Err(Error::BadRequest(_))));
}

#[test]
fn missing_values_sort_first_or_as_zero() {
    let index = new_index(definition("standard", &[]));
    let x = || text("default", "x");
    write(
        &index,
        &[
            ("a", vec![x(), string("s", "m"), double("n", 5.0)]),
            ("b", vec![x()]),
            ("c", vec![x(), string("s", "b"), double("n", -5.0)]),
            ("d", vec![x(), double("n", 0.0)]),
        ],
    );
    write(&index, &[("e", vec![x()]), ("f", vec![x(), string("s", "z")])]);
    for (sort, expected) in [
        ("s", "b d e c a f"),
        ("-s", "f a c b d e"),
        ("n", "c b d e f a"),
        ("-n", "a b d e f c"),
        ("n -s", "c f b d e a"),
        ("nosuch -_id", "f e d c b a"),
    ] {
        let answer = index.search(&request(&index, "*:*", sort).unwrap(), &SearchLimits::none()).unwrap();
        assert_eq!(ids(&answer), expected, "{sort}");
    }
    let answer = index.search(&request(&index, "*:*", "nosuch").unwrap(), &SearchLimits::none()).unwrap();
    assert_eq!(answer.hits[0].order, [OrderValue::Null, OrderValue::String("a".to_owned())]);
    let refused = index.search(&request(&index, "*:*", "default").unwrap(), &SearchLimits::none()).unwrap_err();
    assert_eq!(refused.to_string(), "can't sort on field default");
    for sort in ["a b<", "<score>", "n:number", "", "-"] {
        assert!(Sort::parse(sort).is_err(), "{sort}");
    }
}

#[test]
fn counts_and_ranges() {
    let index = animals();
    let count = |query: &str, fields: &[&str], top: usize| {
        let mut request = request(&index, query, "_id").unwrap();
        request.counts = fields.iter().map(|&field| field.to_owned()).collect();
        request.top_n = Some(top);
        index
            .search(&request, &SearchLimits::none())
            .map(|answer| format!("{:?}", answer.counts))
            .unwrap_or_else(|error| format!("! {error}"))
    };
    assert_eq!(count("*:*", &["k"], 10), r#"[("k", [("animal", 3), ("text", 2), ("none", 1)])]"#);
    assert_eq!(count("*:*", &["k"], 1), r#"[("k", [("animal", 3)])]"#);
    assert_eq!(count("fox", &["k", "s"], 10), r#"[("k", [("animal", 2)]), ("s", [("Alpha", 1), ("Gamma", 1)])]"#);
    assert_eq!(count("nothing", &["k"], 10), r#"[("k", [])]"#);
    assert_eq!(count("*:*", &["nosuch"], 10), r#"[("nosuch", [])]"#);
    for (field, top) in [("n", 10), ("default", 10), ("x", 10), ("k", 0), ("k", 1_001)] {
        assert!(count("*:*", &[field], top).starts_with('!'), "{field} {top}");
    }
    let ranges = |query: &str, field: &str, ranges: &[(&str, Bound<f64>, Bound<f64>)]| {
        let mut request = request(&index, query, "_id").unwrap();
        let range =
            |(label, lower, upper): &(&str, _, _)| Range { label: (*label).to_owned(), lower: *lower, upper: *upper };
        request.ranges = vec![(field.to_owned(), ranges.iter().map(range).collect())];
        index
            .search(&request, &SearchLimits::none())
            .map(|answer| format!("{:?}", answer.ranges))
            .unwrap_or_else(|error| format!("! {error}"))
    };
    let (low, high) =
        (("low", Bound::Included(-10.0), Bound::Included(1.0)), ("high", Bound::Excluded(1.0), Bound::Unbounded));
    assert_eq!(ranges("*:*", "n", &[low, high]), r#"[("n", [("high", 3), ("low", 3)])]"#);
    assert_eq!(ranges("slow", "n", &[high, low]), r#"[("n", [("low", 1)])]"#);
    assert_eq!(ranges("*:*", "nosuch", &[low]), r#"[("nosuch", [])]"#);
    assert!(ranges("*:*", "k", &[low]).starts_with('!'));
}

#[test]
fn a_field_with_several_values() {
    let index = new_index(definition("standard", &[("l", "keyword")]));
    let l = |value: &str| kept(string("l", value));
    let n = |value: f64| kept(double("n", value));
    let x = || text("default", "x");
    write(
        &index,
        &[
            ("a", vec![l("red"), l("green"), l("red"), n(1.0), n(5.0), x()]),
            ("b", vec![l("green"), n(3.0), x()]),
            ("c", vec![x()]),
        ],
    );
    for (query, expected) in
        [("l:red", "a"), ("l:green", "a b"), ("n:[4 TO 6]", "a"), ("n:5", "a"), ("l:[* TO *]", "a b")]
    {
        assert_eq!(find(&index, query), expected, "{query}");
    }
    let mut request = request(&index, "*:*", "-n").unwrap();
    request.counts = vec!["l".to_owned()];
    let range = |label: &str, lower, upper| Range { label: label.to_owned(), lower, upper };
    let small = range("small", Bound::Included(0.0), Bound::Included(3.0));
    let large = range("large", Bound::Excluded(3.0), Bound::Included(9.0));
    request.ranges = vec![("n".to_owned(), vec![small, large])];
    let answer = index.search(&request, &SearchLimits::none()).unwrap();
    assert_eq!(ids(&answer), "b a c");
    assert_eq!(format!("{:?}", answer.counts), r#"[("l", [("green", 2), ("red", 1)])]"#);
    assert_eq!(format!("{:?}", answer.ranges), r#"[("n", [("small", 2), ("large", 1)])]"#);
    let fields = &answer.hits[1].fields;
    assert_eq!(
        fields.iter().map(|(name, values)| (name.as_str(), values.len())).collect::<Vec<_>>(),
        [("l", 3), ("n", 2)]
    );
    request.include_fields = Some(vec!["n".to_owned()]);
    assert_eq!(index.search(&request, &SearchLimits::none()).unwrap().hits[1].fields.len(), 1);
}

#[test]
fn partitions_are_apart() {
    let index = new_index(definition("standard", &[]));
    let of = |number: i32| vec![text("default", &format!("word number{number}")), double("n", f64::from(number))];
    write(&index, &[("a:0", of(0)), ("a:1", of(1)), ("b:0", of(0)), ("b:1", of(1))]);
    for (partition, query, expected) in
        [("a", "word", "a:0 a:1"), ("b", "n:[1 TO 9]", "b:1"), ("nosuch", "*:*", ""), ("b", "number0", "b:0")]
    {
        let mut request = request(&index, query, "_id").unwrap();
        request.partition = Some(partition.to_owned());
        assert_eq!(ids(&index.search(&request, &SearchLimits::none()).unwrap()), expected, "{partition} {query}");
    }
}

#[test]
fn a_field_keeps_the_type_that_it_got_first() {
    let index = new_index(definition("standard", &[]));
    write(&index, &[("a", vec![double("v", 1.0)])]);
    let mut writer = index.writer(0).unwrap().unwrap();
    let error = writer.update("b", None, vec![string("w", "x"), string("v", "x")]).unwrap_err();
    assert_eq!(error.to_string(), "field v is of type STRING not DOUBLE");
    writer.update("c", None, vec![double("w", 2.0)]).unwrap();
    writer.commit(b"2").unwrap();
    assert_eq!((find(&index, "*:*").as_str(), find(&index, "w:2").as_str()), ("a c", "c"));
    assert_eq!(index.kind("w").unwrap(), Some(FieldKind::Double));
    let mut clouseau = definition("standard", &[]);
    clouseau.dialect = Dialect::Clouseau;
    let index = new_index(clouseau);
    write(&index, &[("a", vec![double("v", 1.0)]), ("b", vec![text("v", "one 1")])]);
    let found = index
        .search(&Request::new(index.parse_classic("v:1", &SearchLimits::none()).unwrap()), &SearchLimits::none())
        .unwrap();
    assert_eq!(found.total_hits, 2);
}

#[test]
fn fields_appear_in_later_segments_and_survive_merges() {
    let index = new_index(definition("standard", &[]));
    for number in 0..30 {
        let id = format!("d{number:02}");
        let name = format!("t{}", number / 3);
        let fields = vec![
            text(&name, "some words here"),
            text("default", &"word ".repeat(number + 1)),
            double(&format!("n{number}"), 1.0),
        ];
        write(&index, &[(&id, fields)]);
    }
    assert!(index.info().unwrap().segments < 30);
    for number in 0..30 {
        let id = format!("d{number:02}");
        assert_eq!(find(&index, &format!("n{number}:1")), id);
        assert!(find(&index, &format!("t{}:\"some words\"", number / 3)).contains(&id));
    }
    let best = index
        .search(
            &Request { limit: 1, ..request(&index, "t0:words OR default:word", "").unwrap() },
            &SearchLimits::none(),
        )
        .unwrap();
    assert_eq!(best.hits.len(), 1);
    verified(&index).unwrap();
}

#[test]
fn relevance_prefers_rare_words_and_short_texts() {
    let index = new_index(definition("standard", &[]));
    write(
        &index,
        &[
            ("long", vec![text("default", "fox and many other words that have nothing to do with it at all")]),
            ("short", vec![text("default", "fox")]),
            ("twice", vec![text("default", "fox fox")]),
            ("rare", vec![text("default", "unicorn among many other words that have nothing to do with it")]),
        ],
    );
    for (query, expected) in [
        ("fox", "twice short long"),
        ("fox unicorn", "rare twice short long"),
        ("fox^9 unicorn", "twice short long rare"),
    ] {
        let answer = index.search(&request(&index, query, "").unwrap(), &SearchLimits::none()).unwrap();
        assert_eq!(ids(&answer), expected, "{query}");
    }
}

#[test]
fn updates_and_deletions() {
    let index = new_index(definition("standard", &[]));
    write(&index, &[("a", vec![text("default", "old")]), ("b", vec![text("default", "other")])]);
    let mut writer = index.writer(0).unwrap().unwrap();
    assert_eq!(writer.position(), Some(&b"position"[..]));
    for word in ["first", "second", "new"] {
        writer.update("a", None, vec![text("default", word)]).unwrap();
    }
    writer.update("c", None, vec![text("default", "gone")]).unwrap();
    writer.delete("c").unwrap();
    writer.update("b", None, Vec::new()).unwrap();
    assert_eq!(find(&index, "*:*"), "a b");
    writer.commit(b"later").unwrap();
    assert_eq!(index.position().unwrap().unwrap(), b"later");
    for (query, expected) in [("*:*", "a"), ("new", "a"), ("old OR first OR second OR gone OR other", "")] {
        assert_eq!(find(&index, query), expected, "{query}");
    }
    let info = index.info().unwrap();
    assert_eq!((info.docs, info.file_bytes > 0), (1, true));
    writer.delete("a").unwrap();
    writer.commit(b"last").unwrap();
    assert_eq!((find(&index, "*:*").as_str(), index.info().unwrap().docs), ("", 0));
    index.release();
    writer.update("z", None, vec![text("default", "x")]).unwrap();
    writer.commit(b"z").unwrap();
    let used: Vec<u64> = writer.record.files().map(|file| file.number).collect();
    let mut stored = index.inner.file_store.stored_files();
    stored.retain(|number| !used.contains(number));
    assert!(stored.is_empty(), "{stored:?}");
}

#[test]
fn groups_have_their_first_hits() {
    let mut clouseau = definition("standard", &[]);
    clouseau.dialect = Dialect::Clouseau;
    let index = new_index(clouseau);
    let of = |group: Option<&str>, number: f64| {
        let mut fields = vec![text("default", "word"), double("n", number)];
        fields.extend(group.map(|group| {
            let options = FieldOptions { facet: true, ..FieldOptions::default() };
            Field { options, ..text("g", group) }
        }));
        fields
    };
    write(&index, &[("a", of(Some("x"), 1.0)), ("b", of(Some("y y"), 5.0)), ("c", of(None, 3.0))]);
    write(&index, &[("d", of(Some("x"), 9.0)), ("e", of(Some("y y"), 4.0)), ("f", of(Some("x"), 2.0))]);
    let mut request = Request::new(index.parse_classic("word", &SearchLimits::none()).unwrap());
    request.sort = vec![Sort::parse_classic("-n<number>").unwrap()];
    request.limit = 2;
    let by = |sort: &str| Grouping { field: "g".to_owned(), limit: 2, sort: vec![Sort::parse_classic(sort).unwrap()] };
    let mut render = |grouping: Grouping| {
        request.group = Some(grouping);
        let answer = index.search(&request, &SearchLimits::none()).unwrap();
        assert_eq!((answer.total_hits, answer.hits.len()), (6, 0));
        let groups = answer.groups.unwrap().into_iter().map(|group| {
            let hits: Vec<_> = group.hits.iter().map(|hit| hit.id.as_str()).collect();
            format!("{:?} {}: {}", group.by, group.total_hits, hits.join(" "))
        });
        groups.collect::<Vec<_>>().join("; ")
    };
    assert_eq!(render(by("-n<number>")), r#"Some("x") 3: d f; Some("y y") 2: b e"#);
    assert_eq!(render(by("g<string>")), r#"None 1: c; Some("x") 3: d f"#);
    let mut drilled = Request::new(index.parse_classic("word", &SearchLimits::none()).unwrap());
    drilled.drilldown = vec![vec!["g".to_owned(), "y y".to_owned(), "nosuch".to_owned()]];
    assert_eq!(index.search(&drilled, &SearchLimits::none()).unwrap().total_hits, 2);
}

#[test]
fn found_words_are_highlighted() {
    let index = new_index(definition("english", &[]));
    let long = format!("{} Foxes jump. {}", "nothing ".repeat(30), "A fox and a FOX.".to_owned());
    write(&index, &[("a", vec![kept(text("default", &long)), text("u", "fox")])]);
    let mut request = request(&index, "fox OR jump* OR u:fox", "_id").unwrap();
    request.highlight = Some(Highlighting {
        fields: vec!["default".to_owned(), "u".to_owned()],
        pre_tag: "<em>".to_owned(),
        post_tag: "</em>".to_owned(),
        number: 1,
        size: 60,
    });
    let answer = index.search(&request, &SearchLimits::none()).unwrap();
    let [highlight] = answer.hits[0].highlights.as_slice() else { panic!("{answer:?}") };
    assert_eq!(highlight.field, "default");
    assert!(highlight.fragments[0].contains("<em>Foxes</em> <em>jump</em>"), "{highlight:?}");
}

#[test]
fn intervals_are_found() {
    let index = new_index(definition("standard", &[]));
    write(
        &index,
        &[
            ("a", vec![text("default", "the quick brown fox jumps over the lazy dog")]),
            ("b", vec![text("default", "the fox is quick and the dog is brown")]),
            ("c", vec![text("default", "quick quick")]),
        ],
    );
    for (query, expected) in [
        ("fn:ordered(quick fox)", "a"),
        ("fn:unordered(quick fox)", "a b"),
        ("fn:maxgaps(1 fn:ordered(quick fox))", "a"),
        ("fn:maxgaps(0 fn:unordered(quick fox))", ""),
        ("fn:maxwidth(3 fn:unordered(quick fox))", "a b"),
        ("fn:phrase(quick brown)", "a"),
        ("fn:phrase(quick fn:or(brown and))", "a b"),
        ("fn:before(quick dog)", "a b"),
        ("fn:after(quick fox)", "b"),
        ("fn:containing(fn:ordered(the dog) lazy)", "a"),
        ("fn:notContaining(fn:ordered(quick fox) brown)", ""),
        ("fn:containedBy(brown fn:ordered(quick fox))", "a"),
        ("fn:within(fox 1 quick)", ""),
        ("fn:within(fox 2 quick)", "a b"),
        ("fn:notWithin(fox 2 quick)", ""),
        ("fn:atLeast(2 lazy fox nothing)", "a"),
        ("fn:wildcard(bro*)", "a b"),
        ("fn:ordered(fn:fuzzyTerm(quikc) fox)", "a"),
        ("fn:unorderedNoOverlaps(quick dog)", "a b"),
        ("fn:extend(fox 1 1)", "a b"),
        ("fn:overlapping(fn:extend(fox 2 0) quick)", "a"),
        ("\"quick quick\"~1", "c"),
        ("\"fox quick\"~3", "a b"),
    ] {
        assert_eq!(find(&index, query), expected, "{query}");
    }
}

#[test]
fn queries_that_others_build() {
    let index = animals();
    let found = |query: Query| {
        let request = Request { sort: vec![Sort::parse("_id").unwrap()], ..Request::new(query) };
        index
            .search(&request, &SearchLimits::none())
            .map(|answer| ids(&answer))
            .unwrap_or_else(|error| format!("! {error}"))
    };
    for (query, expected) in [
        (Query::exists("s"), "a b c d f"),
        (Query::exists("default"), "a b c d f"),
        (Query::exists("n"), "a b c d e f"),
        (Query::exists("_id"), "a b c d e f"),
        (Query::exists("nosuch"), ""),
        (Query::none_of(vec![Query::term("k", "animal")]), "d e f"),
        (Query::number("n", 2.5), "b"),
        (Query::phrase("default", ["quick", "brown"]), "a b"),
        (Query::range("s", Bound::Unbounded, Bound::Unbounded), "a b c d f"),
        (Query::Prefix { field: "k".to_owned(), prefix: String::new() }, "a b c d e f"),
        (Query::all_of(vec![Query::term("k", "animal"), Query::term("default", "fox")]), "a c"),
        (Query::any_of(Vec::new()), ""),
        (Query::None, ""),
        (
            Query::Boolean(Boolean {
                should: vec![Query::term("k", "text"), Query::number("n", 42.0)],
                minimum_should_match: 2,
                ..Boolean::default()
            }),
            "f",
        ),
    ] {
        assert_eq!(found(query.clone()), expected, "{query:?}");
    }
    let deep = (0..300).fold(Query::All, |query, _| Query::Boost(Box::new(query), 1.0));
    assert!(found(deep).starts_with('!'));
    let over_strings = Query::Intervals { field: "s".to_owned(), source: Interval::Term("x".to_owned()) };
    assert!(found(over_strings).starts_with('!'));
}

#[test]
fn unindexable_documents_are_rejected() {
    let index = new_index(definition("standard", &[]));
    let mut writer = index.writer(0).unwrap().unwrap();
    for fields in [
        vec![string("s", &"x".repeat(40_000))],
        vec![double("n", f64::NAN)],
        vec![text("", "x")],
        vec![text("t", "x"); 20_000],
    ] {
        assert!(matches!(writer.update("a", None, fields), Err(Error::BadField(_))));
    }
    let many = |count: usize| (0..count).map(|number| text(&format!("t{number}"), "x")).collect::<Vec<_>>();
    assert!(matches!(writer.update("a", None, many(2 * crate::MAX_FIELDS + 1)), Err(Error::BadField(_))));
    writer.update("a", None, many(2 * crate::MAX_FIELDS)).unwrap();
    assert!(matches!(writer.update("b", None, vec![double("one more", 1.0)]), Err(Error::BadField(_))));
    writer.commit(b"1").unwrap();
    assert_eq!(find(&index, "t1999:x"), "a");
}
