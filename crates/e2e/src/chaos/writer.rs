//! [`Writer`]: writes documents of its own, singly and in bulk, through any node, and reads each back through another.

use std::fmt::Write as _;
use std::thread;
use std::time::Duration;

use super::client::{Answer, Client, Random, Settled, Shared};
use crate::attack::client::base64;
use crate::json::{member, number};

const REVISIONS_MAX: usize = 500;

const BULK: usize = 20;

/// Interval of writes in step, and the time until these writers switch to the next node.
const STEP_INTERVAL_MS: u64 = 20;
const NODE_INTERVAL_MS: u64 = 10_000;

const ATTACHMENT_BYTES: u64 = 3000;

#[derive(Clone, Debug)]
pub(super) struct Doc {
    pub(super) id: String,
    pub(super) revs: Vec<String>,
    pub(super) is_deleted: bool,
    pub(super) number: u64,
    pub(super) has_attachment: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) acknowledged: u64,
    pub(super) unsure: u64,
    pub(super) read_elsewhere: u64,
    pub(super) read_from_view: u64,
}

pub(super) struct Writer<'a> {
    client: Client<'a>,
    pub(super) database: &'a str,
    number: usize,
    random: Random,
    pub(super) docs: Vec<Doc>,
    /// Ids of documents whose existence is unknown, because no response arrived.
    pub(super) unknown: Vec<String>,
    pub(super) counts: Counts,
    next: u64,
    pace: Pace,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// After a random pause with this maximum in milliseconds, through any node.
    Free(u64),
    /// At a fixed interval, all through the same node for a while: concurrent writes may be committed together.
    InStep,
}

pub(super) fn attachment(id: &str) -> Vec<u8> {
    let seed = id.bytes().fold(7_u64, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)));
    (0..ATTACHMENT_BYTES).map(|at| (seed.wrapping_mul(at | 1) >> 13) as u8).collect()
}

impl Doc {
    fn new(id: String) -> Self {
        Self { id, revs: Vec::new(), is_deleted: false, number: 0, has_attachment: false }
    }

    pub(super) fn last(&self) -> &str {
        self.revs.last().map_or("", String::as_str)
    }

    fn body(&self, number: u64) -> String {
        let mut body = format!("{{\"_id\":\"{}\",\"n\":{number},\"group\":{}", self.id, number % 7);
        if !self.revs.is_empty() {
            let _ = write!(body, ",\"_rev\":\"{}\"", self.last());
        }
        if self.has_attachment {
            let content = match self.revs.is_empty() {
                true => format!("\"data\":\"{}\"", base64(&attachment(&self.id))),
                false => "\"stub\":true".to_owned(),
            };
            let _ = write!(body, ",\"_attachments\":{{\"a\":{{\"content_type\":\"image/png\",{content}}}}}");
        }
        body + &format!(",\"text\":\"{}\"}}", "x".repeat(100))
    }
}

impl<'a> Writer<'a> {
    pub(super) fn new(shared: &'a Shared, database: &'a str, number: usize, seed: u64, pace: Pace) -> Self {
        Self {
            client: Client::new(shared, number),
            database,
            number,
            random: Random::new(seed.wrapping_add(number as u64 + 1)),
            docs: Vec::new(),
            unknown: Vec::new(),
            counts: Counts::default(),
            next: 0,
            pace,
        }
    }

    pub(super) fn run(mut self) -> Self {
        while !self.client.shared.is_over() {
            self.client.node = self.wait();
            match self.random.below(20) {
                0..8 => self.create(false),
                8 | 9 => self.create(true),
                10..16 => self.change(false),
                16 | 17 => self.change(true),
                _ => self.bulk(),
            }
        }
        self
    }

    /// Waits until the next write. Returns the node to use, chosen as by a proxy.
    fn wait(&mut self) -> usize {
        let nodes = self.client.shared.nodes.len() as u64;
        let (wait_ms, choice) = match self.pace {
            Pace::Free(pause_ms) => (self.random.below(pause_ms + 1), self.random.below(nodes)),
            Pace::InStep => {
                let now_ms = self.client.shared.now_ms();
                (STEP_INTERVAL_MS - now_ms % STEP_INTERVAL_MS, now_ms / NODE_INTERVAL_MS)
            }
        };
        thread::sleep(Duration::from_millis(wait_ms));
        (choice % nodes) as usize
    }

    fn new_id(&mut self) -> String {
        self.next += 1;
        format!("w{}-{:07}", self.number, self.next)
    }

    fn create(&mut self, has_attachment: bool) {
        let mut doc = Doc { has_attachment, ..Doc::new(self.new_id()) };
        let number = self.random.below(1_000_000);
        let line = format!("PUT /{}/{}", self.database, doc.id);
        if self.write(&mut doc, &line, number, false) {
            self.look(&doc);
            self.docs.push(doc);
        } else {
            self.unknown.push(doc.id);
        }
    }

    fn change(&mut self, deletes: bool) {
        let count = self.docs.len() as u64;
        if count == 0 {
            return;
        }
        let place = self.random.below(count) as usize;
        let mut doc = self.docs.swap_remove(place);
        if doc.is_deleted || doc.revs.len() >= REVISIONS_MAX {
            return self.docs.push(doc);
        }
        let number = self.random.below(1_000_000);
        let line = match deletes {
            true => format!("DELETE /{}/{}?rev={}", self.database, doc.id, doc.last()),
            false => format!("PUT /{}/{}", self.database, doc.id),
        };
        if self.write(&mut doc, &line, number, deletes) {
            self.look(&doc);
            self.docs.push(doc);
        } else {
            self.unknown.push(doc.id);
        }
    }

