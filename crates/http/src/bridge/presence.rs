//! [`Presence`]: whether the client of an answer is still connected, for work that writes nothing for a while.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tokio::sync::mpsc::WeakSender;

use crate::respond::Aborted;

/// The way to the client, if an answer has begun.
pub(super) type ToClient = WeakSender<Result<Bytes, Aborted>>;

/// The presence of a client.
#[derive(Default)]
pub(crate) struct Presence {
    /// The request was dropped.
    has_left: AtomicBool,
    /// There when pieces of the answer are sent. From then on their receiver decides.
    to_client: OnceLock<ToClient>,
}

/// Marks the client as disconnected when it is dropped.
pub(super) struct Leaving(Arc<Presence>);

impl Presence {
    /// Returns true when the client has disconnected.
    pub(crate) fn has_gone(&self) -> bool {
        match self.to_client.get() {
            Some(sender) => sender.upgrade().is_none_or(|sender| sender.is_closed()),
            None => self.has_left.load(Ordering::Relaxed),
        }
    }

    /// The client gets pieces from now on.
    pub(super) fn takes(&self, to_client: ToClient) {
        // An answer has one pipe.
        let _ = self.to_client.set(to_client);
    }

    /// The client counts as disconnected when the result is dropped, unless it gets pieces by then.
    pub(super) fn leaves_with_this(self: &Arc<Self>) -> Leaving {
        Leaving(Arc::clone(self))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.has_left.store(true, Ordering::Relaxed);
    }
}
