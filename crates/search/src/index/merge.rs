//! Merging of segments: few large segments are searched faster, and merging removes deleted documents.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use tantivy::directory::{Directory, FileHandle, ManagedDirectory, RamDirectory};
use tantivy::fieldnorm::FieldNormsSerializer;
use tantivy::index::SegmentComponent;
use tantivy::indexer::merge_filtered_segments;
use tantivy::{DocId, Segment, SegmentReader};

use super::bloom::Bloom;
use super::segment;
use super::writer::{Part, Writer};
use crate::error::{Error, Result};
use crate::store::{Files, Record, SegmentRecord, SlotKind};
use crate::vectors::{VectorFile, VectorSet};

/// Number of segments of a size class that are merged into one.
const MERGE_FACTOR: usize = 8;

/// Smaller segments belong to one size class.
const SMALL_SEGMENT_DOCS: u32 = if cfg!(test) { 20 } else { 2_000 };

/// Maximum number of documents of a merge within a commit.
const DOCS_PER_MERGE: u32 = if cfg!(test) { 200 } else { 20_000 };

/// Segments with more documents are not merged, because rewriting them would take too long.
const MERGED_DOCS_MAX: u32 = 5_000_000;

/// Number of segments of a size class at which a build merges before it continues.
const SEGMENTS_MAX: usize = 2 * MERGE_FACTOR;

impl Writer {
    /// Merges segments of one size class, if enough exist. The caller should call it after commits, when idle; searches
    /// continue. Returns true if another call is useful.
    pub fn merge(&mut self) -> Result<bool> {
        let outcome = self.try_merge();
        self.inner.file_store.with_store_error(outcome)
    }

    fn try_merge(&mut self) -> Result<bool> {
        let Some(chosen) = choose(&self.record.segments, MERGE_FACTOR, self.segment_docs_max()) else {
            return Ok(false);
        };
        self.merge_these(&chosen)?;
        self.publish()?;
        Ok(choose(&self.record.segments, MERGE_FACTOR, self.segment_docs_max()).is_some())
    }

    pub(super) fn merge_small(&mut self) -> Result<()> {
        while let Some(chosen) =
            choose(&self.record.segments, MERGE_FACTOR, DOCS_PER_MERGE.min(self.segment_docs_max()))
        {
            self.merge_these(&chosen)?;
        }
        Ok(())
    }

    pub(super) fn merge_many(&mut self) -> Result<()> {
        if let Some(chosen) = choose(&self.record.segments, SEGMENTS_MAX, self.segment_docs_max()) {
            self.store_deletes()?;
            // Storing deletions removes empty segments, which may change the choice.
            if choose(&self.record.segments, SEGMENTS_MAX, self.segment_docs_max()).as_ref() == Some(&chosen) {
                self.merge_these(&chosen)?;
            }
        }
        Ok(())
    }

    /// The caller must have stored the deletions.
    fn merge_these(&mut self, chosen: &[usize]) -> Result<()> {
        let sources = Files::of(&self.inner.file_store, &self.record, false);
        let index = self.layout.open(sources.clone(), &self.inner.definition)?;
        let mut segments = Vec::with_capacity(chosen.len());
        for &at in chosen {
            let record = &self.record.segments[at];
            let segment = segment::open(&index, record)?;
            if (record.slots as usize) < self.layout.slots.len() {
                let (path, lengths) = with_all_lengths(&segment)?;
                sources.replace(path, lengths);
            }
            segments.push(segment);
        }
        let target = Files::of(&self.inner.file_store, &Record::default(), false);
        let none = segments.iter().map(|_| None).collect();
        let merged = merge_filtered_segments(&segments, index.settings().clone(), none, target.clone())?;
        let found = merged.searchable_segments()?;
        let segment = found.first().ok_or_else(|| Error::Corrupt("a merge without a result".to_owned()))?;
        let bloom = self.filter_of(segment)?;
        let (id, meta) = (segment.id().uuid_string(), segment.meta());
        self.merge_vectors(&index, chosen, &target, &id)?;
        let files = target.named(&id);
        files.iter().for_each(|file| self.files.adopt(file.clone()));
        chosen.iter().rev().for_each(|&at| self.take_segment(at));
        let record = SegmentRecord { id, docs: meta.max_doc(), deleted: 0, deleted_at: 0, slots: 0, files };
        self.push_segment(record, Part { bloom: Some(bloom), ..Part::default() });
        Ok(())
    }

    fn filter_of(&self, segment: &Segment) -> Result<Bloom> {
        let reader = SegmentReader::open(segment)?;
        let ids = reader.inverted_index(self.layout.id)?;
        let mut bloom = Bloom::with_room(reader.max_doc() as usize);
        let mut ids = ids.terms().stream().map_err(Error::from_io)?;
        while ids.advance() {
            bloom.add(ids.key());
        }
        bloom.write(segment.index().directory(), &segment.id().uuid_string())?;
        Ok(bloom)
    }
}

