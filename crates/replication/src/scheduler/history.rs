//! [`History`]: the events of a job, the number of consecutive crashes, and the time of the next start.
//! As in CouchDB, a crash is part of a streak unless the job ran for more than [`Limits::healthy_ms`] before it, and
//! each crash of a streak doubles the delay.

use std::collections::VecDeque;
use std::sync::Arc;

const BACKOFF_MS: u64 = 30_000;

/// Limits the delay to eight and a half hours.
const BACKOFF_DOUBLINGS_MAX: u32 = 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    Added,
    Started,
    Stopped,
    Crashed(Arc<str>),
}

impl EventKind {
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
    pub at_ms: u64,
    pub event_kind: EventKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Number of events that are kept; at least one.
    pub events: usize,
    /// A run of this duration without a crash resets the streak of crashes.
    pub healthy_ms: u64,
}

/// Newest first. Invariant: never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History(VecDeque<Event>);

impl History {
    #[must_use]
    pub fn new(at_ms: u64) -> Self {
        Self(VecDeque::from([Event { at_ms, event_kind: EventKind::Added }]))
    }

    pub fn events(&self) -> impl Iterator<Item = &Event> {
        self.0.iter()
    }

    #[must_use]
    pub fn last(&self) -> &Event {
        self.0.front().expect("a history starts with an event and never loses the newest")
    }

    pub(super) fn push(&mut self, at_ms: u64, event_kind: EventKind, limits: Limits) {
        self.0.push_front(Event { at_ms, event_kind });
        self.0.truncate(limits.events.max(1));
    }

    #[must_use]
    pub fn started_ms(&self) -> u64 {
        self.0.iter().find(|event| event.event_kind == EventKind::Started).map_or(0, |event| event.at_ms)
    }

    #[must_use]
    pub fn crashes(&self, limits: Limits) -> u32 {
        let mut count = 0;
        let mut events = self.0.iter().peekable();
        while let Some(event) = events.next() {
            let Some(before) = events.peek() else { break };
            match (&event.event_kind, &before.event_kind) {
                (EventKind::Crashed(_), _) if event.at_ms.saturating_sub(before.at_ms) > limits.healthy_ms => break,
                (EventKind::Crashed(_), _) => count += 1,
                (EventKind::Stopped, EventKind::Started) => break,
                _ => {}
            }
        }
        count
    }

    #[must_use]
    pub fn is_crashed(&self) -> bool {
        matches!(self.last().event_kind, EventKind::Crashed(_))
    }

    #[must_use]
    pub fn due_ms(&self, limits: Limits) -> u64 {
        if !self.is_crashed() {
            return 0;
        }
        let doublings = self.crashes(limits).saturating_sub(1).min(BACKOFF_DOUBLINGS_MAX);
        self.last().at_ms.saturating_add(BACKOFF_MS << doublings)
    }
}
