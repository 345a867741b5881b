//! Searches: short queries that expand to many terms, states or clauses, and texts that are slow to analyze.

use std::time::Duration;

use anyhow::Result;

use crate::attack::entry::{Attack, Expect, HostileRequest, Text, ask, attack};
use crate::attack::target::Target;

pub(super) const ALL: &[Attack] = &[
    Attack { prepare: index, requests: DRILLDOWNS, ..attack("search-drilldowns", 8) },
    Attack { prepare: index, requests: AUTOMATA, ..attack("search-automata", 12) },
    Attack { prepare: index, requests: EXPRESSIONS, ..attack("search-expressions", 600) },
    Attack { act: Some(analyze), ..attack("search-analyzers", 8) },
];

const DRILLDOWNS: &[HostileRequest] = &[
    ask("POST /public/_design/s/_search/i", Text::Made(drilldowns)),
    ask("POST /public/_design/s/_search/i", Text::Made(clauses)),
];

const AUTOMATA: &[HostileRequest] = &[
    ask("POST /public/_design/s/_nouveau/i", Text::Made(fuzzy)),
    ask("POST /public/_design/s/_search/i", Text::Made(fuzzy)),
    ask("POST /public/_design/s/_nouveau/i", Text::Made(wildcards)),
    ask("POST /public/_design/s/_nouveau/i", Text::Made(parentheses)),
];

const EXPRESSIONS: &[HostileRequest] = &[
    ask("POST /public/_design/s/_nouveau/i", Text::Made(expression)).expects(Expect::LeavesAfter(SOON)),
    ask("POST /public/_design/s/_search/i", Text::Made(expression)).expects(Expect::LeavesAfter(SOON)),
];

const SOON: Duration = Duration::from_secs(1);

/// Each letter is slow to segment if the work of the analyzer is not linear. Using analyzers requires an administrator.
const ANALYZERS: [(&str, char); 4] = [("chinese", '中'), ("japanese", 'あ'), ("thai", 'ก'), ("english", 's')];

fn index(target: &Target) -> Result<()> {
    for batch in 0..2 {
        let docs: Vec<String> = (0..1000)
            .map(|number| format!("{{\"_id\":\"{batch}-{number}\",\"t\":\"aaaa{number} xxxxxxxxxx{batch}{number}\"}}"))
            .collect();
        target.make("POST /public/_bulk_docs", format!("{{\"docs\":[{}]}}", docs.join(",")).as_bytes())?;
    }
    let design = r#"{"nouveau":{"i":{"index":"function(d){if(d.t){index('text','default',d.t);index('string','s',d.t)}}"}},
        "indexes":{"i":{"index":"function(d){if(d.t){index('default',d.t);index('s',d.t,{facet:true})}}"}}}"#;
    target.make("PUT /public/_design/s", design.as_bytes())?;
    target.make("POST /public/_design/s/_nouveau/i", br#"{"q":"aaaa1"}"#)?;
    target.make("POST /public/_design/s/_search/i", br#"{"q":"aaaa1"}"#)
}

fn drilldowns(target: &Target) -> Vec<u8> {
    let entries: Vec<String> = (0..target.count(2_000, 5_000)).map(|number| format!("[\"s\",\"w{number}\"]")).collect();
    format!("{{\"q\":\"*:*\",\"drilldown\":[{}]}}", entries.join(",")).into_bytes()
}

fn clauses(target: &Target) -> Vec<u8> {
    query(&vec!["aaaa1*"; target.count(5_000, 50_000)].join(" OR "))
}

fn fuzzy(_: &Target) -> Vec<u8> {
    query(&format!("{}~2", "a".repeat(7_000)))
}

fn wildcards(_: &Target) -> Vec<u8> {
    query(&format!("{}x", "?*".repeat(3_000)))
}

fn parentheses(target: &Target) -> Vec<u8> {
    let depth = target.count(10_000, 100_000);
    query(&format!("{}a{}", "(".repeat(depth), ")".repeat(depth)))
}

fn expression(_: &Target) -> Vec<u8> {
    query(&format!("/{}/", ".?".repeat(499)))
}

fn query(text: &str) -> Vec<u8> {
    format!("{{\"q\":\"{text}\"}}").into_bytes()
}

fn analyze(target: &Target) {
    for (analyzer, letter) in ANALYZERS {
        let text = letter.to_string().repeat(target.count(50_000, 1_000_000) / letter.len_utf8());
        let body = format!("{{\"analyzer\":\"{analyzer}\",\"text\":\"{text}\"}}");
        let answer =
            target.connect().and_then(|mut open| open.ask("POST /_nouveau_analyze", &target.admin, body.as_bytes()));
        match answer {
            Ok((200 | 400 | 413 | 429 | 503, _)) | Err(_) => {}
            Ok((status, _)) => target.fail(format!("the analyzer {analyzer}: {status}")),
        }
    }
}
