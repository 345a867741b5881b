//! Nearest-neighbour search over the segments of an index, each with its own graph.

use std::collections::HashMap;

use tantivy::index::SegmentId;
use tantivy::query::{EnableScoring, Query, Weight};
use tantivy::{BitSet, DocId, Score, SegmentReader};

use super::limited::bits;
use crate::error::{Error, Result};
use crate::index::definition::Definition;
use crate::index::reader::Reader;
use crate::limits::SearchLimits;
use crate::query::Nearest;
use crate::request::MAX_CANDIDATES;
use crate::store::SlotKind;
use crate::vectors::nearest::{Found, Wanted};

type BySegment = HashMap<SegmentId, Vec<(DocId, Score)>>;

pub(super) fn find(
    reader: &Reader,
    definition: &Definition,
    wanted: &Nearest,
    filter: Option<Box<dyn Query>>,
    limits: &SearchLimits,
) -> Result<BySegment> {
    let Nearest { field, vector, count, candidates, .. } = wanted;
    if *count == 0 || *candidates > MAX_CANDIDATES {
        let reason = format!("k must be greater than 0, and candidates at most {MAX_CANDIDATES}");
        return Err(Error::BadRequest(reason));
    }
    let known = definition.vectors_of(field);
    let known =
        known.ok_or_else(|| Error::BadRequest(format!("field {field} is not among the vectors of the index")))?;
    let vector = known.prepare(vector.clone()).map_err(|error| Error::BadRequest(error.to_string()))?;
    let wanted = Wanted { similarity: known.similarity, vector: &vector, count: *count, candidates: *candidates };
    let Some(slot) = reader.layout().find(field, SlotKind::Vector) else { return Ok(BySegment::new()) };
    let scoring = EnableScoring::disabled_from_searcher(reader.searcher());
    let filter = filter.map(|filter| filter.weight(scoring)).transpose()?;
    let mut all: Vec<(usize, Found)> = Vec::new();
    for (number, segment) in reader.segments().iter().enumerate() {
        if let Some(file) = reader.vectors(number, slot)? {
            let nodes = file.nodes(reader.longest_vectors)?;
            let found = match allowed(filter.as_deref(), segment, limits)? {
                Some(allowed) => wanted.find(&nodes, allowed.len(), |doc| allowed.contains(doc), limits)?,
                None => wanted.find(&nodes, file.len(), |doc| !segment.is_deleted(doc), limits)?,
            };
            all.extend(found.into_iter().map(|found| (number, found)));
        }
    }
    // The sort is stable: equally near documents are in the order of segments and documents.
    let mut all = limits.sort(all, |(_, one), (_, other)| one.distance.total_cmp(&other.distance))?;
    all.truncate(*count);
    let mut by_segment = BySegment::new();
    for (number, found) in all {
        let found_there = by_segment.entry(reader.segments()[number].segment_id()).or_default();
        found_there.push((found.doc, known.similarity.score(found.distance)));
    }
    by_segment.values_mut().for_each(|found| found.sort_unstable_by_key(|(doc, _)| *doc));
    Ok(by_segment)
}

fn allowed(filter: Option<&dyn Weight>, segment: &SegmentReader, limits: &SearchLimits) -> Result<Option<BitSet>> {
    let Some(filter) = filter else { return Ok(None) };
    let mut allowed = bits(segment.max_doc(), limits)?;
    filter.for_each_no_score(segment, &mut |docs| {
        for doc in docs.iter().filter(|doc| !segment.is_deleted(**doc)) {
            allowed.insert(*doc);
        }
    })?;
    // A query that exceeds a limit ends without an error.
    limits.check()?;
    Ok(Some(allowed))
}