    fn write(&mut self, doc: &mut Doc, line: &str, number: u64, deletes: bool) -> bool {
        let body = if deletes { String::new() } else { doc.body(number) };
        let Some(settled) = self.client.settle(line, body.as_bytes()) else { return false };
        let Settled { status, text, was_unsure, node } = settled;
        let rev = match status {
            200 | 201 => member(&text, "rev").map(str::to_owned),
            404 | 409 if was_unsure => self.found(doc, number, deletes),
            _ => None,
        };
        self.client.node = node;
        let Some(rev) = rev else {
            self.client.shared.violation(format!("{line}: {status} {}, first try: {}", text.trim_end(), !was_unsure));
            return false;
        };
        self.note(doc, rev, number, deletes, was_unsure);
        true
    }

    fn note(&mut self, doc: &mut Doc, rev: String, number: u64, deletes: bool, was_unsure: bool) {
        if !rev.starts_with(&format!("{}-", doc.revs.len() + 1)) {
            self.client.shared.violation(format!("{}: revision {rev} follows {:?}", doc.id, doc.revs.last()));
        }
        doc.revs.push(rev);
        (doc.number, doc.is_deleted) = (number, deletes);
        self.counts.acknowledged += 1;
        self.counts.unsure += u64::from(was_unsure);
    }

    fn found(&mut self, doc: &Doc, number_written: u64, deletes: bool) -> Option<String> {
        let text = self.client.get(&format!("/{}/{}?open_revs=all", self.database, doc.id))?;
        let is_it = match deletes {
            true => text.contains("\"_deleted\":true"),
            false => number(&text, "n") == Some(number_written),
        };
        member(&text, "_rev").filter(|_| is_it).map(str::to_owned)
    }

    fn bulk(&mut self) {
        let mut docs: Vec<Doc> = (0..BULK).map(|_| Doc::new(self.new_id())).collect();
        let numbers: Vec<u64> = docs.iter().map(|_| self.random.below(1_000_000)).collect();
        let bodies: Vec<String> = docs.iter().zip(&numbers).map(|(doc, number)| doc.body(*number)).collect();
        let body = format!("{{\"docs\":[{}]}}", bodies.join(","));
        let line = format!("POST /{}/_bulk_docs", self.database);
        let Some(settled) = self.client.settle(&line, body.as_bytes()) else {
            return self.unknown.extend(docs.into_iter().map(|doc| doc.id));
        };
        let Settled { status, text, was_unsure, node } = settled;
        let rows: Vec<&str> = text.split("},{").collect();
        if status != 201 || rows.len() != docs.len() {
            self.client.shared.violation(format!("{line}: {status} {}", text.trim_end()));
            return self.unknown.extend(docs.into_iter().map(|doc| doc.id));
        }
        for ((doc, number), row) in docs.iter_mut().zip(&numbers).zip(rows) {
            let rev = match member(row, "rev") {
                Some(rev) => Some(rev.to_owned()),
                None if was_unsure => self.found(doc, *number, false),
                None => None,
            };
            match rev {
                Some(rev) => self.note(doc, rev, *number, false, was_unsure),
                None => self.client.shared.violation(format!("{line}: {row}, first try: {}", !was_unsure)),
            }
        }
        self.client.node = node;
        if let Some(doc) = docs.last() {
            self.look(doc);
        }
        self.docs.extend(docs.into_iter().filter(|doc| !doc.revs.is_empty()));
    }

    /// Reads a written document through another node, and occasionally from the view.
    fn look(&mut self, doc: &Doc) {
        let nodes = self.client.shared.nodes.len();
        let other = (self.client.node + 1 + self.random.below(nodes as u64 - 1) as usize) % nodes;
        let (id, last) = (&doc.id, doc.last());
        if self.random.below(10) == 0 {
            let line = format!("GET /{}/_design/main/_view/numbers?key=%22{id}%22", self.database);
            let Answer::Response(200, text) = self.client.ask(other, &line, b"") else { return };
            let wanted = (!doc.is_deleted).then_some(doc.number);
            if number(&text, "value") != wanted {
                self.client.shared.violation(format!("{id} is {wanted:?}, and node {other} has in its view: {text}"));
            }
            self.counts.read_from_view += 1;
            return;
        }
        let answer = self.client.ask(other, &format!("GET /{}/{id}", self.database), b"");
        let (is_right, text) = match answer {
            Answer::Response(200, text) => (!doc.is_deleted && member(&text, "_rev") == Some(last), text),
            Answer::Response(404, text) => (doc.is_deleted, text),
            Answer::Response(500.., _) | Answer::Refused | Answer::Lost => return,
            Answer::Response(status, text) => (false, format!("{status} {text}")),
        };
        self.counts.read_elsewhere += 1;
        if !is_right {
            self.client.shared.violation(format!(
                "{id} has revision {last}, acknowledged by node {}, and node {other} says: {}",
                self.client.node,
                text.trim_end()
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_name_their_predecessor() {
        let mut doc = Doc { has_attachment: true, ..Doc::new("a".to_owned()) };
        let body = doc.body(9);
        assert!(
            body.starts_with(r#"{"_id":"a","n":9,"group":2,"_attachments":{"a":{"content_type":"image/png","data":""#)
        );
        doc.revs.push("1-x".to_owned());
        assert!(doc.body(9).contains(r#""_rev":"1-x","_attachments":{"a":{"content_type":"image/png","stub":true}}"#));
        assert_eq!((attachment("a").len(), attachment("a") == attachment("b")), (3000, false));
    }
}
