//! [`Listener`]: the client of a feed that goes on, and how its feed waits for news, with heartbeats meanwhile. What is sent is up to
//! the feed.

use std::sync::Arc;

use bytes::Bytes;
use settee_service::Progress;
use tokio::sync::{mpsc, watch};

use crate::budget::Account;
use crate::params::changes::{Feed, Quiet};
use crate::respond::Aborted;
use crate::shutdown::until_true;

/// The client of a feed.
pub(super) struct Listener {
    pub(super) account: Arc<Account>,
    pub(super) sender: mpsc::Sender<Result<Bytes, Aborted>>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) stopping: watch::Receiver<bool>,
}

/// Why a feed stops waiting.
pub(super) enum Woken {
    /// There may be something to send.
    Changed,
    /// Nothing came in time, or the server or the database ends.
    End,
    /// Nobody listens.
    Gone,
}

/// Nobody listens.
pub(super) struct Gone;

impl Listener {
    /// Waits for news, sending heartbeats meanwhile.
    pub(super) async fn wait(&mut self, feed: Feed, quiet: Quiet) -> Woken {
        let beat: &[u8] = if feed == Feed::EventSource { b"event: heartbeat\ndata: \n\n" } else { b"\n" };
        loop {
            let (pause, is_timeout) = match quiet {
                Quiet::Timeout(pause) => (pause, true),
                Quiet::Heartbeat(pause) => (pause, false),
            };
            tokio::select! {
                changed = self.progress.changed() => {
                    let lives = changed.is_ok() && *self.progress.borrow() != Progress::Deleted;
                    return if lives { Woken::Changed } else { Woken::End };
                }
                () = until_true(&mut self.stopping) => return Woken::End,
                () = self.sender.closed() => return Woken::Gone,
                () = tokio::time::sleep(pause) => {
                    if is_timeout {
                        return Woken::End;
                    }
                    if self.send(beat.to_vec()).await.is_err() {
                        return Woken::Gone;
                    }
                }
            }
        }
    }

    /// Sends text.
    pub(super) async fn send(&self, text: Vec<u8>) -> Result<(), Gone> {
        self.sender.send(Ok(self.account.unsent(Bytes::from(text)))).await.map_err(|_| Gone)
    }
}
