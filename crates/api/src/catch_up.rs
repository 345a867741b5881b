//! [`CatchUp`]: makes commits of other processes visible to each request. Before a request is handled, the listeners of
//! the store are notified of all commits that finished before the request arrived, and the settings include the changes
//! of other nodes. Concurrent requests share one round trip to the store. A sole process makes none.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use settee_database::{Engine, StorageError};
use settee_settings::Settings;
use tokio::sync::oneshot;

use crate::Error;

/// Timeout of a request that waits for the store. The engine itself retries when a server behind it changes.
const WAIT_MAX: Duration = Duration::from_secs(10);

pub(crate) struct CatchUp {
    /// `None` if no other process can write.
    shared: Option<Arc<Shared>>,
}

struct Shared {
    engine: Arc<dyn Engine>,
    settings: Arc<dyn Settings>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Requests that wait for a round trip that starts after their arrival.
    waiting: Vec<oneshot::Sender<Result<(), Error>>>,
    is_running: bool,
}

impl CatchUp {
    pub(crate) fn new(engine: &Arc<dyn Engine>, settings: &Arc<dyn Settings>) -> Self {
        let shared = || {
            let (engine, settings) = (Arc::clone(engine), Arc::clone(settings));
            Arc::new(Shared { engine, settings, state: Mutex::default() })
        };
        Self { shared: (!engine.members().is_sole()).then(shared) }
    }

    #[cfg(test)]
    pub(crate) fn is_sole(&self) -> bool {
        self.shared.is_none()
    }

    /// Returns when all earlier commits of other processes are visible, or 503 if the store does not respond in time.
    pub(crate) async fn wait(&self) -> Result<(), Error> {
        let Some(shared) = &self.shared else { return Ok(()) };
        let (sender, done) = oneshot::channel();
        let begins = {
            let mut state = shared.state.lock();
            state.waiting.push(sender);
            !std::mem::replace(&mut state.is_running, true)
        };
        if begins {
            let shared = Arc::clone(shared);
            settee_threads::begin(move || shared.run());
        }
        match tokio::time::timeout(WAIT_MAX, done).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Error::no_store("asking it failed")),
            Err(_) => Err(Error::no_store("it does not answer in time")),
        }
    }
}

impl Shared {
    fn run(&self) {
        let _running = Running(self);
        while let Some(waiting) = self.next() {
            let received = self.engine.catch_up().map_err(|error| unavailable(&error));
            let followed =
                received.and_then(|()| self.settings.follow().map_err(|error| Error::no_store(&error.to_string())));
            for request in waiting {
                let _ = request.send(followed.clone());
            }
        }
    }

    fn next(&self) -> Option<Vec<oneshot::Sender<Result<(), Error>>>> {
        let mut state = self.state.lock();
        let waiting = std::mem::take(&mut state.waiting);
        state.is_running = !waiting.is_empty();
        state.is_running.then_some(waiting)
    }
}

/// Resets the state if a round trip panics, so that waiting requests fail and later ones can start another.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.state.lock() = State::default();
        }
    }
}

/// Every error is reported as a temporary one, because a retry may succeed.
fn unavailable(error: &StorageError) -> Error {
    match error {
        StorageError::Unreached(why) => Error::no_store(why),
        error => Error::no_store(&error.to_string()),
    }
}
