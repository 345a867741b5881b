//! [`Shutdown`]: an orderly end.

use tokio::sync::watch;

/// Tells the server to stop.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Sender<bool>);

impl Shutdown {
    /// A server that was not told to stop yet.
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Begins the end: feeds end, running requests finish, nothing new is accepted.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Waits for the end to begin.
    pub async fn begun(&self) {
        until_true(&mut self.watch()).await;
    }

    /// Becomes true when the end has begun.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

/// Ends when the end of the server has begun.
pub(crate) async fn until_true(stopping: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server; without one the end has come all the same.
    drop(stopping.wait_for(|stopping| *stopping).await);
}
