//! Random documents, selectors, sorts and indexes: the results with an index equal those of a full scan.

use std::borrow::Cow;
use std::fmt::Write;

use settee_database::{Member, Reader};
use settee_model::json::Json;
use settee_model::testing::Random;

use super::naive::{Tree, holds};
use super::{Place, SEARCH, json};
use crate::index::edit::{self, NewIndex};
use crate::{MangoError, Refusal};

const VALUES: &[&str] = &[
    "null",
    "false",
    "true",
    "-1",
    "0",
    "1",
    "1.0",
    "1.5",
    "2",
    "3",
    "10",
    r#""""#,
    r#""a""#,
    r#""ab""#,
    r#""abc""#,
    r#""b""#,
    "[]",
    "[1]",
    "[1,2]",
    r#"["a"]"#,
    "{}",
    r#"{"x":1}"#,
    r#"{"x":2,"y":"a"}"#,
];
const FIELDS: &[&str] = &["a", "b", "c", "o.x", "o.y", "a.0", "b.1", "_id"];
const IDS: &[&str] = &[r#""d000""#, r#""d003""#, r#""d007""#, r#""d0""#, r#""z""#];
const INDEXES: &[&str] = &[
    r#"{"fields":["a"]}"#,
    r#"{"fields":["b"]}"#,
    r#"{"fields":["a","b"]}"#,
    r#"{"fields":["b","a","c"]}"#,
    r#"{"fields":["o.x","a"]}"#,
    r#"{"fields":[{"c":"desc"}]}"#,
    r#"{"fields":["a","_id"]}"#,
    r#"{"fields":["a.0","b"]}"#,
    r#"{"fields":["o","o.y"]}"#,
    r#"{"fields":["b"],"partial_filter_selector":{"a":{"$gt":1}}}"#,
    r#"{"fields":["c"],"partial_filter_selector":{"b":{"$exists":true}}}"#,
];
const SORTS: &[&str] = &[
    "[]",
    "[]",
    "[]",
    r#"["a"]"#,
    r#"[{"b":"desc"}]"#,
    r#"["a","b"]"#,
    r#"["_id"]"#,
    r#"[{"_id":"desc"}]"#,
    r#"["c"]"#,
];

fn document(random: &mut Random, number: usize) -> String {
    let mut text = format!(r#"{{"_id":"d{number:03}""#);
    for field in ["a", "b", "c"] {
        if random.below(4) > 0 {
            write!(text, r#","{field}":{}"#, random.pick(VALUES)).unwrap();
        }
    }
    match random.below(3) {
        0 => write!(text, r#","o":{{"x":{},"y":{}}}"#, random.pick(VALUES), random.pick(VALUES)).unwrap(),
        1 => write!(text, r#","o":{}"#, random.pick(VALUES)).unwrap(),
        _ => {}
    }
    text.push('}');
    text
}

fn operator(random: &mut Random, values: &[&str]) -> String {
    let value = random.pick(values);
    match random.below(26) {
        0..=3 => format!(r#"{{"$eq":{value}}}"#),
        4..=9 => format!(r#"{{"{}":{value}}}"#, random.pick(&["$lt", "$lte", "$gt", "$gte"])),
        10 => format!(r#"{{"$ne":{value}}}"#),
        11..=13 => {
            let count = random.below(4);
            let list: Vec<&str> = (0..count).map(|_| random.pick(values)).collect();
            format!(r#"{{"{}":[{}]}}"#, random.pick(&["$in", "$in", "$nin"]), list.join(","))
        }
        14 => format!(r#"{{"$exists":{}}}"#, random.pick(&["true", "false"])),
        15 => format!(r#"{{"$type":"{}"}}"#, random.pick(&["null", "boolean", "number", "string", "array", "object"])),
        16 => format!(r#"{{"$size":{}}}"#, random.below(3)),
        17 => format!(r#"{{"$beginsWith":{}}}"#, random.pick(&[r#""a""#, r#""ab""#, r#""""#])),
        18 => format!(r#"{{"{}":{{"$gt":{value}}}}}"#, random.pick(&["$elemMatch", "$allMatch", "$keyMapMatch"])),
        19 => format!(r#"{{"$allMatch":{{"$in":[{value},1]}}}}"#),
        20 => format!(r#"{{"$all":[{value}]}}"#),
        21 => format!(r#"{{"$all":[{value},{}]}}"#, random.pick(values)),
        22 => format!(r#"{{"$mod":[{},{}]}}"#, random.pick(&["1", "2", "-3"]), random.pick(&["0", "1", "-1"])),
        23 => format!(r#"{{"$regex":"{}"}}"#, random.pick(&["a", "^a", "b", "^ab", "^d00"])),
        _ => format!(r#"{{"$gte":{value},"$lt":{}}}"#, random.pick(values)),
    }
}

fn condition(random: &mut Random, depth: usize) -> String {
    let list = |random: &mut Random| {
        let count = 1 + random.below(3);
        (0..count).map(|_| condition(random, depth - 1)).collect::<Vec<_>>().join(",")
    };
    match random.below(if depth == 0 { 1 } else { 7 }) {
        1 | 2 => format!(r#"{{"$and":[{}]}}"#, list(random)),
        3 | 4 => format!(r#"{{"$or":[{}]}}"#, list(random)),
        5 => format!(r#"{{"$nor":[{}]}}"#, list(random)),
        6 => format!(r#"{{"$not":{}}}"#, condition(random, depth - 1)),
        _ => {
            let field = random.pick(FIELDS);
            let values = if field == "_id" { IDS } else { VALUES };
            let test = operator(random, values);
            if random.below(8) == 0 {
                format!(r#"{{"{field}":{{"$not":{test}}}}}"#)
            } else {
                format!(r#"{{"{field}":{test}}}"#)
            }
        }
    }
}

fn expected(documents: &[Json], selector: &Json, sort: &Json) -> Vec<Tree> {
    let selector = Tree::of(selector.value());
    let fields: Vec<(String, bool)> = sort
        .value()
        .elements()
        .map(|field| match field.as_str() {
            Some(name) => (name.into_owned(), false),
            None => (field.members().next().unwrap().0.as_str().unwrap().into_owned(), true),
        })
        .collect();
    let mut found: Vec<Tree> = documents.iter().map(|document| Tree::of(document.value())).collect();
    found.retain(|document| {
        holds(&selector, "", document, false) && fields.iter().all(|(field, _)| document.get(field).is_ok())
    });
    let id = |document: &Tree| document.get("_id").unwrap().clone();
    let descending = fields.first().is_some_and(|(_, descending)| *descending);
    found.sort_by(|a, b| {
        let by_fields = fields.iter().map(|(field, _)| a.get(field).unwrap().compare(b.get(field).unwrap()));
        let order = by_fields.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then);
        if descending { order.reverse() } else { order }
    });
    if fields.is_empty() {
        found.sort_by(|a, b| id(a).compare(&id(b)));
    }
    found
}

fn ids(documents: &[Tree]) -> Vec<String> {
    let id = |document: &Tree| match document.get("_id") {
        Ok(Tree::Text(id)) => id.clone(),
        other => panic!("{other:?}"),
    };
    documents.iter().map(id).collect()
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort();
    ids
}

fn parsed(documents: &[String]) -> Vec<Tree> {
    documents.iter().map(|text| Tree::of(json(text).value())).collect()
}

fn pages(place: &Place, query: &str, limit: usize) -> Vec<String> {
    let mut all = Vec::new();
    let mut bookmark = String::new();
    for _ in 0..200 {
        let page = place.find(&format!(r#"{{{query},"limit":{limit},"bookmark":"{bookmark}"}}"#)).unwrap();
        let Some(found) = page.found else { break };
        let is_last = page.documents.len() < limit;
        all.extend(page.documents);
        bookmark = found.bookmark;
        if is_last {
            return all;
        }
    }
    assert!(all.is_empty(), "the pages do not end");
    all
}

fn check_query(place: &Place, documents: &[Json], selector: &str, sort: &str, limit: usize) -> bool {
    let query = format!(r#""selector":{selector},"sort":{sort}"#);
    let found = match place.find(&format!(r#"{{{query},"limit":1000}}"#)) {
        Ok(found) => found,
        Err(MangoError::Refused(Refusal::NoSortIndex)) => return false,
        Err(error) => panic!("{error}: {query}"),
    };
    let expected = expected(documents, &json(selector), &json(sort));
    let got = parsed(&found.documents);
    let explained = place.explain(&format!(r#"{{{query}}}"#));
    let context = format!("{query}\n{}", String::from_utf8_lossy(explained.as_bytes()));
    assert_eq!(sorted(ids(&got)), sorted(ids(&expected)), "{context}");
    for field in json(sort).value().elements() {
        let name = field
            .as_str()
            .map_or_else(|| field.members().next().unwrap().0.as_str().unwrap().into_owned(), Cow::into_owned);
        let keys = |documents: &[Tree]| documents.iter().map(|doc| doc.get(&name).unwrap().clone()).collect::<Vec<_>>();
        let (got, expected) = (keys(&got), keys(&expected));
        let same = got.iter().zip(&expected).all(|(a, b)| a.compare(b).is_eq());
        assert!(same, "{context}\n{got:?}\n{expected:?}");
    }
    assert_eq!(ids(&parsed(&pages(place, &query, limit))), ids(&got), "pages of {limit}: {context}");
    check_covering(place, &query, &expected);
    true
}

fn check_covering(place: &Place, query: &str, expected: &[Tree]) {
    let found = place.find(&format!(r#"{{{query},"limit":1000,"fields":["_id","a"]}}"#)).unwrap();
    let mut got = parsed(&found.documents);
    let cut = |document: &Tree| {
        let member = |name: &str| document.get(name).ok().map(|value| (name.to_owned(), value.clone()));
        Tree::Object(["_id", "a"].into_iter().filter_map(member).collect())
    };
    let mut expected: Vec<Tree> = expected.iter().map(cut).collect();
    let by_id = |a: &Tree, b: &Tree| a.get("_id").unwrap().compare(b.get("_id").unwrap());
    got.sort_by(by_id);
    expected.sort_by(by_id);
    assert_eq!(got, expected, "{query}");
}

#[test]
fn any_index_finds_the_documents_of_a_scan() {
    let mut random = Random::new();
    let mut answered = 0;
    for _ in 0..12 {
        let place = Place::new();
        let documents: Vec<String> = (0..40).map(|number| document(&mut random, number)).collect();
        documents.iter().for_each(|text| place.write(text));
        let documents: Vec<Json> = documents.iter().map(|text| json(text)).collect();
        for (number, definition) in INDEXES.iter().enumerate() {
            if random.below(2) == 0 {
                place.index(definition, &number.to_string());
            }
        }
        for _ in 0..60 {
            let selector = condition(&mut random, 3);
            let sort = random.pick(SORTS);
            let limit = 1 + random.below(9);
            answered += usize::from(check_query(&place, &documents, &selector, sort, limit));
        }
    }
    assert!(answered > 300, "only {answered} queries had an answer");
}

#[test]
fn any_index_finds_the_visible_documents_of_a_member() {
    const ROLES: [&str; 3] = ["staff", "board", "press"];
    let mut random = Random::new();
    let (mut answered, mut seen) = (0, 0);
    for _ in 0..10 {
        let mut place = Place::with_access_lists();
        let some = |random: &mut Random, names: &[&'static str]| {
            names.iter().copied().filter(|_| random.one_in(3)).collect::<Vec<&str>>()
        };
        let mut documents: Vec<(Vec<&str>, String)> = Vec::new();
        for number in 0..60 {
            let list = some(&mut random, &["ann", "bob", "staff", "board", "press"]);
            let mut text = document(&mut random, number % 40);
            text.truncate(text.len() - 1);
            write!(
                text,
                r#","_access":[{}]}}"#,
                list.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(",")
            )
            .unwrap();
            place.write(&text);
            // The last 20 documents are edits with other lists.
            if let Some(old) = documents.get_mut(number % 40) {
                *old = (list, text);
            } else {
                documents.push((list, text));
            }
        }
        for (number, definition) in INDEXES.iter().enumerate() {
            if random.below(2) == 0 {
                place.index(definition, &number.to_string());
            }
        }
        for _ in 0..60 {
            let (name, roles) = (random.pick(&["ann", "bob", "eve"]), some(&mut random, &ROLES));
            place.reader = Reader::Member(Member::new(Some(name), roles.iter().map(|role| (*role).to_owned())));
            let is_visible = |list: &[&str]| list.iter().any(|entry| *entry == name || roles.contains(entry));
            let visible: Vec<Json> =
                documents.iter().filter(|(list, _)| is_visible(list)).map(|(_, text)| json(text)).collect();
            seen += visible.len();
            let selector = condition(&mut random, 3);
            let (sort, limit) = (random.pick(SORTS), 1 + random.below(9));
            answered += usize::from(check_query(&place, &visible, &selector, sort, limit));
        }
    }
    assert!(answered > 250 && seen > 5_000, "{answered} queries had an answer, {seen} documents were visible");
}

#[test]
fn indexes_follow_changes() {
    let mut random = Random::new();
    let place = Place::new();
    INDEXES.iter().enumerate().for_each(|(number, definition)| place.index(definition, &number.to_string()));
    let mut documents: Vec<String> = Vec::new();
    for round in 0..30 {
        let text = document(&mut random, round);
        place.write(&text);
        documents.push(text);
        let all: Vec<Json> = documents.iter().map(|text| json(text)).collect();
        let selector = condition(&mut random, 2);
        check_query(&place, &all, &selector, "[]", 5);
    }
}

#[test]
fn partitions_are_found_like_databases() {
    let mut random = Random::new();
    let place = Place::partitioned();
    let mut documents: Vec<String> = Vec::new();
    for number in 0..60 {
        let text = document(&mut random, number);
        let partition = random.pick(&["p", "q", "pq"]);
        let text = text.replacen("\"d", &format!("\"{partition}:d"), 1);
        place.write(&text);
        documents.push(text);
    }
    for (number, definition) in INDEXES.iter().enumerate() {
        let global = if random.one_in(3) { r#","partitioned":false"# } else { "" };
        let body = json(&format!(r#"{{"index":{definition},"name":"i","ddoc":"d{number}"{global}}}"#));
        edit::create(&place.database, &NewIndex::parse(body.value(), SEARCH).unwrap()).unwrap();
    }
    let all: Vec<Json> = documents.iter().map(|text| json(text)).collect();
    for _ in 0..150 {
        let selector = condition(&mut random, 2);
        let partition = random.pick(&["p", "q", "pq", "none"]);
        let within = |document: &Tree| ids(std::slice::from_ref(document))[0].starts_with(&format!("{partition}:"));
        let wanted: Vec<Tree> = expected(&all, &json(&selector), &json("[]")).into_iter().filter(within).collect();
        let query = format!(r#""selector":{selector},"partition":"{partition}""#);
        let page = place.find(&format!(r#"{{{query},"limit":1000}}"#)).unwrap();
        assert_eq!(sorted(ids(&parsed(&page.documents))), sorted(ids(&wanted)), "{query}");
        let whole = place.find(&format!(r#"{{"selector":{selector},"limit":1000}}"#)).unwrap();
        let wanted = expected(&all, &json(&selector), &json("[]"));
        assert_eq!(sorted(ids(&parsed(&whole.documents))), sorted(ids(&wanted)), "{selector}");
    }
}

#[test]
fn skipping_is_cutting_off_the_beginning() {
    let mut random = Random::new();
    let place = Place::new();
    (0..40).for_each(|number| place.write(&document(&mut random, number)));
    for (number, definition) in INDEXES.iter().enumerate().filter(|(number, _)| number % 2 == 0) {
        place.index(definition, &number.to_string());
    }
    for _ in 0..150 {
        let (selector, sort) = (condition(&mut random, 2), random.pick(SORTS));
        let query = format!(r#""selector":{selector},"sort":{sort}"#);
        let Ok(all) = place.find(&format!(r#"{{{query},"limit":1000}}"#)) else { continue };
        let (skip, limit) = (random.below(6_usize), 1 + random.below(6_usize));
        let page = place.find(&format!(r#"{{{query},"skip":{skip},"limit":{limit}}}"#)).unwrap();
        let wanted: Vec<&String> = all.documents.iter().skip(skip).take(limit).collect();
        assert_eq!(page.documents.iter().collect::<Vec<_>>(), wanted, "{query} from {skip}");
        let counted =
            place.find(&format!(r#"{{{query},"skip":{skip},"limit":{limit},"execution_stats":true}}"#)).unwrap();
        assert_eq!(counted.documents, page.documents, "counting changes nothing: {query}");
        if let Some(found) = counted.found {
            assert_eq!(found.stats.results_returned as usize, wanted.len(), "{query}");
        }
    }
}

/// Returns a condition that a text index answers like a scan: ranges would find values of one type only.
fn typeless(random: &mut Random, depth: usize) -> String {
    let list = |random: &mut Random| {
        let count = 1 + random.below(3_usize);
        (0..count).map(|_| typeless(random, depth - 1)).collect::<Vec<_>>().join(",")
    };
    match random.below(if depth == 0 { 1 } else { 6 }) {
        1 => format!(r#"{{"$and":[{}]}}"#, list(random)),
        2 | 3 => format!(r#"{{"$or":[{}]}}"#, list(random)),
        4 => format!(r#"{{"$nor":[{}]}}"#, list(random)),
        5 => format!(r#"{{"$not":{}}}"#, typeless(random, depth - 1)),
        _ => {
            let field = random.pick(FIELDS);
            let values = if field == "_id" { IDS } else { VALUES };
            let (value, other) = (random.pick(values), random.pick(values));
            let test = match random.below(14) {
                0..=2 => format!(r#"{{"$eq":{value}}}"#),
                3 => format!(r#"{{"$ne":{value}}}"#),
                4 => format!(r#"{{"$in":[{value},{other}]}}"#),
                5 => format!(r#"{{"$nin":[{value},{other}]}}"#),
                6 => format!(r#"{{"$exists":{}}}"#, random.pick(&["true", "false"])),
                7 => format!(r#"{{"$type":"{}"}}"#, random.pick(&["null", "number", "string", "array", "object"])),
                8 => format!(r#"{{"$size":{}}}"#, random.below(3)),
                9 => format!(r#"{{"$beginsWith":{}}}"#, random.pick(&[r#""a""#, r#""ab""#, r#""""#])),
                10 => format!(r#"{{"{}":{{"$ne":{value}}}}}"#, random.pick(&["$elemMatch", "$allMatch"])),
                11 => format!(r#"{{"$all":[{value}]}}"#),
                12 => format!(r#"{{"$mod":[2,{}]}}"#, random.below(2)),
                _ => format!(r#"{{"$regex":"{}"}}"#, random.pick(&["a", "^a", "b"])),
            };
            match random.below(4) {
                0 => format!(r#"{{"{field}":{{"$not":{test}}}}}"#),
                _ => format!(r#"{{"{field}":{test}}}"#),
            }
        }
    }
}

#[test]
fn a_text_index_finds_the_documents_of_a_scan() {
    let mut random = Random::new();
    for kind in ["text", "nouveau"] {
        let place = Place::new();
        let body = json(&format!(r#"{{"index":{{}},"type":"{kind}","name":"i","ddoc":"d"}}"#));
        edit::create(&place.database, &NewIndex::parse(body.value(), SEARCH).unwrap()).unwrap();
        let mut documents: Vec<Json> = Vec::new();
        for round in 0..100 {
            if round < 30 {
                let text = document(&mut random, round);
                place.write(&text);
                documents.push(json(&text));
            }
            let selector = typeless(&mut random, 3);
            let query = format!(r#""selector":{selector},"use_index":"d""#);
            let page = place.find(&format!(r#"{{{query},"limit":1000}}"#)).unwrap();
            let wanted = expected(&documents, &json(&selector), &json("[]"));
            let explained = place.explain(&format!("{{{query}}}"));
            let context = format!("{selector}\n{}", String::from_utf8_lossy(explained.as_bytes()));
            let found = ids(&parsed(&page.documents));
            assert_eq!(sorted(found.clone()), sorted(ids(&wanted)), "{context}");
            let limit = 1 + random.below(7_usize);
            assert_eq!(ids(&parsed(&pages(&place, &query, limit))), found, "pages of {limit}: {context}");
        }
    }
}
