//! [`block_on`]: blocks a thread on a future. The function of the runtime with this name panics on threads that serve
//! tasks, and callers of an engine need no runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::Handle;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

thread_local! {
    static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current())));
}

/// Timers and sockets of `future` belong to `runtime`. On a thread that serves a task, the future does not share the
/// cooperative budget of that task, which is renewed only when the task yields.
pub(crate) fn block_on<T>(runtime: &Handle, future: impl Future<Output = T>) -> T {
    let _context = runtime.enter();
    let mut future = pin!(tokio::task::unconstrained(future));
    let waker = WAKER.with(Waker::clone);
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        // May return spuriously, which costs one more poll.
        thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_thread_that_serves_a_task_can_wait() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
        let handle = runtime.handle().clone();
        let answer = runtime.block_on(async move {
            block_on(&handle, async {
                tokio::time::sleep(Duration::from_millis(1)).await;
                7
            })
        });
        assert_eq!(answer, 7);
    }
}
