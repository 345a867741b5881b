//! [`Shutdown`]: the signal for an orderly shutdown.

use tokio::sync::watch;

#[derive(Clone, Debug)]
pub struct Shutdown(watch::Sender<bool>);

impl Shutdown {
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Feeds end, running requests finish, and no new ones are accepted.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    pub async fn begun(&self) {
        until_true(&mut self.watch()).await;
    }

    /// The receiver becomes true when the shutdown starts.
    pub fn watch(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

pub async fn until_true(stopping: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server, so a closed channel also means shutdown.
    drop(stopping.wait_for(|stopping| *stopping).await);
}
