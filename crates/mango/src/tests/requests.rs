//! Random and invalid requests are answered or rejected, and projections contain exactly the requested fields.

use settee_model::json::{Json, Kind, Value};
use settee_model::testing::Random;

use super::naive::Tree;
use super::{Place, json};
use crate::bookmark::Bookmark;
use crate::{FindOptions, MangoError, Projection, Refusal, Selector};

const SCALARS: &[&str] = &[
    "null",
    "true",
    "false",
    "0",
    "-1",
    "1.5",
    "123456789012345678901234567890",
    r#""""#,
    r#""a""#,
    r#""\u0000""#,
    r#""😀""#,
    r#""$eq""#,
    "[]",
    "{}",
];
const NAMES: &[&str] = &[
    "a",
    "a",
    "a",
    "a",
    "a.b",
    "a.b",
    "a.b",
    "$and",
    "$not",
    "$or",
    "$gt",
    "$gt",
    "$eq",
    "a.b",
    "a.0",
    "",
    ".",
    "a.",
    "_id",
    "_rev",
    "$eq",
    "$ne",
    "$lt",
    "$gte",
    "$in",
    "$nin",
    "$exists",
    "$type",
    "$mod",
    "$regex",
    "$beginsWith",
    "$all",
    "$size",
    "$and",
    "$or",
    "$nor",
    "$not",
    "$elemMatch",
    "$allMatch",
    "$keyMapMatch",
    "$text",
    "$default",
    "$where",
    "$nosuch",
];
const OPTIONS: &[&str] = &[
    "selector",
    "limit",
    "skip",
    "sort",
    "fields",
    "use_index",
    "bookmark",
    "r",
    "conflicts",
    "stale",
    "update",
    "stable",
    "execution_stats",
    "allow_fallback",
    "partition",
    "nosuch",
];

