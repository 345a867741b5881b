//! [`Scheduler`]: a pure state machine that takes events with their times, and returns the jobs to start and to stop.
//! The rules are CouchDB's: at most `max_jobs` run; in each interval at most `max_churn` continuous jobs are stopped
//! for waiting jobs; the delay after a crash grows; the job that has waited longest is next, weighed by [`share`]. A
//! transient job is not retried.

mod history;
mod share;

use std::collections::HashMap;
use std::sync::Arc;

use crate::counters::Tally;
pub use history::{Event, EventKind, History, Limits};
use share::Shares;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    pub max_jobs: usize,
    /// Maximum number of jobs that are exchanged in an interval.
    pub max_churn: usize,
    pub interval_ms: u64,
    pub history: Limits,
    pub shares: Vec<(String, u32)>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_jobs: 500,
            max_churn: 20,
            interval_ms: 60_000,
            history: Limits { events: 20, healthy_ms: 120_000 },
            shares: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// The job ends with its first run, successful or not.
    Transient,
    Persistent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobKind {
    /// Ends when all changes are copied, and is not interrupted.
    OneShot,
    /// Runs indefinitely, and may be stopped to let other jobs run.
    Continuous,
}

#[derive(Clone, Debug)]
pub struct Job {
    /// Group with which the job shares: the name of a `_replicator` database, or of a user.
    pub group: Arc<str>,
    pub lifetime: Lifetime,
    pub job_kind: JobKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Start(Arc<str>),
    Stop(Arc<str>),
}

#[derive(Debug, Default)]
pub struct Scheduler {
    settings: Settings,
    jobs: HashMap<Arc<str>, Entry>,
    running: usize,
    shares: Shares,
    interval_started_ms: u64,
}

#[derive(Debug)]
struct Entry {
    job: Job,
    history: History,
    runs: bool,
}

impl Scheduler {
    #[must_use]
    pub fn new(settings: Settings, now_ms: u64) -> Self {
        let mut scheduler = Self { interval_started_ms: now_ms, ..Self::default() };
        scheduler.configure(settings);
        scheduler
    }

    pub fn configure(&mut self, settings: Settings) {
        self.shares.configure(settings.shares.clone());
        self.settings = settings;
    }

    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Adds a job, which may start at once. Replaces a job with the same id; the caller must have stopped it before.
    pub fn add(&mut self, id: &Arc<str>, job: Job, now_ms: u64) -> Vec<Decision> {
        self.remove(id, now_ms);
        self.shares.add(id, &job.group);
        self.jobs.insert(Arc::clone(id), Entry { job, history: History::new(now_ms), runs: false });
        if self.running < self.settings.max_jobs {
            return vec![self.start(id, now_ms)];
        }
        Vec::new()
    }

    /// Returns true if the job was running: the caller must end that run.
    pub fn remove(&mut self, id: &str, now_ms: u64) -> bool {
        self.charge(id, now_ms);
        let Some((id, entry)) = self.jobs.remove_entry(id) else { return false };
        self.shares.remove(&id, &entry.job.group);
        if entry.runs {
            self.running -= 1;
        }
        entry.runs
    }

    pub fn completed(&mut self, id: &str, now_ms: u64) -> Vec<Decision> {
        self.remove(id, now_ms);
        self.fill(now_ms)
    }

    pub fn crashed(&mut self, id: &str, reason: &str, now_ms: u64) -> Vec<Decision> {
        let limits = self.settings.history;
        let Some(entry) = self.jobs.get(id).filter(|entry| entry.runs) else { return Vec::new() };
        if entry.job.lifetime == Lifetime::Transient {
            return self.completed(id, now_ms);
        }
        self.charge(id, now_ms);
        let entry = self.jobs.get_mut(id).expect("it was there");
        entry.runs = false;
        entry.history.push(now_ms, EventKind::Crashed(reason.into()), limits);
        self.running -= 1;
        self.fill(now_ms)
    }

    /// Ends an interval: stops jobs beyond the limit, starts waiting jobs, and exchanges some jobs.
    pub fn reschedule(&mut self, now_ms: u64) -> Vec<Decision> {
        self.end_interval(now_ms);
        let mut decisions = Vec::new();
        let excess = self.running.saturating_sub(self.settings.max_jobs);
        if excess > 0 {
            decisions.extend(self.stop(excess, JobKind::Continuous, now_ms));
            let excess = self.running.saturating_sub(self.settings.max_jobs);
            decisions.extend(self.stop(excess, JobKind::OneShot, now_ms));
        }
        let started = self.fill(now_ms);
        let churned = started.len();
        decisions.extend(started);
        // Only jobs that could run now justify an exchange.
        let waiting = self.pending(now_ms).len();
        let churn = self.settings.max_churn.saturating_sub(churned).min(waiting);
        if churn > 0 && self.running >= self.settings.max_jobs {
            let next = self.next(churn, now_ms);
            decisions.extend(self.stop(churn, JobKind::Continuous, now_ms));
            let free = self.settings.max_jobs.saturating_sub(self.running);
            for id in next.into_iter().take(free) {
                decisions.push(self.start(&id, now_ms));
            }
        }
        decisions
    }

