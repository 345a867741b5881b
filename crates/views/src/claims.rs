//! [`Claims`]: which of the processes that serve a store builds an index. The others wait for what it commits, and go on in its place
//! when it is gone.
//!
//! Who waits says so, so that a build in the background goes on as fast as it can, whichever process has the client.
//!
//! Commits to an index are fenced by its version, so nothing here is needed for indexes to be right: two who build the same one only
//! end each other's work. But numbers of nodes and files are: who has read one of a number keeps it. So they begin with the epoch of
//! the claim that they were given out under. What a builder wrote that came too late is never met again under a number of another.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use settee_storage::members::Claim;
use settee_storage::{Engine, Result, Shard};

/// Numbers that are given out under one claim.
const NUMBERS_BITS: u32 = 24;

/// Who waits for another process looks at least so often whether that is still there: first, and later on.
const PATIENCE: Duration = Duration::from_millis(20);
const PATIENCE_MAX: Duration = Duration::from_millis(250);

/// Commits may come for long without the one that is waited for.
const HOPES_MAX: u32 = 16;

/// The right to build an index while others do not. It is given back when it is dropped.
pub struct Claimed {
    engine: Arc<dyn Engine>,
    claim: Claim,
}

impl Claimed {
    /// The right to build the index in `shard`; `None` while another process has it.
    ///
    /// # Errors
    /// When the store cannot be asked.
    pub fn try_new(engine: &Arc<dyn Engine>, shard: Shard) -> Result<Option<Self>> {
        let claim = engine.members().claim(&key(shard))?;
        Ok(claim.map(|claim| Self { engine: Arc::clone(engine), claim }))
    }

    /// Whether no other process can have taken it.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.engine.members().holds(&self.claim)
    }

    /// Whether a client waits for the index at another process.
    #[must_use]
    pub fn is_awaited(&self) -> bool {
        self.engine.members().is_awaited(&self.claim)
    }

    /// The least number that nothing had that was written under an earlier claim. Where there is one process, it is 0 at all times.
    #[must_use]
    pub fn first_number(&self) -> u64 {
        // The epochs of many years.
        self.claim.epoch.saturating_sub(1).min(u64::MAX >> (NUMBERS_BITS + 1)) << NUMBERS_BITS
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        // What is not given back ends with this process.
        let _ = self.engine.members().release(&self.claim);
    }
}

/// What the right to build the index in `shard` is called.
fn key(shard: Shard) -> String {
    format!("index/{}", shard.0)
}

/// Tells those who wait of the commits of other processes to indexes.
#[derive(Default)]
pub struct Claims {
    news: OnceLock<Arc<News>>,
}

#[derive(Default)]
struct News {
    waiting: Mutex<HashMap<Shard, Waiting>>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// How many wait.
    count: u64,
    commits: u64,
}

impl News {
    fn note(&self, shard: Shard) {
        if let Some(waiting) = self.waiting.lock().get_mut(&shard) {
            waiting.commits += 1;
            self.changed.notify_all();
        }
    }
}

/// A client waits for commits of other processes to an index.
pub struct Watch<'a> {
    engine: &'a dyn Engine,
    news: Arc<News>,
    shard: Shard,
    /// Those that the last wait has seen.
    commits: u64,
    patience: Duration,
    /// Waits that ended with a commit, since the process that builds was told that somebody waits.
    hopes: u32,
}

impl Claims {
    /// Notes commits to the index in `shard` from now on. There is one `engine` at all times.
    pub fn watch<'a>(&self, engine: &'a dyn Engine, shard: Shard) -> Watch<'a> {
        let news = self.news.get_or_init(|| {
            let news = Arc::<News>::default();
            let told = Arc::clone(&news);
            engine.subscribe(Box::new(move |shard, _| told.note(shard)));
            news
        });
        let mut waiting = news.waiting.lock();
        let entry = waiting.entry(shard).or_default();
        entry.count += 1;
        let commits = entry.commits;
        drop(waiting);
        Watch { engine, news: Arc::clone(news), shard, commits, patience: PATIENCE, hopes: 0 }
    }
}

#[cfg(test)]
impl Claims {
    /// Whether anybody waits.
    pub(crate) fn waits(&self) -> bool {
        self.news.get().is_some_and(|news| !news.waiting.lock().is_empty())
    }
}

impl Watch<'_> {
    /// Waits for a commit since the last wait, or a while: that a process has ended is no commit. After a while in vain the process that builds is
    /// told that somebody waits.
    pub fn wait(&mut self) {
        let mut waiting = self.news.waiting.lock();
        let commits = |waiting: &HashMap<Shard, Waiting>| waiting.get(&self.shard).map_or(0, |shard| shard.commits);
        let is_unchanged = |waiting: &mut HashMap<Shard, Waiting>| commits(waiting) == self.commits;
        let over = self.news.changed.wait_while_for(&mut waiting, is_unchanged, self.patience);
        self.commits = commits(&waiting);
        // Commits are looked at as they come, and silence less and less often.
        self.patience = if over.timed_out() { (2 * self.patience).min(PATIENCE_MAX) } else { PATIENCE };
        drop(waiting);
        self.hopes += 1;
        if over.timed_out() || self.hopes >= HOPES_MAX {
            self.hopes = 0;
            // Who cannot say so waits a little longer.
            let _ = self.engine.members().say_awaited(&key(self.shard));
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut waiting = self.news.waiting.lock();
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
        // Where nobody has claimed anything, numbers are what they were before there were claims.
        let new: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        assert_eq!(Claimed::try_new(&new, Shard(9)).unwrap().unwrap().first_number(), 0);
    }

    #[test]
    fn who_waits_hears_of_commits_and_of_silence() {
        let ([engine, other], claims) = (Store::new().two(), Claims::default());
        let mut watch = claims.watch(&*engine, Shard(7));
        watch.wait();
        watch.wait();
        assert_eq!(watch.patience, 4 * PATIENCE);
        other.drop_shard(Shard(8)).unwrap();
        other.drop_shard(Shard(7)).unwrap();
        watch.wait();
        assert_eq!((watch.patience, watch.commits), (PATIENCE, 1));
        drop(watch);
        assert!(claims.news.get().unwrap().waiting.lock().is_empty());
    }
}
