//! [`SearchLimits`]: limits of a search, checked in every phase. Memory is charged before it is allocated.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::error::{Error, Result};

/// The requester grants memory in pieces of at least this size, because each grant takes a lock.
const PIECE_BYTES: usize = 64 << 10;

/// Number of steps between two checks. A step takes up to a microsecond.
const STEPS: usize = 2_048;

/// Granted memory, returned on drop.
pub type Taken = Box<dyn Any + Send>;

pub trait Requester: Send + Sync {
    fn has_gone(&self) -> bool;

    fn is_late(&self) -> bool;

    fn take(&self, bytes: usize) -> Result<Taken, Shortage>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortage {
    /// A retry may succeed.
    InUse,
    TooLarge,
}

#[derive(Clone)]
pub struct SearchLimits {
    inner: Arc<Inner>,
}

struct Inner {
    requester: Option<Arc<dyn Requester>>,
    /// First error of a check or charge; all later ones return it.
    failure: Arc<OnceLock<Error>>,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    charged: usize,
    taken: usize,
    pieces: Vec<Taken>,
}

impl SearchLimits {
    #[must_use]
    pub fn of(requester: Arc<dyn Requester>) -> Self {
        Self::new(Some(requester), Arc::default())
    }

    #[must_use]
    pub fn none() -> Self {
        Self::new(None, Arc::default())
    }

    fn new(requester: Option<Arc<dyn Requester>>, failure: Arc<OnceLock<Error>>) -> Self {
        Self { inner: Arc::new(Inner { requester, failure, memory: Mutex::default() }) }
    }

    /// Returns the same limits with a separate memory account, which each search of a request needs.
    #[must_use]
    pub fn scope(&self) -> Self {
        Self::new(self.inner.requester.clone(), Arc::clone(&self.inner.failure))
    }

    /// Fails after a disconnection, a timeout, or an earlier failure.
    pub fn check(&self) -> Result<()> {
        let Some(requester) = &self.inner.requester else { return self.checked() };
        self.checked()?;
        if requester.has_gone() {
            return Err(self.fail(Error::Disconnected));
        }
        if requester.is_late() {
            return Err(self.fail(Error::TimedOut));
        }
        Ok(())
    }

    fn checked(&self) -> Result<()> {
        match self.inner.failure.get() {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    /// The caller must charge memory before its allocation. After a failure all later checks fail.
    pub fn charge(&self, bytes: usize) -> Result<()> {
        let Some(requester) = &self.inner.requester else { return self.checked() };
        self.checked()?;
        let mut memory = self.inner.memory.lock();
        let charged = memory.charged.saturating_add(bytes);
        if charged > memory.taken {
            let piece = (charged - memory.taken).max(PIECE_BYTES);
            let taken = requester.take(piece).map_err(|shortage| self.fail(Error::from(shortage)))?;
            memory.taken = memory.taken.saturating_add(piece);
            memory.pieces.push(taken);
        }
        memory.charged = charged;
        Ok(())
    }

    pub(crate) fn fail(&self, error: Error) -> Error {
        self.inner.failure.get_or_init(|| error).clone()
    }

    pub(crate) fn steps(&self) -> Steps {
        Steps { limits: self.clone(), left: STEPS }
    }

    /// Unlike the standard library's sort, this stable sort can end early.
    pub(crate) fn sort<T>(&self, items: Vec<T>, is_before: impl Fn(&T, &T) -> std::cmp::Ordering) -> Result<Vec<T>> {
        if items.len() <= SORTED_TOGETHER {
            let mut items = items;
            items.sort_by(&is_before);
            return Ok(items);
        }
        let mut runs: Vec<Vec<T>> = Vec::new();
        let mut items = items.into_iter();
        loop {
            self.check()?;
            let mut run: Vec<T> = items.by_ref().take(SORTED_TOGETHER).collect();
            if run.is_empty() {
                break;
            }
            run.sort_by(&is_before);
            runs.push(run);
        }
        while runs.len() > 1 {
            let mut merged = Vec::with_capacity(runs.len().div_ceil(2));
            let mut pairs = runs.into_iter();
            while let Some(first) = pairs.next() {
                merged.push(match pairs.next() {
                    Some(second) => self.merge(first, second, &is_before)?,
                    None => first,
                });
            }
            runs = merged;
        }
        Ok(runs.pop().unwrap_or_default())
    }

    fn merge<T>(&self, one: Vec<T>, other: Vec<T>, is_before: impl Fn(&T, &T) -> std::cmp::Ordering) -> Result<Vec<T>> {
        let mut steps = self.steps();
        let mut merged = Vec::with_capacity(one.len() + other.len());
        let (mut one, mut other) = (one.into_iter().peekable(), other.into_iter().peekable());
        while let (Some(first), Some(second)) = (one.peek(), other.peek()) {
            steps.take(1)?;
            let next = if is_before(second, first).is_lt() { other.next() } else { one.next() };
            merged.extend(next);
        }
        merged.extend(one);
        merged.extend(other);
        Ok(merged)
    }
}

/// Number of items that the standard library sorts in a few milliseconds.
const SORTED_TOGETHER: usize = if cfg!(test) { 8 } else { 8_192 };

impl fmt::Debug for SearchLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchLimits").field("failure", &self.inner.failure.get()).finish_non_exhaustive()
    }
}

impl From<Shortage> for Error {
    fn from(shortage: Shortage) -> Self {
        match shortage {
            Shortage::InUse => Self::OutOfMemory,
            Shortage::TooLarge => Self::TooLarge("the search needs more memory than it may have".to_owned()),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Steps {
    limits: SearchLimits,
    left: usize,
}

impl Steps {
    #[inline]
    pub(crate) fn take(&mut self, steps: usize) -> Result<()> {
        match self.left.checked_sub(steps) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.check(),
        }
    }

    #[cold]
    fn check(&mut self) -> Result<()> {
        self.left = STEPS;
        self.limits.check()
    }
}

#[cfg(test)]
pub(crate) mod tests;
