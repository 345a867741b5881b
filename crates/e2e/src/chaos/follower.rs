//! [`Follower`]: follows the changes of the database through one node after the other.

use std::collections::HashMap;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::client::{Answer, Client, DATABASE, Shared, lock};
use crate::json::member;

const FEED_TIMEOUT: Duration = Duration::from_secs(10);
const RETRY_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Continuous,
    Longpoll,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) since: String,
    pub(super) revs: HashMap<String, String>,
    pub(super) changes: u64,
    pub(super) feeds: u64,
}

pub(super) struct Follower<'a> {
    shared: &'a Shared,
    kind: Kind,
    pub(super) seen: Mutex<Seen>,
}

pub(super) fn order(seq: &str) -> u64 {
    seq.split('-').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

impl<'a> Follower<'a> {
    pub(super) fn new(shared: &'a Shared, kind: Kind) -> Self {
        Self { shared, kind, seen: Mutex::new(Seen { since: "0".to_owned(), ..Seen::default() }) }
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn run(&self, is_enough: &(dyn Fn() -> bool + Sync)) {
        let mut client = Client::new(self.shared, 0);
        while !is_enough() {
            let node = client.node;
            client.node = (node + 1) % self.shared.nodes.len();
            let since = lock(&self.seen).since.clone();
            lock(&self.seen).feeds += 1;
            match self.kind {
                Kind::Continuous => drop(self.continuous(node, &since, is_enough)),
                Kind::Longpoll => {
                    let line = format!("GET /{DATABASE}/_changes?feed=longpoll&timeout=2000&since={since}");
                    if let Answer::Response(200, text) = client.ask(node, &line, b"") {
                        text.lines().for_each(|line| self.take(line));
                    }
                }
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }

    fn continuous(&self, node: usize, since: &str, is_enough: &(dyn Fn() -> bool + Sync)) -> io::Result<()> {
        let stream = TcpStream::connect_timeout(&self.shared.nodes[node], Duration::from_secs(1))?;
        stream.set_read_timeout(Some(FEED_TIMEOUT))?;
        let mut stream = BufReader::new(stream);
        let request = format!(
            "GET /{DATABASE}/_changes?feed=continuous&heartbeat=500&since={since} HTTP/1.1\r\nHost: x\r\n{}\r\n",
            self.shared.authorization
        );
        stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Ok(());
            }
        }
        let mut rest = Vec::new();
        while !is_enough() {
            line.clear();
            stream.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim_end(), 16).map_err(io::Error::other)?;
            let mut chunk = vec![0; size + 2];
            stream.read_exact(&mut chunk)?;
            rest.extend_from_slice(&chunk[..size]);
            if size == 0 {
                break;
            }
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let change: Vec<u8> = rest.drain(..=end).collect();
                self.take(&String::from_utf8_lossy(&change));
            }
        }
        Ok(())
    }

    /// The line may be a heartbeat or a closing line.
    fn take(&self, line: &str) {
        let mut seen = lock(&self.seen);
        let seq = member(line, "seq").or_else(|| member(line, "last_seq"));
        let (Some(seq), id, rev) = (seq, member(line, "id"), member(line, "rev")) else { return };
        if let (Some(id), Some(rev)) = (id, rev) {
            if order(seq) <= order(&seen.since) {
                let text =
                    format!("a follower ({:?}) is at {} and received {}", self.kind, seen.since, line.trim_end());
                self.shared.violation(text);
            }
            seen.revs.insert(id.to_owned(), rev.to_owned());
            seen.changes += 1;
        }
        seq.clone_into(&mut seen.since);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_that_does_not_rise_is_a_violation() {
        let shared = Shared::new(vec![([127, 0, 0, 1], 1).into()], String::new());
        let follower = Follower::new(&shared, Kind::Longpoll);
        let change = |seq: &str| format!("{{\"seq\":\"{seq}\",\"id\":\"a\",\"changes\":[{{\"rev\":\"1-x\"}}]}},");
        for line in ["{\"results\":[", &change("3-a"), &change("12-b"), "],", "\"last_seq\":\"14-c\",\"pending\":0}"] {
            follower.take(line);
        }
        assert_eq!((shared.violations().len(), lock(&follower.seen).since.as_str()), (0, "14-c"));
        follower.take(&change("14-c"));
        assert_eq!((shared.violations().len(), lock(&follower.seen).changes), (1, 3));
    }
}
