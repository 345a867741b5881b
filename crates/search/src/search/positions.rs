//! Positions of terms: phrases with slop, and Lucene's intervals. A [`Test`] is evaluated on the positions of terms.

use tantivy::postings::{Postings, SegmentPostings};
use tantivy::query::Bm25Weight;
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, DocSet, Score, SegmentReader, TERMINATED, Term};

use super::computed::push;
use super::limited::charge_terms;
use crate::error::{Error, Result};
use crate::limits::{SearchLimits, Steps};
use crate::query::Relative;

pub(super) enum Test {
    /// Alternatives with their positions in the phrase, and the maximum total displacement.
    Phrase(Vec<(u32, Vec<usize>)>, u32),
    Interval(Tree),
}

/// [`Interval`](crate::query::Interval) with numbers for terms.
pub(super) enum Tree {
    Terms(Vec<usize>),
    Phrase(Vec<Tree>),
    Ordered(Vec<Tree>),
    Unordered(Vec<Tree>),
    NoOverlaps(Box<Tree>, Box<Tree>),
    Or(Vec<Tree>),
    AtLeast(usize, Vec<Tree>),
    MaxWidth(u32, Box<Tree>),
    MaxGaps(u32, Box<Tree>),
    Extend(Box<Tree>, u32, u32),
    Filter(Relative, Box<Tree>, Box<Tree>),
}

pub(super) struct Positions {
    pub(super) field: Field,
    pub(super) terms: Vec<Term>,
    pub(super) test: Test,
    pub(super) weight: Bm25Weight,
    pub(super) limits: SearchLimits,
}

/// From the first to the last position, with the number of positions in between that belong to no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Span {
    start: u32,
    end: u32,
    gaps: u32,
}

pub(super) fn find(query: &Positions, reader: &SegmentReader) -> tantivy::Result<Vec<(DocId, Score)>> {
    try_find(query, reader).map_err(Error::within_tantivy)
}

fn try_find(query: &Positions, reader: &SegmentReader) -> Result<Vec<(DocId, Score)>> {
    let limits = &query.limits;
    charge_terms(reader, &query.terms, true, limits)?;
    let mut steps = limits.steps();
    let mut charged = 0;
    let index = reader.inverted_index(query.field)?;
    let mut postings: Vec<Option<SegmentPostings>> = query
        .terms
        .iter()
        .map(|term| index.read_postings(term, IndexRecordOption::WithFreqsAndPositions).map_err(Error::from_io))
        .collect::<Result<_>>()?;
    let lengths = reader.fieldnorms_readers().get_field(query.field)?;
    let groups = query.test.groups();
    let mut places: Vec<Vec<u32>> = vec![Vec::new(); postings.len()];
    let mut found = Vec::new();
    let mut target = 0;
    loop {
        let mut doc = target;
        for group in &groups {
            steps.take(group.len())?;
            let first = group.iter().map(|&term| seek(&mut postings[term], target)).min().unwrap_or(TERMINATED);
            doc = doc.max(first);
        }
        if doc >= TERMINATED {
            return Ok(found);
        }
        if doc > target {
            target = doc;
            continue;
        }
        for (postings, places) in postings.iter_mut().zip(&mut places) {
            places.clear();
            steps.take(1)?;
            if seek(postings, doc) == doc
                && let Some(postings) = postings
            {
                let count = postings.term_freq() as usize;
                if count > places.capacity() {
                    limits.charge((count - places.capacity()) * BYTES_OF_POSITION)?;
                }
                steps.take(count / 8)?;
                postings.positions(places);
            }
        }
        let count = places.iter().map(Vec::len).sum::<usize>() * BYTES_OF_POSITION;
        if count > charged {
            limits.charge(count - charged)?;
            charged = count;
        }
        let frequency = query.test.frequency(&places, &mut steps)?;
        if frequency > 0.0 {
            let length = lengths.as_ref().map_or(1, |lengths| lengths.fieldnorm_id(doc));
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of places")]
            let frequency = frequency.ceil() as u32;
            push(&mut found, doc, query.weight.score(length, frequency), limits)?;
        }
        target = doc + 1;
    }
}

const BYTES_OF_POSITION: usize = 4 * size_of::<Span>();

fn seek(postings: &mut Option<SegmentPostings>, target: DocId) -> DocId {
    postings.as_mut().map_or(TERMINATED, |postings| {
        let doc = postings.doc();
        if doc >= target { doc } else { postings.seek(target) }
    })
}

impl Test {
    /// A matching document has at least one term of each group.
    fn groups(&self) -> Vec<Vec<usize>> {
        match self {
            Self::Phrase(groups, _) => groups.iter().map(|(_, terms)| terms.clone()).collect(),
            Self::Interval(tree) => {
                let mut groups = Vec::new();
                tree.push_groups(&mut groups);
                groups
            }
        }
    }

