//! Final checks of a run: [`everything`].

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use super::Written;
use super::client::{Client, DATABASE, Shared, Timing, lock};
use super::follower::{Follower, order};
use super::world::FaultInterval;
use super::writer::{Doc, attachment};
use crate::json::{member, texts};

/// Followers and the replication must catch up within this time.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A request within this time after a fault is attributed to it.
const RECOVERY_MS: u64 = 5000;

const PAGE: usize = 200;

const SHORT_MS: u64 = 20;

pub(super) const COPY: &str = "chaos-copy";

/// A `comment` makes the server build the two views as different indexes.
pub(super) fn design(comment: &str) -> String {
    format!(
        "{{\"views\":{{\"numbers\":{{\"map\":\"function (doc) {{ emit(doc._id, doc.n);{comment} }}\"}},\
         \"groups\":{{\"map\":\"function (doc) {{ emit([doc.group, doc.n % 10], doc.n);{comment} }}\",\"reduce\":\"_stats\"}}}}}}"
    )
}

pub(super) fn everything(shared: &Shared, databases: &BTreeMap<&str, Written>, followers: &[Follower<'_>]) {
    let mut client = Client::new(shared, 0);
    for (database, written) in databases {
        let Some(changes) = changes(&mut client, database) else { continue };
        complete(&mut client, database, written, &changes);
        if *database == DATABASE {
            followers.iter().for_each(|follower| caught_up(shared, follower, &changes));
            replicated(&mut client, &changes);
        }
    }
}

fn complete(client: &mut Client<'_>, database: &str, written: &Written, changes: &HashMap<String, String>) {
    let (shared, docs) = (client.shared, &written.docs);
    let known: HashMap<&str, &Doc> = docs.iter().map(|doc| (doc.id.as_str(), doc)).collect();
    for (id, rev) in changes {
        let is_right = match known.get(id.as_str()) {
            Some(doc) => doc.last() == rev,
            None => id.starts_with('_') || written.unknown.contains(id),
        };
        if !is_right {
            let doc = known.get(id.as_str());
            shared.violation(format!("{id} has revision {rev} in _changes of {database}, and it was {doc:?}"));
        }
    }
    for doc in docs.iter().filter(|doc| !changes.contains_key(&doc.id)) {
        shared.violation(format!("LOST in {database}: {doc:?}"));
    }
    for (place, docs) in docs.chunks(PAGE).enumerate() {
        client.node = place % shared.nodes.len();
        histories(client, database, docs);
    }
    for doc in docs.iter().filter(|doc| doc.has_attachment && !doc.is_deleted) {
        content(client, database, doc);
    }
    count(client, database, written);
    views(client, database);
}

fn changes(client: &mut Client<'_>, database: &str) -> Option<HashMap<String, String>> {
    let text = client.get(&format!("/{database}/_changes?style=all_docs"))?;
    let (mut found, mut last) = (HashMap::new(), 0);
    for line in text.lines() {
        let (Some(seq), Some(id), Some(rev)) = (member(line, "seq"), member(line, "id"), member(line, "rev")) else {
            continue;
        };
        if order(seq) <= last {
            client.shared.violation(format!("sequence {seq} in _changes of {database} follows {last}"));
        }
        last = order(seq);
        if let Some(before) = found.insert(id.to_owned(), rev.to_owned()) {
            client.shared.violation(format!("{id} occurs twice in _changes of {database}: {before} and {rev}"));
        }
        if line.matches("\"rev\"").count() != 1 {
            client.shared.violation(format!("DOUBLED in {database}: {line}"));
        }
    }
    Some(found)
}

fn histories(client: &mut Client<'_>, database: &str, docs: &[Doc]) {
    let ids: Vec<String> = docs.iter().map(|doc| format!("{{\"id\":\"{}\"}}", doc.id)).collect();
    let line = format!("POST /{database}/_bulk_get?revs=true");
    let body = format!("{{\"docs\":[{}]}}", ids.join(","));
    let Some(settled) = client.settle(&line, body.as_bytes()) else { return };
    // Only results have a member `id`; the text before the first one is no result.
    let found: Vec<&str> = settled.text.split("{\"id\":\"").skip(1).collect();
    if settled.status != 200 || found.len() != docs.len() {
        return client.shared.violation(format!("{line}: {} with {} results", settled.status, found.len()));
    }
    for (doc, found) in docs.iter().zip(found) {
        let hashes = doc.revs.iter().rev().filter_map(|rev| rev.split_once('-').map(|(_, hash)| hash));
        let is_it = found.starts_with(&format!("{}\"", doc.id))
            && found.matches("\"ok\":").count() == 1
            && member(found, "_rev") == Some(doc.last())
            && texts(found, "ids") == hashes.collect::<Vec<_>>()
            && found.contains("\"_deleted\":true") == doc.is_deleted;
        if !is_it {
            client.shared.violation(format!("{doc:?}, and there is {}", found.trim_end()));
        }
    }
}

fn content(client: &mut Client<'_>, database: &str, doc: &Doc) {
    let path = format!("/{database}/{}/a", doc.id);
    let wanted = String::from_utf8_lossy(&attachment(&doc.id)).into_owned();
    if client.get(&path).is_some_and(|found| found != wanted) {
        client.shared.violation(format!("{path} has another content"));
    }
}

fn count(client: &mut Client<'_>, database: &str, written: &Written) {
    let Some(text) = client.get(&format!("/{database}/_all_docs")) else { return };
    let ids = text.lines().filter_map(|line| member(line, "id"));
    let found = ids.filter(|id| !id.starts_with('_') && !written.unknown.contains(*id)).count();
    let wanted = written.docs.iter().filter(|doc| !doc.is_deleted).count();
    if found != wanted {
        client.shared.violation(format!("_all_docs of {database} has {found} documents, and {wanted} were written"));
    }
}

fn views(client: &mut Client<'_>, database: &str) {
    let line = format!("PUT /{database}/_design/rebuilt");
    let made = client.settle(&line, design(" /* rebuilt */").as_bytes()).map(|settled| settled.status);
    if !matches!(made, Some(201 | 409)) {
        return client.shared.violation(format!("{line}: {made:?}"));
    }
    for view in ["numbers", "groups?group=true", "groups?group_level=1", "groups?reduce=false", "groups"] {
        let path = |design: &str| format!("/{database}/_design/{design}/_view/{view}");
        let Some(wanted) = client.get(&path("rebuilt")) else { continue };
        for node in 0..client.shared.nodes.len() {
            client.node = node;
            let Some(found) = client.get(&path("main")) else { continue };
            if found != wanted {
                let differs = wanted.lines().zip(found.lines()).find(|(wanted, found)| wanted != found);
                client.shared.violation(format!(
                    "the index {view} of {database} on node {node} differs from a new one: {differs:?}"
                ));
            }
        }
    }
}

fn caught_up(shared: &Shared, follower: &Follower<'_>, changes: &HashMap<String, String>) {
    let begun = Instant::now();
    let missing = || {
        let seen = lock(&follower.seen);
        let is_missing = |(id, rev): &(&String, &String)| !id.starts_with('_') && seen.revs.get(*id) != Some(*rev);
        changes.iter().filter(is_missing).map(|(id, rev)| format!("{id} {rev}")).collect::<Vec<_>>()
    };
    while !missing().is_empty() {
        if begun.elapsed() > CATCH_UP_TIMEOUT {
            let missing = missing();
            let some: Vec<&String> = missing.iter().take(5).collect();
            let kind = follower.kind();
            return shared.violation(format!("a follower ({kind:?}) MISSED {} changes: {some:?}", missing.len()));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn replicated(client: &mut Client<'_>, wanted: &HashMap<String, String>) {
    let begun = Instant::now();
    loop {
        let Some(found) = changes(client, COPY) else { return };
        let differs = |(id, rev): &(&String, &String)| found.get(*id) != Some(*rev);
        let missing: Vec<_> = wanted.iter().filter(differs).take(5).collect();
        if missing.is_empty() {
            return;
        }
        if begun.elapsed() > CATCH_UP_TIMEOUT {
            let job = client.get("/_replicator/chaos").unwrap_or_default();
            let docs = client.get("/_scheduler/docs").unwrap_or_default();
            return client.shared.violation(format!("the replication has not copied {missing:?}; {job} {docs}"));
        }
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns the longest wait for a response of a live node shortly after the failure of another node or of a node's
/// connection to PostgreSQL, without any other fault; and a description of each wait beyond the limit.
pub(super) fn waits(shared: &Shared, intervals: &[FaultInterval], limit_ms: u64) -> (u64, Vec<String>) {
    let (mut longest, mut too_long) = (0, Vec::new());
    for timing in shared.timings().into_iter().filter(|timing| timing.took_ms > SHORT_MS) {
        let ended_ms = timing.begun_ms + timing.took_ms;
        let overlaps = |interval: &&FaultInterval| {
            timing.begun_ms <= interval.ended_ms + RECOVERY_MS && ended_ms >= interval.begun_ms
        };
        let causes: Vec<FaultInterval> = intervals.iter().filter(overlaps).copied().collect();
        if causes.is_empty() || causes.iter().any(|interval| interval.covers(timing.node)) {
            continue;
        }
        let wait_ms = wait_ms(&timing, &causes);
        longest = longest.max(wait_ms);
        if wait_ms > limit_ms {
            let label = if timing.is_of_view { "a query of a view" } else { "a request" };
            too_long.push(format!("{label} has waited for {wait_ms} ms because of one of {causes:?}: {timing:?}"));
        }
    }
    (longest, too_long)
}

/// Returns the longest wait that one fault can have caused: the time before a fault is not attributed to it.
fn wait_ms(timing: &Timing, causes: &[FaultInterval]) -> u64 {
    let times = timing.begun_ms..timing.begun_ms + timing.took_ms;
    let mut marks: Vec<u64> =
        causes.iter().map(|interval| interval.begun_ms).filter(|mark| times.contains(mark)).collect();
    marks.extend([times.start, times.end]);
    marks.sort_unstable();
    marks.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::world::Fault;

    const LIMIT_MS: u64 = 2000;

    #[test]
    fn each_fault_has_its_own_time() {
        let interval = |fault, begun_ms| FaultInterval { fault, node: 1, begun_ms, ended_ms: begun_ms + 1500 };
        let shared = Shared::new(Vec::new(), String::new());
        let check = |intervals: &[FaultInterval], begun_ms, took_ms, expected_ms, is_too_long| {
            let timing = Timing { node: 2, begun_ms, took_ms, status: 200, is_of_view: true };
            let shared = Shared::new(Vec::new(), String::new());
            shared.note(timing);
            let (longest_ms, too_long) = waits(&shared, intervals, LIMIT_MS);
            assert_eq!((longest_ms, too_long.len() == 1), (expected_ms, is_too_long), "{intervals:?} {timing:?}");
        };
        assert_eq!(waits(&shared, &[], LIMIT_MS).0, 0);
        let silence = interval(Fault::Unresponsive, 10_000);
        check(&[], 9000, 3000, 0, false);
        check(&[silence], 10_000, 2000, 2000, false);
        check(&[silence], 10_001, 2001, 2001, true);
        check(&[silence], 9200, 2300, 1500, false);
        check(&[silence], 7900, 2300, 2100, true);
        check(&[silence], 9900, 2101, 2001, true);
        check(&[interval(Fault::KillNode, 9000), silence], 8500, 3400, 1900, false);
        check(&[silence, interval(Fault::Cut, 11_000)], 10_000, 9000, 0, false);
    }
}
