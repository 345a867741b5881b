//! [`Threads`]: threads for work that may block, wait for clients, or take long.
//!
//! The most recently idle thread is used first, so that surplus threads of a burst end soon. With round-robin,
//! occasional requests would keep hundreds of them alive, each with a stack and a share of the allocator's memory.
//!
//! Work that turns out to be long lowers its priority ([`lower_priority`]) and shares the processors with other long
//! work of its pool ([`yield_if_long`]). The operating system does not allow to revert a priority, so the thread ends
//! with the work. Threads for long work have low priority from the start, and are reused.
//!
//! A dedicated thread starts all others: starting a thread waits for the lock of the address space, which a thread of
//! low priority may hold. Few threads are started together, because most short work of a burst finishes before its
//! own thread would be ready.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::run_slots::{RunSlot, RunSlots, TIME_SLICE};
use crate::{Failed, SHORT_WORK, panicked, scoped};

const IDLE_TIME: Duration = Duration::from_secs(1);

/// Number of threads that are started together, followed by a pause: a thousand threads take a quarter of a second.
const START_BATCH: usize = 4;
const START_PAUSE: Duration = Duration::from_millis(1);

pub type GiveWay = Arc<dyn Fn() + Send + Sync>;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// `None` on threads of no pool, or of a pool without low priority.
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

struct Current {
    pool: Arc<Shared>,
    /// Time before which [`yield_if_long`] has no effect. Callers check each row, so only the clock is read until then.
    next_check: Instant,
    has_lowered_priority: bool,
    slot: Option<RunSlot>,
}

/// Duration after which work is long. It is a small part of a time slice of the operating system, because the work of
/// every client has normal priority until then.
const LONG_WORK_AFTER: Duration = Duration::from_millis(2);

/// Lowers the priority of the calling thread if its work is long, and lets other long work compute. Must be called
/// between the steps of work of unknown length, such as a scan. Returns after 50 ms at the latest, so that the caller
/// can detect that its client has disconnected.
pub fn yield_if_long() {
    CURRENT.with_borrow_mut(|current| {
        if let Some(current) = current.as_mut().filter(|current| Instant::now() >= current.next_check) {
            current.lower_priority();
            current.slot = current.pool.run_slots.next(current.slot);
            if current.slot.is_some() {
                current.next_check = Instant::now() + TIME_SLICE;
            }
        }
    });
}

/// Lets other long work compute. Must be called before work waits for its client.
pub fn release_slot() {
    CURRENT.with_borrow_mut(|current| current.iter_mut().for_each(Current::release_slot));
}

/// Lowers the priority of the calling thread if its [`Threads`] support that. Threads and processes that it starts
/// later inherit the priority.
pub fn lower_priority() {
    CURRENT.with_borrow_mut(|current| current.iter_mut().for_each(Current::lower_priority));
}

impl Current {
    fn lower_priority(&mut self) {
        if let PriorityPolicy::WhenLong(lower_priority) = &self.pool.policy
            && !std::mem::replace(&mut self.has_lowered_priority, true)
        {
            lower_priority();
        }
    }

    fn release_slot(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.pool.run_slots.release(slot);
            self.next_check = Instant::now();
        }
    }
}

enum PriorityPolicy {
    Never,
    WhenLong(GiveWay),
    Always(GiveWay),
}

/// A pool of threads. Clones share it.
#[derive(Clone)]
pub struct Threads(Arc<Shared>);

pub struct Running<T>(oneshot::Receiver<thread::Result<T>>);

struct Shared {
    name: &'static str,
    policy: PriorityPolicy,
    run_slots: RunSlots,
    threads_max: usize,
    state: Mutex<State>,
    start_requests: mpsc::Sender<()>,
}

#[derive(Default)]
struct State {
    /// Idle threads, most recently used last.
    idle: Vec<Arc<IdleThread>>,
    threads: usize,
    waiting: VecDeque<Job>,
    is_start_requested: bool,
}

#[derive(Default)]
struct IdleThread {
    job: Mutex<Option<Job>>,
    job_assigned: Condvar,
}

