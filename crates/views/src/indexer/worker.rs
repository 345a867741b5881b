//! [`Worker`]: maps batches of documents and sorts what they emit into the runs of each index.

use settee_database::Layout;
use settee_design::{DocumentBatch, Emissions, Program};
use settee_model::collate::{self, Collation};
use settee_model::json::Value;
use settee_model::partition;

use super::entries::{self, EntryReader};
use super::runs::RunDirectory;
use super::sorter::{Runs, Space};
use super::source::ChangeBatch;
use crate::error::Result;
use crate::keys;
use crate::pace::Turn;

/// What a worker needs to know of an index.
pub(super) struct Target<'a> {
    pub(super) collation: Collation,
    pub(super) layout: Layout,
    /// What documents emitted before; absent if the index is empty.
    pub(super) before: Option<EntryReader<'a>>,
    /// Where sorted runs go when memory is short.
    pub(super) directory: &'a RunDirectory,
}

/// What became of the documents that a worker mapped, for one index.
#[derive(Debug, Default)]
pub(super) struct Output {
    pub(super) rows: Runs,
    pub(super) entries: Runs,
}

impl Output {
    fn size_bytes(&self) -> usize {
        self.rows.size_bytes() + self.entries.size_bytes()
    }

    fn spill(&mut self, directory: &RunDirectory) -> Result<()> {
        self.rows.spill(directory)?;
        self.entries.spill(directory)
    }
}

/// Runs are spilled at this size at the latest, because their parts are addressed by 32 bits. One document adds less
/// than this again.
const RUN_BYTES: usize = 1 << 30;

/// Maps documents on one thread.
pub(super) struct Worker {
    program: Box<dyn Program>,
    pub(super) turn: Turn,
    pub(super) batch: ChangeBatch,
    emissions: Emissions,
    /// What the keys of all rows of a document end with, and of the document before.
    document_key: Vec<u8>,
    last_document_key: Vec<u8>,
    /// One for each index, in the order of the functions of the program.
    pub(super) outputs: Vec<Output>,
}

impl Worker {
    pub(super) fn new(program: Box<dyn Program>, indexes: usize) -> Self {
        Self {
            program,
            turn: Turn::default(),
            batch: ChangeBatch::default(),
            emissions: Emissions::new(),
            document_key: Vec::new(),
            last_document_key: Vec::new(),
            outputs: (0..indexes).map(|_| Output::default()).collect(),
        }
    }

    /// Makes room for the rows of `documents` documents that emit one row each, in `memory_bytes`.
    pub(super) fn expect(&mut self, documents: u64, memory_bytes: usize) {
        let bytes = memory_bytes / self.outputs.len().max(1) / 2;
        for output in &mut self.outputs {
            output.rows.current.expect(documents, bytes);
            output.entries.current.expect(documents, bytes);
        }
    }

    /// Maps the batch and keeps its rows, spilling them when there are more than `memory_bytes`. `report` sees what
    /// functions threw and logged.
    pub(super) fn map(
        &mut self,
        targets: &[Target<'_>],
        memory_bytes: usize,
        report: &dyn Fn(&DocumentBatch, &Emissions),
    ) -> Result<()> {
        self.emissions.clear();
        if !self.batch.documents.is_empty() {
            self.program.map(&self.batch.documents, &mut self.emissions)?;
        }
        if !self.emissions.failures.is_empty() || !self.emissions.log.is_empty() {
            report(&self.batch.documents, &self.emissions);
        }
        for (target, output) in targets.iter().zip(&mut self.outputs) {
            if let Some(before) = &target.before {
                remove_rows(before, &self.batch, output)?;
            }
        }
        self.keep_rows(targets)?;
        if self.outputs.iter().map(Output::size_bytes).sum::<usize>() > memory_bytes {
            for (target, output) in targets.iter().zip(&mut self.outputs) {
                output.spill(target.directory)?;
            }
        }
        Ok(())
    }

    /// Sorts what was kept: there will be no more.
    pub(super) fn seal(&mut self) {
        let mut space = Space::default();
        for output in &mut self.outputs {
            output.rows.seal(&mut space);
            output.entries.seal(&mut space);
        }
    }

    fn keep_rows(&mut self, targets: &[Target<'_>]) -> Result<()> {
        let Self { batch, emissions, document_key, last_document_key, outputs, .. } = self;
        let (mut current, mut id, mut number, mut is_disordered) = (None, "", 0, false);
        for row in emissions.rows() {
            let (target, output) = (&targets[row.function as usize], &mut outputs[row.function as usize]);
            if current != Some((row.document, row.function)) {
                if current.is_none_or(|(document, _)| document != row.document) {
                    id = batch.documents.get(row.document as usize).id;
                    std::mem::swap(document_key, last_document_key);
                    document_key.clear();
                    keys::push_document(document_key, id.as_bytes());
                    is_disordered = document_key <= last_document_key;
                }
                if is_disordered {
                    output.rows.current.disorder();
                    output.entries.current.disorder();
                }
                current = Some((row.document, row.function));
                number = 0;
                if output.size_bytes() > RUN_BYTES {
                    output.spill(target.directory)?;
                }
                output.entries.current.put(&[], &[], |out| {
                    out.extend_from_slice(document_key);
                    keys::push_emission(out, 0);
                    0
                });
            }
            let sort_key = output.rows.current.put(row.key, row.value, |out| {
                let start = out.len();
                if target.layout == Layout::Partitioned {
                    // Ids without a partition were written before anybody checked, and belong to the empty one.
                    keys::push_partition(out, partition::split(id).map_or("", |(partition, _)| partition));
                }
                collate::encode(Value::trusted(row.key), target.collation, out);
                let sort_len = out.len() - start;
                out.extend_from_slice(document_key);
                keys::push_emission(out, number);
                sort_len
            });
            output.entries.current.extend_value(|out| entries::push(out, sort_key));
            number += 1;
        }
        Ok(())
    }
}

/// Removes what the documents of a batch emitted before. Rows that they emit again are put besides, which wins.
fn remove_rows(before: &EntryReader<'_>, batch: &ChangeBatch, output: &mut Output) -> Result<()> {
    let documents = batch.documents.iter().map(|document| document.id);
    let ids: Vec<&str> = documents.chain(batch.removed.iter().map(String::as_str)).collect();
    for (id, entry) in ids.iter().zip(before.lookup(&ids)?) {
        let Some(entry) = entry.filter(|entry| !entry.is_empty()) else {
            continue;
        };
        let rows = &mut output.rows.current;
        entries::for_each_row(&entry, |sort_key, number| {
            rows.remove(|out| keys::push_row_key(out, sort_key, id.as_bytes(), number));
        })?;
        output.entries.current.remove(|out| keys::push_document_key(out, id.as_bytes()));
    }
    Ok(())
}
