//! [`ClientThreads`]: threads that wait for clients. A streamed response or an attachment upload occupies a thread
//! until its client has received or sent it, so such work has separate threads in a limited number. Work beyond the
//! limit waits as a task. Commits and short reads never queue behind a client. A [`ClientPermit`] whose client is
//! inactive expires after a timeout, sooner while others wait for a permit. The caller then disconnects the client.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use settee_threads::{Failed, GiveWay, Owner, Permit, Permits, Running, SHORT_WORK_MAX, Threads, scoped};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::budget::{Account, Share};
use settee_settings::{Key, Settings, chttpd, key::Number};

/// A client may be inactive for this time while others wait for its permit. Slow connections receive a piece in less.
const CONTENDED_AFTER: Duration = Duration::from_secs(1);

pub struct ClientThreads {
    threads: Threads,
    /// Low priority from the start, so that a burst of anonymous requests does not delay other clients.
    unauthenticated: Threads,
    answers: Shared,
    lists: Arc<Semaphore>,
    uploads: Shared,
}

/// Separate semaphores, so that authenticated clients do not queue behind unauthenticated ones.
struct Shared {
    anonymous: Arc<Semaphore>,
    user: Arc<Semaphore>,
    admin: Arc<Semaphore>,
}

impl Shared {
    /// Users and administrators have `permits` each, unauthenticated clients half as many.
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

/// Each permit represents a thread, that of a list function also a process.
pub struct PermitCounts {
    pub answers: usize,
    pub lists: usize,
    pub uploads: usize,
}

impl PermitCounts {
    pub fn of(settings: &dyn Settings) -> Self {
        let permits = |key: &Key<Number>| usize::try_from(key.of(settings).clamp(1, 10_000)).unwrap_or(1);
        Self {
            answers: permits(&chttpd::MAX_LONG_ANSWERS),
            lists: permits(&chttpd::MAX_LIST_ANSWERS),
            uploads: permits(&chttpd::MAX_UPLOADS),
        }
    }
}

pub struct Semaphore {
    permits: Arc<Permits>,
    contended_after: Duration,
    queue: Mutex<Queue>,
    joined: Notify,
}

#[derive(Default)]
struct Queue {
    waiting: usize,
    promised: usize,
}

pub struct ClientPermit {
    semaphore: Arc<Semaphore>,
    _permit: Permit,
}

pub struct Admission {
    threads: Arc<ClientThreads>,
    semaphore: Arc<Semaphore>,
    owner: Option<Owner>,
    timeout: Duration,
    account: Arc<Account>,
}

impl ClientThreads {
    /// Long work calls `lower_priority` and computes on `processors` threads of each kind concurrently.
    pub fn new(permits: &PermitCounts, lower_priority: &GiveWay, processors: usize) -> Arc<Self> {
        Self::with_timeout(permits, CONTENDED_AFTER, lower_priority, processors)
    }

    fn with_timeout(
        permits: &PermitCounts,
        contended_after: Duration,
        lower_priority: &GiveWay,
        processors: usize,
    ) -> Arc<Self> {
        let PermitCounts { answers, lists, uploads } = *permits;
        // Work that waits for clients has a permit, so [`SHORT_WORK_MAX`] threads are left for work that does not.
        let most = 2 * answers + lists + 2 * uploads + SHORT_WORK_MAX;
        Arc::new(Self {
            threads: Threads::lowering_priority_when_long(
                "settee-client",
                most,
                Arc::clone(lower_priority),
                processors,
            ),
            unauthenticated: Threads::with_low_priority("settee-anon", most, Arc::clone(lower_priority), processors),
            answers: Shared::new(answers, contended_after),
            lists: Semaphore::new(lists, contended_after),
            uploads: Shared::new(uploads, contended_after),
        })
    }

    pub fn answer(self: &Arc<Self>, account: &Arc<Account>, timeout: Duration) -> Admission {
        self.admission(self.answers.of(account.share()), None, account, timeout)
    }

    pub fn list(self: &Arc<Self>, owner: Option<Owner>, account: &Arc<Account>, timeout: Duration) -> Admission {
        self.admission(&self.lists, owner, account, timeout)
    }

    pub fn upload(self: &Arc<Self>, account: &Arc<Account>, timeout: Duration) -> Admission {
        self.admission(self.uploads.of(account.share()), None, account, timeout)
    }

    fn admission(
        self: &Arc<Self>,
        semaphore: &Arc<Semaphore>,
        owner: Option<Owner>,
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

    fn of(&self, share: Share) -> &Threads {
        match share {
            Share::Anonymous => &self.unauthenticated,
            Share::User | Share::Admin => &self.threads,
        }
    }

    /// Runs `work`, which may be long and does not wait for its client, without a permit.
    pub async fn scan<T: Send + 'static>(
        &self,
        share: Share,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failed> {
        self.of(share).spawn(scoped(work)).end().await
    }

    #[must_use]
    pub fn free_answers(&self) -> usize {
        self.answers.admin.permits.free()
    }
}

impl Admission {
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub async fn acquire(&self) -> ClientPermit {
        self.semaphore.acquire(self.owner).await
    }

    /// The caller must hold a [`ClientPermit`].
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        self.threads.of(self.account.share()).spawn(scoped(work))
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

    async fn acquire(self: &Arc<Self>, owner: Option<Owner>) -> ClientPermit {
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

/// Dropping this removes the waiter from the queue.
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
    /// Completes when the permit must be released, provided that its client is inactive from now on.
    pub async fn expired(&self, timeout: Duration) {
        tokio::select! {
            () = sleep(timeout) => {}
            () = self.contended() => {}
        }
    }

    /// Completes when another request needs this permit, provided that the client is inactive from now on.
    pub async fn contended(&self) {
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
