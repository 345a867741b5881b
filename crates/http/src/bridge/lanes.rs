//! Threads that wait for clients: [`Lanes`].
//!
//! An answer in pieces holds a thread and a snapshot until its client has taken it, and an attachment on its way in holds a
//! thread until it has come. Clients can be as slow as they like, so such work has threads of its own, in a limited number;
//! what is beyond it waits as a task. Commits and short reads run elsewhere and never stand behind a client.
//!
//! Functions of design documents may hang until their time is over, and wait for processes. Those of one database leave
//! room for those of others ([`settee_service::Programs`]).
//!
//! Who keeps a [`Place`] while its client does nothing gives it up after a time; after a much shorter one if somebody waits
//! for a place. This module decides when, not what becomes of the client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use settee_service::{Owner, Permit, Permits};
use tokio::runtime::Runtime;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use settee_settings::{Key, Settings, chttpd, key::Number};

use crate::budget::{Account, Share};

/// How long a client may do nothing while others wait for its place. Most slow lines take a piece in less: the system's
/// buffers swallow some hundred kilobytes at once.
const CONTESTED_AFTER: Duration = Duration::from_secs(1);

/// The threads, and who may have one.
pub(crate) struct Lanes {
    /// Only its threads that may block are used. `None` when it ends.
    threads: Option<Runtime>,
    answers: Shared,
    lists: Arc<Lane>,
    uploads: Shared,
}

/// A lane for each kind of client, so that nobody with an account stands behind strangers.
struct Shared {
    anonymous: Arc<Lane>,
    user: Arc<Lane>,
    admin: Arc<Lane>,
}

impl Shared {
    /// Users and admins have `places` each, and strangers half as many.
    fn new(places: usize, contested_after: Duration) -> Self {
        Self {
            anonymous: Lane::new(places.div_ceil(2), contested_after),
            user: Lane::new(places, contested_after),
            admin: Lane::new(places, contested_after),
        }
    }

    fn of(&self, share: Share) -> &Arc<Lane> {
        match share {
            Share::Anonymous => &self.anonymous,
            Share::User => &self.user,
            Share::Admin => &self.admin,
        }
    }
}

/// How many may be in each lane. Each has a thread; an answer besides up to a few hundred kilobytes if its client is slow,
/// and one of a list function a process.
pub(crate) struct Places {
    pub(crate) answers: usize,
    pub(crate) lists: usize,
    pub(crate) uploads: usize,
}

impl Places {
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        let places = |key: &Key<Number>| usize::try_from(key.of(settings).clamp(1, 10_000)).unwrap_or(1);
        Self {
            answers: places(&chttpd::MAX_LONG_ANSWERS),
            lists: places(&chttpd::MAX_LIST_ANSWERS),
            uploads: places(&chttpd::MAX_UPLOADS),
        }
    }
}

/// One direction.
pub(crate) struct Lane {
    places: Arc<Permits>,
    contested_after: Duration,
    line: Mutex<Line>,
    joined: Notify,
}

#[derive(Default)]
struct Line {
    /// How many wait for a place.
    waiting: usize,
    /// How many of them somebody leaves for.
    promised: usize,
}

/// The right to keep a thread waiting for one client.
pub(crate) struct Place {
    lane: Arc<Lane>,
    _permit: Permit,
}

/// Which lane work is for, and how long its client may do nothing.
pub(crate) struct Passage {
    lanes: Arc<Lanes>,
    lane: Arc<Lane>,
    owner: Owner,
    timeout: Duration,
    account: Arc<Account>,
}

impl Lanes {
    pub(crate) fn new(places: &Places) -> Arc<Self> {
        Self::with_timeout(places, CONTESTED_AFTER)
    }

