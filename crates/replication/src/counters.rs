//! [`Counters`]: what all replications of a server have done since it started, for operators. [`counted`] counts exchanges.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Request, Response, StatusCode};

use crate::transport::{Body, BoxFuture, Lasting, Transport, TransportError};

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// The events, by CouchDB's names (`couch_replicator.…`).
#[derive(Debug, Default)]
pub struct Counters {
    /// Requests to peers, also to databases of this server.
    pub requests: Counter,
    /// Whole answers, but for those of 429 and 500 and more.
    pub responses: Counter,
    /// Answers of 429 and of 500 and more, and none.
    pub failed_responses: Counter,
    /// Answers that last, such as feeds.
    pub streams: Counter,
    /// Those that did not come about.
    pub failed_streams: Counter,
    /// Checkpoints that both sides have.
    pub checkpoints: Counter,
    /// Checkpoints that were not written on both sides.
    pub failed_checkpoints: Counter,
    /// Runs that ended before the first change was read.
    pub failed_starts: Counter,
    /// Feeds of changes that broke or could not be read.
    pub failed_changes: Counter,
    /// Batches that were begun.
    pub workers: Counter,
    /// Documents that were marked as completed.
    pub documents_completed: Counter,
    /// Documents that were marked as failed.
    pub documents_failed: Counter,
    /// Jobs that were added.
    pub jobs_added: Counter,
    /// Jobs that were there already when they were to be added.
    pub jobs_doubled: Counter,
    /// Jobs that were taken out.
    pub jobs_removed: Counter,
    /// Runs that began.
    pub jobs_started: Counter,
    /// Runs that the scheduler ended.
    pub jobs_stopped: Counter,
    /// Runs that failed.
    pub jobs_crashed: Counter,
}

/// The number of jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// All of them.
    pub total: u64,
    /// Those that run.
    pub running: u64,
    /// Those that wait for a place.
    pub pending: u64,
    /// Those that wait because they crashed.
    pub crashed: u64,
}

/// A transport whose exchanges are counted.
pub(crate) fn counted(transport: Arc<dyn Transport>, counters: Arc<Counters>) -> Arc<dyn Transport> {
    Arc::new(Counted { transport, counters })
}

struct Counted {
    transport: Arc<dyn Transport>,
    counters: Arc<Counters>,
}

impl Transport for Counted {
    fn call(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        let counters = &self.counters;
        counters.requests.increment();
        let (good, bad) = match request.extensions().get::<Lasting>() {
            Some(Lasting) => (&counters.streams, &counters.failed_streams),
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