impl Writer {
    fn merge_vectors(&self, index: &tantivy::Index, chosen: &[usize], target: &Files, id: &str) -> Result<()> {
        let mut merged: BTreeMap<usize, VectorSet> = BTreeMap::new();
        let mut before = 0;
        for &at in chosen {
            let record = &self.record.segments[at];
            let reader = SegmentReader::open(&segment::open(index, record)?)?;
            let alive: Vec<DocId> = reader.doc_ids_alive().collect();
            for slot in (0..self.layout.slots.len()).filter(|slot| self.layout.slots[*slot].kind == SlotKind::Vector) {
                let Some(file) = segment::open_vectors(index.directory(), record, slot)? else { continue };
                let vectors = merged.entry(slot).or_default();
                file.nodes(usize::MAX)?.for_each(|doc, vector| {
                    if let Ok(rank) = alive.binary_search(&doc) {
                        vectors.push(before + rank as DocId, vector);
                    }
                })?;
            }
            before += alive.len() as DocId;
        }
        let directory = ManagedDirectory::wrap(Box::new(target.clone()))?;
        segment::write_vectors(&directory, id, &self.layout, &self.inner.definition, merged)
    }

    /// Maximum number of documents of a segment. Its vectors must fit into the cache for searches.
    fn segment_docs_max(&self) -> u32 {
        let dimensions: usize = self.inner.definition.vectors.iter().map(|field| field.dimensions).max().unwrap_or(0);
        let docs = self.inner.file_store.longest_vectors() / VectorFile::bytes_of_one(dimensions);
        if dimensions == 0 {
            MERGED_DOCS_MAX
        } else {
            u32::try_from(docs).unwrap_or(MERGED_DOCS_MAX).clamp(1, MERGED_DOCS_MAX)
        }
    }
}

fn choose(segments: &[SegmentRecord], factor: usize, limit: u32) -> Option<Vec<usize>> {
    let mut by_size: Vec<usize> = (0..segments.len()).filter(|&at| segments[at].alive() < limit).collect();
    by_size.sort_by_key(|&at| segments[at].alive());
    let mut level: Vec<usize> = Vec::new();
    let mut docs = 0;
    for at in by_size {
        let alive = segments[at].alive();
        if level.first().is_some_and(|&first| size_class(segments[first].alive()) != size_class(alive))
            || docs + alive > limit
        {
            level.clear();
            docs = 0;
        }
        level.push(at);
        docs += alive;
        if level.len() == factor {
            level.sort_unstable();
            return Some(level);
        }
    }
    let is_hollow = |segment: &SegmentRecord| segment.deleted > segment.docs / 3 && segment.alive() < limit;
    segments.iter().position(is_hollow).map(|at| vec![at])
}

/// Size class of a segment; classes grow by a factor of four.
fn size_class(alive: u32) -> u32 {
    (alive / SMALL_SEGMENT_DOCS).max(1).ilog(4)
}

/// Adds empty lengths for fields that are newer than the segment, as merging requires.
fn with_all_lengths(segment: &Segment) -> Result<(PathBuf, Arc<dyn FileHandle>)> {
    let reader = SegmentReader::open(segment)?;
    let schema = segment.schema();
    let memory = RamDirectory::create();
    let path = segment.relative_path(SegmentComponent::FieldNorms);
    let file =
        ManagedDirectory::wrap(Box::new(memory.clone()))?.open_write(&path).map_err(tantivy::TantivyError::from)?;
    let mut lengths = FieldNormsSerializer::from_write(file).map_err(Error::from_io)?;
    for (field, _) in schema.fields().filter(|(_, entry)| entry.has_fieldnorms()) {
        let of_field: Vec<u8> = match reader.fieldnorms_readers().get_field(field)? {
            Some(stored) => (0..reader.max_doc()).map(|doc| stored.fieldnorm_id(doc)).collect(),
            None => vec![0; reader.max_doc() as usize],
        };
        lengths.serialize_field(field, &of_field).map_err(Error::from_io)?;
    }
    lengths.close().map_err(Error::from_io)?;
    let handle = memory.get_file_handle(&path).map_err(tantivy::TantivyError::from)?;
    Ok((path, handle))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(docs: u32, deleted: u32) -> SegmentRecord {
        SegmentRecord { id: String::new(), docs, deleted, deleted_at: 0, slots: 0, files: Vec::new() }
    }

    #[test]
    fn segments_of_a_size_are_merged_and_hollow_ones_rewritten() {
        let many = |docs: u32, count: usize| vec![segment(docs, 0); count];
        assert_eq!(choose(&many(10, MERGE_FACTOR - 1), MERGE_FACTOR, MERGED_DOCS_MAX), None);
        assert_eq!(choose(&many(10, MERGE_FACTOR), MERGE_FACTOR, MERGED_DOCS_MAX), Some((0..MERGE_FACTOR).collect()));
        let mixed = [many(100_000, 2), many(10, MERGE_FACTOR - 1), many(1_000, 3)].concat();
        assert_eq!(choose(&mixed, MERGE_FACTOR, MERGED_DOCS_MAX), None);
        assert_eq!(
            choose(&[mixed, many(5, 1)].concat(), MERGE_FACTOR, MERGED_DOCS_MAX).map(|chosen| chosen.len()),
            Some(MERGE_FACTOR)
        );
        assert_eq!(choose(&many(30, MERGE_FACTOR), MERGE_FACTOR, 200), None);
        assert_eq!(choose(&[segment(9, 0), segment(9, 4)], MERGE_FACTOR, MERGED_DOCS_MAX), Some(vec![1]));
        assert_eq!(choose(&many(MERGED_DOCS_MAX, 100), MERGE_FACTOR, MERGED_DOCS_MAX), None);
    }
}
