//! [`Merge`] merges sorted sequences of changes.

use std::ops::ControlFlow;

use super::sorter::SortedRun;
use crate::error::Result;
use crate::tree::apply::Change;

pub(crate) trait Source {
    fn row_key(&self) -> Option<&[u8]>;

    fn change(&self) -> Result<Change<'_>>;

    fn advance(&mut self) -> Result<()>;
}

/// Nearly all sources are runs in memory; the enum avoids virtual calls for them.
pub(crate) enum Input<'a> {
    Run(SortedRun),
    Other(Box<dyn Source + Send + 'a>),
}

impl Source for Input<'_> {
    #[inline]
    fn row_key(&self) -> Option<&[u8]> {
        match self {
            Input::Run(run) => run.row_key(),
            Input::Other(source) => source.row_key(),
        }
    }

    #[inline]
    fn change(&self) -> Result<Change<'_>> {
        match self {
            Input::Run(run) => run.change(),
            Input::Other(source) => source.change(),
        }
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        match self {
            Input::Run(run) => run.advance(),
            Input::Other(source) => source.advance(),
        }
    }
}

pub(crate) struct Ranked<'a> {
    pub(crate) source: Input<'a>,
    /// Of several changes with one key, the one with the smallest rank has priority; among equal ranks, a put.
    pub(crate) rank: u32,
}

impl<'a> Ranked<'a> {
    pub(crate) fn new(source: impl Source + Send + 'a, rank: u32) -> Self {
        Self { source: Input::Other(Box::new(source)), rank }
    }

    pub(crate) fn run(run: SortedRun) -> Self {
        Self { source: Input::Run(run), rank: 0 }
    }
}

pub(crate) struct Merge<'a> {
    heap: Vec<Ranked<'a>>,
    may_repeat: bool,
}

impl<'a> Merge<'a> {
    pub(crate) fn new(sources: Vec<Ranked<'a>>) -> Self {
        let is_new = |ranked: &Ranked<'_>| matches!(&ranked.source, Input::Run(run) if run.has_new_rows_only());
        let may_repeat = !sources.iter().all(is_new);
        let mut merge = Self { heap: sources, may_repeat };
        merge.heap.retain(|ranked| ranked.source.row_key().is_some());
        for top in (0..merge.heap.len() / 2).rev() {
            merge.sink(top);
        }
        merge
    }

    pub(crate) fn for_each(self, mut each: impl FnMut(Change<'_>) -> Result<ControlFlow<()>>) -> Result<()> {
        self.for_all(|change, is_first, _| if is_first { each(change) } else { Ok(ControlFlow::Continue(())) })
    }

    /// Calls `each` with every change, true for the first one of its key, which is the valid one, and the rank.
    #[inline]
    pub(crate) fn for_all(
        mut self,
        mut each: impl FnMut(Change<'_>, bool, u32) -> Result<ControlFlow<()>>,
    ) -> Result<()> {
        let mut done: Option<Vec<u8>> = None;
        while let Some(top) = self.heap.first_mut() {
            let change = top.source.change()?;
            let is_first = done.as_deref() != Some(change.row_key);
            if is_first && self.may_repeat {
                let done = done.get_or_insert_default();
                done.clear();
                done.extend_from_slice(change.row_key);
            }
            if each(change, is_first, top.rank)?.is_break() {
                break;
            }
            top.source.advance()?;
            if top.source.row_key().is_none() {
                self.heap.swap_remove(0);
            }
            self.sink(0);
        }
        Ok(())
    }

    #[inline]
    fn sink(&mut self, mut at: usize) {
        loop {
            let left = 2 * at + 1;
            let Some(mut least) = (left < self.heap.len()).then_some(left) else {
                return;
            };
            if left + 1 < self.heap.len() && self.is_before(left + 1, left) {
                least = left + 1;
            }
            if !self.is_before(least, at) {
                return;
            }
            self.heap.swap(least, at);
            at = least;
        }
    }

    #[inline]
    fn is_before(&self, a: usize, b: usize) -> bool {
        let (a, b) = (&self.heap[a], &self.heap[b]);
        let order = a.source.row_key().cmp(&b.source.row_key()).then(a.rank.cmp(&b.rank));
        let is_put = |ranked: &Ranked<'_>| ranked.source.change().is_ok_and(|change| change.row.is_some());
        order.is_lt() || order.is_eq() && is_put(a) && !is_put(b)
    }
}
