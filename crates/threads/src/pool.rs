//! [`Threads`]: threads for work that may block, wait for clients, or take long.
//!
//! The most recently idle thread is used first, so that surplus threads of a burst end soon. With round-robin,
//! occasional requests would keep hundreds of them alive, each with a stack and a share of the allocator's memory.
//!
//! Work that turns out to be long lowers its priority ([`give_way`]) and shares the processors with other long work of
//! its pool ([`yield_if_long`]). The operating system does not allow to revert a priority, so the thread ends with the work.
//! Threads for long work have low priority from the start, and are reused.
//!
//! A dedicated thread starts all others: starting a thread waits for the lock of the address space, which a thread of
//! low priority may hold. Few threads are started together, because most short work of a burst finishes before its
//! own thread would be ready.

use std::any::Any;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::run_slots::{RunSlot, RunSlots, SLICE};
use crate::{Failed, panicked};

/// Time that an idle thread waits for more work.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// Number of threads that are started together, followed by a pause: a thousand threads take a quarter of a second.
const BEGUN_TOGETHER: usize = 4;
const BETWEEN: Duration = Duration::from_millis(1);

/// Lowers the priority of the calling thread.
pub type GiveWay = Arc<dyn Fn() + Send + Sync>;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The work of this thread; `None` on threads of no pool, or whose pool has no low priority.
    static CURRENT: RefCell<Option<Current>> = const { RefCell::new(None) };
}

struct Current {
    pool: Arc<Shared>,
    /// Time before which [`yield_if_long`] has no effect. Callers check each row, so only the clock is read until then.
    next_check: Instant,
    /// True if the thread has low priority.
    gave_way: bool,
    slot: Option<RunSlot>,
}

/// Duration after which work is long. The work of every client has normal priority up to it, so it is a small part of
/// the time of an operating system's time slice.
const SHORT: Duration = Duration::from_millis(2);

/// Lowers the priority of the calling thread if its work is long, and lets other long work compute. Must be called
/// between the steps of work whose length is not known, such as a scan. Returns after 50 ms at the latest, so that the
/// caller can detect that its client has disconnected.
pub fn yield_if_long() {
    CURRENT.with_borrow_mut(|current| {
        if let Some(current) = current.as_mut().filter(|current| Instant::now() >= current.next_check) {
            current.give_way();
            current.slot = current.pool.run_slots.next(current.slot);
            if current.slot.is_some() {
                current.next_check = Instant::now() + SLICE;
            }
        }
    });
}

/// Lets other long work compute. Must be called before work waits for its client.
pub fn release_slot() {
    CURRENT.with_borrow_mut(|current| current.iter_mut().for_each(Current::release_slot));
}

/// Lowers the priority of the calling thread if its [`Threads`] support that. Must be called when work turns out to
/// be long. Threads and processes that it starts later inherit the priority.
pub fn give_way() {
    CURRENT.with_borrow_mut(|current| current.iter_mut().for_each(Current::give_way));
}

impl Current {
    fn give_way(&mut self) {
        if let Manner::WhenLong(give_way) = &self.pool.manner
            && !std::mem::replace(&mut self.gave_way, true)
        {
            give_way();
        }
    }

    fn release_slot(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.pool.run_slots.release(slot);
            self.next_check = Instant::now();
        }
    }
}

/// Policy for low priority.
enum Manner {
    Never,
    /// When work calls [`give_way`].
    WhenLong(GiveWay),
    Always(GiveWay),
}

pub struct Threads(Arc<Shared>);

pub struct Running<T>(oneshot::Receiver<thread::Result<T>>);

struct Shared {
    /// Name of the threads in the operating system.
    name: &'static str,
    manner: Manner,
    run_slots: RunSlots,
    most: usize,
    state: Mutex<State>,
    /// Channel to the thread that starts others.
    orders: mpsc::Sender<()>,
}

#[derive(Default)]
struct State {
    /// Idle threads, most recently used last.
    idle: Vec<Arc<Seat>>,
    threads: usize,
    /// Work without an idle thread.
    waiting: VecDeque<Job>,
    /// True while threads are being started.
    is_growing: bool,
}

/// Slot in which a thread waits for work.
#[derive(Default)]
struct Seat {
    job: Mutex<Option<Job>>,
    came: Condvar,
}

impl Threads {
    /// Creates a pool whose threads lower their priority by `give_way`. Callers limit the number of threads. Long work
    /// computes on `processors` threads concurrently.
    #[must_use]
    pub fn that_give_way(name: &'static str, most: usize, give_way: GiveWay, processors: usize) -> Self {
        Self::new(name, most, Manner::WhenLong(give_way), processors)
    }

    /// Creates a pool of at most `most` threads, all of which have low priority. Long work computes on `processors`
    /// threads concurrently.
    #[must_use]
    pub fn that_always_give_way(name: &'static str, most: usize, give_way: GiveWay, processors: usize) -> Self {
        Self::new(name, most, Manner::Always(give_way), processors)
    }

