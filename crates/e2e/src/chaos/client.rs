//! [`Client`]: sends requests to any of the nodes, and classifies the responses. [`Shared`] is their common state.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::attack::client::Connection;

pub(super) const DATABASE: &str = "chaos";

/// Commits to several of these databases share statements.
pub(super) const NEIGHBOURS: [&str; 6] = ["near-1", "near-2", "near-3", "near-4", "near-5", "near-6"];

const TIMEOUT: Duration = Duration::from_secs(60);

/// After this time without a response from any node the client aborts the request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(120);

const RETRY_INTERVAL: Duration = Duration::from_millis(20);

const VIOLATIONS_MAX: usize = 200;

#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        random.below(2);
        random
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % limit.max(1)
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub(super) node: usize,
    pub(super) begun_ms: u64,
    pub(super) took_ms: u64,
    pub(super) status: u16,
    /// A view query may have waited for its index.
    pub(super) is_of_view: bool,
}

pub(super) struct Shared {
    pub(super) nodes: Vec<SocketAddr>,
    pub(super) authorization: String,
    begun: Instant,
    is_over: AtomicBool,
    violations: Mutex<Vec<String>>,
    timings: Mutex<Vec<Timing>>,
}

impl Shared {
    pub(super) fn new(nodes: Vec<SocketAddr>, authorization: String) -> Self {
        let (violations, timings) = (Mutex::default(), Mutex::default());
        Self { nodes, authorization, begun: Instant::now(), is_over: AtomicBool::new(false), violations, timings }
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn violation(&self, label: String) {
        let mut violations = lock(&self.violations);
        if violations.len() < VIOLATIONS_MAX {
            println!("    {:>7} ms VIOLATION {label}", self.now_ms());
            violations.push(label);
        }
    }

    pub(super) fn violations(&self) -> Vec<String> {
        lock(&self.violations).clone()
    }

    pub(super) fn note(&self, timing: Timing) {
        lock(&self.timings).push(timing);
    }

    pub(super) fn timings(&self) -> Vec<Timing> {
        lock(&self.timings).clone()
    }

    pub(super) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Refused,
    /// The effect of the request is unknown.
    Lost,
    Response(u16, String),
}

/// `was_unsure` is true if an earlier attempt may have been applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) status: u16,
    pub(super) text: String,
    pub(super) was_unsure: bool,
    pub(super) node: usize,
}

pub(super) struct Client<'a> {
    pub(super) shared: &'a Shared,
    connections: Vec<Option<Connection>>,
    pub(super) node: usize,
}

impl<'a> Client<'a> {
    pub(super) fn new(shared: &'a Shared, node: usize) -> Self {
        let connections = shared.nodes.iter().map(|_| None).collect();
        Self { shared, connections, node: node % shared.nodes.len() }
    }

    /// Sends the request once. A connection that the node has closed is reopened.
    pub(super) fn ask(&mut self, node: usize, line: &str, body: &[u8]) -> Answer {
        let begun_ms = self.shared.now_ms();
        let answer = self.try_ask(node, line, body);
        let took_ms = self.shared.now_ms() - begun_ms;
        let status = match &answer {
            Ok((status, _)) => *status,
            Err(_) => 0,
        };
        if !line.contains("feed=longpoll") && !self.shared.is_over() {
            let is_of_view = line.contains("/_view/");
            self.shared.note(Timing { node, begun_ms, took_ms, status, is_of_view });
        }
        match answer {
            Ok((status, body)) => Answer::Response(status, String::from_utf8_lossy(&body).into_owned()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Answer::Refused,
            Err(_) => Answer::Lost,
        }
    }

    fn try_ask(&mut self, node: usize, line: &str, body: &[u8]) -> io::Result<(u16, Vec<u8>)> {
        let mut connection = match self.connections[node].take() {
            Some(connection) => connection,
            None => Connection::open(self.shared.nodes[node])?.with_timeout(TIMEOUT),
        };
        let headers = format!("{}Accept: application/json\r\n", self.shared.authorization);
        let answer = connection.ask(line, &headers, body)?;
        self.connections[node] = Some(connection).filter(|connection| !connection.is_closing());
        Ok(answer)
    }

    /// Sends a request to one node after the other, until one gives a response that is no server failure, if any does.
    pub(super) fn settle(&mut self, line: &str, body: &[u8]) -> Option<Settled> {
        let (begun, mut was_unsure) = (Instant::now(), false);
        while begun.elapsed() < REQUEST_TIMEOUT {
            let node = self.node;
            match self.ask(node, line, body) {
                Answer::Response(status, text) if status < 500 => {
                    return Some(Settled { status, text, was_unsure, node });
                }
                Answer::Refused => {}
                Answer::Response(..) | Answer::Lost => was_unsure = true,
            }
            self.node = (node + 1) % self.shared.nodes.len();
            thread::sleep(RETRY_INTERVAL);
        }
        self.shared.violation(format!("{line}: no node has answered for {} s", REQUEST_TIMEOUT.as_secs()));
        None
    }

    pub(super) fn get(&mut self, path: &str) -> Option<String> {
        let settled = self.settle(&format!("GET {path}"), b"")?;
        if settled.status != 200 {
            self.shared.violation(format!("GET {path}: {} {}", settled.status, settled.text.trim_end()));
            return None;
        }
        Some(settled.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            (0..1000).map(|_| random.below(10)).collect::<Vec<_>>()
        };
        assert_eq!(numbers(7), numbers(7));
        assert_ne!(numbers(7), numbers(8));
        assert!((0..10).all(|digit| numbers(1).contains(&digit)));
    }

    #[test]
    fn a_rejection_means_no_effect() {
        let closed_port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        let shared = Shared::new(vec![closed_port.expect("a port")], String::new());
        assert_eq!(Client::new(&shared, 0).ask(0, "GET /", b""), Answer::Refused);
        assert_eq!(shared.timings().len(), 1);
    }
}
