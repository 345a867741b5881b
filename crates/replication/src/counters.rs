//! [`Counters`]: statistics of all replications of a server since its start.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response, StatusCode};

use crate::transport::{Body, BoxFuture, LongLived, Transport, TransportError};

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// CouchDB's names are `couch_replicator.…`.
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests to peers, including databases of this server.
    pub requests: Counter,
    /// Complete responses, except those with status 429 or 500 and above.
    pub responses: Counter,
    /// Requests that failed or got status 429 or 500 and above.
    pub failed_responses: Counter,
    pub streams: Counter,
    pub failed_streams: Counter,
    pub checkpoints: Counter,
    /// Checkpoints that were not written on both sides.
    pub failed_checkpoints: Counter,
    /// Runs that ended before the first change was read.
    pub failed_starts: Counter,
    pub failed_changes: Counter,
    pub workers: Counter,
    pub documents_completed: Counter,
    pub documents_failed: Counter,
    pub jobs_added: Counter,
    pub jobs_doubled: Counter,
    pub jobs_removed: Counter,
    pub jobs_started: Counter,
    pub jobs_stopped: Counter,
    pub jobs_crashed: Counter,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub total: u64,
    pub running: u64,
    pub pending: u64,
    pub crashed: u64,
}

pub(crate) fn with_counters(transport: Arc<dyn Transport>, counters: Arc<Counters>) -> Arc<dyn Transport> {
    Arc::new(CountingTransport { transport, counters })
}

struct CountingTransport {
    transport: Arc<dyn Transport>,
    counters: Arc<Counters>,
}

impl Transport for CountingTransport {
    fn call(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        let counters = &self.counters;
        counters.requests.increment();
        let (good, bad) = match request.extensions().get::<LongLived>() {
            Some(LongLived) => (&counters.streams, &counters.failed_streams),
            None => (&counters.responses, &counters.failed_responses),
        };
        let answer = self.transport.call(request);
        Box::pin(async move {
            let result = answer.await;
            let is_good = result.as_ref().is_ok_and(|response| {
                !response.status().is_server_error() && response.status() != StatusCode::TOO_MANY_REQUESTS
            });
            if is_good {
                good.increment();
            } else {
                bad.increment();
            }
            result
        })
    }
}
