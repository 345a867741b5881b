//! Batches: many entries in one request.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use crate::attack::entry::{Attack, Expect, HostileRequest, Text, ask, attack};
use crate::attack::target::Target;

pub(super) const ALL: &[Attack] = &[
    Attack { act: Some(many_conflicts), ..attack("many-conflicts", 4) },
    Attack { requests: LONG_LISTS, ..attack("long-lists", 4) },
];

const LONG_LISTS: &[HostileRequest] = &[
    ask("POST /public/_bulk_get", Text::Made(|target| list(target, "docs", "{\"id\":\"x\"}"))).expects(IS_TAKEN),
    ask("POST /public/_all_docs", Text::Made(|target| list(target, "keys", "\"x\""))).expects(IS_TAKEN),
    ask("POST /public/_all_docs/queries", Text::Made(|target| list(target, "queries", "{\"limit\":0}")))
        .expects(IS_TAKEN),
    ask("POST /public/_changes?filter=_doc_ids", Text::Made(|target| list(target, "doc_ids", "\"x\"")))
        .expects(IS_TAKEN),
    ask("POST /public/_revs_diff", Text::Made(revisions)).expects(IS_TAKEN),
    ask("POST /public/_missing_revs", Text::Made(revisions)).expects(IS_TAKEN),
];

const IS_TAKEN: Expect = Expect::Answer(200, "");

fn list(target: &Target, name: &str, entry: &str) -> Vec<u8> {
    format!("{{\"{name}\":[{}]}}", vec![entry; target.count(10_001, 200_000)].join(",")).into_bytes()
}

fn revisions(target: &Target) -> Vec<u8> {
    let mut text = "{".to_owned();
    for number in 0..target.count(10_001, 200_000) {
        let _ = write!(text, "{}\"d{number}\":[\"1-a\"]", if number > 0 { "," } else { "" });
    }
    text.push('}');
    text.into_bytes()
}

fn many_conflicts(target: &Target) {
    let number = target.next.fetch_add(1, Ordering::Relaxed);
    let revs = |generation: usize| (0..10_000).map(move |hash| format!("\"{generation}-{hash:032x}\""));
    let docs: Vec<String> = revs(1).map(|rev| format!("{{\"_id\":\"c{number}\",\"_rev\":{rev}}}")).collect();
    let docs = format!("{{\"new_edits\":false,\"docs\":[{}]}}", docs.join(","));
    let wanted: Vec<String> = revs(1).map(|rev| format!("{{\"id\":\"c{number}\",\"rev\":{rev}}}")).collect();
    let wanted = format!("{{\"docs\":[{}]}}", wanted.join(","));
    let missing = format!("{{\"c{number}\":[{}]}}", revs(2).collect::<Vec<_>>().join(","));
    let Ok(mut connection) = target.connect() else { return };
    for (line, body) in [
        ("POST /public/_bulk_docs".to_owned(), docs.as_bytes()),
        ("POST /public/_bulk_get".to_owned(), wanted.as_bytes()),
        ("POST /public/_revs_diff".to_owned(), missing.as_bytes()),
        (format!("GET /public/c{number}?open_revs=all&revs=true"), b""),
        (format!("GET /public/c{number}?conflicts=true"), b""),
    ] {
        if connection.ask(&line, "Accept: application/json\r\n", body).is_err() {
            return;
        }
    }
}
