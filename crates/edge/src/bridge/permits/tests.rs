//! Tests of permits and their expiry.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{Instant, timeout};

use super::*;
use crate::tests::{account, nothing};

const TIMEOUT: Duration = Duration::from_secs(100);
const CONTENDED: Duration = Duration::from_secs(5);

fn threads(answers: usize) -> Arc<ClientThreads> {
    ClientThreads::with_timeout(&PermitCounts { answers, lists: 1, uploads: 1 }, CONTENDED, &nothing(), 1)
}

async fn stall(admission: Admission) -> Duration {
    let permit = admission.acquire().await;
    let begun = Instant::now();
    permit.expired(admission.timeout()).await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn unused_slots_are_kept() {
    let threads = threads(2);
    let (one, two) =
        tokio::join!(stall(threads.answer(&account(), TIMEOUT)), stall(threads.answer(&account(), TIMEOUT)));
    assert_eq!((one.as_secs(), two.as_secs()), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn a_released_slot_goes_to_the_waiter() {
    let threads = threads(2);
    let stalled: Vec<_> = (0..2).map(|_| tokio::spawn(stall(threads.answer(&account(), TIMEOUT)))).collect();
    sleep(Duration::from_secs(10)).await;
    let entered = Instant::now();
    let permit = threads.answer(&account(), TIMEOUT).acquire().await;
    assert_eq!(entered.elapsed(), Duration::ZERO);
    let mut kept: Vec<u64> = Vec::new();
    for task in stalled {
        kept.push(task.await.unwrap().as_secs());
    }
    kept.sort_unstable();
    assert_eq!(kept, [10, 100]);
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn no_node_leaves_before_the_timeout() {
    let threads = threads(1);
    let stalled = tokio::spawn(stall(threads.answer(&account(), TIMEOUT)));
    tokio::task::yield_now().await;
    let begun = Instant::now();
    let permit = threads.answer(&account(), TIMEOUT).acquire().await;
    assert_eq!(begun.elapsed(), CONTENDED);
    assert_eq!(stalled.await.unwrap(), CONTENDED);
    drop(permit);
}

#[tokio::test(start_paused = true)]
async fn as_many_leave_as_wait() {
    let threads = threads(10);
    let left = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let (admission, left) = (threads.answer(&account(), TIMEOUT), Arc::clone(&left));
        tokio::spawn(async move {
            stall(admission).await;
            left.fetch_add(1, Ordering::Relaxed);
        });
    }
    tokio::task::yield_now().await;
    let mut permits = Vec::new();
    for round in 1..=4 {
        permits.push(threads.answer(&account(), TIMEOUT).acquire().await);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(left.load(Ordering::Relaxed), round);
    }
}

#[tokio::test(start_paused = true)]
async fn directions_do_not_share_places() {
    let threads = threads(1);
    let _answer = threads.answer(&account(), TIMEOUT).acquire().await;
    let _list = threads.list(Some(1.into()), &account(), TIMEOUT).acquire().await;
    let _upload = threads.upload(&account(), TIMEOUT).acquire().await;
    assert!(
        timeout(Duration::from_secs(1), threads.list(Some(1.into()), &account(), TIMEOUT).acquire()).await.is_err()
    );
}

#[tokio::test]
async fn work_spawns_into_the_runtime_of_its_caller() {
    let threads = threads(1);
    let caller = tokio::runtime::Handle::current().id();
    let seen =
        threads.answer(&account(), TIMEOUT).spawn(|| tokio::runtime::Handle::current().id()).end().await.unwrap();
    assert_eq!(seen, caller);
}
