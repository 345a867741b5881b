//! [`Pipe`]: pieces of an answer on their way from a thread to a connection. A client that takes none is cut off.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use settee_service::threads::give_way;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::LONG_BYTES;
use super::permits::ClientPermit;
use crate::budget::Account;
use crate::respond::Aborted;

/// The other end of a pipe.
pub(crate) type Pieces = mpsc::Receiver<Result<Bytes, Aborted>>;

/// The end of the thread. An answer whose pipe is dropped before its [`Pipe::end`] is broken.
pub(crate) struct Pipe {
    sender: mpsc::Sender<Result<Bytes, Aborted>>,
    /// Room for the word that the answer is not whole: without it a client would take a broken answer for complete.
    /// `None` once it is whole, or if somebody else sees to it.
    last_word: Option<mpsc::OwnedPermit<Result<Bytes, Aborted>>>,
    permit: ClientPermit,
    timeout: Duration,
    account: Arc<Account>,
    sent: usize,
}

impl Pipe {
    /// A pipe in which `pieces` may wait.
    pub(crate) fn new(pieces: usize, permit: ClientPermit, timeout: Duration, account: Arc<Account>) -> (Self, Pieces) {
        let (sender, receiver) = mpsc::channel(pieces + 1);
        let last_word = sender.clone().try_reserve_owned().expect("the channel is empty");
        (Self { sender, last_word: Some(last_word), permit, timeout, account, sent: 0 }, receiver)
    }

    /// A pipe that shares `sender` with others, who see to the end of the answer.
    pub(crate) fn beside(
        sender: mpsc::Sender<Result<Bytes, Aborted>>,
        permit: ClientPermit,
        timeout: Duration,
        account: Arc<Account>,
    ) -> Self {
        Self { sender, last_word: None, permit, timeout, account, sent: 0 }
    }

    /// Sends a piece, and waits until there may be another: only for threads that may. `Break` when nobody reads on.
    pub(crate) fn send(&mut self, piece: Bytes) -> ControlFlow<()> {
        self.sent = self.sent.saturating_add(piece.len());
        if self.sent > LONG_BYTES {
            give_way();
        }
        let late = match self.sender.try_send(Ok(self.account.unsent(piece))) {
            Ok(()) if self.account.has_room() => return ControlFlow::Continue(()),
            Ok(()) => None,
            Err(TrySendError::Closed(_)) => return ControlFlow::Break(()),
            Err(TrySendError::Full(piece)) => Some(piece),
        };
        let sent = async {
            if let Some(piece) = late {
                self.sender.send(piece).await.map_err(drop)?;
            }
            tokio::select! {
                () = self.account.room() => Ok(()),
                () = self.sender.closed() => Err(()),
            }
        };
        Handle::current().block_on(async {
            tokio::select! {
                sent = sent => match sent {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(()) => ControlFlow::Break(()),
                },
                () = self.permit.expired(self.timeout) => {
                    tracing::info!("an answer broke off: its client took nothing for too long");
                    ControlFlow::Break(())
                }
            }
        })
    }

    /// Says that the answer is whole.
    pub(crate) fn end(mut self) {
        self.last_word = None;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(last_word) = self.last_word.take() {
            last_word.send(Err(Aborted));
        }
    }
}
