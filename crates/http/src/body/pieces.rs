//! Bodies that are too large to be read whole: [`Pieces`] brings them to a thread that may block.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use tokio::sync::mpsc;

use crate::Error;
use crate::body::timeout::{ReceiveTimeout, timed_out};
use crate::bridge::permits::{Admission, ClientPermit};
use crate::budget::Account;

/// The number of pieces that may wait for their reader.
const PIECES_WAITING: usize = 4;

/// The memory of a body on its way: the pieces, and as much again that its reader works on.
const UPLOAD_BYTES: usize = 256 << 10;

/// A body, piece by piece.
pub(crate) struct Pieces(mpsc::Receiver<Result<Bytes, Error>>);

impl Pieces {
    /// The next piece, `None` at the end. Waits: only for threads that may.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Error> {
        self.0.blocking_recv().transpose()
    }
}

/// Runs `work` on a thread that may block for its client, with the pieces of `body`.
pub(crate) async fn with_pieces<B, T>(
    admission: Admission,
    body: B,
    work: impl FnOnce(&mut Pieces) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    T: Send + 'static,
{
    let permit = admission.acquire().await;
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let account = Arc::clone(admission.account());
    // So many pieces may be on their way.
    account.keep(UPLOAD_BYTES).await?;
    account.set_receiving(true);
    let task = admission.spawn(move || work(&mut Pieces(receiver)));
    let (done, ()) = tokio::join!(task.end(), send(body, sender, permit, admission.timeout(), &account));
    account.set_receiving(false);
    done?
}

async fn send<B>(
    mut body: B,
    sender: mpsc::Sender<Result<Bytes, Error>>,
    permit: ClientPermit,
    pause: Duration,
    account: &Account,
) where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let mut timeout = ReceiveTimeout::new(pause);
    loop {
        let frame = tokio::select! {
            frame = timeout.frame(&mut body) => frame,
            () = permit.contended() => Some(Err(timed_out())),
            // The reader has seen enough, or has ended.
            () = sender.closed() => return,
        };
        let piece = match frame {
            None => return,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => piece,
                Err(_) => continue,
            },
            Some(Err(error)) => {
                // Nobody cares when the reader has stopped.
                let _ = sender.send(Err(error)).await;
                return;
            }
        };
        let length = piece.len();
        if sender.send(Ok(piece)).await.is_err() {
            return;
        }
        account.moved(length);
    }
}
