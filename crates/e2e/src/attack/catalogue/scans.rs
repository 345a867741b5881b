//! Scans: requests that read much and return little, whose clients disconnect.

use std::time::Duration;

use anyhow::Result;

use crate::attack::entry::{Attack, Expect, HostileRequest, Text, ask, attack};
use crate::attack::target::Target;

pub(super) const ALL: &[Attack] =
    &[Attack { prepare: documents, requests: ABANDONED, ..attack("abandoned-scans", 30) }];

const ABANDONED: &[HostileRequest] = &[
    left("POST /public/_find", r#"{"selector":{"a":{"$regex":"(x+x+)+y"}}}"#),
    left("POST /public/_changes?filter=_selector", r#"{"selector":{"a":{"$regex":"(x+x+)+y"}}}"#),
    left("POST /public/_changes?filter=_selector&feed=continuous", r#"{"selector":{"a":1}}"#),
    left("GET /public/_all_docs?include_docs=true&conflicts=true", ""),
];

const fn left(line: &'static str, body: &'static str) -> HostileRequest {
    ask(line, Text::Is(body)).expects(Expect::LeavesAfter(Duration::from_millis(100)))
}

fn documents(target: &Target) -> Result<()> {
    for batch in 0..target.count(2, 50) {
        let docs: Vec<String> =
            (0..1000).map(|number| format!("{{\"_id\":\"{batch}-{number}\",\"a\":\"xxxxxxxx\"}}")).collect();
        target.make("POST /public/_bulk_docs", format!("{{\"docs\":[{}]}}", docs.join(",")).as_bytes())?;
    }
    Ok(())
}
