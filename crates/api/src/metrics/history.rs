//! [`History`]: a sample of a node's figures per minute, for charts of the last day. Counters are stored as they are,
//! since the start of the process: a reader computes rates from differences, so a missing sample changes no rate. The
//! history ends with the process.

use std::collections::VecDeque;

use parking_lot::Mutex;

pub(crate) const INTERVAL_MS: u64 = 60_000;

const SAMPLES_MAX: usize = 24 * 60;

/// Names of the numbers of a sample. Durations are in milliseconds.
pub(crate) const NAMES: [&str; 10] = [
    "requests",
    "document_writes",
    "database_reads",
    "responses_4xx",
    "responses_5xx",
    "request_time_p50",
    "request_time_p90",
    "request_time_p99",
    "resident_bytes",
    "disk_bytes",
];

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    pub(crate) at_ms: u64,
    pub(crate) numbers: [f64; NAMES.len()],
}

#[derive(Default)]
pub(crate) struct History(Mutex<VecDeque<Sample>>);

impl History {
    pub(crate) fn record(&self, sample: Sample) {
        let mut samples = self.0.lock();
        samples.push_back(sample);
        if samples.len() > SAMPLES_MAX {
            samples.pop_front();
        }
    }

    pub(crate) fn since(&self, since_ms: u64) -> Vec<Sample> {
        self.0.lock().iter().filter(|sample| sample.at_ms > since_ms).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_of_samples_is_kept() {
        let history = History::default();
        let sample = |minute: u64| Sample { at_ms: minute * INTERVAL_MS, numbers: [minute as f64; NAMES.len()] };
        (0..2000).for_each(|minute| history.record(sample(minute)));
        let kept = history.since(0);
        assert_eq!((kept.len(), kept.first(), kept.last()), (SAMPLES_MAX, Some(&sample(560)), Some(&sample(1999))));
        assert_eq!(history.since(1998 * INTERVAL_MS), [sample(1999)]);
        assert!(history.since(u64::MAX).is_empty());
    }
}
