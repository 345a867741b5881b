//! [`Shares`]: who gets to run when not all can. Jobs of one `_replicator` database, or the transient jobs of one user,
//! form a group; groups share what there is.
//!
//! This is the fair share scheduler of Kay and Lauder as CouchDB applies it. Running jobs charge their group for the time
//! they ran. A job's *burden* grows with the usage of its group and with the number of its siblings, and shrinks with the
//! group's shares; jobs with the least burden run first. Usage and burden are forgotten by and by, so nobody starves.

use std::collections::HashMap;
use std::sync::Arc;

/// The shares of a group for which the configuration names none.
const SHARES_DEFAULT: u32 = 100;

/// The part of a group's usage that is left after one interval.
const USAGE_KEPT: f64 = 0.5;

/// The part of a job's burden that is left after one interval.
const BURDEN_KEPT: f64 = 0.98;

/// The accounts of all groups and jobs.
#[derive(Debug, Default)]
pub(super) struct Shares {
    configured: HashMap<String, u32>,
    groups: HashMap<Arc<str>, Group>,
    /// Milliseconds that groups without jobs have used: who removes a job and puts it in again gains nothing.
    burdens: HashMap<Arc<str>, u64>,
}

#[derive(Debug, Default)]
struct Group {
    jobs: u64,
    usage: u64,
    charges: u64,
}

impl Shares {
    /// Takes the section `[replicator.shares]`: groups and their shares, from 1 to 1000.
    pub(super) fn configure(&mut self, shares: impl IntoIterator<Item = (String, u32)>) {
        self.configured = shares.into_iter().map(|(group, shares)| (group, shares.clamp(1, 1000))).collect();
    }

    /// A job comes in, as if it had run for an interval already: otherwise new jobs would always be first.
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

    /// A job of this group has run for so long since it was charged last.
    pub(super) fn charge(&mut self, group: &Arc<str>, ran_ms: u64) {
        let group = self.groups.entry(Arc::clone(group)).or_default();
        // Microseconds, so that little usage among many shares is not rounded to nothing.
        group.charges = group.charges.saturating_add(ran_ms.saturating_mul(1000));
    }

    /// An interval has ended, in which these jobs ran; they were charged before.
    pub(super) fn settle<'a>(&mut self, running: impl Iterator<Item = (&'a Arc<str>, &'a Arc<str>)>) {
        self.groups.retain(|_, group| {
            group.usage = kept(group.usage, USAGE_KEPT).saturating_add(std::mem::take(&mut group.charges));
            group.jobs > 0 || group.usage > 0
        });
        self.burdens.retain(|_, burden| {
            *burden = kept(*burden, BURDEN_KEPT);
            *burden > 0
        });
        for (job, group) in running {
            self.burden(job, group);
        }
    }

    /// The burden of a job: jobs with less run first.
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

fn kept(amount: u64, share: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "an estimate"
    )]
    let kept = (amount as f64 * share) as u64;
    kept
}