    fn with_timeout(places: &Places, contested_after: Duration) -> Arc<Self> {
        let Places { answers, lists, uploads } = *places;
        let threads = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(3 * (answers + uploads) + lists)
            .thread_name("settee-client")
            .build()
            .expect("a runtime without drivers asks nothing of the system");
        Arc::new(Self {
            threads: Some(threads),
            answers: Shared::new(answers, contested_after),
            lists: Lane::new(lists, contested_after),
            uploads: Shared::new(uploads, contested_after),
        })
    }

    /// For an answer whose client may take nothing for `timeout`.
    pub(crate) fn answer(self: &Arc<Self>, account: &Arc<Account>, timeout: Duration) -> Passage {
        self.passage(self.answers.of(account.share()), None, account, timeout)
    }

    /// The same for what a list function of the database `owner` answers.
    pub(crate) fn list(self: &Arc<Self>, owner: Owner, account: &Arc<Account>, timeout: Duration) -> Passage {
        self.passage(&self.lists, owner, account, timeout)
    }

    /// For a body whose client may send nothing for `timeout`.
    pub(crate) fn upload(self: &Arc<Self>, account: &Arc<Account>, timeout: Duration) -> Passage {
        self.passage(self.uploads.of(account.share()), None, account, timeout)
    }

    fn passage(self: &Arc<Self>, lane: &Arc<Lane>, owner: Owner, account: &Arc<Account>, timeout: Duration) -> Passage {
        Passage { lanes: Arc::clone(self), lane: Arc::clone(lane), owner, timeout, account: Arc::clone(account) }
    }

    /// How many more answers to admins would have a place.
    #[cfg(test)]
    pub(crate) fn free_answers(&self) -> usize {
        self.answers.admin.places.free()
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        // The last owner may be one of its threads, which cannot wait for itself.
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

impl Passage {
    /// How long the client may do nothing.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// What is kept in memory for the client.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Waits for a place.
    pub(crate) async fn enter(&self) -> Place {
        self.lane.enter(self.owner).await
    }

    /// Runs `work`, which keeps a [`Place`], on a thread. What it spawns belongs to the runtime of the caller.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let caller = tokio::runtime::Handle::current();
        let threads = self.lanes.threads.as_ref().expect("they are there until the end");
        // The clock of such a test jumps ahead when its runtime has nothing to do, so it must know of the thread.
        #[cfg(test)]
        if caller.runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread {
            return caller.spawn_blocking(work);
        }
        threads.spawn_blocking(move || {
            let _caller = caller.enter();
            work()
        })
    }
}

impl Lane {
    fn new(places: usize, contested_after: Duration) -> Arc<Self> {
        Arc::new(Self { places: Permits::new(places), contested_after, line: Mutex::default(), joined: Notify::new() })
    }

    async fn enter(self: &Arc<Self>, owner: Owner) -> Place {
        let permit = match self.places.try_acquire(owner) {
            Some(permit) => permit,
            None => {
                let _waiting = Waiting::join(self);
                self.places.acquire(owner).await
            }
        };
        Place { lane: Arc::clone(self), _permit: permit }
    }
}

/// Somebody in the line; out of it when dropped.
struct Waiting<'a>(&'a Lane);

impl<'a> Waiting<'a> {
    fn join(lane: &'a Lane) -> Self {
        lane.line.lock().waiting += 1;
        lane.joined.notify_one();
        Self(lane)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut line = self.0.line.lock();
        line.waiting -= 1;
        line.promised = line.promised.saturating_sub(1);
    }
}

impl Place {
    /// Ends when the place must be given up, if its client does nothing from now on.
    pub(crate) async fn overdue(&self, timeout: Duration) {
        tokio::select! {
            () = sleep(timeout) => {}
            () = self.contested() => {}
        }
    }

    /// Ends when others need this place, if its client does nothing from now on.
    pub(crate) async fn contested(&self) {
        sleep(self.lane.contested_after).await;
        loop {
            let joined = self.lane.joined.notified();
            {
                let mut line = self.lane.line.lock();
                if line.waiting > line.promised {
                    line.promised += 1;
                    return;
                }
            }
            joined.await;
        }
    }
}

#[cfg(test)]
mod tests;
