//! Queries have the results of CouchDB in `golden/queries.txt`: query, sort, ids of the hits and sort values.

use super::*;
use crate::answer::OrderValue;

const GOLDEN: &str = include_str!("../../golden/queries.txt");

fn shown(order: &[OrderValue]) -> String {
    let values = order.iter().map(|value| match value {
        OrderValue::Score(_) => "\"score\"".to_owned(),
        OrderValue::Double(number) => format!("{number:?}"),
        OrderValue::String(text) => format!("{text:?}"),
        OrderValue::Null => "null".to_owned(),
    });
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

#[test]
fn hits_are_those_that_were_recorded() {
    let index = animals();
    let (mut count, mut wrong) = (0, Vec::new());
    for line in GOLDEN.lines() {
        let [query, sort, expected] = line.split('\t').collect::<Vec<_>>().try_into().unwrap();
        let found = match request(&index, query, sort).and_then(|request| index.search(&request, &SearchLimits::none()))
        {
            Ok(answer) => {
                assert_eq!(answer.total_hits, answer.hits.len() as u64);
                match sort {
                    "_id" => ids(&answer),
                    _ => {
                        let orders: Vec<_> = answer.hits.iter().map(|hit| shown(&hit.order)).collect();
                        format!("{} # {}", ids(&answer), orders.join(" ; "))
                    }
                }
            }
            Err(error) => format!("! {error}"),
        };
        let is_right = match expected.split_once('*') {
            Some((start, _)) if expected.starts_with('!') => found.starts_with(start),
            _ => found == expected,
        };
        if !is_right {
            wrong.push(format!("{query} ({sort}): {found}, not {expected}"));
        }
        count += 1;
    }
    assert!(wrong.is_empty() && count > 180, "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn escapes() {
    let index = new_index(definition("standard", &[("s", "keyword")]));
    let values = ["a+b", "a-b", "(x)", "x:y", "a b", "q?", "q*", "x/y", "x\\y", "say \"hi\"", "{z}", "AND", "^5~"];
    let ids: Vec<String> = ('a'..).take(values.len()).map(String::from).collect();
    let documents: Vec<_> = ids
        .iter()
        .zip(values)
        .map(|(id, value)| (id.as_str(), vec![string("s", value), text("default", value)]))
        .collect();
    write(&index, &documents);
    for (query, expected) in [
        ("s:a\\+b", "a"),
        ("s:a\\-b", "b"),
        ("s:\\(x\\)", "c"),
        ("s:x\\:y", "d"),
        ("s:a\\ b", "e"),
        ("s:q\\?", "f"),
        ("s:q\\*", "g"),
        ("s:q?", "f g"),
        ("s:q*", "f g"),
        ("s:x\\/y", "h"),
        ("s:x\\\\y", "i"),
        ("s:say\\ \\\"hi\\\"", "j"),
        ("s:\\{z\\}", "k"),
        ("s:\"AND\"", "l"),
        ("s:\\^5\\~", "m"),
        ("s:\"a b\"", "e"),
        ("s:\\u0061\\+b", "a"),
    ] {
        assert_eq!(find(&index, query), expected, "{query}");
    }
}
