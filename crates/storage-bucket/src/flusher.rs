//! [`Flusher`]: writes the log while commits wait for it. Objects of the log are written one after the other,
//! and all commits that arrive during a put share the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use slatedb::Db;
use slatedb::config::{FlushOptions, FlushType};
use tokio::sync::Notify;

/// Objects of a log after which what is in memory is written as a file. The next owner of a group whose owner was killed
/// reads them one after the other before it serves the group. The minimum of the library's own limit is 4,096.
const LOG_OBJECTS_MAX: u64 = 128;

#[derive(Default)]
pub(crate) struct Flusher {
    requested: Notify,
    flushes: AtomicU64,
}

impl Flusher {
    /// Requests that all writes so far become durable.
    pub(crate) fn request(&self) {
        self.requested.notify_one();
    }

    pub(crate) fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// `interval` is the minimum time between the starts of two objects.
    pub(crate) async fn run(self: Arc<Self>, database: Arc<Db>, interval: Duration) {
        loop {
            self.requested.notified().await;
            let started = Instant::now();
            let flushed = database.flush_with_options(FlushOptions { flush_type: FlushType::Wal }).await;
            let flushes = self.flushes.fetch_add(1, Ordering::Relaxed) + 1;
            // The library repeats failed requests. An error means that it was closed, which also ends the waiting
            // commits.
            if let Err(error) = flushed {
                tracing::error!(%error, "the log cannot be written any more");
                return;
            }
            if flushes.is_multiple_of(LOG_OBJECTS_MAX) {
                let database = Arc::clone(&database);
                // An error ends the next flush as well.
                tokio::spawn(async move {
                    let _ = database.flush_with_options(FlushOptions { flush_type: FlushType::MemTable }).await;
                });
            }
            tokio::time::sleep_until((started + interval).into()).await;
        }
    }
}
