//! Merging of segments: few large segments are searched faster than many small ones, and deleted documents must be
//! removed eventually.

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

/// Number of segments of about the same size that are merged into one.
const FACTOR: usize = 8;

/// Segments with fewer documents count as of about the same size.
const SMALL: u32 = if cfg!(test) { 20 } else { 2_000 };

/// Maximum number of documents of a merge that is part of a commit.
const AT_ONCE: u32 = if cfg!(test) { 200 } else { 20_000 };

/// Maximum number of documents of a segment, because rewriting a larger one would take too long.
const LARGEST: u32 = 5_000_000;

/// Number of segments of a size at which a build merges before it continues.
const TOO_MANY: usize = 2 * FACTOR;

impl Writer {
    /// Merges some segments into one, if that is due, and publishes the result. The caller should call it when idle
    /// after commits; concurrent searches see the same documents. Returns true if another call is useful.
    ///
    /// # Errors
    /// If the store fails, or another process writes to the index.
    pub fn merge(&mut self) -> Result<bool> {
        let outcome = self.try_merge();
        self.inner.shelf.blame(outcome)
    }

    fn try_merge(&mut self) -> Result<bool> {
        let Some(chosen) = choose(&self.record.segments, FACTOR, self.largest()) else {
            return Ok(false);
        };
        self.merge_these(&chosen)?;
        self.publish()?;
        Ok(choose(&self.record.segments, FACTOR, self.largest()).is_some())
    }

    pub(super) fn merge_small(&mut self) -> Result<()> {
        while let Some(chosen) = choose(&self.record.segments, FACTOR, AT_ONCE.min(self.largest())) {
            self.merge_these(&chosen)?;
        }
        Ok(())
    }

    pub(super) fn merge_many(&mut self) -> Result<()> {
        if let Some(chosen) = choose(&self.record.segments, TOO_MANY, self.largest()) {
            self.store_deletes()?;
            // Segments without documents are removed now, which may change the choice.
            if choose(&self.record.segments, TOO_MANY, self.largest()).as_ref() == Some(&chosen) {
                self.merge_these(&chosen)?;
            }
        }
        Ok(())
    }

    /// Merges these segments. The caller must have stored the deletions.
    fn merge_these(&mut self, chosen: &[usize]) -> Result<()> {
        let sources = Files::of(&self.inner.shelf, &self.record, false);
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
        let target = Files::of(&self.inner.shelf, &Record::default(), false);
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

    /// Returns the filter for the ids of a segment, and stores it.
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
    /// Builds a new graph for the vectors. Documents are in the order of their segments.
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

    /// Returns the maximum number of documents of a segment. With vectors, a segment must fit into the memory cache for
    /// searches.
    fn largest(&self) -> u32 {
        let dimensions: usize = self.inner.definition.vectors.iter().map(|field| field.dimensions).max().unwrap_or(0);
        let docs = self.inner.shelf.longest_vectors() / VectorFile::bytes_of_one(dimensions);
        if dimensions == 0 { LARGEST } else { u32::try_from(docs).unwrap_or(LARGEST).clamp(1, LARGEST) }
    }
}

/// Returns the segments to be merged next, in order.
fn choose(segments: &[SegmentRecord], factor: usize, limit: u32) -> Option<Vec<usize>> {
    let mut by_size: Vec<usize> = (0..segments.len()).filter(|&at| segments[at].alive() < limit).collect();
    by_size.sort_by_key(|&at| segments[at].alive());
    let mut level: Vec<usize> = Vec::new();
    let mut docs = 0;
    for at in by_size {
        let alive = segments[at].alive();
        if level.first().is_some_and(|&first| size(segments[first].alive()) != size(alive)) || docs + alive > limit {
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

/// Returns the size class of a segment; a step is a factor of four.
fn size(alive: u32) -> u32 {
    (alive / SMALL).max(1).ilog(4)
}

/// Returns the lengths of texts for all fields, including those added after the segment, because merging requires them.
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
        assert_eq!(choose(&many(10, FACTOR - 1), FACTOR, LARGEST), None);
        assert_eq!(choose(&many(10, FACTOR), FACTOR, LARGEST), Some((0..FACTOR).collect()));
        let mixed = [many(100_000, 2), many(10, FACTOR - 1), many(1_000, 3)].concat();
        assert_eq!(choose(&mixed, FACTOR, LARGEST), None);
        assert_eq!(choose(&[mixed, many(5, 1)].concat(), FACTOR, LARGEST).map(|chosen| chosen.len()), Some(FACTOR));
        assert_eq!(choose(&many(30, FACTOR), FACTOR, 200), None);
        assert_eq!(choose(&[segment(9, 0), segment(9, 4)], FACTOR, LARGEST), Some(vec![1]));
        assert_eq!(choose(&many(LARGEST, 100), FACTOR, LARGEST), None);
    }
}
