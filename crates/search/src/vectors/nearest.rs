//! Nearest-neighbour search in a file of vectors: with the graph, or exhaustively if that is less work.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

use tantivy::DocId;

use super::Similarity;
use super::file::Nodes;
use super::graph::{NO_NEIGHBOUR, UPPER_NEIGHBOURS};
use crate::error::Result;
use crate::limits::SearchLimits;

pub(crate) struct Wanted<'a> {
    pub(crate) similarity: Similarity,
    pub(crate) vector: &'a [f32],
    pub(crate) count: usize,
    pub(crate) candidates: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) distance: f32,
    pub(crate) doc: DocId,
}

const COMPARED_FOR_EACH: usize = 30;

impl Wanted<'_> {
    pub(crate) fn find(
        &self,
        nodes: &Nodes<'_>,
        allowed: usize,
        is_allowed: impl Fn(DocId) -> bool,
        limits: &SearchLimits,
    ) -> Result<Vec<Found>> {
        let file = nodes.file;
        let count = self.count.min(file.len());
        let candidates = self.candidates.max(count).min(file.len().max(1));
        limits.charge(NEAR_BYTES * candidates + file.len() / 8)?;
        // If every tenth document is allowed, a graph search visits ten times as many nodes.
        let walked = COMPARED_FOR_EACH.saturating_mul(candidates).saturating_mul(file.len()) / allowed.max(1);
        let is_walked = file.has_graph() && walked < allowed;
        let mut found = match is_walked {
            true => self.search_graph(nodes, candidates, is_allowed, limits)?,
            false => self.compare_all(nodes, count, is_allowed, limits)?,
        };
        limits.check()?;
        found.sort_unstable();
        found.truncate(count);
        Ok(found
            .into_iter()
            .map(|Candidate { distance, node }| Found { distance, doc: file.docs[node as usize] })
            .collect())
    }

    fn compare_all(
        &self,
        nodes: &Nodes<'_>,
        count: usize,
        is_allowed: impl Fn(DocId) -> bool,
        limits: &SearchLimits,
    ) -> Result<Vec<Candidate>> {
        let mut best = TopCandidates::new(count);
        let mut steps = limits.steps();
        for (node, doc) in (0..).zip(&nodes.file.docs) {
            steps.take(self.steps())?;
            if is_allowed(*doc) {
                best.offer(self.near(nodes, node)?);
            }
        }
        Ok(best.kept.into_vec())
    }

    fn steps(&self) -> usize {
        1 + self.vector.len() / 256
    }

    fn near(&self, nodes: &Nodes<'_>, node: u32) -> Result<Candidate> {
        let distance = self.similarity.distance_to_stored(self.vector, nodes.get(node)?.vector());
        Ok(Candidate { distance, node })
    }

    fn search_graph(
        &self,
        nodes: &Nodes<'_>,
        candidates: usize,
        is_allowed: impl Fn(DocId) -> bool,
        limits: &SearchLimits,
    ) -> Result<Vec<Candidate>> {
        let file = nodes.file;
        let mut steps = limits.steps();
        let mut nearest = self.near(nodes, 0)?;
        for layer in file.above.iter().rev() {
            nearest = self.descend(nodes, layer, nearest)?;
        }
        let mut seen = VisitedNodes::new(file.len());
        seen.insert(nearest.node);
        let mut open = BinaryHeap::from([Reverse(nearest)]);
        let mut best = TopCandidates::new(candidates);
        if is_allowed(file.docs[nearest.node as usize]) {
            best.offer(nearest);
        }
        while let Some(Reverse(next)) = open.pop() {
            if best.refuses(&next) {
                break;
            }
            for node in nodes.get(next.node)?.near().filter(|node| *node != NO_NEIGHBOUR) {
                if !seen.insert(node) {
                    continue;
                }
                steps.take(self.steps())?;
                let near = self.near(nodes, node)?;
                if best.refuses(&near) {
                    continue;
                }
                if open.len() == open.capacity() {
                    limits.charge(open.len().max(64) * NEAR_BYTES)?;
                }
                open.push(Reverse(near));
                if is_allowed(file.docs[node as usize]) {
                    best.offer(near);
                }
            }
        }
        Ok(best.kept.into_vec())
    }

    fn descend(&self, nodes: &Nodes<'_>, layer: &[u32], mut nearest: Candidate) -> Result<Candidate> {
        loop {
            let start = nearest.node as usize * UPPER_NEIGHBOURS;
            let neighbours = layer.get(start..start + UPPER_NEIGHBOURS).unwrap_or_default();
            let from = nearest;
            for node in neighbours.iter().filter(|node| **node != NO_NEIGHBOUR) {
                nearest = nearest.min(self.near(nodes, *node)?);
            }
            if nearest == from {
                return Ok(nearest);
            }
        }
    }
}

const NEAR_BYTES: usize = 2 * size_of::<Candidate>() + 2 * size_of::<Found>();

#[derive(Clone, Copy)]
struct Candidate {
    distance: f32,
    node: u32,
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Candidate {}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Candidate {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.node.cmp(&other.node))
    }
}

struct TopCandidates {
    kept: BinaryHeap<Candidate>,
    count: usize,
}

impl TopCandidates {
    fn new(count: usize) -> Self {
        Self { kept: BinaryHeap::with_capacity(count + 1), count }
    }

    fn refuses(&self, near: &Candidate) -> bool {
        self.kept.len() >= self.count && self.kept.peek().is_none_or(|farthest| near >= farthest)
    }

    fn offer(&mut self, near: Candidate) {
        if !self.refuses(&near) {
            self.kept.push(near);
            if self.kept.len() > self.count {
                self.kept.pop();
            }
        }
    }
}

struct VisitedNodes {
    bits: Vec<u64>,
}

impl VisitedNodes {
    fn new(nodes: usize) -> Self {
        Self { bits: vec![0; nodes.div_ceil(64)] }
    }

    fn insert(&mut self, node: u32) -> bool {
        let Some(bits) = self.bits.get_mut(node as usize / 64) else { return false };
        let bit = 1 << (node % 64);
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }
}
