//! [`History`]: what a client was told, and when; and which states may be found after a power loss at some moment.

use std::collections::BTreeMap;

/// What is found where there is nothing.
pub(crate) const NOTHING: &str = "nothing";

/// A change of something that has a name. Moments are lengths of the record.
#[derive(Clone, Debug)]
struct Told {
    sent: u64,
    acknowledged: u64,
    state: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History(BTreeMap<String, Vec<Told>>);

impl History {
    /// Notes that `name` was given a state in a request that was sent and acknowledged at these moments.
    pub(crate) fn note(&mut self, name: &str, sent: u64, acknowledged: u64, state: String) {
        self.0.entry(name.to_owned()).or_default().push(Told { sent, acknowledged, state });
    }

    /// Adds what another client was told about other things.
    pub(crate) fn add(&mut self, other: Self) {
        for (name, told) in other.0 {
            self.0.entry(name).or_default().extend(told);
        }
    }

    /// The names that begin with `prefix`.
    pub(crate) fn names(&self, prefix: &str) -> Vec<String> {
        self.0.keys().filter(|name| name.starts_with(prefix)).cloned().collect()
    }

    /// What was acknowledged last.
    pub(crate) fn last(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.last().map(|told| told.state.as_str())
    }

    /// Compares what was found after a power loss at `moment`: the last state that was acknowledged then, or one that
    /// was sent later. Nothing may be found that nobody sent.
    pub(crate) fn check(&self, moment: u64, found: &BTreeMap<String, String>) {
        for name in found.keys() {
            assert!(self.0.contains_key(name), "nobody wrote {name}");
        }
        for (name, all) in &self.0 {
            let now = found.get(name).map_or(NOTHING, String::as_str);
            let promised = all.iter().rposition(|told| told.acknowledged <= moment);
            let mut possible: Vec<&str> = all[promised.unwrap_or(0)..]
                .iter()
                .take_while(|told| told.sent <= moment)
                .map(|told| told.state.as_str())
                .collect();
            if promised.is_none() {
                possible.push(NOTHING);
            }
            assert!(possible.contains(&now), "{name} is {now}, not one of {possible:?}");
        }
    }
}
