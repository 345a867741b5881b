//! Facets: counts of field values among all hits, and of numbers in ranges.

use std::collections::HashMap;

use tantivy::columnar::{Cardinality, Column};
use tantivy::{DocId, SegmentReader};

use super::order;
use crate::error::{Error, Result};
use crate::index::reader::Reader;
use crate::index::strings::Strings;
use crate::limits::SearchLimits;
use crate::request::{Range, Request};
use crate::store::SlotKind;

const MAX_FACETS: usize = 100;
const MAX_RANGES: usize = 1_000;

const NAMED_TOGETHER: usize = 1_000;

const VALUE_BYTES: usize = 96;

type Counted = Vec<(String, Vec<(String, u64)>)>;

pub(super) struct Facets<'a> {
    request: &'a Request,
    limits: &'a SearchLimits,
    columns: Vec<Option<String>>,
    counts: Vec<HashMap<String, u64>>,
    numbers: Vec<Option<String>>,
    ranges: Vec<Vec<u64>>,
}

pub(super) struct OfSegment<'a> {
    strings: Vec<(usize, Strings, Vec<u64>)>,
    numbers: Vec<Numbers<'a>>,
    ords: Vec<u64>,
}

struct Numbers<'a> {
    at: usize,
    column: Column<f64>,
    ranges: &'a [Range],
    counts: Vec<u64>,
}

impl<'a> Facets<'a> {
    pub(super) fn new(reader: &Reader, request: &'a Request, limits: &'a SearchLimits) -> Result<Self> {
        let ranges: usize = request.ranges.iter().map(|(_, ranges)| ranges.len()).sum();
        if request.counts.len() > MAX_FACETS || request.ranges.len() > MAX_FACETS || ranges > MAX_RANGES {
            return Err(Error::bad_request(format!("at most {MAX_FACETS} fields are counted, in {MAX_RANGES} ranges")));
        }
        let columns = request.counts.iter().map(|field| order::countable(reader, field)).collect::<Result<Vec<_>>>()?;
        let numbers = request.ranges.iter().map(|(field, _)| numbers(reader, field)).collect::<Result<Vec<_>>>()?;
        Ok(Self {
            request,
            limits,
            counts: vec![HashMap::new(); columns.len()],
            columns,
            numbers,
            ranges: request.ranges.iter().map(|(_, ranges)| vec![0; ranges.len()]).collect(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty() && self.numbers.is_empty()
    }

    pub(super) fn open(&self, segment: &SegmentReader) -> Result<OfSegment<'a>> {
        let mut opened = OfSegment { strings: Vec::new(), numbers: Vec::new(), ords: Vec::new() };
        for (at, name) in self.columns.iter().enumerate() {
            if let Some(name) = name
                && let Some(column) = Strings::open(segment, name)?
            {
                self.limits.charge(column.dictionary().num_terms() * size_of::<u64>())?;
                let counts = vec![0; column.dictionary().num_terms()];
                opened.strings.push((at, column, counts));
            }
        }
        for (at, name) in self.numbers.iter().enumerate() {
            if let Some(name) = name
                && let Some(column) = segment.fast_fields().column_opt(name)?
            {
                let ranges = self.request.ranges[at].1.as_slice();
                opened.numbers.push(Numbers { at, column, ranges, counts: vec![0; ranges.len()] });
            }
        }
        Ok(opened)
    }

    pub(super) fn add(&mut self, segment: OfSegment<'_>) -> Result<()> {
        for (at, column, counts) in segment.strings {
            let into = &mut self.counts[at];
            self.limits.charge(counts.iter().filter(|count| **count > 0).count() * size_of::<u64>())?;
            let ords: Vec<u64> = (0..).zip(&counts).filter(|(_, count)| **count > 0).map(|(ord, _)| ord).collect();
            let mut counts = counts.iter().filter(|count| **count > 0);
            for some in ords.chunks(NAMED_TOGETHER) {
                self.limits.check()?;
                let mut charged = Ok(());
                let add = |text: &[u8]| {
                    let count = counts.next().copied().unwrap_or(0);
                    if charged.is_ok() {
                        charged = self.limits.charge(VALUE_BYTES + text.len());
                        *into.entry(String::from_utf8_lossy(text).into_owned()).or_default() += count;
                    }
                };
                column.dictionary().sorted_ords_to_term_cb(some, add).map_err(Error::from_io)?;
                charged?;
            }
        }
        for Numbers { at, counts, .. } in segment.numbers {
            self.ranges[at].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Result<(Counted, Counted)> {
        let Self { request, limits, .. } = self;
        let top = request.top_n.unwrap_or(usize::MAX);
        let of_field = |(field, counts): (&String, HashMap<String, u64>)| {
            Ok((field.clone(), most_frequent(counts.into_iter().collect(), top, limits)?))
        };
        let counts = request.counts.iter().zip(self.counts).map(of_field).collect::<Result<_>>()?;
        let of_ranges = |((field, ranges), counts): (&(String, Vec<Range>), Vec<u64>)| {
            let labels = ranges.iter().map(|range| range.label.clone());
            let counted = labels.zip(counts).filter(|(_, count)| *count > 0).collect();
            Ok((field.clone(), most_frequent(counted, top, limits)?))
        };
        let ranges = request.ranges.iter().zip(self.ranges).map(of_ranges).collect::<Result<_>>()?;
        Ok((counts, ranges))
    }
}

impl OfSegment<'_> {
    pub(super) fn count(&mut self, doc: DocId) -> usize {
        let mut steps = 0;
        for (_, column, counts) in &mut self.strings {
            if column.ords().get_cardinality() == Cardinality::Multivalued {
                self.ords.clear();
                self.ords.extend(column.ords_of(doc));
                steps += self.ords.len();
                self.ords.sort_unstable();
                self.ords.dedup();
                self.ords.iter().for_each(|&ord| bump(counts, ord));
            } else if let Some(ord) = column.ords().first(doc) {
                bump(counts, ord);
            }
        }
        for Numbers { column, ranges, counts, .. } in &mut self.numbers {
            for (range, count) in ranges.iter().zip(counts) {
                let is_in = column.values_for_doc(doc).any(|number| range.holds(number));
                *count += u64::from(is_in);
            }
            steps += ranges.len();
        }
        steps + self.strings.len()
    }
}

fn bump(counts: &mut [u64], ord: u64) {
    if let Some(count) = usize::try_from(ord).ok().and_then(|ord| counts.get_mut(ord)) {
        *count += 1;
    }
}

impl Range {
    fn holds(&self, number: f64) -> bool {
        std::ops::RangeBounds::contains(&(self.lower, self.upper), &number)
    }
}

fn most_frequent(counts: Vec<(String, u64)>, top: usize, limits: &SearchLimits) -> Result<Vec<(String, u64)>> {
    let mut counts = limits.sort(counts, |(one, one_count), (other, other_count)| {
        other_count.cmp(one_count).then_with(|| one.cmp(other))
    })?;
    counts.truncate(top);
    Ok(counts)
}

fn numbers(reader: &Reader, field: &str) -> Result<Option<String>> {
    let layout = reader.layout();
    match layout.numbers(field) {
        Some(column) => Ok(Some(column)),
        None if layout.kinds(field).next().is_none() => Ok(None),
        None => {
            let kind = layout.kinds(field).find_map(SlotKind::field_kind).map_or("STORED", crate::FieldKind::name);
            Err(Error::bad_request(format!("can't make ranges of field {field}, which is of type {kind}")))
        }
    }
}
