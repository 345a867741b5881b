//! Clients, and the path of a write on a node: forwarding, commits, and unknown outcomes.

use super::node::{Call, Wake};
use super::store::{Commit, Found, Request, Response};
use super::{Event, InjectedDefect, SHARDS, Simulation};

const CLIENT_TIMEOUT_MS: u64 = 1500;

impl Simulation {
    pub(super) fn new_document(&mut self, client: usize) {
        let document = self.written.len();
        self.written.push(None);
        self.acknowledged.push(false);
        let shard = self.rng.index(SHARDS);
        let target = &mut self.clients[client];
        (target.document, target.shard) = (document, shard);
        target.attempt += 1;
        let attempt = target.attempt;
        let pause = self.rng.range(1, 150);
        self.schedule(pause, Event::Client(client, attempt));
    }

    /// A client sends its write to any node, at first or again.
    pub(super) fn on_client(&mut self, client: usize, attempt: u64) {
        let target = &mut self.clients[client];
        if target.attempt != attempt {
            return;
        }
        target.attempt += 1;
        let (document, shard, attempt) = (target.document, target.shard, target.attempt);
        self.schedule(CLIENT_TIMEOUT_MS, Event::Client(client, attempt));
        let node = self.rng.index(self.nodes.len());
        if !self.nodes[node].is_alive {
            let pause = self.rng.range(1, 50);
            return self.schedule(pause, Event::Client(client, attempt));
        }
        let copies = if !self.is_network_reliable() && self.rng.percent(3) { 2 } else { 1 };
        for _ in 0..copies {
            let delay = self.latency();
            self.wake(node, delay, Wake::Put { client, document, shard, forwarded_by: None });
        }
    }

    pub(super) fn on_answer(&mut self, client: usize, document: usize, is_written: bool) {
        if self.clients[client].document != document {
            return;
        }
        if is_written {
            self.clients[client].finished += 1;
            self.new_document(client);
        } else {
            let attempt = self.clients[client].attempt;
            let pause = self.rng.range(5, 150);
            self.schedule(pause, Event::Client(client, attempt));
        }
    }

    fn answer(&mut self, client: usize, document: usize, is_written: bool) {
        if self.is_network_reliable() || !self.rng.percent(2) {
            let delay = self.latency();
            self.schedule(delay, Event::Answer { client, document, is_written });
        }
    }

    /// Acknowledges a write, which must exist.
    fn acknowledge(&mut self, client: usize, document: usize, shard: usize) {
        match self.written[document] {
            Some(version) => {
                self.acknowledged_version[shard] = self.acknowledged_version[shard].max(version);
                self.acknowledged[document] = true;
            }
            None => self.report_violation(format!("document {document} is acknowledged and does not exist")),
        }
        self.answer(client, document, true);
    }

    pub(super) fn on_put(
        &mut self,
        node: usize,
        client: usize,
        document: usize,
        shard: usize,
        forwarded_by: Option<usize>,
    ) {
        let group = self.group_of[shard];
        let target = &self.nodes[node];
        if self.writer_epoch(node, group).is_some() && !target.is_stopping {
            self.nodes[node].queues[shard].push_back((document, client));
            return self.write_next(node, shard);
        }
        let holder = target.writers[group].map(|(holder, _)| holder);
        let holder = self.nodes.iter().position(|other| Some(other.id) == holder);
        match (forwarded_by, holder) {
            (Some(sender), _) => {
                self.wake(sender, 1, Wake::Suspect);
                self.answer(client, document, false);
            }
            (None, Some(holder)) if holder != node => {
                let is_reachable = self.nodes[holder].is_alive && !target.unreachable.contains(&holder);
                let delay = self.latency();
                if !is_reachable || self.nodes[holder].is_suspended {
                    let timeout = if is_reachable { 1000 } else { self.rng.range(1, 300) };
                    self.wake(node, timeout, Wake::Suspect);
                }
                if is_reachable {
                    self.wake(holder, delay, Wake::Put { client, document, shard, forwarded_by: Some(node) });
                } else {
                    self.answer(client, document, false);
                }
            }
            (None, _) => {
                self.wake(node, 1, Wake::Suspect);
                self.answer(client, document, false);
            }
        }
    }

