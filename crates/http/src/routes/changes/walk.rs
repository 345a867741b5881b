//! [`Walk`]: the rows of a feed that pass its filter.

use std::vec::IntoIter;

use settee_database::{Change, Changes, Direction, Head, Leaves, ReadView};
use settee_model::Rev;

use super::judge::Judge;
use crate::Error;
use crate::params::changes::Style;
use crate::params::filter::{Filter, SelectorFilter};

/// A row without the walk that lent it.
pub(super) struct Seen {
    pub(super) seq: u64,
    pub(super) id: String,
    pub(super) deleted: bool,
    pub(super) leaves: Leaves,
    /// The revisions that the row names.
    pub(super) revs: Vec<Rev>,
    /// How much text the document is, about.
    pub(super) size: usize,
}

impl Seen {
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

    fn of_head(id: String, head: &Head) -> Self {
        let leaves = if head.has_conflicts { Leaves::Several } else { Leaves::One };
        Self {
            seq: head.seq,
            id,
            deleted: head.stored.deleted,
            leaves,
            revs: vec![head.rev.clone()],
            size: head.stored.size as usize,
        }
    }
}

/// A walk through the changes after a sequence.
pub(super) struct Walk<'a> {
    view: &'a ReadView,
    rows: Rows<'a>,
    filter: &'a Filter,
    style: Style,
    /// The document of the row as a selector saw it.
    document: Vec<u8>,
}

enum Rows<'a> {
    /// All changes in their order.
    Scanned(Changes<'a>),
    /// All changes in their order, as far as a function passes them.
    Judged(Box<Judge<'a>>),
    /// Few documents among many changes: their heads, sorted.
    LookedUp(IntoIter<(String, Head)>, Option<(String, Head)>),
}

impl<'a> Walk<'a> {
    pub(super) fn open(
        view: &'a ReadView,
        since: u64,
        direction: Direction,
        filter: &'a Filter,
        style: Style,
    ) -> Result<Self, Error> {
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
                    Direction::Backward => found.sort_by_key(|(_, head)| std::cmp::Reverse(head.seq)),
                }
                Rows::LookedUp(found.into_iter(), None)
            }
            Filter::Function(filter) => Rows::Judged(Box::new(Judge::new(view, since, direction, filter, style)?)),
            Filter::None | Filter::Selector(_) | Filter::DocIds(_) | Filter::Design => {
                Rows::Scanned(view.changes(since, direction)?)
            }
        };
        Ok(Self { view, rows, filter, style, document: Vec::new() })
    }

    /// The next row that passes.
    pub(super) fn next(&mut self) -> Result<Option<Seen>, Error> {
        loop {
            let seen = match &mut self.rows {
                Rows::Scanned(changes) => changes.next()?.map(|change| Seen::of_change(&change)),
                Rows::Judged(judge) => return judge.next(),
                Rows::LookedUp(rows, current) => {
                    *current = rows.next();
                    current.as_ref().map(|(id, head)| Seen::of_head(id.clone(), head))
                }
            };
            let Some(mut seen) = seen else { return Ok(None) };
            if self.passes(&mut seen)? {
                return Ok(Some(seen));
            }
        }
    }

    /// Appends the document of the row that [`Self::next`] gave, as far as it is to be shown.
    pub(super) fn write_document(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        if let Filter::Selector(filter) = self.filter {
            filter.fields.write(settee_model::json::Value::trusted(&self.document), out);
            return Ok(());
        }
        self.read(out)
    }

    fn read(&mut self, out: &mut Vec<u8>) -> Result<(), Error> {
        match &mut self.rows {
            Rows::Scanned(changes) => changes.write_document(out, |_| {})?,
            Rows::Judged(judge) => judge.write_document(out)?,
            Rows::LookedUp(_, current) => {
                if let Some((id, head)) = current {
                    self.view.write_document(out, id, &head.rev, head.stored, |_| {})?;
                }
            }
        }
        Ok(())
    }

    /// Whether a row passes; it names then the revisions that do.
    fn passes(&mut self, seen: &mut Seen) -> Result<bool, Error> {
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
            let read = self.read(&mut document);
            self.document = document;
            read?;
            if seen.leaves == Leaves::One || self.style == Style::MainOnly {
                return Ok(filter.passes(&self.document));
            }
        }
        if seen.leaves == Leaves::Several && self.style == Style::AllDocs {
            seen.revs = leaves(self.view, &seen.id, selector)?;
        }
        Ok(!seen.revs.is_empty())
    }
}

/// The leaves that pass, the winner first.
fn leaves(view: &ReadView, id: &str, filter: Option<&SelectorFilter>) -> Result<Vec<Rev>, Error> {
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