    /// Starts waiting jobs. Must be called when the clock has passed [`Self::due_ms`].
    pub fn fill(&mut self, now_ms: u64) -> Vec<Decision> {
        let free = self.settings.max_jobs.saturating_sub(self.running);
        if free == 0 || self.jobs.len() == self.running {
            return Vec::new();
        }
        let next = self.next(free, now_ms);
        next.iter().map(|id| self.start(id, now_ms)).collect()
    }

    /// Returns the earliest time at which a waiting job may run; `None` without a free slot.
    #[must_use]
    pub fn due_ms(&self) -> Option<u64> {
        if self.running >= self.settings.max_jobs {
            return None;
        }
        let waiting = self.jobs.values().filter(|entry| !entry.runs);
        waiting.map(|entry| entry.history.due_ms(self.settings.history)).min()
    }

    #[must_use]
    pub fn find(&self, id: &str) -> Option<(&History, bool)> {
        self.jobs.get(id).map(|entry| (&entry.history, entry.runs))
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    #[must_use]
    pub fn running(&self) -> usize {
        self.running
    }

    #[must_use]
    pub fn tally(&self) -> Tally {
        let waiting = self.jobs.values().filter(|entry| !entry.runs);
        let crashed = waiting.filter(|entry| entry.history.is_crashed()).count() as u64;
        let (total, running) = (self.jobs.len() as u64, self.running as u64);
        Tally { total, running, pending: total - running - crashed, crashed }
    }

    fn pending(&self, now_ms: u64) -> Vec<&Arc<str>> {
        let limits = self.settings.history;
        let due = self.jobs.iter().filter(|(_, entry)| !entry.runs && entry.history.due_ms(limits) <= now_ms);
        due.map(|(id, _)| id).collect()
    }

    /// Order: the least burden, then the longest wait.
    fn next(&self, count: usize, now_ms: u64) -> Vec<Arc<str>> {
        let mut pending = self.pending(now_ms);
        pending.sort_by_cached_key(|id| (self.shares.of(id), self.jobs[*id].history.started_ms(), Arc::clone(id)));
        pending.into_iter().take(count).cloned().collect()
    }

    fn start(&mut self, id: &Arc<str>, now_ms: u64) -> Decision {
        let limits = self.settings.history;
        let entry = self.jobs.get_mut(id).expect("only jobs that are there are started");
        entry.runs = true;
        entry.history.push(now_ms, EventKind::Started, limits);
        self.running += 1;
        Decision::Start(Arc::clone(id))
    }

    /// Order: the greatest burden, then the longest run.
    fn stop(&mut self, count: usize, job_kind: JobKind, now_ms: u64) -> Vec<Decision> {
        let running = self.jobs.iter().filter(|(_, entry)| entry.runs && entry.job.job_kind == job_kind);
        let mut running: Vec<Arc<str>> = running.map(|(id, _)| Arc::clone(id)).collect();
        let key = |id: &Arc<str>| (std::cmp::Reverse(self.shares.of(id)), self.jobs[id].history.started_ms());
        running.sort_by_cached_key(|id| (key(id), Arc::clone(id)));
        running.truncate(count);
        for id in &running {
            self.charge(id, now_ms);
            let entry = self.jobs.get_mut(id).expect("it was found in there");
            entry.runs = false;
            entry.history.push(now_ms, EventKind::Stopped, self.settings.history);
            self.running -= 1;
        }
        running.into_iter().map(Decision::Stop).collect()
    }

    fn charge(&mut self, id: &str, now_ms: u64) {
        if let Some(entry) = self.jobs.get(id).filter(|entry| entry.runs) {
            let from = entry.history.started_ms().max(self.interval_started_ms);
            self.shares.charge(&entry.job.group, now_ms.saturating_sub(from));
        }
    }

    fn end_interval(&mut self, now_ms: u64) {
        let Self { jobs, shares, interval_started_ms, .. } = self;
        let running = || jobs.iter().filter(|(_, entry)| entry.runs);
        for (_, entry) in running() {
            let from = entry.history.started_ms().max(*interval_started_ms);
            shares.charge(&entry.job.group, now_ms.saturating_sub(from));
        }
        shares.end_interval(running().map(|(id, entry)| (id, &entry.job.group)));
        *interval_started_ms = now_ms;
    }
}

#[cfg(test)]
mod tests;
