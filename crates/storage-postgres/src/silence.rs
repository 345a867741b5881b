//! [`Silence`]: the state in which PostgreSQL, or the network, accepts data but does not respond. Heartbeats detect its
//! start and end (the module `nodes`); all other callers fail at once instead of waiting for a TCP timeout.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// The state and its notification.
#[derive(Default)]
pub(crate) struct Silence {
    is_on: AtomicBool,
    began: Notify,
}

impl Silence {
    pub(crate) fn begin(&self) {
        self.is_on.store(true, Ordering::SeqCst);
        self.began.notify_waiters();
    }

    pub(crate) fn end(&self) {
        self.is_on.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::SeqCst)
    }

    /// Waits until the server is unresponsive.
    pub(crate) async fn begun(&self) {
        let mut began = std::pin::pin!(self.began.notified());
        // Enabled first, so that no start is missed.
        began.as_mut().enable();
        if !self.is_on() {
            began.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{begin, block_on};

    #[test]
    fn waiters_are_notified_at_the_start_and_during_an_outage() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("threads");
        let silence = Silence::default();
        let mut is_reported = false;
        begin(async {
            silence.begun().await;
            is_reported = true;
        });
        assert!(!is_reported && !silence.is_on());
        block_on(runtime.handle(), async {
            let mut waiting = std::pin::pin!(silence.begun());
            tokio::select! {
                biased;
                () = &mut waiting => panic!("nothing has begun"),
                () = std::future::ready(()) => {}
            }
            silence.begin();
            waiting.await;
            silence.begun().await;
        });
        silence.end();
        assert!(!silence.is_on());
    }
}
