//! Who keeps a place, and for how long.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::time::{Instant, timeout};

use super::*;
use crate::tests::account;

const TIMEOUT: Duration = Duration::from_secs(100);
const CONTESTED: Duration = Duration::from_secs(5);

fn lanes(answers: usize) -> Arc<Lanes> {
    Lanes::with_timeout(&Places { answers, lists: 1, uploads: 1 }, CONTESTED)
}

/// Enters and keeps the place until it is overdue. Answers how long it had it.
async fn stall(passage: Passage) -> Duration {
    let place = passage.enter().await;
    let begun = Instant::now();
    place.overdue(passage.timeout()).await;
    begun.elapsed()
}

#[tokio::test(start_paused = true)]
async fn places_that_nobody_wants_are_kept() {
    let lanes = lanes(2);
    let (one, two) = tokio::join!(stall(lanes.answer(&account(), TIMEOUT)), stall(lanes.answer(&account(), TIMEOUT)));
    assert_eq!((one.as_secs(), two.as_secs()), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn a_place_goes_on_to_who_waits() {
    let lanes = lanes(2);
    let stalled: Vec<_> = (0..2).map(|_| tokio::spawn(stall(lanes.answer(&account(), TIMEOUT)))).collect();
    sleep(Duration::from_secs(10)).await;
    // Both have done nothing for long; one of them has to go, at once.
    let entered = Instant::now();
    let place = lanes.answer(&account(), TIMEOUT).enter().await;
    assert_eq!(entered.elapsed(), Duration::ZERO);
    let mut kept: Vec<u64> = Vec::new();
    for task in stalled {
        kept.push(task.await.unwrap().as_secs());
    }
    kept.sort_unstable();
    assert_eq!(kept, [10, 100]);
    drop(place);
}

#[tokio::test(start_paused = true)]
async fn nobody_leaves_before_the_time() {
    let lanes = lanes(1);
    let stalled = tokio::spawn(stall(lanes.answer(&account(), TIMEOUT)));
    tokio::task::yield_now().await;
    let begun = Instant::now();
    let place = lanes.answer(&account(), TIMEOUT).enter().await;
    assert_eq!(begun.elapsed(), CONTESTED);
    assert_eq!(stalled.await.unwrap(), CONTESTED);
    drop(place);
}

#[tokio::test(start_paused = true)]
async fn as_many_leave_as_wait() {
    let lanes = lanes(10);
    let left = Arc::new(AtomicUsize::new(0));
    for _ in 0..10 {
        let (passage, left) = (lanes.answer(&account(), TIMEOUT), Arc::clone(&left));
        tokio::spawn(async move {
            stall(passage).await;
            left.fetch_add(1, Ordering::Relaxed);
        });
    }
    tokio::task::yield_now().await;
    let mut places = Vec::new();
    for round in 1..=4 {
        places.push(lanes.answer(&account(), TIMEOUT).enter().await);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(left.load(Ordering::Relaxed), round);
    }
}

#[tokio::test(start_paused = true)]
async fn directions_do_not_share_places() {
    let lanes = lanes(1);
    let _answer = lanes.answer(&account(), TIMEOUT).enter().await;
    let _list = lanes.list(Some(1), &account(), TIMEOUT).enter().await;
    let _upload = lanes.upload(&account(), TIMEOUT).enter().await;
    assert!(timeout(Duration::from_secs(1), lanes.list(Some(1), &account(), TIMEOUT).enter()).await.is_err());
}

#[tokio::test]
async fn work_spawns_into_the_runtime_of_its_caller() {
    let lanes = lanes(1);
    let caller = tokio::runtime::Handle::current().id();
    let seen = lanes.answer(&account(), TIMEOUT).spawn(|| tokio::runtime::Handle::current().id()).await.unwrap();
    assert_eq!(seen, caller);
}
