//! [`Hashers`]: the threads that hash passwords. Hashing is deliberately slow. Its few threads have low priority,
//! because a flood of logins must not take CPU time from logged-in users. Waiting requests are scheduled round-robin by
//! address, and their number is limited.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use settee_threads::GiveWay;
use tokio::sync::oneshot;

use crate::Error;

const WAITING_MAX: usize = 1024;

const WAITING_FROM_ONE_MAX: usize = 64;

type Work = Box<dyn FnOnce() + Send>;

pub struct Hashers {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    arrived: Condvar,
}

/// `None` is the server itself.
#[derive(Default)]
struct Queue {
    waiting: HashMap<Option<IpAddr>, VecDeque<Work>>,
    /// Addresses with waiting work, next one first.
    turns: VecDeque<Option<IpAddr>>,
    count: usize,
    closed: bool,
}

impl Hashers {
    #[must_use]
    pub fn start(threads: usize, give_way: &GiveWay) -> Self {
        let shared = Arc::<Shared>::default();
        for _ in 0..threads.max(1) {
            let (shared, give_way) = (Arc::clone(&shared), Arc::clone(give_way));
            let run = move || {
                give_way();
                while let Some(work) = shared.next() {
                    work();
                }
            };
            if let Err(error) = std::thread::Builder::new().name("hash".to_owned()).spawn(run) {
                tracing::error!(%error, "a thread that hashes passwords cannot be started");
            }
        }
        Self { shared }
    }

    /// Queues `work` for `peer` and waits for the result. Skips work whose caller no longer waits. Fails if too many
    /// requests wait already.
    pub async fn run<T: Send + 'static>(
        &self,
        peer: Option<IpAddr>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Error> {
        let (sender, receiver) = oneshot::channel();
        let work = Box::new(move || {
            if !sender.is_closed() {
                let _ = sender.send(work());
            }
        });
        self.shared.push(peer, work)?;
        receiver.await.map_err(|_| Error::Internal("a password was not hashed; the cause is in the server's log"))
    }
}

impl Drop for Hashers {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        queue.closed = true;
        queue.waiting.clear();
        self.shared.arrived.notify_all();
    }
}

impl Shared {
    fn push(&self, peer: Option<IpAddr>, work: Work) -> Result<(), Error> {
        let mut queue = self.queue.lock();
        let from_peer = queue.waiting.get(&peer).map_or(0, VecDeque::len);
        if queue.count >= WAITING_MAX || (peer.is_some() && from_peer >= WAITING_FROM_ONE_MAX) {
            return Err(Error::TooManyLogins);
        }
        queue.count += 1;
        if from_peer == 0 {
            queue.turns.push_back(peer);
        }
        queue.waiting.entry(peer).or_default().push_back(work);
        self.arrived.notify_one();
        Ok(())
    }

    fn next(&self) -> Option<Work> {
        let mut queue = self.queue.lock();
        loop {
            if queue.closed {
                return None;
            }
            if let Some(work) = queue.pop() {
                return Some(work);
            }
            self.arrived.wait(&mut queue);
        }
    }
}

impl Queue {
    fn pop(&mut self) -> Option<Work> {
        let peer = self.turns.pop_front()?;
        let works = self.waiting.get_mut(&peer)?;
        let work = works.pop_front();
        if works.is_empty() {
            self.waiting.remove(&peer);
        } else {
            self.turns.push_back(peer);
        }
        self.count -= usize::from(work.is_some());
        work
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;
    use std::sync::mpsc;

    fn idle() -> GiveWay {
        Arc::new(|| {})
    }

    fn peer(number: u32) -> Option<IpAddr> {
        Some(Ipv4Addr::from(number).into())
    }

    fn busy() -> (Arc<Hashers>, mpsc::Sender<()>) {
        let hashers = Hashers::start(1, &idle());
        let (free, wait) = mpsc::channel::<()>();
        let (started, begun) = mpsc::channel();
        let block = Box::new(move || {
            started.send(()).unwrap();
            wait.recv().unwrap_err();
        });
        hashers.shared.push(None, block).unwrap();
        begun.recv().unwrap();
        (Arc::new(hashers), free)
    }

    #[tokio::test]
    async fn addresses_take_turns() {
        let (hashers, free) = busy();
        let (order, seen) = mpsc::channel();
        for (from, name) in [(1, "a"), (1, "b"), (1, "c"), (2, "x"), (3, "y")] {
            let order = order.clone();
            hashers.shared.push(peer(from), Box::new(move || order.send(name).unwrap())).unwrap();
        }
        drop((free, order));
        let order: Vec<_> = tokio::task::spawn_blocking(move || seen.iter().collect()).await.unwrap();
        assert_eq!(order, ["a", "x", "y", "b", "c"]);
        assert_eq!(hashers.run(peer(1), || 7).await.map_err(|error| error.to_string()), Ok(7));
    }

    #[tokio::test]
    async fn only_so_many_wait_and_each_address_has_its_share() {
        let (hashers, free) = busy();
        let push = |from: u32| hashers.shared.push(peer(from), Box::new(|| {})).map_err(|error| error.to_string());
        for _ in 0..WAITING_FROM_ONE_MAX {
            assert_eq!(push(1), Ok(()));
        }
        let refused = Err("Too many logins wait to be checked. Try again later.".to_owned());
        assert_eq!(push(1), refused);
        for from in 2..2 + (WAITING_MAX - WAITING_FROM_ONE_MAX) as u32 {
            assert_eq!(push(from), Ok(()));
        }
        assert_eq!(push(1_000_000), refused);
        drop(free);
        while hashers.run(None, || ()).await.is_err() {
            tokio::task::yield_now().await;
        }
        assert_eq!(push(1), Ok(()));
    }

    #[tokio::test]
    async fn work_without_waiters_is_skipped() {
        let (hashers, free) = busy();
        let (ran, seen) = mpsc::channel::<()>();
        let waiting = hashers.run(peer(1), move || ran.send(()));
        let gone = tokio::time::timeout(std::time::Duration::ZERO, waiting).await;
        assert!(gone.is_err());
        drop(free);
        assert!(tokio::task::spawn_blocking(move || seen.recv()).await.unwrap().is_err(), "dropped, not run");
    }
}
