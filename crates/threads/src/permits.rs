//! [`Permits`]: a semaphore whose permits are shared fairly between owners, such as databases ([`Shares`]). Waiting
//! tasks do not block threads. The tasks of one owner are served in order of arrival, the owners round-robin.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::shares::{self, Shares};

/// Without an owner, permits are granted in order of arrival.
type Owner = Option<shares::Owner>;

pub struct Permits {
    state: Mutex<State>,
}

struct State {
    shares: Shares,
    waiting: HashMap<Owner, VecDeque<oneshot::Sender<Permit>>>,
    /// Owners with waiting tasks, next one first.
    order: VecDeque<Owner>,
}

pub struct Permit {
    permits: Arc<Permits>,
    owner: Owner,
}

impl Permits {
    #[must_use]
    pub fn new(count: usize) -> Arc<Self> {
        let state = State { shares: Shares::new(count), waiting: HashMap::new(), order: VecDeque::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    pub fn try_acquire(self: &Arc<Self>, owner: Owner) -> Option<Permit> {
        let mut state = self.state.lock();
        // The waiting tasks of the owner have priority.
        let may = !state.waiting.contains_key(&owner) && state.shares.try_take(owner);
        may.then(|| self.permit(owner))
    }

    pub async fn acquire(self: &Arc<Self>, owner: Owner) -> Permit {
        loop {
            let receiver = {
                let mut state = self.state.lock();
                if !state.waiting.contains_key(&owner) && state.shares.try_take(owner) {
                    return self.permit(owner);
                }
                let (sender, receiver) = oneshot::channel();
                state.wait(owner, sender);
                receiver
            };
            if let Ok(permit) = receiver.await {
                return permit;
            }
        }
    }

    #[must_use]
    pub fn free(&self) -> usize {
        self.state.lock().shares.free()
    }

    fn permit(self: &Arc<Self>, owner: Owner) -> Permit {
        Permit { permits: Arc::clone(self), owner }
    }
}

impl State {
    fn wait(&mut self, owner: Owner, sender: oneshot::Sender<Permit>) {
        let line = self.waiting.entry(owner).or_default();
        if line.is_empty() {
            self.order.push_back(owner);
        }
        line.push_back(sender);
    }

    fn next(&mut self) -> Option<(Owner, oneshot::Sender<Permit>)> {
        for _ in 0..self.order.len() {
            let owner = self.order.pop_front()?;
            let line = self.waiting.get_mut(&owner)?;
            while line.front().is_some_and(oneshot::Sender::is_closed) {
                line.pop_front();
            }
            let next = if !line.is_empty() && self.shares.try_take(owner) { line.pop_front() } else { None };
            match line.is_empty() {
                true => drop(self.waiting.remove(&owner)),
                false => self.order.push_back(owner),
            }
            if let Some(next) = next {
                return Some((owner, next));
            }
        }
        None
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let permits = &self.permits;
        let mut state = permits.state.lock();
        state.shares.give_back(self.owner);
        while let Some((owner, sender)) = state.next() {
            drop(state);
            // If the task was cancelled concurrently, the permit is dropped and thereby released again.
            drop(sender.send(permits.permit(owner)));
            state = permits.state.lock();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::{Pin, pin};
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Acquiring = Pin<Box<dyn Future<Output = Permit>>>;

    fn poll(acquiring: &mut Acquiring) -> Option<Permit> {
        match acquiring.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(permit) => Some(permit),
            Poll::Pending => None,
        }
    }

    fn acquire(permits: &Arc<Permits>, owner: u64) -> Acquiring {
        let permits = Arc::clone(permits);
        Box::pin(async move { permits.acquire(Some(owner.into())).await })
    }

    #[test]
    fn a_crowd_of_one_owner_leaves_something_to_others() {
        let permits = Permits::new(6);
        let mut crowd: Vec<_> = (0..100).map(|_| acquire(&permits, 1)).collect();
        let mut held: Vec<Permit> = crowd.iter_mut().filter_map(poll).collect();
        assert_eq!(held.len(), 4);
        let other = poll(&mut acquire(&permits, 2)).expect("one is free");
        let another = permits.try_acquire(Some(3.into())).expect("one is free");
        let mut late = acquire(&permits, 4);
        assert!(poll(&mut late).is_none() && permits.try_acquire(Some(5.into())).is_none());
        held.pop();
        let late = poll(&mut late).expect("it is next");
        assert!(crowd[4..].iter_mut().all(|waiting| poll(waiting).is_none()));
        drop((other, another, late));
        crowd.drain(4..90);
        held.clear();
        let (mut rest, mut served) = (crowd.split_off(4), 0);
        while !rest.is_empty() {
            let before = rest.len();
            rest.retain_mut(|waiting| poll(waiting).is_none());
            assert!(rest.len() < before, "one task is always served");
            served += before - rest.len();
        }
        assert_eq!((served, permits.free()), (10, 6));
        assert!(permits.state.lock().waiting.is_empty() && permits.state.lock().order.is_empty());
    }

    #[test]
    fn a_waiter_that_leaves_the_queue_delays_no_other() {
        let permits = Permits::new(1);
        let held = permits.try_acquire(Some(1.into()));
        let (mut first, mut second) = (acquire(&permits, 1), acquire(&permits, 2));
        assert!(poll(&mut first).is_none() && poll(&mut second).is_none());
        drop(first);
        drop(held);
        let held = poll(&mut second);
        assert!(held.is_some());
        let mut third = pin!(permits.acquire(None));
        assert!(third.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(held);
        assert!(third.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
