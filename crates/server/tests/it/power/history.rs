//! [`History`]: acknowledged states with their times, and the states permitted after a power loss at a given moment.

use std::collections::BTreeMap;

pub(crate) const NOTHING: &str = "nothing";

/// Moments are lengths of the record.
#[derive(Clone, Debug)]
struct RecordedState {
    sent: u64,
    acknowledged: u64,
    state: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History(BTreeMap<String, Vec<RecordedState>>);

impl History {
    /// Records that a request, sent and acknowledged at these moments, gave `name` a state.
    pub(crate) fn note(&mut self, name: &str, sent: u64, acknowledged: u64, state: String) {
        self.0.entry(name.to_owned()).or_default().push(RecordedState { sent, acknowledged, state });
    }

    pub(crate) fn add(&mut self, other: Self) {
        for (name, reply) in other.0 {
            self.0.entry(name).or_default().extend(reply);
        }
    }

    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        self.0.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(|reply| reply.state.as_str())
    }

    /// The state after a power loss at `moment` must be the last state acknowledged by then, or one sent later.
    pub(crate) fn check(&self, moment: u64, found: &BTreeMap<String, String>) {
        for name in found.keys() {
            assert!(self.0.contains_key(name), "no client wrote {name}");
        }
        for (name, all) in &self.0 {
            let now = found.get(name).map_or(NOTHING, String::as_str);
            let promised = all.iter().rposition(|reply| reply.acknowledged <= moment);
            let mut possible: Vec<&str> = all[promised.unwrap_or(0)..]
                .iter()
                .take_while(|reply| reply.sent <= moment)
                .map(|reply| reply.state.as_str())
                .collect();
            if promised.is_none() {
                possible.push(NOTHING);
            }
            assert!(possible.contains(&now), "{name} is {now}, not one of {possible:?}");
        }
    }
}