fn nonsense(random: &mut Random, depth: usize) -> String {
    let count = random.below(3);
    match random.below(if depth == 0 { 1 } else { 5 }) {
        1 => {
            let parts: Vec<String> = (0..count).map(|_| nonsense(random, depth - 1)).collect();
            format!("[{}]", parts.join(","))
        }
        2..=4 => {
            let mut names: Vec<&str> = (0..=count).map(|_| random.pick(NAMES)).collect();
            names.sort_unstable();
            names.dedup();
            let members: Vec<String> =
                names.iter().map(|name| format!(r#""{name}":{}"#, nonsense(random, depth - 1))).collect();
            format!("{{{}}}", members.join(","))
        }
        _ => random.pick(SCALARS).to_owned(),
    }
}

#[test]
fn every_request_is_answered_or_rejected() {
    let mut random = Random::new();
    let place = Place::new();
    for number in 0..12 {
        let values = [random.pick(SCALARS), random.pick(SCALARS), random.pick(SCALARS)];
        place.write(&format!(
            r#"{{"_id":"d{number:02}","a":{{"b":{},"0":{}}},"n":[{}]}}"#,
            values[0], values[1], values[2]
        ));
    }
    place.index(r#"{"fields":["a.b"]}"#, "b");
    place.index(r#"{"fields":["a","n"],"partial_filter_selector":{"n":{"$exists":true}}}"#, "an");
    let mut answered = 0;
    for _ in 0..10_000 {
        let selector = nonsense(&mut random, 4);
        let mut body = format!(r#"{{"selector":{selector}"#);
        if random.one_in(8) {
            body.push_str(&format!(r#","{}":{}"#, random.pick(&OPTIONS[1..]), nonsense(&mut random, 2)));
        }
        body.push('}');
        match place.find(&body) {
            Ok(page) => {
                answered += 1;
                let Ok(parsed) = Selector::parse(json(&selector).value()) else {
                    assert!(page.found.is_none(), "{body} found {:?}", page.documents);
                    continue;
                };
                let all =
                    page.documents.iter().all(|text| !text.contains("\"_rev\"") || parsed.matches(json(text).value()));
                assert!(all, "{body} found {:?}", page.documents);
            }
            Err(MangoError::Refused(refusal)) => assert!(!refusal.name().is_empty() && !refusal.to_string().is_empty()),
            Err(error) => panic!("{body}: {error}"),
        }
    }
    assert!(answered > 100, "only {answered} were answered");
}

#[test]
fn normal_forms_are_fixed_points_that_match_the_same() {
    let mut random = Random::new();
    let documents: Vec<Json> =
        (0..20).map(|_| json(&format!(r#"{{"a":{},"_id":"x"}}"#, nonsense(&mut random, 2)))).collect();
    let mut parsed = 0;
    for _ in 0..20_000 {
        let text = nonsense(&mut random, 4);
        let Ok(selector) = Selector::parse(json(&text).value()) else { continue };
        if selector.node().has_text() {
            continue;
        }
        let normal = selector.to_json();
        let again = match Selector::parse(normal.value()) {
            Ok(again) => again,
            Err(error) => panic!("{text} became {}: {error}", String::from_utf8_lossy(normal.as_bytes())),
        };
        assert_eq!(again.to_json(), normal, "{text}");
        for document in &documents {
            assert_eq!(again.matches(document.value()), selector.matches(document.value()), "{text}");
        }
        parsed += 1;
    }
    assert!(parsed > 200, "only {parsed} were selectors");
}

#[test]
fn options_of_every_type_are_taken_or_refused_by_name() {
    let mut random = Random::new();
    for option in OPTIONS {
        for value in SCALARS {
            let body = format!(r#"{{"selector":{{}},"{option}":{value}}}"#);
            let body = if *option == "selector" { format!(r#"{{"selector":{value}}}"#) } else { body };
            if let Err(refusal) = FindOptions::parse(json(&body).value()) {
                let expected: &[&str] = match *option {
                    "selector" => &["invalid_selector_json"],
                    "limit" | "skip" => &["invalid_non_neg_integer"],
                    "r" => &["invalid_pos_integer"],
                    "sort" => &["invalid_sort_json"],
                    "fields" => &["invalid_fields"],
                    "use_index" => &["invalid_index_name"],
                    "bookmark" => &["invalid_bookmark"],
                    "stale" => &["invalid_ok_or_false_value"],
                    "partition" => &["illegal_partition"],
                    "nosuch" => &["invalid_key"],
                    _ => &["invalid_boolean"],
                };
                assert!(expected.contains(&refusal.name()), "{body}: {refusal}");
            } else {
                assert_ne!(*option, "nosuch", "{body}");
            }
        }
        let other = random.pick(&OPTIONS[1..]);
        let body = format!(r#"{{"selector":{{}},"{option}x":1,"{other}":{}}}"#, random.pick(SCALARS));
        assert!(FindOptions::parse(json(&body).value()).is_err(), "{body}");
    }
}

fn leaves(tree: &Tree, path: &str, out: &mut Vec<String>) {
    match tree {
        Tree::Object(members) if !members.is_empty() => {
            for (name, member) in members {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(member, &path, out);
            }
        }
        _ => out.push(path.to_owned()),
    }
}

#[test]
fn output_equals_the_requested_fields() {
    let mut random = Random::new();
    let names = ["a", "b", "a.b", "a.c", "b.0", "b.1", "a.b.c", "c", "a.c.d", "b.0.a"];
    let value = |random: &mut Random| match random.below(4) {
        0 => r#"{"b":{"c":1,"x":[]},"c":{"d":"e"}}"#.to_owned(),
        1 => r#"[{"a":1},2]"#.to_owned(),
        2 => random.pick(&["1", "null", "\"text\"", "[]"]).to_owned(),
        _ => format!(r#"{{"b":{},"x":1}}"#, random.pick(&["[1,2]", "{\"c\":null}", "5"])),
    };
    for _ in 0..2_000 {
        let document = json(&format!(r#"{{"a":{},"b":{}}}"#, value(&mut random), value(&mut random)));
        let fields: Vec<&str> = (0..=random.below(4)).map(|_| random.pick(&names)).collect();
        let list = json(&format!("[\"{}\"]", fields.join("\",\"")));
        let mut out = Vec::new();
        Projection::parse(list.value()).unwrap().write(document.value(), &mut out);
        let (whole, shown) = (Tree::of(document.value()), Tree::of(Json::parse(&out).unwrap().value()));
        let context = format!("{fields:?} of {document:?} is {}", String::from_utf8_lossy(&out));
        for field in &fields {
            assert_eq!(whole.get(field).ok(), shown.get(field).ok(), "{field}: {context}");
        }
        let mut paths = Vec::new();
        leaves(&shown, "", &mut paths);
        let is_asked =
            |path: &String| fields.iter().any(|field| path == field || path.starts_with(&format!("{field}.")));
        assert!(shown == Tree::Object(Vec::new()) || paths.iter().all(is_asked), "{paths:?}: {context}");
    }
}

#[test]
fn bookmarks_that_were_changed_are_refused_or_mean_a_place() {
    let mut random = Random::new();
    let place = Place::new();
    for number in 0..20 {
        place.write(&format!(r#"{{"_id":"d{number:02}","n":{number}}}"#));
    }
    place.index(r#"{"fields":["n"]}"#, "n");
    let page = |bookmark: &str| {
        place.find(&format!(r#"{{"selector":{{"n":{{"$gte":0}}}},"limit":3,"bookmark":"{bookmark}"}}"#))
    };
    let bookmark = page("").unwrap().found.unwrap().bookmark;
    for _ in 0..2_000 {
        let mut text = bookmark.clone().into_bytes();
        match random.below(3) {
            0 => text.truncate(random.below(text.len())),
            1 => {
                let at = random.below(text.len());
                text[at] = b"ABCxyz019-_"[random.below(11_usize)];
            }
            _ => text.insert(random.below(text.len()), b'Q'),
        }
        let text = String::from_utf8(text).unwrap();
        match page(&text) {
            Ok(page) => {
                let numbers: Vec<u64> =
                    page.documents.iter().map(|text| json(text).value().get("n").unwrap().as_u64().unwrap()).collect();
                assert!(numbers.len() <= 3 && numbers.is_sorted(), "{text}: {numbers:?}");
            }
            Err(MangoError::Refused(Refusal::InvalidBookmark(_))) => {}
            Err(error) => panic!("{text}: {error}"),
        }
        if let Ok(parsed) = Bookmark::parse(&text) {
            assert_eq!(Bookmark::parse(&parsed.to_text()), Ok(parsed), "{text}");
        }
    }
}

#[test]
fn selectors_that_are_no_objects_are_refused_with_their_text() {
    for value in SCALARS.iter().filter(|value| **value != "{}") {
        let refusal = Selector::parse(json(value).value()).unwrap_err();
        assert_eq!(refusal.to_string(), format!("Selector must be a JSON object, not: {value}"));
    }
    assert_eq!(Value::trusted(b"{}").kind(), Kind::Object);
}
