//! [`Beginnings`]: limits the HTTP/2 requests that are processed before their responses start.
//!
//! A connection can have a hundred open requests and a client dozens of connections. The limit gives them no
//! more than as many HTTP/1.1 clients. A waiting request has no thread and almost no memory. Responses in
//! progress, such as feeds, are not counted.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

const OWN: usize = 2;

/// Maximum number of permits of a connection while the shared ones are not exhausted.
const OF_CONNECTION: usize = 16;

/// Permits that all connections share, in addition to the reserved ones.
const SHARED: usize = 64;

/// Time after which a request releases its shared permit: by then it waits for something other than
/// processors, and clients that send bodies slowly must not block others.
const SHARED_TIME: Duration = Duration::from_millis(100);

#[derive(Clone)]
pub struct Beginnings(Arc<Semaphore>);

pub struct OfConnection {
    own: Semaphore,
    further: Semaphore,
    shared: Beginnings,
}

/// A permit to process a request until the response starts.
pub struct Beginning<'a> {
    _of_connection: Option<SemaphorePermit<'a>>,
    shared: Option<SemaphorePermit<'a>>,
}

impl Default for Beginnings {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(SHARED)))
    }
}

impl Beginnings {
    pub fn of_connection(&self) -> OfConnection {
        OfConnection { own: Semaphore::new(OWN), further: Semaphore::new(OF_CONNECTION - OWN), shared: self.clone() }
    }
}

impl OfConnection {
    pub async fn begin(&self) -> Beginning<'_> {
        // Acquiring never fails because the semaphores are never closed.
        let further = async { (self.further.acquire().await.ok(), self.shared.0.acquire().await.ok()) };
        tokio::select! {
            biased;
            own = self.own.acquire() => Beginning { _of_connection: own.ok(), shared: None },
            (further, shared) = further => Beginning { _of_connection: further, shared },
        }
    }
}

impl Beginning<'_> {
    /// Waits until the response starts.
    pub async fn of<T>(mut self, answer: impl Future<Output = T>) -> T {
        let mut answer = pin!(answer);
        if let Some(shared) = self.shared.take() {
            if let Ok(answer) = timeout(SHARED_TIME, answer.as_mut()).await {
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

    /// Acquires all permits that are available for a connection.
    async fn all_of(connection: &OfConnection) -> Vec<Beginning<'_>> {
        let mut begun = Vec::new();
        while let Ok(one) = timeout(Duration::from_millis(1), connection.begin()).await {
            begun.push(one);
        }
        begun
    }

    #[tokio::test(start_paused = true)]
    async fn owners_of_many_slots_leave_some_for_others() {
        let beginnings = Beginnings::default();
        let connections: Vec<_> = (0..50).map(|_| beginnings.of_connection()).collect();
        let mut begun = Vec::new();
        for connection in &connections {
            begun.push(all_of(connection).await);
        }
        let counts: Vec<usize> = begun.iter().map(Vec::len).collect();
        let (first, rest) = counts.split_at(SHARED / (OF_CONNECTION - OWN));
        assert!(first.iter().all(|count| *count == OF_CONNECTION), "{counts:?}");
        assert!(rest.iter().skip(1).all(|count| *count == OWN), "{counts:?}");
        assert_eq!(counts.iter().sum::<usize>(), SHARED + 50 * OWN);
        // A finished request releases its permits, for this connection and for others.
        drop(begun.remove(0));
        let more = all_of(&connections[49]).await;
        assert_eq!((more.len(), all_of(&connections[0]).await.len()), (OF_CONNECTION - OWN, OWN));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_requests_delay_no_other_connections() {
        let beginnings = Beginnings::default();
        let connections: Vec<_> = (0..10).map(|_| beginnings.of_connection()).collect();
        let mut begun = Vec::new();
        for connection in &connections {
            begun.extend(all_of(connection).await);
        }
        let other = beginnings.of_connection();
        assert_eq!(all_of(&other).await.len(), OWN);
        let hanging = begun.into_iter().map(|one| Box::pin(one.of(std::future::pending::<()>())));
        let mut hanging: Vec<_> = hanging.collect();
        for one in &mut hanging {
            assert!(timeout(Duration::from_millis(1), one).await.is_err());
        }
        tokio::time::advance(SHARED_TIME).await;
        for one in &mut hanging {
            assert!(timeout(Duration::from_millis(1), one).await.is_err());
        }
        assert_eq!(all_of(&other).await.len(), OF_CONNECTION, "of its own connection it keeps its place");
        assert!(all_of(&connections[0]).await.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_a_connection_begin_in_their_order() {
        let connection = Beginnings::default().of_connection();
        let mut begun = all_of(&connection).await;
        assert_eq!(begun.len(), OF_CONNECTION);
        let (first, second) = (connection.begin(), connection.begin());
        let (mut first, mut second) = (Box::pin(first), Box::pin(second));
        for place in [0, OF_CONNECTION - 2] {
            assert!(timeout(Duration::from_millis(1), &mut first).await.is_err());
            assert!(timeout(Duration::from_millis(1), &mut second).await.is_err());
            drop(begun.remove(place));
            begun.insert(0, timeout(Duration::from_millis(1), &mut first).await.unwrap());
            std::mem::swap(&mut first, &mut second);
            second.set(connection.begin());
        }
    }
}
