//! [`ChangeScan`]: a scan of the rows of a feed that pass its filter.

use std::collections::VecDeque;
use std::vec::IntoIter;

use settee_database::{Bodies, Change, Changes, DOCUMENTS_TOGETHER, Direction, Head, Leaves, ReadView, Stored};
use settee_model::Rev;
use settee_service::revisions::write_leaves;

use super::filter_runner::FilterRunner;
use super::slice::TimeSlice;
use crate::Error;
use crate::params::changes::{ChangesParams, Style};
use crate::params::filter::{Filter, SelectorFilter};

#[derive(Clone)]
pub(super) struct ScannedChange {
    pub(super) seq: u64,
    pub(super) id: String,
    pub(super) deleted: bool,
    pub(super) leaves: Leaves,
    pub(super) revs: Vec<Rev>,
    pub(super) size: usize,
}

impl ScannedChange {
    pub(super) fn of_change(change: &Change<'_>) -> Self {
        Self {
            seq: change.seq,
            id: change.id.to_owned(),
            deleted: change.stored.deleted,
            leaves: change.leaves,
            revs: vec![change.rev.clone()],
            size: change.stored.size as usize,
        }
    }

    fn of_head(id: &str, head: &Head) -> Self {
        let leaves = if head.has_conflicts { Leaves::Several } else { Leaves::One };
        Self {
            seq: head.seq,
            id: id.to_owned(),
            deleted: head.stored.deleted,
            leaves,
            revs: vec![head.rev.clone()],
            size: head.stored.size as usize,
        }
    }
}

pub(super) enum Next {
    Row(ScannedChange),
    /// The slice is over. All rows up to this sequence were returned.
    Pause(u64),
    End,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct RequiredData {
    pub(super) style: Style,
    pub(super) documents: bool,
    pub(super) conflicts: bool,
    pub(super) seen_conflicts: bool,
}

impl RequiredData {
    pub(super) fn of(params: &ChangesParams) -> Self {
        let documents = params.include_docs || matches!(params.filter, Filter::Selector(_));
        let seen_conflicts = params.conflicts && matches!(params.filter, Filter::Selector(_) | Filter::Function(_));
        let conflicts = params.style == Style::AllDocs || params.include_docs && params.conflicts || seen_conflicts;
        Self { style: params.style, documents, conflicts, seen_conflicts }
    }
}

pub(super) struct ChangeScan<'a> {
    view: &'a ReadView<'a>,
    rows: Rows<'a>,
    filter: &'a Filter,
    needs: RequiredData,
    slice: TimeSlice,
    walked: Option<u64>,
    /// The document of the current row as the selector received it.
    document: Vec<u8>,
}

enum Rows<'a> {
    Scanned(Changes<'a>),
    Filtered(Box<FilterRunner<'a>>),
    /// Rows whose documents and conflicts are stored elsewhere and are read in batches.
    Batched(Batched<'a>),
}

struct Batched<'a> {
    source: Source<'a>,
    ahead: VecDeque<Found>,
    current: Option<Found>,
    size: usize,
}

enum Source<'a> {
    Changes(Changes<'a>),
    /// A few documents among many changes: their heads, sorted.
    LookedUp(IntoIter<(String, Head)>),
}

struct Found {
    seen: ScannedChange,
    rev: Rev,
    stored: Stored,
}

/// Size of the first batch, which is small because a feed may need few rows.
const FIRST_ROWS: usize = 16;

impl Batched<'_> {
    fn next(&mut self, view: &ReadView<'_>, needs: RequiredData) -> Result<Option<ScannedChange>, Error> {
        if self.ahead.is_empty() {
            self.fill(view, needs)?;
        }
        self.current = self.ahead.pop_front();
        Ok(self.current.as_ref().map(|found| found.seen.clone()))
    }

    fn fill(&mut self, view: &ReadView<'_>, needs: RequiredData) -> Result<(), Error> {
        while self.ahead.len() < self.size {
            let found = match &mut self.source {
                Source::Changes(changes) => changes.next()?.map(|change| Found {
                    seen: ScannedChange::of_change(&change),
                    rev: change.rev.clone(),
                    stored: change.stored,
                }),
                Source::LookedUp(rows) => rows.next().map(|(id, head)| Found {
                    seen: ScannedChange::of_head(&id, &head),
                    rev: head.rev,
                    stored: head.stored,
                }),
            };
            let Some(found) = found else { break };
            self.ahead.push_back(found);
        }
        self.size = (2 * self.size).min(DOCUMENTS_TOGETHER);
        let several = self.ahead.iter().filter(|found| needs.conflicts && found.seen.leaves == Leaves::Several);
        let several: Vec<&str> = several.map(|found| found.seen.id.as_str()).collect();
        if !several.is_empty() {
            view.read_ahead(&several, Bodies::None)?;
        }
        if needs.documents && !self.ahead.is_empty() {
            view.read_bodies_ahead(&self.ahead.iter().map(|found| found.stored).collect::<Vec<_>>())?;
        }
        Ok(())
    }
}

