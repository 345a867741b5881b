//! [`History`]: the events of a job, newest first, and the values derived from them: the number of consecutive crashes,
//! and the time of the next start.
//!
//! The rules are CouchDB's: a crash is part of a streak unless the job ran for more than [`Limits::healthy_ms`] before
//! it, and each crash of a streak doubles the delay.

use std::collections::VecDeque;
use std::sync::Arc;

/// Delay after the first crash.
const BACKOFF_MS: u64 = 30_000;

/// Maximum number of doublings: a delay of eight and a half hours.
const BACKOFF_DOUBLINGS_MAX: u32 = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Happened {
    Added,
    Started,
    /// The run was stopped to let other jobs run.
    Stopped,
    /// The run ended with an error.
    Crashed(Arc<str>),
}

impl Happened {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Time in milliseconds of the Unix epoch.
    pub at_ms: u64,
    pub happened: Happened,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of events that are kept; at least one.
    pub events: usize,
    /// A run of this duration without a crash resets the streak of crashes.
    pub healthy_ms: u64,
}

/// Events of a job, newest first. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History(VecDeque<Event>);

impl History {
    #[must_use]
    pub fn new(at_ms: u64) -> Self {
        Self(VecDeque::from([Event { at_ms, happened: Happened::Added }]))
    }

    /// Returns the events, newest first.
    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.iter()
    }

    #[must_use]
    pub fn last(&self) -> &Event {
        self.0.front().expect("a history starts with an event and never loses the newest")
    }

    pub(super) fn push(&mut self, at_ms: u64, happened: Happened, limits: Limits) {
        self.0.push_front(Event { at_ms, happened });
        self.0.truncate(limits.events.max(1));
    }

    /// Returns the time of the last start; 0 if the history contains none.
    #[must_use]
    pub fn started_ms(&self) -> u64 {
        self.0.iter().find(|event| event.happened == Happened::Started).map_or(0, |event| event.at_ms)
    }

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

    #[must_use]
    pub fn is_crashed(&self) -> bool {
        matches!(self.last().happened, Happened::Crashed(_))
    }

    /// Returns the time from which the job may run.
    #[must_use]
    pub fn due_ms(&self, limits: Limits) -> u64 {
        if !self.is_crashed() {
            return 0;
        }
        let doublings = self.crashes(limits).saturating_sub(1).min(BACKOFF_DOUBLINGS_MAX);
        self.last().at_ms.saturating_add(BACKOFF_MS << doublings)
    }
}
