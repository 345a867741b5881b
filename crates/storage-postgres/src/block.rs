//! [`block_on`]: blocks a thread on a future. The function of the runtime with this name panics on threads that serve
//! tasks, and callers of an engine need no runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

struct ThreadWaker(Thread);

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Timers and sockets of `future` belong to `runtime`.
pub(crate) fn block_on<T>(runtime: &tokio::runtime::Handle, future: impl Future<Output = T>) -> T {
    let _context = runtime.enter();
    // On a thread that serves a task, the future would share the cooperative budget of that task, which is renewed only
    // when the task yields: a future that has used it up, for example by reconnecting during an outage, would never
    // make progress.
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = Waker::from(Arc::new(ThreadWaker(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        // May return spuriously, which costs one more poll.
        thread::park();
    }
}

pub(crate) fn poll_once(future: impl Future) {
    let _ = pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn timers_of_the_runtime_end_the_wait() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
        let answer = block_on(runtime.handle(), async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            7
        });
        assert_eq!(answer, 7);
        let handle = runtime.handle().clone();
        let nested = runtime.block_on(async move { block_on(&handle, async { 8 }) });
        assert_eq!(nested, 8);
    }

    /// Regression: a node hung forever after an outage of its database, once in half an hour of fault injection.
    #[test]
    fn blocking_on_a_runtime_thread_does_not_exhaust_the_task_budget() {
        let (sender, receiver) = std::sync::mpsc::channel();
        thread::spawn(move || {
            let runtime =
                tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
            let handle = runtime.handle().clone();
            let steps = runtime.block_on(async move {
                let semaphore = tokio::sync::Semaphore::new(1);
                let acquire = async {
                    for _ in 0..1000 {
                        drop(semaphore.acquire().await);
                    }
                    1000
                };
                block_on(&handle, acquire)
            });
            let _ = sender.send(steps);
        });
        assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(1000));
    }

    #[test]
    fn polling_once_starts_an_operation() {
        let mut done = false;
        poll_once(async {
            done = true;
            std::future::pending::<()>().await;
        });
        assert!(done);
    }
}
