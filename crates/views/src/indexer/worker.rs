//! [`Worker`] maps batches of documents and sorts the emitted rows into the runs of each index.

use std::cmp::Ordering;
use std::ops::ControlFlow;

use settee_database::Layout;
use settee_design::{BailOuts, DocumentBatch, Emissions, Engine, Program};
use settee_model::collate::{self, Collation};
use settee_model::json::Value;
use settee_model::{partition, term_order};

use super::entries::{self, EntryReader};
use super::runs::RunDirectory;
use super::sorter::{Runs, Space};
use super::source::ChangeBatch;
use crate::error::Result;
use crate::keys;
use crate::pace::PaceState;

pub(super) struct Target<'a> {
    pub(super) collation: Collation,
    pub(super) layout: Layout,
    pub(super) before: Before<'a>,
    pub(super) directory: &'a RunDirectory,
}

/// Source of the former rows of changed documents, which must be removed.
pub(super) enum Before<'a> {
    Nothing,
    /// The index is loaded: [`load`](super::write::load) finds the former rows while it merges the back-pointers.
    Merged,
    /// The index is updated: back-pointers are looked up for each batch.
    LookedUp(EntryReader<'a>),
}

#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) rows: Runs,
    pub(super) entries: Runs,
    emitting: Vec<u32>,
    last_document_key: Vec<u8>,
}

impl Output {
    fn size_bytes(&self) -> usize {
        self.rows.size_bytes() + self.entries.size_bytes()
    }

    fn spill(&mut self, directory: &RunDirectory) -> Result<()> {
        self.rows.spill(directory)?;
        self.entries.spill(directory)
    }

    fn start_document(&mut self, document: u32, document_key: &[u8]) {
        let Self { rows, entries, emitting, last_document_key } = self;
        emitting.push(document);
        if document_key <= &last_document_key[..] && !entries.current.is_empty() {
            rows.current.mark_unsorted();
            entries.current.mark_unsorted();
        }
        last_document_key.clear();
        last_document_key.extend_from_slice(document_key);
        entries.current.put(&[], &[], |out| {
            out.extend_from_slice(document_key);
            keys::push_emission(out, 0);
            0
        });
    }
}

/// Offsets have 32 bits, so a run is spilled before it reaches 4 GiB. One document adds less than this limit.
const RUN_BYTES: usize = 1 << 30;

/// Interval in bytes of the checks of memory. A run is never spilled between two rows of a document.
const CHECK_BYTES: usize = 1 << 20;

/// Size of former rows per lookup, which is a round trip to the engine.
const LOOKUP_BYTES: u64 = 32 << 20;
const LOOKUP_DOCUMENTS: std::ops::RangeInclusive<u64> = 16..=10_000;

pub(super) struct Worker {
    program: Box<dyn Program>,
    pub(super) pace_state: PaceState,
    pub(super) batch: ChangeBatch,
    emissions: Emissions,
    document_key: Vec<u8>,
    pub(super) outputs: Vec<Output>,
}

impl Worker {
    pub(super) fn new(program: Box<dyn Program>, indexes: usize) -> Self {
        Self {
            program,
            pace_state: PaceState::default(),
            batch: ChangeBatch::default(),
            emissions: Emissions::new(),
            document_key: Vec::new(),
            outputs: (0..indexes).map(|_| Output::default()).collect(),
        }
    }

    pub(super) fn engines(&self) -> impl Iterator<Item = String> {
        (0..self.outputs.len()).filter_map(|index| {
            let Engine { name, reason } = self.program.engine(index)?;
            Some(format!("map function {} is run by {name}: {}", index + 1, reason?))
        })
    }

    pub(super) fn take_bail_outs(&mut self) -> Vec<String> {
        let line = |counted: BailOuts| {
            let BailOuts { function, reason, documents } = counted;
            format!("the engine of map function {} bailed out on {documents} documents: {reason}", function + 1)
        };
        self.program.take_bail_outs().into_iter().map(line).collect()
    }

    pub(super) fn expect(&mut self, documents: u64, memory_bytes: usize) {
        let bytes = memory_bytes / self.outputs.len().max(1) / 2;
        for output in &mut self.outputs {
            output.rows.current.expect(documents, bytes);
            output.entries.current.expect(documents, bytes);
        }
    }

