//! [`Shares`]: counts commits of nodes that shared a statement with commits to other databases.

use super::client::{Answer, Client, Shared};

const COUNT: &str = "settee_engine_commits_shared_total";

#[derive(Debug)]
pub(super) struct Shares {
    last: Vec<u64>,
    pub(super) total: u64,
}

impl Shares {
    pub(super) fn new(nodes: usize) -> Self {
        Self { last: vec![0; nodes], total: 0 }
    }

    pub(super) fn ask(&mut self, shared: &Shared) {
        let mut client = Client::new(shared, 0);
        for node in 0..self.last.len() {
            let answer = client.ask(node, "GET /_node/_local/_prometheus", b"");
            let Answer::Response(200, text) = answer else { continue };
            let Some(count) = count(&text) else {
                shared.violation(format!("node {node} does not count {COUNT}"));
                continue;
            };
            self.add(node, count);
        }
    }

    fn add(&mut self, node: usize, count: u64) {
        self.total += count.checked_sub(self.last[node]).unwrap_or(count);
        self.last[node] = count;
    }
}

fn count(text: &str) -> Option<u64> {
    let line = text.lines().find(|line| line.starts_with(COUNT))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_started_again_counts_from_zero() {
        let mut shares = Shares::new(2);
        for (node, count) in [(0, 10), (1, 1), (0, 15), (0, 3), (0, 3)] {
            shares.add(node, count);
        }
        assert_eq!(shares.total, 19);
        assert_eq!(count(&format!("# TYPE {COUNT} counter\n{COUNT} 12\nx 3\n")), Some(12));
        assert_eq!(count(&format!("# TYPE {COUNT} counter\n")), None);
    }
}
