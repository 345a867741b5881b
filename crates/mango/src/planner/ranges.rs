//! [`choose`]: CouchDB's choice among usable indexes, based on ranges of fields.
//!
//! CouchDB uses only comparisons that must all hold, and derives one range per field from them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use settee_model::collate::Collation;

use super::usable::{Reason, Source, comparisons};
use crate::bounds::{Interval, Intervals};
use crate::selector::Node;

/// A range for each field that has one, by field name.
pub(crate) struct FieldRanges<'n>(Vec<(&'n str, Option<Interval>)>);

impl<'n> FieldRanges<'n> {
    /// Returns the ranges of a selector. If one is empty, the others are irrelevant.
    pub(crate) fn of(node: &'n Node) -> Self {
        let mut fields: BTreeMap<&str, Intervals> = BTreeMap::new();
        for (field, operator, argument) in comparisons(node) {
            // CouchDB compares ids by the collation here and by bytes later; only the latter finds all matches.
            let collation = if field == "_id" { Collation::Raw } else { Collation::Unicode };
            let bounds = (operator.bounds)(argument.value(), collation);
            fields.entry(field).and_modify(|common| *common = common.and(&bounds)).or_insert(bounds);
        }
        let range = |common: Intervals| common.as_slice().first().cloned();
        let ranges: Vec<_> = fields.into_iter().map(|(field, common)| (field, range(common))).collect();
        match ranges.iter().find(|(_, range)| range.is_none()) {
            Some(empty) => Self(vec![empty.clone()]),
            None => Self(ranges),
        }
    }

    /// Returns the ranges of the first columns, up to one without a range.
    fn prefix(&self, columns: &[&str]) -> Vec<Option<Interval>> {
        let of = |column: &&str| self.0.iter().find(|(field, _)| field == column).map(|(_, range)| range.clone());
        columns.iter().map_while(of).collect()
    }
}

pub(crate) struct Ranked<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) prefix: Vec<Option<Interval>>,
    /// Number of fields with ranges that the index does not contain.
    distance: usize,
}

/// Sorts indexes of one type, best first: most fields with ranges, then fewest fields, then name.
pub(crate) fn choose<'a>(sources: Vec<Source<'a>>, fields: &FieldRanges<'_>) -> Vec<Ranked<'a>> {
    let rank = |source: Source<'a>| {
        let prefix = fields.prefix(&source.columns());
        let distance = fields.0.len() - prefix.len();
        Ranked { source, prefix, distance }
    };
    let mut ranked: Vec<Ranked<'a>> = sources.into_iter().map(rank).collect();
    ranked.sort_by_key(|ranked| (Reverse(ranked.prefix.len()), ranked.source.columns().len(), ranked.source.place()));
    ranked
}

impl Ranked<'_> {
    /// Returns the reason why another index was better.
    pub(crate) fn reason(&self, best: &Self) -> Reason {
        if self.distance > 0 {
            Reason::LessOverlap
        } else if self.source.columns().len() > best.source.columns().len() {
            Reason::TooManyFields
        } else {
            Reason::AlphabeticallyComesAfter
        }
    }
}