    fn frequency(&self, places: &[Vec<u32>], steps: &mut Steps) -> Result<f32> {
        match self {
            Self::Phrase(groups, slop) => sloppy(groups, *slop, places, steps),
            #[expect(clippy::cast_precision_loss, reason = "a count of places")]
            Self::Interval(tree) => Ok(tree.spans(places, steps)?.len() as f32),
        }
    }
}

fn sloppy(groups: &[(u32, Vec<usize>)], slop: u32, places: &[Vec<u32>], steps: &mut Steps) -> Result<f32> {
    let lists: Vec<Vec<i64>> = groups
        .iter()
        .map(|(offset, terms)| {
            let all = terms.iter().flat_map(|&term| &places[term]);
            let mut list: Vec<i64> = all.map(|&place| i64::from(place) - i64::from(*offset)).collect();
            list.sort_unstable();
            list
        })
        .collect();
    let mut at = vec![0; lists.len()];
    let mut frequency = 0.0;
    loop {
        steps.take(lists.len())?;
        let Some(now) = lists.iter().zip(&at).map(|(list, &at)| list.get(at).copied()).collect::<Option<Vec<_>>>()
        else {
            return Ok(frequency);
        };
        let (least, greatest) = (now.iter().min().copied().unwrap_or(0), now.iter().max().copied().unwrap_or(0));
        let mut taken: Vec<i64> =
            now.iter().zip(groups).map(|(place, (offset, _))| place + i64::from(*offset)).collect();
        taken.sort_unstable();
        let is_distinct = taken.windows(2).all(|pair| pair[0] != pair[1]);
        if greatest - least <= i64::from(slop) && is_distinct {
            #[expect(clippy::cast_precision_loss, reason = "at most the slop")]
            let off = (greatest - least) as f32;
            frequency += 1.0 / (1.0 + off);
        }
        let first = now.iter().position(|&place| place == least).unwrap_or(0);
        at[first] += 1;
    }
}

impl Tree {
    fn push_groups(&self, out: &mut Vec<Vec<usize>>) {
        match self {
            Self::Terms(terms) => out.push(terms.clone()),
            Self::Phrase(parts) | Self::Ordered(parts) | Self::Unordered(parts) => {
                parts.iter().for_each(|part| part.push_groups(out));
            }
            Self::Or(parts) | Self::AtLeast(_, parts) => {
                let mut groups = Vec::new();
                parts.iter().for_each(|part| part.push_groups(&mut groups));
                out.push(groups.concat());
            }
            Self::NoOverlaps(one, other) => {
                one.push_groups(out);
                other.push_groups(out);
            }
            Self::MaxWidth(_, part) | Self::MaxGaps(_, part) | Self::Extend(part, ..) => part.push_groups(out),
            Self::Filter(relation, part, other) => {
                part.push_groups(out);
                if relation.wants_other() {
                    other.push_groups(out);
                }
            }
        }
    }

    fn spans(&self, places: &[Vec<u32>], steps: &mut Steps) -> Result<Vec<Span>> {
        let spans = match self {
            Self::Terms(terms) => {
                let ends = terms.iter().flat_map(|&term| &places[term]);
                least(ends.map(|&place| Span { start: place, end: place, gaps: 0 }).collect())
            }
            Self::Phrase(parts) => row(all(parts, places, steps)?, |gap| gap == 0, steps)?,
            Self::Ordered(parts) => row(all(parts, places, steps)?, |_| true, steps)?,
            Self::Unordered(parts) => unordered(&all(parts, places, steps)?, steps)?,
            Self::NoOverlaps(one, other) => {
                let (one, other) = (one.spans(places, steps)?, other.spans(places, steps)?);
                let before = row(vec![one.clone(), other.clone()], |_| true, steps)?;
                let after = row(vec![other, one], |_| true, steps)?;
                least([before, after].concat())
            }
            Self::Or(parts) => least(all(parts, places, steps)?.concat()),
            Self::AtLeast(count, parts) => at_least(*count, &all(parts, places, steps)?, steps)?,
            Self::MaxWidth(width, part) => {
                part.spans(places, steps)?.into_iter().filter(|span| span.end - span.start < *width).collect()
            }
            Self::MaxGaps(gaps, part) => {
                part.spans(places, steps)?.into_iter().filter(|span| span.gaps <= *gaps).collect()
            }
            Self::Extend(part, before, after) => extend(part.spans(places, steps)?, *before, *after),
            Self::Filter(relation, part, other) => {
                let others = other.spans(places, steps)?;
                let part = part.spans(places, steps)?;
                part.into_iter().filter(|span| relation.holds(*span, &others)).collect()
            }
        };
        steps.take(spans.len())?;
        Ok(spans)
    }
}