    /// Creates a pool of at most `most` threads with normal priority. Further work waits.
    pub(super) fn at_most(name: &'static str, most: usize) -> Self {
        Self::new(name, most, Manner::Never, most)
    }

    fn new(name: &'static str, most: usize, manner: Manner, processors: usize) -> Self {
        let (orders, ordered) = mpsc::channel();
        let run_slots = RunSlots::new(processors);
        let shared = Arc::new(Shared { name, manner, run_slots, most, state: Mutex::default(), orders });
        let pool = Arc::downgrade(&shared);
        let starter = thread::Builder::new().name(format!("{name}-0"));
        starter.spawn(move || grow_on_order(&ordered, &pool)).expect("the system has threads when the server starts");
        Self(shared)
    }

    /// Runs `work`. Tasks that it spawns belong to the runtime of the caller.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        let caller = Handle::current();
        let (sender, receiver) = oneshot::channel();
        let inside = caller.clone();
        let job: Job = Box::new(move || {
            let _caller = inside.enter();
            // Sending fails if the client has disconnected; the work is done nevertheless.
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

    pub(super) fn busy(&self) -> usize {
        let state = self.0.state.lock();
        state.threads - state.idle.len()
    }
}

impl<T> Running<T> {
    /// Waits for the end of the work.
    ///
    /// # Errors
    /// Fails if the work panicked or no thread could be started for it.
    pub async fn end(self) -> Result<T, Failed> {
        match self.0.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => Err(panicked(&text(panic.as_ref()))),
            Err(_) => Err(panicked(&"there was no thread for it")),
        }
    }
}

impl Shared {
    fn run(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        if let Some(seat) = state.idle.pop() {
            drop(state);
            *seat.job.lock() = Some(job);
            seat.came.notify_one();
            return;
        }
        state.waiting.push_back(job);
        self.grow(state);
    }

    /// Requests threads for waiting work, up to the limit.
    fn grow(&self, mut state: MutexGuard<'_, State>) {
        if !state.is_growing && state.threads < self.most {
            state.is_growing = true;
            drop(state);
            // The starting thread lives as long as the pool.
            let _ = self.orders.send(());
        }
    }

    /// Starts a few threads. Returns true if the caller should check again.
    fn begin_some(self: &Arc<Self>) -> bool {
        let mut state = self.state.lock();
        let count = state.waiting.len().min(self.most - state.threads).min(BEGUN_TOGETHER);
        state.threads += count;
        state.is_growing = count > 0;
        drop(state);
        for _ in 0..count {
            self.begin();
        }
        count > 0
    }

    /// Starts a thread that is counted already.
    fn begin(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let thread = thread::Builder::new().name(self.name.to_owned());
        if thread.spawn(move || shared.work()).is_err() {
            let mut state = self.state.lock();
            state.threads -= 1;
            // Existing threads take the work. Without any, it is dropped, which fails the callers.
            let lost = if state.threads == 0 { std::mem::take(&mut state.waiting) } else { VecDeque::new() };
            drop(state);
            drop(lost);
        }
    }

    fn work(self: &Arc<Self>) {
        if let Manner::Always(give_way) = &self.manner {
            give_way();
        }
        let seat = Arc::new(Seat::default());
        while let Some(job) = self.next(&seat) {
            if matches!(self.manner, Manner::Never) {
                job();
                continue;
            }
            let pool = Arc::clone(self);
            CURRENT.set(Some(Current { pool, next_check: Instant::now() + SHORT, gave_way: false, slot: None }));
            job();
            let mut done = CURRENT.take();
            done.iter_mut().for_each(Current::release_slot);
            if done.is_some_and(|done| done.gave_way) {
                return self.end();
            }
        }
    }

    /// Waits for the next work. Returns `None` after the idle time, when this thread is no longer counted.
    fn next(&self, seat: &Arc<Seat>) -> Option<Job> {
        let mut state = self.state.lock();
        if let Some(job) = state.waiting.pop_front() {
            return Some(job);
        }
        state.idle.push(Arc::clone(seat));
        drop(state);
        let mut job = seat.job.lock();
        let is_late = seat.came.wait_while_for(&mut job, |job| job.is_none(), IDLE_TIME).timed_out();
        if is_late && job.is_none() {
            drop(job);
            let mut state = self.state.lock();
            if let Some(place) = state.idle.iter().position(|other| Arc::ptr_eq(other, seat)) {
                state.idle.remove(place);
                state.threads -= 1;
                return None;
            }
            drop(state);
            // Another thread has taken this slot concurrently and is about to assign work.
            job = seat.job.lock();
            seat.came.wait_while(&mut job, |job| job.is_none());
        }
        job.take()
    }

