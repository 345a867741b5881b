//! [`Claims`] coordinates index builds among the processes of a store. One builds an index; the others wait for its
//! commits, announce that they wait, so that a background build runs at full speed, and take over if it fails. Index
//! commits are fenced by the shard version, so concurrent builds only waste work. Node and file numbers start with the
//! epoch of the claim: a builder that lost its claim cannot use a number of its successor, which readers may cache.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use settee_storage::members::Claim;
use settee_storage::{Engine, Result, Shard};

const NUMBERS_BITS: u32 = 24;

/// Initial and maximum interval at which a waiter checks that the building process is alive.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(250);

const COMMITS_PER_ANNOUNCEMENT: u32 = 16;

/// A claim on the build of an index, released on drop.
pub struct Claimed {
    engine: Arc<dyn Engine>,
    claim: Claim,
}

impl Claimed {
    /// Claims the build of the index in `shard`. Returns `None` while another process holds the claim.
    pub fn try_new(engine: &Arc<dyn Engine>, shard: Shard) -> Result<Option<Self>> {
        let claim = engine.members().claim(&key(shard))?;
        Ok(claim.map(|claim| Self { engine: Arc::clone(engine), claim }))
    }

    /// Returns true if no other process can have taken over the claim.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.engine.members().holds(&self.claim)
    }

    /// Returns true if a client waits for the index in another process.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.engine.members().is_awaited(&self.claim)
    }

    /// Returns the first number of the claim, which no earlier claim has used. With a single process it is always 0.
    #[must_use]
    pub fn first_number(&self) -> u64 {
        // The maximum suffices for the epochs of many years.
        self.claim.epoch.saturating_sub(1).min(u64::MAX >> (NUMBERS_BITS + 1)) << NUMBERS_BITS
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // If the release fails, the claim expires with this process.
        let _ = self.engine.members().release(&self.claim);
    }
}

fn key(shard: Shard) -> String {
    format!("index/{}", shard.0)
}

/// Notifies waiters of commits of other processes to indexes.
#[derive(Default)]
pub struct Claims {
    notifications: OnceLock<Arc<CommitNotifications>>,
}

#[derive(Default)]
struct CommitNotifications {
    waiting: Mutex<HashMap<Shard, Waiting>>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    count: u64,
    commits: u64,
}

impl CommitNotifications {
    fn notify(&self, shard: Shard) {
        if let Some(waiting) = self.waiting.lock().get_mut(&shard) {
            waiting.commits += 1;
            self.changed.notify_all();
        }
    }
}

/// Observes the commits of other processes to an index.
pub struct Watch<'a> {
    engine: &'a dyn Engine,
    notifications: Arc<CommitNotifications>,
    shard: Shard,
    commits: u64,
    check_interval: Duration,
    unannounced_commits: u32,
}

impl Claims {
    /// Observes commits to the index in `shard`. The caller must always pass the same `engine`.
    pub fn watch<'a>(&self, engine: &'a dyn Engine, shard: Shard) -> Watch<'a> {
        let notifications = self.notifications.get_or_init(|| {
            let notifications = Arc::<CommitNotifications>::default();
            let notified = Arc::clone(&notifications);
            engine.subscribe(Box::new(move |shard, _| notified.notify(shard)));
            notifications
        });
        let mut waiting = notifications.waiting.lock();
        let entry = waiting.entry(shard).or_default();
        entry.count += 1;
        let commits = entry.commits;
        drop(waiting);
        Watch {
            engine,
            notifications: Arc::clone(notifications),
            shard,
            commits,
            check_interval: CHECK_INTERVAL,
            unannounced_commits: 0,
        }
    }
}

#[cfg(test)]
impl Claims {
    pub(crate) fn waits(&self) -> bool {
        self.notifications.get().is_some_and(|notifications| !notifications.waiting.lock().is_empty())
    }
}

impl Watch<'_> {
    /// Waits for a commit since the last wait, or for a timeout, after which the wait is announced to the builder.
    pub fn wait(&mut self) {
        let mut waiting = self.notifications.waiting.lock();
        let commits = |waiting: &HashMap<Shard, Waiting>| waiting.get(&self.shard).map_or(0, |shard| shard.commits);
        let is_unchanged = |waiting: &mut HashMap<Shard, Waiting>| commits(waiting) == self.commits;
        let over = self.notifications.changed.wait_while_for(&mut waiting, is_unchanged, self.check_interval);
        self.commits = commits(&waiting);
        self.check_interval =
            if over.timed_out() { (2 * self.check_interval).min(CHECK_INTERVAL_MAX) } else { CHECK_INTERVAL };
        drop(waiting);
        self.unannounced_commits += 1;
        if over.timed_out() || self.unannounced_commits >= COMMITS_PER_ANNOUNCEMENT {
            self.unannounced_commits = 0;
            let _ = self.engine.members().announce_wait(&key(self.shard));
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut waiting = self.notifications.waiting.lock();
        if let Some(entry) = waiting.get_mut(&self.shard) {
            entry.count -= 1;
            if entry.count == 0 {
                waiting.remove(&self.shard);
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_storage::memory::MemoryEngine;
    use settee_storage_testing::Store;

    use super::*;

    #[test]
    fn one_process_builds_and_numbers_of_another_claim_are_others() {
        let engines = Store::new().two();
        let [one, other] =
            engines.each_ref().map(|engine| move |shard| Claimed::try_new(engine, Shard(shard)).unwrap());
        let mut least = 0;
        for round in 0..20 {
            let (here, there) = if round % 3 == 0 { (&one, &other) } else { (&other, &one) };
            let claimed = here(7).unwrap();
            assert!(there(7).is_none() && there(8).is_some() && claimed.is_held());
            assert!(claimed.first_number() >= least);
            least = claimed.first_number() + 1000;
        }
        let new: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        assert_eq!(Claimed::try_new(&new, Shard(9)).unwrap().unwrap().first_number(), 0);
    }

    #[test]
    fn waiters_are_notified_of_commits_and_timeouts() {
        let ([engine, other], claims) = (Store::new().two(), Claims::default());
        let mut watch = claims.watch(&*engine, Shard(7));
        watch.wait();
        watch.wait();
        assert_eq!(watch.check_interval, 4 * CHECK_INTERVAL);
        other.drop_shard(Shard(8)).unwrap();
        other.drop_shard(Shard(7)).unwrap();
        watch.wait();
        assert_eq!((watch.check_interval, watch.commits), (CHECK_INTERVAL, 1));
        drop(watch);
        assert!(claims.notifications.get().unwrap().waiting.lock().is_empty());
    }
}
