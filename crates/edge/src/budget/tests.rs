//! Tests of memory reservations, waiting, and disconnection of inactive clients.
#![expect(clippy::unwrap_used, reason = "tests")]

use crate::slots::Ending;
use bytes::Bytes;
use tokio::time::{advance, timeout};

use super::*;
use crate::Error;
use crate::tests::show;

const MIB: usize = 1 << 20;

struct Client {
    account: Arc<Account>,
    ending: Arc<Ending>,
}

impl Client {
    fn new(budget: &Arc<Budget>, share: Share) -> Self {
        let ending = Arc::new(Ending::new(Instant::now()));
        Self { account: Account::new(budget, Some(Arc::clone(&ending)), share), ending }
    }

    async fn was_cut(&self) -> bool {
        timeout(Duration::from_millis(1), self.ending.aborted()).await.is_ok()
    }
}

#[tokio::test(start_paused = true)]
async fn held_permits_are_released_at_the_end() {
    let budget = Budget::new(10 * MIB);
    let account = Account::new(&budget, None, Share::Admin);
    account.keep(MIB).await.unwrap();
    let held = account.hold(2 * MIB).await.unwrap();
    let piece = account.unsent(Bytes::from(vec![0; MIB]));
    assert_eq!(budget.used(), 4 * MIB);
    drop(held);
    assert_eq!(budget.used(), 2 * MIB);
    drop(account);
    assert_eq!(budget.used(), 2 * MIB, "the answer is still on its way");
    drop(piece);
    assert_eq!(budget.used(), 0);
    assert!(budget.accounts.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn impossible_requests_do_not_wait() {
    let budget = Budget::new(10 * MIB);
    let refused = |account: Arc<Account>, bytes: usize| async move {
        let begun = Instant::now();
        let error = account.keep(bytes).await.unwrap_err();
        (show(&error), begun.elapsed() >= Duration::from_secs(1))
    };
    let anonymous = Account::new(&budget, None, Share::Anonymous);
    let too_large = "413 too_large: the request entity is too large".to_owned();
    assert_eq!(refused(Arc::clone(&anonymous), 5 * MIB + 1).await, (too_large, false));
    anonymous.keep(5 * MIB).await.unwrap();
    let busy = "503 service_unavailable: the memory for requests is in use; see the header Retry-After".to_owned();
    assert_eq!(refused(Arc::clone(&anonymous), 1).await, (busy, true));
    assert_eq!(Error::short_of_memory().headers[0].0, hyper::header::RETRY_AFTER);
}

#[tokio::test(start_paused = true)]
async fn each_priority_leaves_capacity_for_higher_ones() {
    let budget = Budget::new(8 * MIB);
    let shares = [Share::Anonymous, Share::User, Share::Admin];
    let [anonymous, user, admin] = shares.map(|share| Account::new(&budget, None, share));
    anonymous.keep(4 * MIB).await.unwrap();
    user.keep(2 * MIB).await.unwrap();
    user.keep(1).await.unwrap_err();
    admin.keep(2 * MIB).await.unwrap();
    admin.keep(1).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn waiters_get_released_permits() {
    let budget = Budget::new(4 * MIB);
    let (first, second) = (Account::new(&budget, None, Share::Admin), Account::new(&budget, None, Share::Admin));
    let held = first.hold(4 * MIB).await.unwrap();
    let waiting = tokio::spawn(async move { second.keep(MIB).await });
    advance(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    drop(held);
    waiting.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn freed_memory_wakes_one_waiter_which_wakes_the_next() {
    const WAITERS: usize = 8;
    let budget = Budget::new(8 * MIB);
    let first = Account::new(&budget, None, Share::Admin);
    let (small, rest) = (first.hold(MIB / 2).await.unwrap(), first.hold(15 * MIB / 2).await.unwrap());
    let looks = Arc::new(AtomicUsize::new(0));
    let mut waiting = Vec::new();
    for _ in 0..WAITERS {
        let (account, looks) = (Account::new(&budget, None, Share::Admin), Arc::clone(&looks));
        waiting.push(tokio::spawn(async move {
            let mut held = std::pin::pin!(account.hold(2 * MIB));
            std::future::poll_fn(|context| {
                looks.fetch_add(1, Ordering::Relaxed);
                held.as_mut().poll(context)
            })
            .await
            .unwrap()
        }));
    }
    let all_have_run = || async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        (looks.swap(0, Ordering::Relaxed), waiting.iter().filter(|waiter| waiter.is_finished()).count())
    };
    assert_eq!(all_have_run().await, (WAITERS, 0));
    drop(small);
    assert_eq!(all_have_run().await, (1, 0), "no request can have so little, and one has seen it");
    drop(rest);
    assert_eq!(all_have_run().await, (5, 4), "four have it, and one has seen that there is no more");
    assert_eq!(budget.used(), 8 * MIB);
}

#[tokio::test(start_paused = true)]
async fn the_longest_stalled_clients_are_disconnected_first() {
    let budget = Budget::new(10 * MIB);
    let mut clients = Vec::new();
    for _ in 0..4 {
        let client = Client::new(&budget, Share::Admin);
        let piece = client.account.unsent(Bytes::from(vec![0; 3 * MIB / 2]));
        clients.push((client, Some(piece)));
        advance(Duration::from_secs(1)).await;
    }
    clients[0].0.account.moved(100);
    clients[1].0.account.moved(MIB);
    let working = Client::new(&budget, Share::Admin);
    working.account.keep(MIB).await.unwrap();
    assert!(clients[0].0.was_cut().await);
    for client in &clients[1..] {
        assert!(!client.0.was_cut().await, "one was enough");
    }
    clients[0].1 = None;
    advance(Duration::from_secs(60)).await;
    working.account.keep(MIB / 2).await.unwrap();
    let aborted = [clients[1].0.was_cut().await, clients[2].0.was_cut().await, clients[3].0.was_cut().await];
    assert_eq!(aborted, [false, true, false]);
    assert!(!working.was_cut().await);
}

#[tokio::test(start_paused = true)]
async fn unauthenticated_clients_do_not_displace_users() {
    let budget = Budget::new(10 * MIB);
    let user = Client::new(&budget, Share::User);
    let piece = user.account.unsent(Bytes::from(vec![0; 5 * MIB]));
    advance(Duration::from_secs(60)).await;
    let anonymous = Client::new(&budget, Share::Anonymous);
    anonymous.account.keep(MIB).await.unwrap_err();
    assert!(!user.was_cut().await);
    drop(piece);
    anonymous.account.keep(MIB).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn with_little_memory_answers_are_sent_in_pieces() {
    let budget = Budget::new(10 * MIB);
    let Client { account, .. } = Client::new(&budget, Share::Admin);
    let first = account.unsent(Bytes::from(vec![0; 200 << 10]));
    assert!(account.has_room());
    let second = account.unsent(Bytes::from(vec![0; 200 << 10]));
    assert!(!account.has_room(), "enough waits for the client");
    drop(first);
    assert!(account.has_room());
    let other = Account::new(&budget, None, Share::Admin);
    other.keep(7 * MIB).await.unwrap();
    assert!(!account.has_room(), "memory is short");
    drop(second);
    assert!(account.has_room());
}
