//! [`Turns`]: requests of strangers are worked on a few at a time, so that a thousand that come in one moment are a short queue in front
//! of the processors, and those of users and admins pass by.
//!
//! A turn ends when the answer begins, or after a moment: what takes longer waits for a disk, an index, a client or time, or is long work,
//! which gives way by itself. So nobody who waits keeps others from their turns.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// The requests that are worked on at a time: enough for the processors of a small machine, and few beside what else a request passes through.
const AT_WORK_MAX: usize = 8;

/// The time that a turn lasts at most. Ordinary requests take less than one.
const TURN: Duration = Duration::from_millis(20);

/// Who is next.
pub(crate) struct Turns(Semaphore);

impl Turns {
    pub(crate) fn new() -> Self {
        Self(Semaphore::new(AT_WORK_MAX))
    }

    /// Does `work` when its turn has come.
    pub(crate) async fn wait_and<T>(&self, work: impl Future<Output = T>) -> T {
        let turn = self.0.acquire().await;
        let mut work = pin!(work);
        match timeout(TURN, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                drop(turn);
                work.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::task::{JoinSet, yield_now};
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn few_are_worked_on_at_a_time_in_their_order() {
        let turns = Arc::new(Turns::new());
        let at_work = Arc::new(AtomicUsize::new(0));
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let mut all = JoinSet::new();
        for number in 0..100 {
            let (turns, at_work, order) = (Arc::clone(&turns), Arc::clone(&at_work), Arc::clone(&order));
            all.spawn(async move {
                let work = async {
                    order.lock().push(number);
                    let others = at_work.fetch_add(1, Ordering::Relaxed);
                    for _ in 0..10 {
                        yield_now().await;
                    }
                    at_work.fetch_sub(1, Ordering::Relaxed);
                    others
                };
                turns.wait_and(work).await
            });
        }
        let most = all.join_all().await.into_iter().max();
        assert_eq!(most, Some(AT_WORK_MAX - 1));
        assert_eq!(*order.lock(), (0..100).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_keeps_nobody_from_a_turn() {
        let turns = Arc::new(Turns::new());
        let begun = Instant::now();
        let mut hanging = JoinSet::new();
        for _ in 0..10 * AT_WORK_MAX {
            let turns = Arc::clone(&turns);
            hanging.spawn(async move { turns.wait_and(std::future::pending::<()>()).await });
        }
        yield_now().await;
        assert_eq!(turns.wait_and(async { 7 }).await, 7);
        assert!(begun.elapsed() <= 11 * TURN, "{:?}", begun.elapsed());
        // They are still there.
        assert!(hanging.try_join_next().is_none() && hanging.len() == 10 * AT_WORK_MAX);
    }
}
