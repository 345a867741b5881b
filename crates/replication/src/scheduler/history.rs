//! [`History`]: what happened to a job, newest first, and what follows from it: how often in a row it crashed, and when it
//! may run again.
//!
//! The rules are CouchDB's: a crash counts as one of a streak unless the job ran well for [`Limits::healthy_ms`] before it,
//! and each crash of a streak doubles the time to wait.

use std::collections::VecDeque;
use std::sync::Arc;

/// The time for which a job waits after its first crash.
const BACKOFF_MS: u64 = 30_000;

/// After this many crashes in a row the time to wait does not grow any more: it is then eight and a half hours.
const BACKOFF_DOUBLINGS_MAX: u32 = 10;

/// The event of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was put in.
    Added,
    /// It began to run.
    Started,
    /// It was stopped to let others run.
    Stopped,
    /// It ended with an error.
    Crashed(Arc<str>),
}

impl Happened {
    /// CouchDB's word.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Crashed(_) => "crashed",
        }
    }
}

/// Something that happened to a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in milliseconds of the Unix epoch.
    pub at_ms: u64,
    /// What.
    pub happened: Happened,
}

/// The limits by which histories are kept and judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The number of events that are remembered; at least one.
    pub events: usize,
    /// A job that has run so long without crashing is well again.
    pub healthy_ms: u64,
}

/// The events of a job, newest first. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History(VecDeque<Event>);

impl History {
    /// The history of a job that was put in at this time.
    #[must_use]
    pub fn new(at_ms: u64) -> Self {
        Self(VecDeque::from([Event { at_ms, happened: Happened::Added }]))
    }

    /// The events, newest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.iter()
    }

    /// The last event.
    #[must_use]
    pub fn last(&self) -> &Event {
        self.0.front().expect("a history begins with an event and never loses the newest")
    }

    pub(super) fn push(&mut self, at_ms: u64, happened: Happened, limits: Limits) {
        self.0.push_front(Event { at_ms, happened });
        self.0.truncate(limits.events.max(1));
    }

    /// When the job last began to run; 0 if it never did as far as is remembered.
    #[must_use]
    pub fn started_ms(&self) -> u64 {
        self.0.iter().find(|event| event.happened == Happened::Started).map_or(0, |event| event.at_ms)
    }

    /// The number of crashes of the job in a row.
    #[must_use]
    pub fn crashes(&self, limits: Limits) -> u32 {
        let mut count = 0;
        let mut events = self.0.iter().peekable();
        while let Some(event) = events.next() {
            let Some(before) = events.peek() else { break };
            match (&event.happened, &before.happened) {
                (Happened::Crashed(_), _) if event.at_ms.saturating_sub(before.at_ms) > limits.healthy_ms => break,
                (Happened::Crashed(_), _) => count += 1,
                (Happened::Stopped, Happened::Started) => break,
                _ => {}
            }
        }
        count
    }

    /// Whether the last thing that happened was a crash.
    #[must_use]
    pub fn is_crashed(&self) -> bool {
        matches!(self.last().happened, Happened::Crashed(_))
    }

    /// From when on the job may run.
    #[must_use]
    pub fn due_ms(&self, limits: Limits) -> u64 {
        if !self.is_crashed() {
            return 0;
        }
        let doublings = self.crashes(limits).saturating_sub(1).min(BACKOFF_DOUBLINGS_MAX);
        self.last().at_ms.saturating_add(BACKOFF_MS << doublings)
    }
}