    /// Removes a thread and requests another one if work waits.
    fn end(&self) {
        let mut state = self.state.lock();
        state.threads -= 1;
        if !state.waiting.is_empty() {
            self.grow(state);
        }
    }
}

/// Starts the threads of a pool until it is dropped.
fn grow_on_order(ordered: &mpsc::Receiver<()>, pool: &Weak<Shared>) {
    while ordered.recv().is_ok() {
        while pool.upgrade().is_some_and(|pool| pool.begin_some()) {
            thread::sleep(BETWEEN);
        }
    }
}

fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread::ThreadId;

    use super::*;

    fn threads() -> (Threads, Arc<AtomicUsize>) {
        let gave_way = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&gave_way);
        (
            Threads::that_give_way(
                "test",
                usize::MAX,
                Arc::new(move || {
                    counter.fetch_add(1, Ordering::Relaxed);
                }),
                1,
            ),
            gave_way,
        )
    }

    /// Regression: scans kept their priority until they had sent 128 KiB, and thirty scans that find nothing delayed
    /// every other request by a tenth of a second.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_gives_way_once_it_is_long() {
        let (threads, gave_way) = threads();
        let short = threads.spawn(|| {
            CURRENT.with_borrow_mut(|current| current.as_mut().unwrap().next_check += Duration::from_secs(60));
            yield_if_long();
        });
        short.end().await.unwrap();
        assert_eq!(gave_way.load(Ordering::Relaxed), 0);
        let long = threads.spawn(|| {
            let begun = Instant::now();
            while begun.elapsed() < SHORT {
                std::hint::spin_loop();
            }
            yield_if_long();
            assert!(CURRENT.with_borrow(|current| current.as_ref().unwrap().slot.is_some()));
            release_slot();
            assert!(CURRENT.with_borrow(|current| current.as_ref().unwrap().slot.is_none()));
            yield_if_long();
        });
        long.end().await.unwrap();
        assert_eq!(gave_way.load(Ordering::Relaxed), 1);
    }

    async fn id(threads: &Threads) -> ThreadId {
        threads.spawn(|| thread::current().id()).end().await.unwrap()
    }

    /// Waits until `idle` threads are idle.
    fn settle(threads: &Threads, idle: usize) {
        while threads.0.state.lock().idle.len() != idle {
            thread::yield_now();
        }
    }

    /// Waits until each piece of work has a thread.
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
        settle(&threads, 5);
        let mut seen = HashSet::new();
        for _ in 0..20 {
            seen.insert(id(&threads).await);
            settle(&threads, 5);
        }
        assert_eq!(seen.len(), 1, "the other four can end");
        // Idle threads end although requests arrive continuously.
        while threads.0.state.lock().idle.len() > 1 {
            id(&threads).await;
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_thread_that_gave_way_ends_with_its_work() {
        let (threads, gave_way) = threads();
        let long = || {
            give_way();
            give_way();
            thread::current().id()
        };
        let first = threads.spawn(long).end().await.unwrap();
        let second = threads.spawn(long).end().await.unwrap();
        assert!(first != second && gave_way.load(Ordering::Relaxed) == 2, "once each");
        assert!(threads.0.state.lock().idle.is_empty());
        give_way();
        assert_eq!(gave_way.load(Ordering::Relaxed), 2, "a thread of others is left alone");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn threads_for_long_work_give_way_once_and_stay() {
        let reply = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&reply);
        let count = move || {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let threads = Threads::that_always_give_way("test", 2, Arc::new(count), 1);
        let first = id(&threads).await;
        settle(&threads, 1);
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

    /// Regression: thirty threads of low priority were runnable on two processors, and delayed every wake-up of others.
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_slot_of_a_work_is_released_at_its_end() {
        let (threads, _) = threads();
        for _ in 0..3 {
            let long = threads.spawn(|| {
                CURRENT.with_borrow_mut(|current| current.as_mut().unwrap().next_check -= SHORT);
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

    /// A burst of short work uses few threads, because most of it finishes before more could start. Blocked work gets
    /// all threads that it needs.
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
        // The starting thread starts a few threads per step, regardless of the amount of waiting work.
        let mut state = threads.0.state.lock();
        state.is_growing = true;
        state.waiting.extend((0..50).map(|_| Box::new(|| ()) as Job));
        drop(state);
        assert!(threads.0.begin_some());
        all_at_work(&threads);
        assert!(threads.0.state.lock().threads <= BEGUN_TOGETHER);
        assert!(!threads.0.begin_some(), "nothing waits any more");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_an_error_and_the_thread_goes_on() {
        let (threads, _) = threads();
        assert!(threads.spawn(|| panic!("on purpose")).end().await.is_err());
        settle(&threads, 1);
        id(&threads).await;
        settle(&threads, 1);
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
        // Idle threads end, and later work starts new ones.
        while threads.0.state.lock().threads > 0 {
            thread::yield_now();
        }
        id(&threads).await;
        // A thread that started slowly can have caused a second one, which finds no work.
        while threads.busy() > 0 {
            thread::yield_now();
        }
    }
}
