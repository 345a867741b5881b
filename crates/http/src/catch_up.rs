//! [`CatchUp`]: what other processes have committed counts here with the next request. Before a request is judged, the listeners of
//! the store have heard of everything that was finished before it came, and the settings are what other nodes made of them.
//! Small writes find that out with their commit in place of this (the module `presume`).
//!
//! Requests that come at the same time share one trip to the store. Where no other process can write, nothing is asked.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use settee_database::{Engine, StorageError};
use settee_service::threads;
use settee_settings::Settings;
use tokio::sync::oneshot;

use crate::Error;

/// How long a request waits for the store. Its own engine tries again for a while when a server behind it changes.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// Catches up with other processes.
pub(crate) struct CatchUp {
    /// Nothing where there are no other processes.
    shared: Option<Arc<Shared>>,
}

struct Shared {
    engine: Arc<dyn Engine>,
    settings: Arc<dyn Settings>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The requests that wait for a trip that begins after they came.
    waiting: Vec<oneshot::Sender<Result<(), Error>>>,
    /// Whether somebody is on the way.
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

    /// Whether there is nobody to catch up with.
    #[cfg(test)]
    pub(crate) fn is_sole(&self) -> bool {
        self.shared.is_none()
    }

    /// Waits until everything that other processes had finished before the call is known here.
    ///
    /// # Errors
    /// 503 when the store does not answer, or not in time.
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
            threads::begin(move || shared.run());
        }
        match tokio::time::timeout(WAIT_MAX, done).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(Error::no_store("asking it failed")),
            Err(_) => Err(Error::no_store("it does not answer in time")),
        }
    }
}

impl Shared {
    /// Makes trips for as long as anybody waits.
    fn run(&self) {
        let _running = Running(self);
        while let Some(waiting) = self.next() {
            let heard = self.engine.catch_up().map_err(|error| unavailable(&error));
            let followed =
                heard.and_then(|()| self.settings.follow().map_err(|error| Error::no_store(&error.to_string())));
            for request in waiting {
                // Its client may have gone.
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

/// Lets others begin, and who waits know, also if a trip ends in a panic.
struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.0.state.lock() = State::default();
        }
    }
}

/// Whatever the reason is, it may be another one a moment later.
fn unavailable(error: &StorageError) -> Error {
    match error {
        StorageError::Unreached(why) => Error::no_store(why),
        error => Error::no_store(&error.to_string()),
    }
}
