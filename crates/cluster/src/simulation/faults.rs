//! Random faults of nodes, connections and the store: [`Simulation::fault`] selects one.

use super::node::{Node, Wake};
use super::{Event, FAULTS_UNTIL, Simulation};

impl Simulation {
    /// Causes a fault and schedules the next one.
    pub(super) fn fault(&mut self) {
        let node = self.victim();
        if self.is_plain {
            self.crashed_at = Some(self.now);
            return self.crash(node);
        }
        if self.now < FAULTS_UNTIL {
            let pause = if self.rng.percent(30) { self.rng.range(1, 100) } else { self.rng.range(100, 3000) };
            self.schedule(pause, Event::Fault);
        }
        match self.rng.below(12) {
            0 | 1 => self.crash(node),
            2 | 3 => self.suspend(node),
            4 => {
                self.nodes[node].is_cut_off = true;
                let duration = self.rng.range(100, 6000);
                self.schedule(duration, Event::Reconnect(node));
            }
            5 => {
                let id = self.nodes[node].id;
                for connection in self.store.connections(id) {
                    self.disconnect(id, connection);
                }
            }
            6 => self.stalled_until = self.now + self.rng.below(2500),
            7 => self.fail_over(),
            8 => {
                let other = self.rng.index(self.nodes.len());
                let unreachable = &mut self.nodes[node].unreachable;
                if !unreachable.is_empty() { unreachable.clear() } else { unreachable.push(other) }
            }
            9 => self.nodes[node].jumps += self.rng.below(3000),
            10 => self.wake(node, 0, Wake::Stop),
            _ => self.slow_until = self.now + self.rng.below(2000),
        }
    }

    /// Returns the node for the next fault: in half of the cases the writer of the first group, otherwise any node.
    fn victim(&mut self) -> usize {
        let any = self.rng.index(self.nodes.len());
        let is_writer = |node: &usize| self.writer_epoch(*node, 0).is_some();
        let writer = (0..self.nodes.len()).find(is_writer);
        let prefers_writer = self.is_plain || self.rng.percent(50);
        writer.filter(|_| prefers_writer).unwrap_or(any)
    }

    pub(super) fn crash(&mut self, node: usize) {
        if !self.nodes[node].is_alive {
            return;
        }
        self.nodes[node].is_alive = false;
        let id = self.nodes[node].id;
        for connection in self.store.connections(id) {
            let delay = if self.is_plain || self.rng.percent(70) { 0 } else { self.rng.below(2100) };
            self.schedule(delay, Event::Disconnect { id, connection });
        }
        let pause = self.rng.range(10, 5000);
        self.schedule(pause, Event::Restart(node));
    }

    pub(super) fn restart(&mut self, node: usize) {
        if self.nodes[node].is_alive {
            return;
        }
        let life = self.nodes[node].life + 1;
        let started = Node::new(node, life, &mut self.rng, self.fenced.len());
        self.nodes[node] = started;
        self.start(node);
    }

    fn suspend(&mut self, node: usize) {
        let target = &mut self.nodes[node];
        if target.is_suspended || !target.is_alive {
            return;
        }
        target.is_suspended = true;
        let life = target.life;
        let duration = self.rng.range(50, 6000);
        self.schedule(duration, Event::Resume(node, life));
    }

    /// Resumes a suspended node. Its delayed events are processed within 5 ms, in random order. Does nothing if the
    /// node was restarted since.
    pub(super) fn resume(&mut self, node: usize, life: u64) {
        let target = &mut self.nodes[node];
        if target.life != life || !target.is_suspended {
            return;
        }
        target.is_suspended = false;
        for wake in std::mem::take(&mut target.deferred) {
            let delay = self.rng.below(5);
            self.wake(node, delay, wake);
        }
    }

    /// The primary of the store is lost, and another server is promoted. A third of the transactions in progress is
    /// committed without a response.
    fn fail_over(&mut self) {
        if !self.is_up {
            return;
        }
        self.is_up = false;
        for number in self.store.transactions.keys().copied().collect::<Vec<_>>() {
            let transaction = self.store.transactions.remove(&number).expect("it was in progress");
            if self.rng.percent(30) {
                self.apply(transaction.commit);
            }
        }
        for node in 0..self.nodes.len() {
            let id = self.nodes[node].id;
            for connection in self.store.connections(id) {
                self.disconnect(id, connection);
            }
        }
        let now = self.now;
        self.store.fail_over(now, &mut self.rng);
        let duration = self.rng.below(3000);
        self.schedule(duration, Event::StoreUp);
    }

    /// Ends all faults, and schedules the check that a writer is elected.
    pub(super) fn end_faults(&mut self) {
        self.faults_ended = true;
        (self.is_up, self.stalled_until, self.slow_until) = (true, 0, 0);
        for node in 0..self.nodes.len() {
            let target = &mut self.nodes[node];
            target.is_cut_off = false;
            target.unreachable.clear();
            let life = target.life;
            self.resume(node, life);
            if !self.is_plain {
                self.restart(node);
            }
        }
        self.schedule(Self::election_bound(), Event::CheckElected);
    }
}