impl<'a> ChangeScan<'a> {
    pub(super) fn open(
        view: &'a ReadView<'a>,
        since: u64,
        direction: Direction,
        filter: &'a Filter,
        needs: RequiredData,
        slice: TimeSlice,
    ) -> Result<Self, Error> {
        let mut slice = slice;
        let together =
            |source| Rows::Batched(Batched { source, ahead: VecDeque::new(), current: None, size: FIRST_ROWS });
        let rows = match filter {
            Filter::DocIds(ids)
                if (ids.len() as u64) < view.changes_after(since)? || direction == Direction::Backward =>
            {
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                let heads = ids.iter().zip(view.heads(&ids)?);
                let mut found: Vec<(String, Head)> =
                    heads.filter_map(|(id, head)| Some(((*id).to_owned(), head?))).collect();
                match direction {
                    Direction::Forward => {
                        found.retain(|(_, head)| head.seq > since);
                        found.sort_by_key(|(_, head)| head.seq);
                    }
                    Direction::Backward => {
                        found.retain(|(_, head)| head.seq <= since);
                        found.sort_by_key(|(_, head)| std::cmp::Reverse(head.seq));
                    }
                }
                // The next slice would look them up again.
                slice = TimeSlice::endless();
                together(Source::LookedUp(found.into_iter()))
            }
            Filter::Function(filter) => {
                Rows::Filtered(Box::new(FilterRunner::new(view, since, direction, filter, needs, slice)?))
            }
            Filter::None | Filter::Selector(_) | Filter::DocIds(_) | Filter::Design => {
                let changes = view.changes(since, direction)?;
                match direction {
                    Direction::Forward if !needs.conflicts => Rows::Scanned(changes),
                    Direction::Forward | Direction::Backward => together(Source::Changes(changes)),
                }
            }
        };
        Ok(Self { view, rows, filter, needs, slice, walked: None, document: Vec::new() })
    }

    /// A slice has at least one step.
    pub(super) fn next(&mut self) -> Result<Next, Error> {
        loop {
            if let Some(walked) = self.walked.filter(|_| self.slice.is_over()) {
                return Ok(Next::Pause(walked));
            }
            let seen = match &mut self.rows {
                Rows::Scanned(changes) => changes.next()?.map(|change| ScannedChange::of_change(&change)),
                Rows::Filtered(runner) => return runner.next(),
                Rows::Batched(together) => together.next(self.view, self.needs)?,
            };
            let Some(mut seen) = seen else { return Ok(Next::End) };
            self.walked = Some(seen.seq);
            if self.passes(&mut seen)? {
                return Ok(Next::Row(seen));
            }
        }
    }

    pub(super) fn write_document(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Filter::Selector(filter) = self.filter {
            filter.fields.write(settee_model::json::Value::trusted(&self.document), out);
            return Ok(());
        }
        self.read(out, &[])
    }

    /// Appends the document of the current row with additional members, each after a comma.
    fn read(&mut self, out: &mut Vec<u8>, members: &[u8]) -> Result<(), Error> {
        let extra = |out: &mut Vec<u8>| out.extend_from_slice(members);
        match &mut self.rows {
            Rows::Scanned(changes) => changes.write_document(out, extra)?,
            Rows::Filtered(runner) => runner.write_document(out)?,
            Rows::Batched(Batched { current, .. }) => {
                if let Some(Found { seen, rev, stored }) = current {
                    self.view.write_document(out, &seen.id, rev, *stored, extra)?;
                }
            }
        }
        Ok(())
    }

    /// Returns true if a row passes, and sets the revisions that do.
    fn passes(&mut self, seen: &mut ScannedChange) -> Result<bool, Error> {
        let selector = match self.filter {
            Filter::None | Filter::Function(_) => None,
            Filter::Design if seen.id.starts_with("_design/") => None,
            Filter::DocIds(ids) if ids.contains(&seen.id) => None,
            Filter::Design | Filter::DocIds(_) => return Ok(false),
            Filter::Selector(filter) => Some(filter.as_ref()),
        };
        if let Some(filter) = selector {
            let mut document = std::mem::take(&mut self.document);
            document.clear();
            let is_conflicted = self.needs.seen_conflicts && seen.leaves == Leaves::Several;
            let members = if is_conflicted { conflicts(self.view, &seen.id)? } else { Vec::new() };
            let read = self.read(&mut document, &members);
            self.document = document;
            read?;
            if seen.leaves == Leaves::One || self.needs.style == Style::MainOnly {
                return Ok(filter.passes(&self.document));
            }
        }
        if seen.leaves == Leaves::Several && self.needs.style == Style::AllDocs {
            seen.revs = leaves(self.view, &seen.id, selector)?;
        }
        Ok(!seen.revs.is_empty())
    }
}

/// Returns the member `_conflicts` of the winner, after a comma.
fn conflicts(view: &ReadView<'_>, id: &str) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    if let Some(record) = view.record(id)?
        && let Some(winner) = record.tree.winner(|stored| stored.deleted)
    {
        write_leaves(&mut out, "_conflicts", &record, winner, |stored| !stored.deleted);
    }
    Ok(out)
}

/// Returns the leaves that pass, the winner first.
fn leaves(view: &ReadView<'_>, id: &str, filter: Option<&SelectorFilter>) -> Result<Vec<Rev>, Error> {
    let Some(record) = view.record(id)? else { return Ok(Vec::new()) };
    let mut revs = Vec::new();
    let mut document = Vec::new();
    for leaf in record.tree.leaves_by_rank(|stored| stored.deleted) {
        let node = record.tree.node(leaf);
        let passes = match (filter, node.value) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(filter), Some(stored)) => {
                document.clear();
                view.write_document(&mut document, id, &node.rev, stored, |_| {})? && filter.passes(&document)
            }
        };
        if passes {
            revs.push(node.rev.clone());
        }
    }
    Ok(revs)
}
