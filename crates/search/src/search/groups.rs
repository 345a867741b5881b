//! Groups of hits by the value of a field.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use tantivy::{DocId, Score, SegmentReader};

use super::order::{self, Keys};
use super::render::HitRenderer;
use super::top::Candidate;
use crate::answer::{Group, OrderValue};
use crate::error::{Error, Result};
use crate::index::reader::Reader;
use crate::index::strings::Strings;
use crate::limits::SearchLimits;
use crate::request::{Grouping, Request, Sort};

const MAX_GROUPS: usize = 10_000;

const DOC_BYTES: usize = size_of::<(Vec<u64>, DocId, Score)>();

pub(super) struct Groups<'a> {
    grouping: &'a Grouping,
    limits: &'a SearchLimits,
    limit: usize,
    column: Option<String>,
    sorts: Vec<Sort>,
    group_sorts: Vec<Sort>,
    groups: HashMap<Option<String>, GroupBuilder>,
}

#[derive(Default)]
struct GroupBuilder {
    total: u64,
    hits: Vec<Candidate>,
    first: Option<Vec<OrderValue>>,
}

type BuiltGroup = (Option<String>, u64, Vec<Candidate>, Vec<OrderValue>);

pub(super) struct OfSegment<'a> {
    limits: &'a SearchLimits,
    column: Option<Strings>,
    keys: Keys,
    group_keys: Keys,
    limit: usize,
    groups: HashMap<Option<u64>, Collecting>,
}

struct Collecting {
    total: u64,
    docs: Vec<(Vec<u64>, DocId, Score)>,
    first: (Vec<u64>, DocId, Score),
}

impl<'a> Groups<'a> {
    pub(super) fn new(
        reader: &Reader,
        request: &'a Request,
        sorts: &[Sort],
        limits: &'a SearchLimits,
    ) -> Result<Option<Self>> {
        let Some(grouping) = &request.group else { return Ok(None) };
        if grouping.limit > MAX_GROUPS {
            return Err(Error::bad_request(format!("group_limit must be less than or equal to {MAX_GROUPS}")));
        }
        Ok(Some(Self {
            grouping,
            limits,
            limit: request.limit,
            column: order::countable(reader, &grouping.field)?,
            sorts: sorts.to_vec(),
            group_sorts: order::complete(&grouping.sort)?,
            groups: HashMap::new(),
        }))
    }

    pub(super) fn open(&self, reader: &Reader, segment: &SegmentReader) -> Result<OfSegment<'a>> {
        let column = self.column.as_ref().map(|name| Strings::open(segment, name)).transpose()?.flatten();
        Ok(OfSegment {
            limits: self.limits,
            column,
            keys: Keys::open(reader, segment, &self.sorts)?,
            group_keys: Keys::open(reader, segment, &self.group_sorts)?,
            limit: self.limit,
            groups: HashMap::new(),
        })
    }

    pub(super) fn add(&mut self, groups: Vec<BuiltGroup>) -> Result<()> {
        let mut steps = self.limits.steps();
        for (by, total, hits, first) in groups {
            steps.take(1 + hits.len())?;
            let group = self.groups.entry(by).or_default();
            group.total += total;
            group.hits.extend(hits);
            let is_better =
                group.first.as_ref().is_none_or(|old| order::compare(&self.group_sorts, &first, old).is_lt());
            if is_better {
                group.first = Some(first);
            }
            if group.hits.len() > self.limit {
                group.hits.sort_by(|one, other| order::compare(&self.sorts, &one.order, &other.order));
                group.hits.truncate(self.limit);
            }
        }
        Ok(())
    }

    pub(super) fn finish(self, shower: &HitRenderer<'_>) -> Result<Vec<Group>> {
        let groups: Vec<_> = self.groups.into_iter().collect();
        let mut groups = self.limits.sort(groups, |(_, one), (_, other)| {
            let [one, other] = [one, other].map(|group| group.first.as_deref().unwrap_or_default());
            order::compare(&self.group_sorts, one, other)
        })?;
        groups.truncate(self.grouping.limit);
        let finish = |(by, mut group): (Option<String>, GroupBuilder)| {
            group.hits.sort_by(|one, other| order::compare(&self.sorts, &one.order, &other.order));
            Ok(Group { by, total_hits: group.total, hits: shower.hits(group.hits)? })
        };
        groups.into_iter().map(finish).collect()
    }
}

impl OfSegment<'_> {
    pub(super) fn offer(&mut self, doc: DocId, score: Score) -> Result<()> {
        let by = self.column.as_ref().and_then(|column| column.ords_of(doc).min());
        let first = self.group_keys.of(doc, score);
        let group = match self.groups.entry(by) {
            Entry::Occupied(group) => group.into_mut(),
            Entry::Vacant(group) => {
                self.limits.charge(2 * size_of::<Collecting>() + self.group_keys.bytes())?;
                group.insert(Collecting { total: 0, docs: Vec::new(), first: (first.clone(), doc, score) })
            }
        };
        group.total += 1;
        if first < group.first.0 {
            group.first = (first, doc, score);
        }
        if group.docs.len() == group.docs.capacity() {
            self.limits.charge(group.docs.len().max(4) * (DOC_BYTES + self.keys.bytes()))?;
        }
        group.docs.push((self.keys.of(doc, score), doc, score));
        // Twice the needed number is kept, so that sorting is rare.
        if group.docs.len() > self.limit.max(8).saturating_mul(2) {
            group.docs.sort_unstable_by(|one, other| one.0.cmp(&other.0));
            group.docs.truncate(self.limit);
        }
        Ok(())
    }

    pub(super) fn finish(self, segment: usize) -> Result<Vec<BuiltGroup>> {
        let mut groups = Vec::with_capacity(self.groups.len());
        let mut steps = self.limits.steps();
        for (by, mut group) in self.groups {
            steps.take(1 + group.docs.len())?;
            let by = match (by, &self.column) {
                (Some(ord), Some(column)) => Some(column.text(ord)?),
                _ => None,
            };
            group.docs.sort_unstable_by(|one, other| one.0.cmp(&other.0));
            group.docs.truncate(self.limit);
            let hits = group
                .docs
                .into_iter()
                .map(|(_, doc, score)| {
                    Ok(Candidate { segment, doc, order: self.keys.charged_values(doc, score, self.limits)? })
                })
                .collect::<Result<_>>()?;
            let (_, doc, score) = group.first;
            let by_first = self.group_keys.charged_values(doc, score, self.limits)?;
            self.limits.charge(size_of::<BuiltGroup>() + by.as_ref().map_or(0, String::len))?;
            groups.push((by, group.total, hits, by_first));
        }
        Ok(groups)
    }
}