    /// Maps the batch and stores its rows; runs above `memory_bytes` are spilled. `report` receives exceptions and log
    /// lines. Additional memory: the documents of the batch, a part of their emissions
    /// ([`settee_design::Limits::bytes_per_part`] and one document), and the runs of one document.
    pub(super) fn map(
        &mut self,
        targets: &[Target<'_>],
        memory_bytes: usize,
        report: &dyn Fn(&DocumentBatch, &Emissions),
    ) -> Result<()> {
        let Self { program, batch, emissions, document_key, outputs, .. } = self;
        let mut collector =
            RowCollector { documents: &batch.documents, targets, memory_bytes, report, document_key, outputs };
        emissions.clear();
        collector.outputs.iter_mut().for_each(|output| output.emitting.clear());
        if !batch.documents.is_empty() {
            let mut kept = Ok(());
            let mapped = program.map_in_parts(&batch.documents, emissions, &mut |part| {
                part.sort_repeated_keys(by_value);
                kept = collector.keep(part);
                part.clear();
                if kept.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            });
            kept?;
            mapped?;
        }
        emissions.sort_repeated_keys(by_value);
        collector.keep(emissions)?;
        for (index, target) in targets.iter().enumerate() {
            match &target.before {
                Before::Nothing => {}
                Before::Merged => collector.remove_entries(batch, index),
                Before::LookedUp(before) => collector.remove_rows(before, batch, index)?,
            }
        }
        collector.spill_if_full()
    }

    /// Sorts the stored rows. The caller must not map further documents.
    pub(super) fn seal(&mut self) {
        let mut space = Space::default();
        for output in &mut self.outputs {
            output.rows.seal(&mut space);
            output.entries.seal(&mut space);
        }
    }
}

fn by_value(value: &[u8], other: &[u8]) -> Ordering {
    term_order::compare(Value::trusted(value), Value::trusted(other))
}

struct RowCollector<'a, 't> {
    documents: &'a DocumentBatch,
    targets: &'a [Target<'t>],
    memory_bytes: usize,
    report: &'a dyn Fn(&DocumentBatch, &Emissions),
    document_key: &'a mut Vec<u8>,
    outputs: &'a mut [Output],
}

impl RowCollector<'_, '_> {
    fn keep(&mut self, part: &Emissions) -> Result<()> {
        if !part.failures.is_empty() || !part.log.is_empty() {
            (self.report)(self.documents, part);
        }
        let (mut current, mut id, mut number, mut unchecked_bytes) = (None, "", 0, 0);
        for row in part.rows() {
            if current != Some((row.document, row.function)) {
                if current.is_none_or(|(document, _)| document != row.document) {
                    id = self.documents.get(row.document as usize).id;
                    self.document_key.clear();
                    keys::push_document(self.document_key, id.as_bytes());
                }
                if unchecked_bytes > CHECK_BYTES {
                    unchecked_bytes = 0;
                    self.spill_if_full()?;
                }
                current = Some((row.document, row.function));
                number = 0;
                self.outputs[row.function as usize].start_document(row.document, self.document_key);
            }
            let (target, output) = (&self.targets[row.function as usize], &mut self.outputs[row.function as usize]);
            let sort_key = output.rows.current.put(row.key, row.value, |out| {
                let start = out.len();
                if target.layout == Layout::Partitioned {
                    // Ids without a partition, written before ids were checked, belong to the empty partition.
                    keys::push_partition(out, partition::split(id).map_or("", |(partition, _)| partition));
                }
                collate::encode(Value::trusted(row.key), target.collation, out);
                let sort_len = out.len() - start;
                out.extend_from_slice(self.document_key);
                keys::push_emission(out, number);
                sort_len
            });
            unchecked_bytes += 2 * sort_key.len() + row.key.len() + row.value.len();
            output.entries.current.extend_value(|out| entries::push(out, sort_key));
            number += 1;
        }
        self.spill_if_full()
    }

