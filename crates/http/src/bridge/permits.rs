//! Threads that wait for clients: [`ClientThreads`].
//!
//! An answer in pieces holds a thread and a snapshot until its client has taken it, and an attachment on its way in holds a
//! thread until it has come. Clients can be as slow as they like, so such work has threads of its own, in a limited number;
//! what is beyond it waits as a task. Commits and short reads run elsewhere and never stand behind a client.
//!
//! Functions of design documents may hang until their time is over, and wait for processes. Those of one client leave room for
//! those of others ([`settee_service::Programs`]).
//!
//! A [`ClientPermit`] whose client does nothing is released after a timeout; after a much shorter one if somebody waits for
//! a permit. This module decides when, not what becomes of the client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use settee_service::threads::{GiveWay, Running, Threads, tallied};
use settee_service::{Owner, Permit, Permits};
use tokio::sync::Notify;
use tokio::time::sleep;

use settee_settings::{Key, Settings, chttpd, key::Number};

use crate::budget::{Account, Share};

/// The time that a client may do nothing while others wait for its permit. Most slow lines take a piece in less: the
/// system's buffers swallow some hundred kilobytes at once.
const CONTENDED_AFTER: Duration = Duration::from_secs(1);

/// The threads, and who may have one.
pub(crate) struct ClientThreads {
    threads: Threads,
    /// Those of strangers. A burst of theirs needs new ones, and nobody else stands behind these.
    strangers: Threads,
    answers: Shared,
    lists: Arc<Semaphore>,
    uploads: Shared,
}

/// A semaphore for each kind of client, so that nobody with an account is behind strangers.
struct Shared {
    anonymous: Arc<Semaphore>,
    user: Arc<Semaphore>,
    admin: Arc<Semaphore>,
}

impl Shared {
    /// Users and admins have `permits` each, and strangers half as many.
    fn new(permits: usize, contended_after: Duration) -> Self {
        Self {
            anonymous: Semaphore::new(permits.div_ceil(2), contended_after),
            user: Semaphore::new(permits, contended_after),
            admin: Semaphore::new(permits, contended_after),
        }
    }

    fn of(&self, share: Share) -> &Arc<Semaphore> {
        match share {
            Share::Anonymous => &self.anonymous,
            Share::User => &self.user,
            Share::Admin => &self.admin,
        }
    }
}

/// The number of permits of each semaphore. Each stands for a thread; that of an answer also for up to a few hundred
/// kilobytes if its client is slow, and that of a list function for a process.
pub(crate) struct PermitCounts {
    pub(crate) answers: usize,
    pub(crate) lists: usize,
    pub(crate) uploads: usize,
}

impl PermitCounts {
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        let permits = |key: &Key<Number>| usize::try_from(key.of(settings).clamp(1, 10_000)).unwrap_or(1);
        Self {
            answers: permits(&chttpd::MAX_LONG_ANSWERS),
            lists: permits(&chttpd::MAX_LIST_ANSWERS),
            uploads: permits(&chttpd::MAX_UPLOADS),
        }
    }
}

/// The permits for one kind of work: a fair semaphore that knows whether it is contended.
pub(crate) struct Semaphore {
    permits: Arc<Permits>,
    contended_after: Duration,
    queue: Mutex<Queue>,
    joined: Notify,
}

#[derive(Default)]
struct Queue {
    /// How many wait for a permit.
    waiting: usize,
    /// The number of them that somebody leaves for.
    promised: usize,
}

/// The right to keep a thread waiting for one client.
pub(crate) struct ClientPermit {
    semaphore: Arc<Semaphore>,
    _permit: Permit,
}

/// The semaphore that work waits for, and the timeout of its client.
pub(crate) struct Admission {
    threads: Arc<ClientThreads>,
    semaphore: Arc<Semaphore>,
    owner: Owner,
    timeout: Duration,
    account: Arc<Account>,
}

impl ClientThreads {
    /// `give_way` is called by threads whose work turns out to be long.
    pub(crate) fn new(permits: &PermitCounts, give_way: &GiveWay) -> Arc<Self> {
        Self::with_timeout(permits, CONTENDED_AFTER, give_way)
    }

