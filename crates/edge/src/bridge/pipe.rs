//! [`Pipe`]: passes the pieces of a response from a thread to a connection.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::budget::Account;
use bytes::Bytes;
use settee_threads::{release_slot, yield_if_long};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;

use super::permits::ClientPermit;
use crate::respond::Aborted;

pub type Pieces = mpsc::Receiver<Result<Bytes, Aborted>>;

/// If this is dropped before [`Pipe::end`], the response is aborted.
pub struct Pipe {
    sender: mpsc::Sender<Result<Bytes, Aborted>>,
    /// Reserved capacity for the message that the response is incomplete. `None` after the end, or if another sender is
    /// responsible for it.
    abort_permit: Option<mpsc::OwnedPermit<Result<Bytes, Aborted>>>,
    permit: ClientPermit,
    timeout: Duration,
    account: Arc<Account>,
}

impl Pipe {
    pub fn new(pieces: usize, permit: ClientPermit, timeout: Duration, account: Arc<Account>) -> (Self, Pieces) {
        let (sender, receiver) = mpsc::channel(pieces + 1);
        let abort_permit = sender.clone().try_reserve_owned().expect("the channel is empty");
        (Self { sender, abort_permit: Some(abort_permit), permit, timeout, account }, receiver)
    }

    /// Other users of the shared `sender` are responsible for the end of the response.
    pub fn sharing_sender(
        sender: mpsc::Sender<Result<Bytes, Aborted>>,
        permit: ClientPermit,
        timeout: Duration,
        account: Arc<Account>,
    ) -> Self {
        Self { sender, abort_permit: None, permit, timeout, account }
    }

    /// Sends a piece and blocks until the next one may be sent: for threads that may block. Returns `Break` when the
    /// receiver is closed.
    pub fn send(&mut self, piece: Bytes) -> ControlFlow<()> {
        yield_if_long();
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
        release_slot();
        Handle::current().block_on(async {
            tokio::select! {
                sent = sent => match sent {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(()) => ControlFlow::Break(()),
                },
                () = self.permit.expired(self.timeout) => {
                    tracing::info!("a response was aborted: its client received nothing before the timeout");
                    ControlFlow::Break(())
                }
            }
        })
    }

    pub fn end(mut self) {
        self.abort_permit = None;
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Some(abort_permit) = self.abort_permit.take() {
            abort_permit.send(Err(Aborted));
        }
    }
}
