//! [`Writer`]: writes documents and records the time of each acknowledgement, from which the expected contents follow.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};

use crate::attack::client::{Connection, split};
use crate::json::member;

pub(super) const DATABASE: &str = "orders";

/// Start and acknowledgement in microseconds of the Unix epoch, and the resulting revision.
struct Write {
    begun_us: u64,
    acknowledged_us: u64,
    id: String,
    rev: Option<String>,
}

pub(super) type State = BTreeMap<String, String>;

#[derive(Default)]
pub(super) struct Writer {
    writes: Vec<Write>,
}

pub(super) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

impl Writer {
    pub(super) fn run(url: &str, name: usize, over: &AtomicBool) -> Result<Self> {
        let (address, authorization) = split(url)?;
        let mut connection = Connection::open(address).context("the server does not listen")?;
        let (mut writer, mut last) = (Self::default(), None::<(String, String)>);
        for number in 0_u64.. {
            if over.load(Ordering::Relaxed) {
                break;
            }
            let (line, body, id, deletes) = match (number % 5, last.take()) {
                (1, Some((id, rev))) => {
                    let body = format!("{{\"_rev\":\"{rev}\",\"number\":{number},\"changed\":true}}");
                    (format!("PUT /{DATABASE}/{id}"), body, id, false)
                }
                (3, Some((id, rev))) => (format!("DELETE /{DATABASE}/{id}?rev={rev}"), String::new(), id, true),
                _ => {
                    let id = format!("{name}-{number:08}");
                    let body = format!("{{\"number\":{number},\"text\":\"{}\"}}", "x".repeat(200));
                    (format!("PUT /{DATABASE}/{id}"), body, id, false)
                }
            };
            let headers = format!("{authorization}Content-Type: application/json\r\n");
            let begun_us = now_us();
            let (status, answer) = connection.ask(&line, &headers, body.as_bytes())?;
            let acknowledged_us = now_us();
            let answer = String::from_utf8_lossy(&answer).into_owned();
            ensure!(status == 200 || status == 201, "{line}: {status} {answer}");
            let rev = member(&answer, "rev").with_context(|| format!("{line}: {answer}"))?.to_owned();
            last = (!deletes).then(|| (id.clone(), rev.clone()));
            writer.writes.push(Write { begun_us, acknowledged_us, id, rev: (!deletes).then_some(rev) });
        }
        Ok(writer)
    }

    pub(super) fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns the number of writes acknowledged before a time, and the number of writes started by then.
    pub(super) fn before(&self, time_us: u64) -> (usize, usize) {
        let acknowledged = self.writes.partition_point(|write| write.acknowledged_us < time_us);
        (acknowledged, self.writes.partition_point(|write| write.begun_us <= time_us))
    }

    pub(super) fn state(&self, writes: usize) -> State {
        let mut state = State::new();
        for Write { id, rev, .. } in &self.writes[..writes] {
            match rev {
                Some(rev) => drop(state.insert(id.clone(), rev.clone())),
                None => drop(state.remove(id)),
            }
        }
        state
    }
}

pub(super) fn documents(url: &str, database: &str) -> Result<BTreeMap<usize, State>> {
    let (address, authorization) = split(url)?;
    let mut connection = Connection::open(address).context("the server does not listen")?;
    let (status, answer) = connection.ask(&format!("GET /{database}/_all_docs"), &authorization, b"")?;
    let answer = String::from_utf8_lossy(&answer).into_owned();
    ensure!(status == 200, "_all_docs: {status} {answer}");
    let mut found: BTreeMap<usize, State> = BTreeMap::new();
    for line in answer.lines() {
        if let (Some(id), Some(rev)) = (member(line, "id"), member(line, "rev")) {
            let writer = id.split('-').next().and_then(|name| name.parse().ok()).context("another's document")?;
            found.entry(writer).or_default().insert(id.to_owned(), rev.to_owned());
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_determines_the_expected_documents() {
        let write = |begun_us, acknowledged_us, id: &str, rev: Option<&str>| Write {
            begun_us,
            acknowledged_us,
            id: id.to_owned(),
            rev: rev.map(str::to_owned),
        };
        let writes = vec![write(1, 3, "a", Some("1-x")), write(4, 6, "a", Some("2-x")), write(7, 9, "a", None)];
        let writer = Writer { writes };
        for (time_us, expected) in [(0, (0, 0)), (2, (0, 1)), (4, (1, 2)), (5, (1, 2)), (8, (2, 3)), (10, (3, 3))] {
            assert_eq!(writer.before(time_us), expected, "{time_us}");
        }
        let revisions: Vec<_> = (0..=writer.len()).map(|writes| writer.state(writes).get("a").cloned()).collect();
        assert_eq!(revisions, [None, Some("1-x".to_owned()), Some("2-x".to_owned()), None]);
    }
}