    fn remove_entries(&mut self, batch: &ChangeBatch, index: usize) {
        let Output { entries, emitting, .. } = &mut self.outputs[index];
        let is_silent = |(number, _): &(u32, _)| emitting.binary_search(number).is_err();
        let silent = (0..).zip(batch.documents.iter()).filter(is_silent).map(|(_, document)| document.id);
        for id in silent.chain(batch.removed.iter().map(String::as_str)) {
            entries.current.remove(|out| keys::push_document_key(out, id.as_bytes()));
        }
    }

    /// Removes the former rows. If a row is emitted again, the put has priority.
    fn remove_rows(&mut self, before: &EntryReader<'_>, batch: &ChangeBatch, index: usize) -> Result<()> {
        let documents = batch.documents.iter().map(|document| document.id);
        let ids: Vec<&str> = documents.chain(batch.removed.iter().map(String::as_str)).collect();
        let at_a_time = LOOKUP_BYTES / 8 / before.typical_bytes().max(1);
        let at_a_time = at_a_time.clamp(*LOOKUP_DOCUMENTS.start(), *LOOKUP_DOCUMENTS.end());
        for ids in ids.chunks(usize::try_from(at_a_time).unwrap_or(usize::MAX)) {
            let output = &mut self.outputs[index];
            for (id, entry) in ids.iter().zip(before.lookup(ids)?) {
                let Some(entry) = entry.filter(|entry| !entry.is_empty()) else {
                    continue;
                };
                let rows = &mut output.rows.current;
                entries::for_each_row(&entry, |sort_key, number| {
                    rows.remove(|out| keys::push_row_key(out, sort_key, id.as_bytes(), number));
                })?;
                output.entries.current.remove(|out| keys::push_document_key(out, id.as_bytes()));
            }
            self.spill_if_full()?;
        }
        Ok(())
    }

    fn spill_if_full(&mut self) -> Result<()> {
        let is_full = self.outputs.iter().map(Output::size_bytes).sum::<usize>() > self.memory_bytes;
        for (target, output) in self.targets.iter().zip(&mut *self.outputs) {
            if is_full || output.size_bytes() > RUN_BYTES {
                output.spill(target.directory)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_design::{Language as _, Limits, MapSource};
    use settee_storage::Shard;

    use super::*;
    use crate::testing::Rules;

    #[test]
    fn emitted_bytes_are_bounded() {
        let (memory_bytes, part_bytes, documents, elements) = (20_000, 4_000, 50, 40);
        let limits = Limits { bytes_per_part: part_bytes, ..Limits::default() };
        let source = MapSource { functions: vec!["each list".into(), "each list".into()], library: None };
        let mut worker = Worker::new(Rules.program(&source, limits).unwrap(), 2);
        let base = tempfile::tempdir().unwrap();
        let directories = [RunDirectory::new(base.path(), Shard(1)), RunDirectory::new(base.path(), Shard(2))];
        let target = |directory| Target {
            collation: Collation::Unicode,
            layout: Layout::Whole,
            before: Before::Nothing,
            directory,
        };
        let targets: Vec<Target<'_>> = directories.iter().map(target).collect();
        let element = format!("\"{}\"", "k".repeat(50));
        let json = format!("{{\"list\":[{}]}}", vec![element; elements].join(","));
        for batch in 0..4 {
            worker.batch.clear();
            for number in 0..documents {
                worker.batch.count(number);
                let write = |out: &mut Vec<u8>| {
                    out.extend_from_slice(json.as_bytes());
                    Ok::<_, ()>(())
                };
                worker.batch.documents.push_with(number, &format!("{batch}-{number}"), write).unwrap();
            }
            worker.map(&targets, memory_bytes, &|_, _| {}).unwrap();
            let kept: usize = worker.outputs.iter().map(Output::size_bytes).sum();
            assert!(kept <= memory_bytes, "{kept} bytes are kept");
            let document_bytes = 2 * elements * 100;
            let left = worker.emissions.size_bytes();
            assert!(left <= part_bytes as usize + document_bytes, "{left} bytes were emitted in one part");
        }
        let rows: usize = worker.outputs.iter_mut().map(|output| output.rows.take().1.len()).sum();
        assert!(rows > 20, "only {rows} runs were spilled");
    }
}
