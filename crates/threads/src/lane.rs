//! [`SlowLane`]: separate threads for expensive requests, such as those with large bodies. Parsing, compressing and
//! hashing a body of several megabytes occupies a CPU for tens of milliseconds. On the shared asynchronous threads a
//! few such bodies would delay each short request as much. The whole response is therefore produced by threads of low
//! priority: tasks of the request by those of the lane's runtime, and blocking work by a pool that the request receives
//! as an argument. Other threads run only:
//! - Commits, because other requests may wait for them. A thread that stores an attachment may lead their commits.
//! - Uploads, whose threads store pieces while the client sends them.
//! - Responses. Their threads wait for the client, and lower their priority when the work is long.
//! - Hashing of passwords, which has low priority.
//! - Work that does not depend on the size of the body, such as lookups of accounts.

use std::sync::{Arc, OnceLock};

use tokio::runtime::{Builder, Handle, Runtime, RuntimeFlavor};
use tokio::task::JoinSet;

use crate::{Failed, GiveWay, SCOPE, Threads, panicked, within};

/// Maximum number of threads for blocking work of the lane.
const THREADS_MAX: usize = 64;

pub struct SlowLane {
    runtime: OnceLock<Runtime>,
    threads: OnceLock<Threads>,
    processors: usize,
    lower_priority: GiveWay,
}

impl SlowLane {
    /// Creates a lane with `processors` asynchronous threads in addition to those for blocking work. `lower_priority`
    /// lowers the priority of a thread.
    #[must_use]
    pub fn new(processors: usize, lower_priority: &GiveWay) -> Self {
        let lower_priority = Arc::clone(lower_priority);
        Self { runtime: OnceLock::new(), threads: OnceLock::new(), processors, lower_priority }
    }

    /// Runs a request on the lane, in the scope of the caller, and cancels it when the caller is dropped. `answer`
    /// receives the threads for the blocking work of the request. Fails if the request panicked or the lane has no
    /// thread.
    pub async fn serve<F>(&self, answer: impl FnOnce(Threads) -> F) -> Result<F::Output, Failed>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let answer = answer(self.threads().clone());
        // The paused clock of a test belongs to its own runtime.
        if Handle::current().runtime_flavor() == RuntimeFlavor::CurrentThread {
            return Ok(answer.await);
        }
        let mut tasks = JoinSet::new();
        match SCOPE.try_with(Arc::clone) {
            Ok(scope) => tasks.spawn_on(within(scope, answer), self.runtime()?),
            Err(_) => tasks.spawn_on(answer, self.runtime()?),
        };
        let answered = tasks.join_next().await.expect("one was spawned");
        answered.map_err(|error| panicked(&error))
    }

    fn threads(&self) -> &Threads {
        self.threads.get_or_init(|| {
            let lower_priority = Arc::clone(&self.lower_priority);
            Threads::with_low_priority("settee-large", THREADS_MAX, lower_priority, self.processors)
        })
    }

    fn runtime(&self) -> Result<&Handle, Failed> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime.handle());
        }
        let lower_priority = Arc::clone(&self.lower_priority);
        let mut builder = Builder::new_multi_thread();
        let builder = builder.worker_threads(self.processors).thread_name("settee-lane").enable_all();
        let made = builder.on_thread_start(move || lower_priority()).build();
        let made = made.map_err(|_| Failed("the system has no more threads"))?;
        if let Err(second) = self.runtime.set(made) {
            second.shutdown_background();
        }
        self.runtime()
    }
}

impl Drop for SlowLane {
    /// Shuts down in the background, because a task that drops the lane must not block.
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use parking_lot::Mutex;

    use super::*;
    use crate::Scope;

    fn place() -> String {
        thread::current().name().unwrap_or_default().to_owned()
    }

    fn lane() -> SlowLane {
        let nothing: GiveWay = Arc::new(|| {});
        SlowLane::new(1, &nothing)
    }

    async fn place_of_work(threads: Threads) -> Result<String, Failed> {
        threads.run(|| Ok(place())).await
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn all_of_an_answer_is_made_by_threads_that_give_way() {
        let has_lowered_priority = Arc::new(Mutex::new(BTreeSet::new()));
        let places = Arc::clone(&has_lowered_priority);
        let note: GiveWay = Arc::new(move || {
            places.lock().insert(place());
        });
        let lane = Arc::new(SlowLane::new(1, &note));
        let inner = Arc::clone(&lane);
        let answer = |threads: Threads| async move {
            let twice = inner.serve(|threads| async move { (place(), place_of_work(threads).await) }).await;
            (place(), place_of_work(threads).await, twice)
        };
        let (task, work, twice) = lane.serve(answer).await.unwrap();
        assert_eq!((task.as_str(), work.unwrap().as_str()), ("settee-lane", "settee-large"));
        let (task, work) = twice.unwrap();
        assert_eq!((task.as_str(), work.unwrap().as_str()), ("settee-lane", "settee-large"), "a request of a request");
        assert_eq!(*has_lowered_priority.lock(), BTreeSet::from(["settee-lane".to_owned(), "settee-large".to_owned()]));
        assert_eq!(place_of_work(Threads::default()).await.unwrap(), "settee-short", "others are where they were");
    }

    #[derive(Default)]
    struct Counter(AtomicUsize);

    impl Scope for Counter {
        fn during(self: Arc<Self>, work: &mut dyn FnMut()) {
            self.0.fetch_add(1, Ordering::Relaxed);
            work();
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn work_runs_in_the_scope_of_the_request() {
        let lane = lane();
        let counter = Arc::<Counter>::default();
        within(Arc::<Counter>::clone(&counter), lane.serve(place_of_work)).await.unwrap().unwrap();
        assert_eq!(counter.0.load(Ordering::Relaxed), 1);
        lane.serve(place_of_work).await.unwrap().unwrap();
        assert_eq!(counter.0.load(Ordering::Relaxed), 1, "work without a scope is not in one");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn a_panic_is_an_error() {
        let lane = lane();
        assert!(lane.serve(|_| async { panic!("on purpose") }).await.is_err());
        assert_eq!(lane.serve(|_| async { 7 }).await.unwrap(), 7);
    }

    struct Falling(mpsc::Sender<()>);

    impl Drop for Falling {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn an_answer_without_a_client_ends() {
        let lane = lane();
        let (sender, fallen) = mpsc::channel();
        let (begun, beginning) = tokio::sync::oneshot::channel();
        let hanging = lane.serve(|_| async move {
            let _falling = Falling(sender);
            let _ = begun.send(());
            std::future::pending::<()>().await;
        });
        tokio::select! {
            _ = hanging => unreachable!("it hangs"),
            begun = beginning => begun.unwrap(),
        }
        let wait = move || fallen.recv().map_err(|_| Failed("it was not dropped"));
        Threads::default().run(wait).await.unwrap();
    }
}