    /// Writes the next document of the queue of a shard, unless a commit to it is in progress.
    fn write_next(&mut self, node: usize, shard: usize) {
        let group = self.group_of[shard];
        while !self.nodes[node].is_writing[shard] {
            let Some((document, client)) = self.nodes[node].queues[shard].front().copied() else { return };
            // A node that is not the writer any more may observe commits that the writer has not observed yet.
            let Some(epoch) = self.writer_epoch(node, group) else {
                self.nodes[node].queues[shard].pop_front();
                self.answer(client, document, false);
                continue;
            };
            let expected = self.nodes[node].cache[shard];
            if self.written[document].is_some_and(|version| version <= expected) {
                self.nodes[node].queues[shard].pop_front();
                self.acknowledge(client, document, shard);
                continue;
            }
            self.commit(node, Commit { shard, group, epoch, expected, token: 0, document });
        }
    }

    fn commit(&mut self, node: usize, commit: Commit) {
        self.nodes[node].is_writing[commit.shard] = true;
        let commit = Commit { token: self.number(), ..commit };
        self.call(node, Call::Commit(commit), Request::Commit(commit));
    }

    /// Ends the write at the front of the queue.
    fn end_write(&mut self, node: usize, shard: usize, is_written: bool) {
        self.nodes[node].is_writing[shard] = false;
        let (document, client) = self.nodes[node].queues[shard].pop_front().expect("it is being written");
        if is_written {
            self.acknowledge(client, document, shard);
        } else {
            self.answer(client, document, false);
        }
        self.write_next(node, shard);
    }

    fn committed(&mut self, node: usize, commit: Commit) {
        let cache = &mut self.nodes[node].cache[commit.shard];
        *cache = (*cache).max(commit.expected + 1);
        self.end_write(node, commit.shard, true);
    }

    pub(super) fn observe_versions(&mut self, node: usize, versions: &[usize]) {
        for (cached, version) in self.nodes[node].cache.iter_mut().zip(versions) {
            *cached = (*cached).max(*version);
        }
    }

    pub(super) fn on_write_response(&mut self, node: usize, call: Call, response: Response) {
        match (call, response) {
            (Call::Commit(commit), Response::Committed) => self.committed(node, commit),
            (Call::Commit(Commit { shard, .. }), Response::Conflict) => {
                self.call(node, Call::Reload { shard }, Request::Versions);
            }
            (Call::Commit(commit), Response::Deposed) => {
                self.depose(node, commit.group, commit.epoch);
                self.end_write(node, commit.shard, false);
            }
            (Call::Token(commit), Response::Token(Found::Is(token))) if token == commit.token => {
                self.committed(node, commit);
            }
            // Another commit has its version, so this one is never applied.
            (Call::Token(Commit { shard, .. }), Response::Token(Found::Is(_))) => {
                self.call(node, Call::Reload { shard }, Request::Versions);
            }
            (Call::Token(commit), _) => self.end_write(node, commit.shard, false),
            (Call::Reload { shard }, Response::Versions(versions)) => {
                self.observe_versions(node, &versions);
                self.nodes[node].is_writing[shard] = false;
                self.write_next(node, shard);
            }
            _ => {}
        }
    }

    pub(super) fn on_write_timeout(&mut self, node: usize, call: Call) {
        match call {
            Call::Commit(commit) if self.defect == Some(InjectedDefect::TokenIgnored) => {
                let expected = self.store.shards[commit.shard].len();
                self.commit(node, Commit { expected, ..commit });
            }
            Call::Commit(commit) => {
                let request = Request::Token { shard: commit.shard, version: commit.expected + 1 };
                self.call(node, Call::Token(commit), request);
            }
            Call::Token(commit) => self.end_write(node, commit.shard, false),
            Call::Reload { shard } if self.nodes[node].is_writing[shard] => self.end_write(node, shard, false),
            _ => {}
        }
    }
}
