//! [`Unresponsive`]: the state in which PostgreSQL, or the network, accepts data but does not respond. Heartbeats
//! detect its start and end (the module `nodes`); all other callers fail at once instead of waiting for a TCP timeout.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

#[derive(Default)]
pub(crate) struct Unresponsive {
    is_set: AtomicBool,
    was_set: Notify,
}

impl Unresponsive {
    pub(crate) fn set(&self) {
        self.is_set.store(true, Ordering::SeqCst);
        self.was_set.notify_waiters();
    }

    pub(crate) fn clear(&self) {
        self.is_set.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::SeqCst)
    }

    pub(crate) async fn wait(&self) {
        let mut was_set = std::pin::pin!(self.was_set.notified());
        // Enabled first, so that no start is missed.
        was_set.as_mut().enable();
        if !self.is_set() {
            was_set.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{block_on, poll_once};

    #[test]
    fn waiters_are_notified_at_the_start_and_during_an_outage() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("threads");
        let unresponsive = Unresponsive::default();
        let mut is_reported = false;
        poll_once(async {
            unresponsive.wait().await;
            is_reported = true;
        });
        assert!(!is_reported && !unresponsive.is_set());
        block_on(runtime.handle(), async {
            let mut waiting = std::pin::pin!(unresponsive.wait());
            tokio::select! {
                biased;
                () = &mut waiting => panic!("the state is not set"),
                () = std::future::ready(()) => {}
            }
            unresponsive.set();
            waiting.await;
            unresponsive.wait().await;
        });
        unresponsive.clear();
        assert!(!unresponsive.is_set());
    }
}