fn all(parts: &[Tree], places: &[Vec<u32>], steps: &mut Steps) -> Result<Vec<Vec<Span>>> {
    parts.iter().map(|part| part.spans(places, steps)).collect()
}

/// Upper bound of positions, so that lengths of spans can be added without overflow.
const LAST_POSITION: u32 = u32::MAX >> 1;

fn extend(spans: Vec<Span>, before: u32, after: u32) -> Vec<Span> {
    let end = |span: Span| span.end.saturating_add(after).min(LAST_POSITION);
    let longer = |span: Span| Span { start: span.start.saturating_sub(before), end: end(span), ..span };
    spans.into_iter().map(longer).collect()
}

fn least(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|span| (span.start, std::cmp::Reverse(span.end)));
    let mut kept: Vec<Span> = Vec::with_capacity(spans.len());
    for span in spans {
        while kept.last().is_some_and(|last| last.end >= span.end) {
            kept.pop();
        }
        kept.push(span);
    }
    kept
}

fn row(parts: Vec<Vec<Span>>, fits: impl Fn(u32) -> bool, steps: &mut Steps) -> Result<Vec<Span>> {
    let mut parts = parts.into_iter();
    let mut spans = parts.next().unwrap_or_default();
    for next in parts {
        let mut longer = Vec::new();
        for span in spans {
            steps.take(1)?;
            let from = next.partition_point(|next| next.start <= span.end);
            if let Some(next) = next.get(from) {
                let gap = next.start - span.end - 1;
                if fits(gap) {
                    longer.push(Span { start: span.start, end: next.end, gaps: span.gaps + next.gaps + gap });
                }
            }
        }
        spans = least(longer);
    }
    Ok(spans)
}

fn unordered(parts: &[Vec<Span>], steps: &mut Steps) -> Result<Vec<Span>> {
    let mut at = vec![0; parts.len()];
    let mut spans = Vec::new();
    while let Some(now) = parts.iter().zip(&at).map(|(part, &at)| part.get(at).copied()).collect::<Option<Vec<_>>>() {
        steps.take(parts.len())?;
        let (Some(first), Some(end)) = (now.iter().map(|span| span.start).min(), now.iter().map(|span| span.end).max())
        else {
            break;
        };
        let covered = |span: &Span| u64::from(span.end - span.start + 1 - span.gaps.min(span.end - span.start));
        let within = u32::try_from(now.iter().map(covered).sum::<u64>()).unwrap_or(u32::MAX);
        spans.push(Span { start: first, end, gaps: (end - first + 1).saturating_sub(within) });
        let Some(least) = now.iter().position(|span| span.start == first) else { break };
        at[least] += 1;
    }
    Ok(least(spans))
}

fn at_least(count: usize, parts: &[Vec<Span>], steps: &mut Steps) -> Result<Vec<Span>> {
    if count == 0 || count > parts.len() {
        return Ok(Vec::new());
    }
    let mut spans = Vec::new();
    for first in parts.iter().flatten() {
        steps.take(parts.len())?;
        let mut ends: Vec<u32> = parts
            .iter()
            .filter_map(|part| part.get(part.partition_point(|span| span.start < first.start)).map(|span| span.end))
            .collect();
        ends.sort_unstable();
        if let Some(&end) = ends.get(count - 1) {
            spans.push(Span { start: first.start, end, gaps: 0 });
        }
    }
    Ok(least(spans))
}

impl Relative {
    fn wants_other(self) -> bool {
        !matches!(self, Self::NotContaining | Self::NotContainedBy | Self::NonOverlapping)
    }

    /// `others` must be minimal spans, so that their ends are in the order of their starts.
    fn holds(self, span: Span, others: &[Span]) -> bool {
        match self {
            Self::Before => others.last().is_some_and(|last| span.end < last.start),
            Self::After => others.first().is_some_and(|first| span.start > first.end),
            Self::Containing => {
                let next = others.partition_point(|other| other.start < span.start);
                others.get(next).is_some_and(|other| other.end <= span.end)
            }
            Self::ContainedBy => {
                let next = others.partition_point(|other| other.start <= span.start);
                next > 0 && others[next - 1].end >= span.end
            }
            Self::Overlapping => {
                let next = others.partition_point(|other| other.end < span.start);
                others.get(next).is_some_and(|other| other.start <= span.end)
            }
            Self::NotContaining => !Self::Containing.holds(span, others),
            Self::NotContainedBy => !Self::ContainedBy.holds(span, others),
            Self::NonOverlapping => !Self::Overlapping.holds(span, others),
        }
    }
}
