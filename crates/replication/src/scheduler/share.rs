//! [`Shares`]: fair distribution of the slots between groups: one `_replicator` database, or one user's transient jobs.
//! This is the fair share scheduler of Kay and Lauder as CouchDB applies it. A job's *burden* grows with the usage of
//! its group and with the number of its siblings, and shrinks with the group's shares; jobs with the least burden run
//! first. Usage and burden decay over time, so no job starves.

use std::collections::HashMap;
use std::sync::Arc;

const SHARES_DEFAULT: u32 = 100;

/// Fraction of a group's usage that remains after an interval.
const USAGE_DECAY: f64 = 0.5;

/// Fraction of a job's burden that remains after an interval.
const BURDEN_DECAY: f64 = 0.98;

#[derive(Debug, Default)]
pub(super) struct Shares {
    configured: HashMap<String, u32>,
    groups: HashMap<Arc<str>, Group>,
    /// The usage of a group without jobs is kept, so that removing and adding a job gains no advantage.
    burdens: HashMap<Arc<str>, u64>,
}

#[derive(Debug, Default)]
struct Group {
    jobs: u64,
    usage: u64,
    charges: u64,
}

impl Shares {
    pub(super) fn configure(&mut self, shares: impl IntoIterator<Item = (String, u32)>) {
        self.configured = shares.into_iter().map(|(group, shares)| (group, shares.clamp(1, 1000))).collect();
    }

    /// Adds a job with the burden of one interval, because otherwise new jobs would always be first.
    pub(super) fn add(&mut self, job: &Arc<str>, group: &Arc<str>) {
        self.groups.entry(Arc::clone(group)).or_default().jobs += 1;
        self.burden(job, group);
    }

    pub(super) fn remove(&mut self, job: &Arc<str>, group: &Arc<str>) {
        self.burdens.remove(job);
        if let Some(group) = self.groups.get_mut(group) {
            group.jobs = group.jobs.saturating_sub(1);
        }
    }

    pub(super) fn charge(&mut self, group: &Arc<str>, ran_ms: u64) {
        let group = self.groups.entry(Arc::clone(group)).or_default();
        // Microseconds, so that a small usage divided by many shares is not rounded to zero.
        group.charges = group.charges.saturating_add(ran_ms.saturating_mul(1000));
    }

    /// Ends an interval in which these jobs ran. The caller must have charged them.
    pub(super) fn end_interval<'a>(&mut self, running: impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)>) {
        self.groups.retain(|_, group| {
            group.usage = decayed(group.usage, USAGE_DECAY).saturating_add(std::mem::take(&mut group.charges));
            group.jobs > 0 || group.usage > 0
        });
        self.burdens.retain(|_, burden| {
            *burden = decayed(*burden, BURDEN_DECAY);
            *burden > 0
        });
        for (job, group) in running {
            self.burden(job, group);
        }
    }

    pub(super) fn of(&self, job: &str) -> u64 {
        self.burdens.get(job).copied().unwrap_or(0)
    }

    fn burden(&mut self, job: &Arc<str>, group: &Arc<str>) {
        let shares = u64::from(self.configured.get(&**group).copied().unwrap_or(SHARES_DEFAULT));
        let Some(account) = self.groups.get(group) else { return };
        let more = account.usage.saturating_mul(account.jobs) / (shares * shares);
        if more > 0 {
            let burden = self.burdens.entry(Arc::clone(job)).or_default();
            *burden = burden.saturating_add(more);
        }
    }
}

fn decayed(amount: u64, share: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an estimate"
    )]
    let decayed = (amount as f64 * share) as u64;
    decayed
}