/// The default threads for blocking work.
impl Default for Threads {
    fn default() -> Self {
        SHORT_WORK.clone()
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl Threads {
    /// Creates a pool whose threads lower their priority by `lower_priority` when their work is long. Long work
    /// computes on `processors` threads concurrently.
    #[must_use]
    pub fn lowering_priority_when_long(
        name: &'static str,
        threads_max: usize,
        lower_priority: GiveWay,
        processors: usize,
    ) -> Self {
        Self::new(name, threads_max, PriorityPolicy::WhenLong(lower_priority), processors)
    }

    /// Creates a pool of at most `threads_max` threads, all of which have low priority. Long work computes on
    /// `processors` threads concurrently.
    #[must_use]
    pub fn with_low_priority(
        name: &'static str,
        threads_max: usize,
        lower_priority: GiveWay,
        processors: usize,
    ) -> Self {
        Self::new(name, threads_max, PriorityPolicy::Always(lower_priority), processors)
    }

    /// Further work waits for a thread.
    pub(super) fn at_most(name: &'static str, threads_max: usize) -> Self {
        Self::new(name, threads_max, PriorityPolicy::Never, threads_max)
    }

    fn new(name: &'static str, threads_max: usize, policy: PriorityPolicy, processors: usize) -> Self {
        let (start_requests, requested) = mpsc::channel();
        let run_slots = RunSlots::new(processors);
        let shared = Arc::new(Shared { name, policy, run_slots, threads_max, state: Mutex::default(), start_requests });
        let pool = Arc::downgrade(&shared);
        let starter = thread::Builder::new().name(format!("{name}-0"));
        starter.spawn(move || start_threads(&requested, &pool)).expect("the system has threads when the server starts");
        Self(shared)
    }

    /// Runs `work`, whose tasks belong to the runtime of the caller.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        let caller = Handle::current();
        let (sender, receiver) = oneshot::channel();
        let inside = caller.clone();
        let job: Job = Box::new(move || {
            let _caller = inside.enter();
            // Sending fails if the client has disconnected. The work is done nevertheless.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        });
        // The paused clock of a test advances while its runtime is idle, so the runtime must track the thread.
        if caller.runtime_flavor() == RuntimeFlavor::CurrentThread {
            drop(caller.spawn_blocking(job));
        } else {
            self.0.run(job);
        }
        Running(receiver)
    }

    /// Runs `work` in the scope of the calling task. A panic becomes an error.
    pub async fn run<T, E>(&self, work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Failed> + Send + 'static,
    {
        self.spawn(scoped(work)).end().await?
    }

    pub(super) fn busy(&self) -> usize {
        let state = self.0.state.lock();
        state.threads - state.idle.len()
    }
}

impl<T> Running<T> {
    /// Waits for the end of the work. Fails if the work panicked or no thread could be started for it.
    pub async fn end(self) -> Result<T, Failed> {
        match self.0.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => Err(panicked(&panic_text(panic.as_ref()))),
            Err(_) => Err(panicked(&"there was no thread for it")),
        }
    }
}

impl Shared {
    fn run(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        if let Some(idle_thread) = state.idle.pop() {
            drop(state);
            *idle_thread.job.lock() = Some(job);
            idle_thread.job_assigned.notify_one();
            return;
        }
        state.waiting.push_back(job);
        self.request_threads(state);
    }

    fn request_threads(&self, mut state: MutexGuard<'_, State>) {
        if !state.is_start_requested && state.threads < self.threads_max {
            state.is_start_requested = true;
            drop(state);
            let _ = self.start_requests.send(());
        }
    }

    /// Returns true if the caller should check again.
    fn start_batch(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        let count = state.waiting.len().min(self.threads_max - state.threads).min(START_BATCH);
        state.threads += count;
        state.is_start_requested = count > 0;
        drop(state);
        for _ in 0..count {
            self.start_thread();
        }
        count > 0
    }

    /// Starts a thread that is included in the number of threads already.
    fn start_thread(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(self.name.to_owned());
        if thread.spawn(move || shared.work()).is_err() {
            let mut state = self.state.lock();
            state.threads -= 1;
            // Existing threads take the work. If none exists, the work is dropped, which fails its callers.
            let lost = if state.threads == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
            drop(state);
            drop(lost);
        }
    }

    fn work(self: &Arc<Self>) {
        if let PriorityPolicy::Always(lower_priority) = &self.policy {
            lower_priority();
        }
        let idle_thread = Arc::new(IdleThread::default());
        while let Some(job) = self.next(&idle_thread) {
            if matches!(self.policy, PriorityPolicy::Never) {
                job();
                continue;
            }
            let pool = Arc::clone(self);
            CURRENT.set(Some(Current {
                pool,
                next_check: Instant::now() + LONG_WORK_AFTER,
                has_lowered_priority: false,
                slot: None,
            }));
            job();
            let mut done = CURRENT.take();
            done.iter_mut().for_each(Current::release_slot);
            if done.is_some_and(|done| done.has_lowered_priority) {
                return self.end();
            }
        }
    }

    /// Returns `None` after the idle time; the number of threads then excludes this one.
    fn next(&self, idle_thread: &Arc<IdleThread>) -> Option<Job> {
        let mut state = self.state.lock();
        if let Some(job) = state.waiting.pop_front() {
            return Some(job);
        }
        state.idle.push(Arc::clone(idle_thread));
        drop(state);
        let mut job = idle_thread.job.lock();
        let is_late = idle_thread.job_assigned.wait_while_for(&mut job, |job| job.is_none(), IDLE_TIME).timed_out();
        if is_late && job.is_none() {
            drop(job);
            let mut state = self.state.lock();
            if let Some(position) = state.idle.iter().position(|other| Arc::ptr_eq(other, idle_thread)) {
                state.idle.remove(position);
                state.threads -= 1;
                return None;
            }
            drop(state);
            // Another thread has taken this slot concurrently and is about to assign work.
            job = idle_thread.job.lock();
            idle_thread.job_assigned.wait_while(&mut job, |job| job.is_none());
        }
        job.take()
    }

    fn end(&self) {
        let mut state = self.state.lock();
        state.threads -= 1;
        if !state.waiting.is_empty() {
            self.request_threads(state);
        }
    }
}

fn start_threads(requested: &mpsc::Receiver<()>, pool: &Weak<Shared>) {
    while requested.recv().is_ok() {
        while pool.upgrade().is_some_and(|pool| pool.start_batch()) {
            thread::sleep(START_PAUSE);
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let panic_text = panic.downcast_ref::<&str>().map(|panic_text| (*panic_text).to_owned());
    panic_text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::ThreadId;

    use super::*;

    fn threads() -> (Threads, Arc<AtomicUsize>) {
        let has_lowered_priority = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&has_lowered_priority);
        (
            Threads::lowering_priority_when_long(
                "test",
                usize::MAX,
                Arc::new(move || {
                    counter.fetch_add(1, Ordering::Relaxed);
                }),
                1,
            ),
            has_lowered_priority,
        )
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_gives_way_once_it_is_long() {
        let (threads, has_lowered_priority) = threads();
        let short = threads.spawn(|| {
            CURRENT.with_borrow_mut(|current| current.as_mut().unwrap().next_check += Duration::from_secs(60));
            yield_if_long();
        });
        short.end().await.unwrap();
        assert_eq!(has_lowered_priority.load(Ordering::Relaxed), 0);
        let long = threads.spawn(|| {
            let begun = Instant::now();
            while begun.elapsed() < LONG_WORK_AFTER {
                std::hint::spin_loop();
            }
            yield_if_long();
            assert!(CURRENT.with_borrow(|current| current.as_ref().unwrap().slot.is_some()));
            release_slot();
            assert!(CURRENT.with_borrow(|current| current.as_ref().unwrap().slot.is_none()));
            yield_if_long();
        });
        long.end().await.unwrap();
        assert_eq!(has_lowered_priority.load(Ordering::Relaxed), 1);
    }

    async fn id(threads: &Threads) -> ThreadId {
        threads.spawn(|| thread::current().id()).end().await.unwrap()
    }

    /// Waits until all threads are idle. On a busy machine some may have ended.
    fn settle(threads: &Threads) {
        let is_working = || {
            let state = threads.0.state.lock();
            state.idle.len() != state.threads
        };
        while is_working() {
            thread::yield_now();
        }
    }

    fn all_at_work(threads: &Threads) {
        while !threads.0.state.lock().waiting.is_empty() {
            thread::yield_now();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_thread_that_was_idle_last_is_taken_first() {
        let (threads, _) = threads();
        let (release, wait): (Vec<_>, Vec<_>) = (0..5).map(|_| mpsc::channel::<()>()).unzip();
        let running: Vec<_> = wait.into_iter().map(|wait| threads.spawn(move || wait.recv().is_err())).collect();
        all_at_work(&threads);
        drop(release);
        for running in running {
            running.end().await.unwrap();
        }
        settle(&threads);
        let mut seen = HashSet::new();
        for _ in 0..20 {
            seen.insert(id(&threads).await);
            settle(&threads);
        }
        assert_eq!(seen.len(), 1, "the other four can end");
        while threads.0.state.lock().idle.len() > 1 {
            id(&threads).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_thread_that_gave_way_ends_with_its_work() {
        let (threads, has_lowered_priority) = threads();
        let long = || {
            lower_priority();
            lower_priority();
            thread::current().id()
        };
        let first = threads.spawn(long).end().await.unwrap();
        let second = threads.spawn(long).end().await.unwrap();
        assert!(
            first != second && has_lowered_priority.load(Ordering::Relaxed) == 2,
            "an idle one would be used first"
        );
        lower_priority();
        assert_eq!(has_lowered_priority.load(Ordering::Relaxed), 2, "a thread of others is left alone");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn threads_for_long_work_give_way_once_and_stay() {
        let reply = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reply);
        let count = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let threads = Threads::with_low_priority("test", 2, Arc::new(count), 1);
        let first = id(&threads).await;
        settle(&threads);
        assert!(first == id(&threads).await && reply.load(Ordering::Relaxed) == 1);
        let (release, wait): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
        let hanging: Vec<_> = wait.into_iter().map(|wait| threads.spawn(move || wait.recv().is_err())).collect();
        all_at_work(&threads);
        drop(release);
        for running in hanging {
            assert!(running.end().await.unwrap());
        }
        assert_eq!(reply.load(Ordering::Relaxed), 2, "each thread once");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_slot_of_a_work_is_released_at_its_end() {
        let (threads, _) = threads();
        for _ in 0..3 {
            let long = threads.spawn(|| {
                CURRENT.with_borrow_mut(|current| current.as_mut().unwrap().next_check -= LONG_WORK_AFTER);
                yield_if_long();
                CURRENT.with_borrow(|current| current.as_ref().unwrap().slot)
            });
            let slot = long.end().await.unwrap().unwrap();
            while threads.0.state.lock().threads > 0 {
                thread::yield_now();
            }
            assert_eq!(threads.0.run_slots.next(Some(slot)).filter(|held| *held == slot), None, "it is free again");
            threads.0.run_slots.release(threads.0.run_slots.next(None).unwrap());
        }
    }

    /// Blocked work gets all threads that it needs; a burst of short work uses few.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn threads_come_a_few_at_a_time() {
        let (threads, _) = threads();
        let (release, wait): (Vec<_>, Vec<_>) = (0..50).map(|_| mpsc::channel::<()>()).unzip();
        let hanging: Vec<_> = wait.into_iter().map(|wait| threads.spawn(move || wait.recv().is_err())).collect();
        all_at_work(&threads);
        drop(release);
        for running in hanging {
            assert!(running.end().await.unwrap());
        }
        while threads.0.state.lock().threads > 0 {
            thread::yield_now();
        }
        let mut state = threads.0.state.lock();
        state.is_start_requested = true;
        state.waiting.extend((0..50).map(|_| Box::new(|| ()) as Job));
        drop(state);
        assert!(threads.0.start_batch());
        all_at_work(&threads);
        assert!(threads.0.state.lock().threads <= START_BATCH);
        assert!(!threads.0.start_batch(), "nothing waits any more");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_an_error_and_the_thread_goes_on() {
        let (threads, _) = threads();
        assert!(threads.spawn(|| panic!("on purpose")).end().await.is_err());
        settle(&threads);
        id(&threads).await;
        settle(&threads);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_beyond_the_threads_is_queued() {
        let threads = Threads::at_most("test", 2);
        let order = Arc::new(Mutex::new(Vec::new()));
        let (release, wait): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
        let hanging: Vec<_> = wait.into_iter().map(|wait| threads.spawn(move || wait.recv().is_err())).collect();
        all_at_work(&threads);
        let noting = |number: usize| {
            let order = Arc::clone(&order);
            move || order.lock().push(number)
        };
        let waiting: Vec<_> = (0..20).map(|number| threads.spawn(noting(number))).collect();
        assert!(threads.busy() == 2 && order.lock().is_empty());
        let mut release = release.into_iter();
        drop(release.next());
        for running in waiting {
            running.end().await.unwrap();
        }
        assert_eq!(*order.lock(), (0..20).collect::<Vec<_>>());
        drop(release);
        for running in hanging {
            assert!(running.end().await.unwrap());
        }
        while threads.0.state.lock().threads > 0 {
            thread::yield_now();
        }
        id(&threads).await;
        while threads.busy() > 0 {
            thread::yield_now();
        }
    }
}
