//! [`Collector`], the common part of all access paths: tests, counts and projects documents, and records the position.

use std::ops::ControlFlow;

use settee_database::{Head, ReadView, Revision};
use settee_model::json::{Json, Value};

use crate::bookmark::Bookmark;
use crate::error::Result;
use crate::options::FindOptions;
use crate::planner::access::Access;

/// Receiver of the documents found, in order. It may block.
pub trait DocumentSink {
    /// Receives a document as JSON text, projected to the requested fields. `Break` ends the query without an error.
    fn document(&mut self, json: &[u8]) -> ControlFlow<()>;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    pub keys_examined: u64,
    /// Number of documents that were read and tested.
    pub docs_examined: u64,
    /// The same, for queries that request several copies of each; only one exists here.
    pub quorum_docs_examined: u64,
    pub results_returned: u64,
}

pub(super) struct Collector<'a> {
    pub(super) options: &'a FindOptions,
    pub(super) stats: Stats,
    sink: &'a mut dyn DocumentSink,
    skip: u64,
    limit: u64,
    last: Option<LastProcessed>,
    document: Vec<u8>,
    projected: Vec<u8>,
}

#[derive(Default)]
struct LastProcessed {
    id: String,
    key: Vec<u8>,
}

impl<'a> Collector<'a> {
    pub(super) fn new(options: &'a FindOptions, sink: &'a mut dyn DocumentSink) -> Self {
        let (skip, limit) = (options.skip, options.limit);
        let stats = Stats::default();
        Self { options, stats, sink, skip, limit, last: None, document: Vec::new(), projected: Vec::new() }
    }

    pub(super) fn read(&mut self, view: &ReadView<'_>, id: &str, head: &Head, key: &[u8]) -> Result<ControlFlow<()>> {
        match view.revision(head.stored)? {
            Some(revision) => self.process_revision(view, (id, head), &revision, key),
            None => Ok(ControlFlow::Continue(())),
        }
    }

    pub(super) fn process_revision(
        &mut self,
        view: &ReadView<'_>,
        (id, head): (&str, &Head),
        revision: &Revision,
        key: &[u8],
    ) -> Result<ControlFlow<()>> {
        let conflicts = if self.options.conflicts { conflicts(view, id, head)? } else { Vec::new() };
        let mut document = std::mem::take(&mut self.document);
        document.clear();
        revision.write(&mut document, id, &head.rev, head.stored.deleted, |out| out.extend_from_slice(&conflicts));
        self.count(1);
        let flow = self.process(Value::trusted(&document), id, key);
        self.document = document;
        Ok(flow)
    }

    pub(super) fn remaining(&self) -> u64 {
        self.skip.saturating_add(self.limit)
    }

    pub(super) fn count(&mut self, documents: u64) {
        let counter = match self.options.quorum {
            1 => &mut self.stats.docs_examined,
            _ => &mut self.stats.quorum_docs_examined,
        };
        *counter += documents;
    }

    /// `Break` if the limit is reached. CouchDB detects this at the document after the last one, so that document is
    /// counted as well.
    pub(super) fn process(&mut self, document: Value<'_>, id: &str, key: &[u8]) -> ControlFlow<()> {
        if !self.options.selector.matches(document) {
            return ControlFlow::Continue(());
        }
        if self.skip == 0 && self.limit == 0 {
            return ControlFlow::Break(());
        }
        let last = self.last.get_or_insert_default();
        last.id.clear();
        last.id.push_str(id);
        last.key.clear();
        last.key.extend_from_slice(key);
        if self.skip > 0 {
            self.skip -= 1;
            return ControlFlow::Continue(());
        }
        self.projected.clear();
        self.options.fields.write(document, &mut self.projected);
        self.limit -= 1;
        self.stats.results_returned += 1;
        let flow = self.sink.document(&self.projected);
        if self.limit == 0 && !self.options.execution_stats { ControlFlow::Break(()) } else { flow }
    }

    pub(super) fn last_id(&self) -> Option<&str> {
        self.last.as_ref().map(|last| last.id.as_str())
    }

    /// Returns the position of the next page, or `None` if no document matched. `place` is provided by the index only.
    pub(super) fn bookmark(&self, access: &Access<'_>, place: Option<String>) -> Option<Bookmark> {
        let last = self.last.as_ref()?;
        let id = last.id.clone();
        Some(match access {
            Access::Text(text) => Bookmark::Text {
                design: text.index.design_id().to_owned(),
                name: text.index.name().to_owned(),
                place: place?,
            },
            Access::Primary(_) | Access::Union(_) => Bookmark::Primary { id },
            Access::Index(index, _) => Bookmark::Index {
                design: index.design_id().to_owned(),
                name: index.name().to_owned(),
                key: Json::trusted(last.key.clone()),
                id,
            },
        })
    }
}

fn conflicts(view: &ReadView<'_>, id: &str, head: &Head) -> Result<Vec<u8>> {
    let mut out = Vec::new();
    if head.has_conflicts
        && let Some(record) = view.record(id)?
    {
        let leaves = record.tree.leaves_by_rank(|stored| stored.deleted).into_iter();
        let others = leaves.map(|leaf| record.tree.node(leaf)).filter(|leaf| leaf.rev != head.rev);
        for leaf in others.filter(|leaf| leaf.value.is_some_and(|stored| !stored.deleted)) {
            out.extend_from_slice(if out.is_empty() { b",\"_conflicts\":[" } else { b"," });
            leaf.rev.write_json(&mut out);
        }
        if !out.is_empty() {
            out.push(b']');
        }
    }
    Ok(out)
}
