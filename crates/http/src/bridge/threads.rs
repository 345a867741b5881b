//! [`Threads`]: threads for work that may wait for clients, or take long.
//!
//! The one that was idle last is taken first, so that those which a burst has left behind end soon: taken in turns, a request
//! now and then would keep hundreds of them, each with a stack and a share of the allocator's memory.
//!
//! Work that turns out to be long gives way to short work ([`give_way`]). The system lets nobody take that back, so the thread
//! ends with it. How many there are is up to callers.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use settee_service::threads::panicked;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::Error;

/// How long a thread waits for more to do.
const IDLE_TIME: Duration = Duration::from_secs(1);

/// What makes the calling thread give way to others.
pub(crate) type GiveWay = Arc<dyn Fn() + Send + Sync>;

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// There until it is used. Threads of others have none.
    static GIVE_WAY: RefCell<Option<GiveWay>> = const { RefCell::new(None) };
}

/// Lets short work go first from now on, if the calling thread is one of [`Threads`]. Call it when work turns out to be long.
/// Threads and processes that it starts from then on give way as well.
pub(crate) fn give_way() {
    if let Some(give_way) = GIVE_WAY.take() {
        give_way();
    }
}

/// The threads.
pub(crate) struct Threads(Arc<Shared>);

struct Shared {
    give_way: GiveWay,
    /// Those without work; the one that has had some last is the last.
    idle: Mutex<Vec<Arc<Seat>>>,
}

/// Where a thread waits.
#[derive(Default)]
struct Seat {
    job: Mutex<Option<Job>>,
    came: Condvar,
}

/// Work on a thread.
pub(crate) struct Running<T>(oneshot::Receiver<thread::Result<T>>);

impl Threads {
    pub(crate) fn new(give_way: GiveWay) -> Self {
        Self(Arc::new(Shared { give_way, idle: Mutex::default() }))
    }

    /// Runs `work`. What it spawns belongs to the runtime of the caller.
    pub(crate) fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
        let caller = Handle::current();
        let (sender, receiver) = oneshot::channel();
        let inside = caller.clone();
        let job: Job = Box::new(move || {
            let _caller = inside.enter();
            // Nobody listens when the client has gone; the work is done all the same.
            let _ = sender.send(catch_unwind(AssertUnwindSafe(work)));
        });
        // The clock of such a test jumps ahead when its runtime has nothing to do, so it must know of the thread.
        if cfg!(test) && caller.runtime_flavor() == RuntimeFlavor::CurrentThread {
            drop(caller.spawn_blocking(job));
        } else {
            self.0.run(job);
        }
        Running(receiver)
    }
}

impl<T> Running<T> {
    /// Waits for the end of the work.
    pub(crate) async fn end(self) -> Result<T, Error> {
        match self.0.await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(panic)) => Err(panicked(&text(panic.as_ref())).into()),
            Err(_) => Err(panicked(&"there was no thread for it").into()),
        }
    }
}

impl Shared {
    fn run(self: &Arc<Self>, job: Job) {
        let Some(seat) = self.idle.lock().pop() else {
            let shared = Arc::clone(self);
            // If there can be none, whoever waits for the result hears it when the job is dropped.
            drop(thread::Builder::new().name("settee-client".to_owned()).spawn(move || shared.work(job)));
            return;
        };
        *seat.job.lock() = Some(job);
        seat.came.notify_one();
    }

    /// The life of a thread.
    fn work(&self, mut job: Job) {
        GIVE_WAY.set(Some(Arc::clone(&self.give_way)));
        let seat = Arc::new(Seat::default());
        loop {
            job();
            if GIVE_WAY.with_borrow(Option::is_none) {
                return;
            }
            match self.next(&seat) {
                Some(next) => job = next,
                None => return,
            }
        }
    }

    /// More to do, or nothing for a while.
    fn next(&self, seat: &Arc<Seat>) -> Option<Job> {
        self.idle.lock().push(Arc::clone(seat));
        let mut job = seat.job.lock();
        let is_late = seat.came.wait_while_for(&mut job, |job| job.is_none(), IDLE_TIME).timed_out();
        if is_late && job.is_none() {
            drop(job);
            let mut idle = self.idle.lock();
            if let Some(place) = idle.iter().position(|other| Arc::ptr_eq(other, seat)) {
                idle.remove(place);
                return None;
            }
            drop(idle);
            // Somebody has taken it in this moment, and is about to bring work.
            job = seat.job.lock();
            seat.came.wait_while(&mut job, |job| job.is_none());
        }
        job.take()
    }
}

/// What a panic says.
fn text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread::ThreadId;

    use super::*;

    fn threads() -> (Threads, Arc<AtomicUsize>) {
        let gave_way = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&gave_way);
        (
            Threads::new(Arc::new(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            })),
            gave_way,
        )
    }

    async fn id(threads: &Threads) -> ThreadId {
        threads.spawn(|| thread::current().id()).end().await.unwrap()
    }

    /// Waits until so many threads have nothing to do.
    fn settle(threads: &Threads, idle: usize) {
        while threads.0.idle.lock().len() != idle {
            thread::yield_now();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn the_thread_that_was_idle_last_is_taken_first() {
        let (threads, _) = threads();
        let (release, wait): (Vec<_>, Vec<_>) = (0..5).map(|_| mpsc::channel::<()>()).unzip();
        let running: Vec<_> = wait.into_iter().map(|wait| threads.spawn(move || wait.recv().is_err())).collect();
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
        // They do, while requests come all the time.
        while threads.0.idle.lock().len() > 1 {
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
        assert!(threads.0.idle.lock().is_empty());
        give_way();
        assert_eq!(gave_way.load(Ordering::Relaxed), 2, "a thread of others is left alone");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_an_error_and_the_thread_goes_on() {
        let (threads, _) = threads();
        assert!(threads.spawn(|| panic!("on purpose")).end().await.is_err());
        settle(&threads, 1);
        id(&threads).await;
        settle(&threads, 1);
    }
}