    fn with_timeout(permits: &PermitCounts, contended_after: Duration, give_way: &GiveWay) -> Arc<Self> {
        let PermitCounts { answers, lists, uploads } = *permits;
        Arc::new(Self {
            threads: Threads::that_give_way("settee-client", Arc::clone(give_way)),
            strangers: Threads::that_give_way("settee-stranger", Arc::clone(give_way)),
            answers: Shared::new(answers, contended_after),
            lists: Semaphore::new(lists, contended_after),
            uploads: Shared::new(uploads, contended_after),
        })
    }

    /// For an answer whose client may take nothing for `timeout`.
    pub(crate) fn answer(self: &Arc<Self>, account: &Arc<Account>, timeout: Duration) -> Admission {
        self.admission(self.answers.of(account.share()), None, account, timeout)
    }

    /// The same for what a list function answers to `owner`.
    pub(crate) fn list(self: &Arc<Self>, owner: Owner, account: &Arc<Account>, timeout: Duration) -> Admission {
        self.admission(&self.lists, owner, account, timeout)
    }

    /// For a body whose client may send nothing for `timeout`.
    pub(crate) fn upload(self: &Arc<Self>, account: &Arc<Account>, timeout: Duration) -> Admission {
        self.admission(self.uploads.of(account.share()), None, account, timeout)
    }

    fn admission(
        self: &Arc<Self>,
        semaphore: &Arc<Semaphore>,
        owner: Owner,
        account: &Arc<Account>,
        timeout: Duration,
    ) -> Admission {
        Admission {
            threads: Arc::clone(self),
            semaphore: Arc::clone(semaphore),
            owner,
            timeout,
            account: Arc::clone(account),
        }
    }

    /// The number of more answers to admins would have a permit.
    #[cfg(test)]
    pub(crate) fn free_answers(&self) -> usize {
        self.answers.admin.permits.free()
    }
}

impl Admission {
    /// The time for which the client may do nothing.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// The memory that is kept for the client.
    pub(crate) fn account(&self) -> &Arc<Account> {
        &self.account
    }

    /// Waits for a permit.
    pub(crate) async fn acquire(&self) -> ClientPermit {
        self.semaphore.acquire(self.owner).await
    }

    /// Runs `work`, for which a [`ClientPermit`] is held, on a thread. What it spawns belongs to the runtime of the caller.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        let threads = match self.account.share() {
            Share::Anonymous => &self.threads.strangers,
            Share::User | Share::Admin => &self.threads.threads,
        };
        threads.spawn(tallied(work))
    }
}

impl Semaphore {
    fn new(permits: usize, contended_after: Duration) -> Arc<Self> {
        Arc::new(Self {
            permits: Permits::new(permits),
            contended_after,
            queue: Mutex::default(),
            joined: Notify::new(),
        })
    }

    async fn acquire(self: &Arc<Self>, owner: Owner) -> ClientPermit {
        let permit = match self.permits.try_acquire(owner) {
            Some(permit) => permit,
            None => {
                let _waiting = Waiting::join(self);
                self.permits.acquire(owner).await
            }
        };
        ClientPermit { semaphore: Arc::clone(self), _permit: permit }
    }
}

/// A waiter in the queue; out of it when dropped.
struct Waiting<'a>(&'a Semaphore);

impl<'a> Waiting<'a> {
    fn join(semaphore: &'a Semaphore) -> Self {
        semaphore.queue.lock().waiting += 1;
        semaphore.joined.notify_one();
        Self(semaphore)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut queue = self.0.queue.lock();
        queue.waiting -= 1;
        queue.promised = queue.promised.saturating_sub(1);
    }
}

impl ClientPermit {
    /// Ends when the permit must be released, if its client does nothing from now on.
    pub(crate) async fn expired(&self, timeout: Duration) {
        tokio::select! {
            () = sleep(timeout) => {}
            () = self.contended() => {}
        }
    }

    /// Ends when others need this permit, if its client does nothing from now on.
    pub(crate) async fn contended(&self) {
        sleep(self.semaphore.contended_after).await;
        loop {
            let joined = self.semaphore.joined.notified();
            {
                let mut queue = self.semaphore.queue.lock();
                if queue.waiting > queue.promised {
                    queue.promised += 1;
                    return;
                }
            }
            joined.await;
        }
    }
}

#[cfg(test)]
mod tests;
