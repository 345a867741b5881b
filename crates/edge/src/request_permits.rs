//! [`RequestPermits`]: limits the HTTP/2 requests that are processed before their responses start. A hundred open
//! requests of a connection get no more than as many HTTP/1.1 clients. A waiting request has no thread and almost no
//! memory. Responses in progress, such as feeds, are not counted.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

const RESERVED_PERMITS: usize = 2;

const PERMITS_PER_CONNECTION: usize = 16;

const SHARED_PERMITS: usize = 64;

/// After this time a request waits for something other than processors and releases its shared permit, because clients
/// that send bodies slowly must not block others.
const SHARED_PERMIT_TIMEOUT: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct RequestPermits(Arc<Semaphore>);

pub struct ConnectionPermits {
    reserved: Semaphore,
    additional: Semaphore,
    shared: RequestPermits,
}

pub struct RequestPermit<'a> {
    _connection_permit: Option<SemaphorePermit<'a>>,
    shared: Option<SemaphorePermit<'a>>,
}

impl Default for RequestPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARED_PERMITS)))
    }
}

impl RequestPermits {
    pub fn for_connection(&self) -> ConnectionPermits {
        ConnectionPermits {
            reserved: Semaphore::new(RESERVED_PERMITS),
            additional: Semaphore::new(PERMITS_PER_CONNECTION - RESERVED_PERMITS),
            shared: self.clone(),
        }
    }
}

impl ConnectionPermits {
    pub async fn acquire(&self) -> RequestPermit<'_> {
        let additional = async { (self.additional.acquire().await.ok(), self.shared.0.acquire().await.ok()) };
        tokio::select! {
            biased;
            reserved = self.reserved.acquire() => RequestPermit { _connection_permit: reserved.ok(), shared: None },
            (additional, shared) = additional => RequestPermit { _connection_permit: additional, shared },
        }
    }
}

impl RequestPermit<'_> {
    pub async fn run<T>(mut self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        if let Some(shared) = self.shared.take() {
            if let Ok(answer) = timeout(SHARED_PERMIT_TIMEOUT, answer.as_mut()).await {
                return answer;
            }
            drop(shared);
        }
        answer.await
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    async fn all_of(connection: &ConnectionPermits) -> Vec<RequestPermit<'_>> {
        let mut permits = Vec::new();
        while let Ok(one) = timeout(Duration::from_millis(1), connection.acquire()).await {
            permits.push(one);
        }
        permits
    }

    #[tokio::test(start_paused = true)]
    async fn owners_of_many_slots_leave_some_for_others() {
        let request_permits = RequestPermits::default();
        let connections: Vec<_> = (0..50).map(|_| request_permits.for_connection()).collect();
        let mut permits = Vec::new();
        for connection in &connections {
            permits.push(all_of(connection).await);
        }
        let counts: Vec<usize> = permits.iter().map(Vec::len).collect();
        let (first, rest) = counts.split_at(SHARED_PERMITS / (PERMITS_PER_CONNECTION - RESERVED_PERMITS));
        assert!(first.iter().all(|count| *count == PERMITS_PER_CONNECTION), "{counts:?}");
        assert!(rest.iter().skip(1).all(|count| *count == RESERVED_PERMITS), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), SHARED_PERMITS + 50 * RESERVED_PERMITS);
        drop(permits.remove(0));
        let more = all_of(&connections[49]).await;
        assert_eq!(
            (more.len(), all_of(&connections[0]).await.len()),
            (PERMITS_PER_CONNECTION - RESERVED_PERMITS, RESERVED_PERMITS)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn slow_requests_delay_no_other_connections() {
        let request_permits = RequestPermits::default();
        let connections: Vec<_> = (0..10).map(|_| request_permits.for_connection()).collect();
        let mut permits = Vec::new();
        for connection in &connections {
            permits.extend(all_of(connection).await);
        }
        let other = request_permits.for_connection();
        assert_eq!(all_of(&other).await.len(), RESERVED_PERMITS);
        let hanging = permits.into_iter().map(|one| Box::pin(one.run(std::future::pending::<()>())));
        let mut hanging: Vec<_> = hanging.collect();
        for one in &mut hanging {
            assert!(timeout(Duration::from_millis(1), one).await.is_err());
        }
        tokio::time::advance(SHARED_PERMIT_TIMEOUT).await;
        for one in &mut hanging {
            assert!(timeout(Duration::from_millis(1), one).await.is_err());
        }
        assert_eq!(all_of(&other).await.len(), PERMITS_PER_CONNECTION, "of its own connection it keeps its place");
        assert!(all_of(&connections[0]).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_a_connection_begin_in_their_order() {
        let connection = RequestPermits::default().for_connection();
        let mut permits = all_of(&connection).await;
        assert_eq!(permits.len(), PERMITS_PER_CONNECTION);
        let (first, second) = (connection.acquire(), connection.acquire());
        let (mut first, mut second) = (Box::pin(first), Box::pin(second));
        for place in [0, PERMITS_PER_CONNECTION - 2] {
            assert!(timeout(Duration::from_millis(1), &mut first).await.is_err());
            assert!(timeout(Duration::from_millis(1), &mut second).await.is_err());
            drop(permits.remove(place));
            permits.insert(0, timeout(Duration::from_millis(1), &mut first).await.unwrap());
            std::mem::swap(&mut first, &mut second);
            second.set(connection.acquire());
        }
    }
}
