//! [`choose`]: CouchDB's choice among usable indexes, by comparisons that must all hold.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use settee_model::collate::Collation;

use super::usable::{Reason, Source, comparisons};
use crate::bounds::{Interval, Intervals};
use crate::selector::Node;

pub(crate) struct FieldRanges<'n>(Vec<(&'n str, Option<Interval>)>);

impl<'n> FieldRanges<'n> {
    /// If the range of a field is empty, the others are irrelevant.
    pub(crate) fn of(node: &'n Node) -> Self {
        // CouchDB compares ids by the collation here and by bytes later. Only the latter finds all matches.
        let of = |collation: &dyn Fn(&str) -> Collation| {
            let mut fields: BTreeMap<&'n str, Intervals> = BTreeMap::new();
            for (field, operator, argument) in comparisons(node) {
                let bounds = (operator.bounds)(argument.value(), collation(field));
                fields.entry(field).and_modify(|common| *common = common.and(&bounds)).or_insert(bounds);
            }
            fields.into_iter().map(|(field, common)| (field, common.as_slice().first().cloned())).collect::<Vec<_>>()
        };
        let by_bytes = of(&|field| if field == "_id" { Collation::Raw } else { Collation::Unicode });
        let by_collation = of(&|_| Collation::Unicode);
        let ranges: Vec<_> =
            by_bytes.into_iter().zip(by_collation).map(|((field, one), (_, other))| (field, one.or(other))).collect();
        match ranges.iter().find(|(_, range)| range.is_none()) {
            Some(empty) => Self(vec![empty.clone()]),
            None => Self(ranges),
        }
    }

    fn prefix(&self, columns: &[&str]) -> Vec<Option<Interval>> {
        let of = |column: &&str| self.0.iter().find(|(field, _)| field == column).map(|(_, range)| range.clone());
        columns.iter().map_while(of).collect()
    }
}

pub(crate) struct Ranked<'a> {
    pub(crate) source: Source<'a>,
    pub(crate) prefix: Vec<Option<Interval>>,
    distance: usize,
}

/// Best first: most fields with ranges, then fewest fields, then name.
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
