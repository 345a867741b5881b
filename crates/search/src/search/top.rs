//! [`Top`] collects the first hits of a segment.

use std::collections::BinaryHeap;

use tantivy::{DocId, Score};

use super::order::Keys;
use crate::answer::OrderValue;
use crate::error::Result;
use crate::limits::SearchLimits;

pub(super) struct Candidate {
    pub(super) segment: usize,
    pub(super) doc: DocId,
    pub(super) order: Vec<OrderValue>,
}

pub(super) struct Top<'a> {
    keys: &'a Keys,
    limit: usize,
    after: Option<Vec<u64>>,
    /// The last of the first hits is on top.
    heap: BinaryHeap<Entry>,
    limits: &'a SearchLimits,
}

const CHARGED_TOGETHER: usize = 64;

struct Entry {
    keys: Vec<u64>,
    doc: DocId,
    score: Score,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.keys.cmp(&other.keys).then(self.doc.cmp(&other.doc))
    }
}

impl<'a> Top<'a> {
    pub(super) fn new(keys: &'a Keys, limit: usize, after: Option<Vec<u64>>, limits: &'a SearchLimits) -> Self {
        Self { keys, limit, after, heap: BinaryHeap::new(), limits }
    }

    pub(super) fn offer(&mut self, doc: DocId, score: Score) {
        if self.limit == 0 {
            return;
        }
        if self.heap.len() >= self.limit
            && self.heap.peek().is_some_and(|last| self.keys.compare(doc, score, &last.keys).is_ge())
        {
            return;
        }
        if self.after.as_ref().is_some_and(|after| self.keys.compare(doc, score, after).is_le()) {
            return;
        }
        if self.heap.len() >= self.limit {
            self.heap.pop();
        } else if self.heap.len().is_multiple_of(CHARGED_TOGETHER)
            // The check after the segment reports the error.
            && self.limits.charge(CHARGED_TOGETHER * (2 * size_of::<Entry>() + self.keys.bytes())).is_err()
        {
            return;
        }
        self.heap.push(Entry { keys: self.keys.of(doc, score), doc, score });
    }

    /// Returns the score that a hit must exceed, if the order starts with scores.
    pub(super) fn threshold(&self) -> Score {
        match self.heap.peek() {
            // A hit with an equal score may have a smaller id.
            Some(last) if self.heap.len() >= self.limit => last.score.next_down(),
            _ if self.limit == 0 => Score::INFINITY,
            _ => Score::NEG_INFINITY,
        }
    }

    pub(super) fn finish(self, segment: usize) -> Result<Vec<Candidate>> {
        let Self { keys, limits, .. } = self;
        let mut steps = limits.steps();
        let candidate = |entry: Entry| {
            steps.take(1)?;
            Ok(Candidate { segment, doc: entry.doc, order: keys.charged_values(entry.doc, entry.score, limits)? })
        };
        self.heap.into_iter().map(candidate).collect()
    }
}
