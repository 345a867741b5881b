//! Bodies that are too large for memory: [`Pieces`] passes them to a thread that may block.

use std::sync::Arc;
use std::time::Duration;

use crate::budget::Account;
use bytes::Bytes;
use hyper::body::Body;
use tokio::sync::mpsc;

use crate::Error;
use crate::body::timeout::{ReceiveTimeout, timed_out};
use crate::bridge::permits::{Admission, ClientPermit};

const PIECES_WAITING: usize = 4;

/// Memory of a body in transit: the buffered pieces, and the same amount for the reader.
const UPLOAD_BYTES: usize = 256 << 10;

pub struct Pieces(mpsc::Receiver<Result<Bytes, Error>>);

impl Pieces {
    /// `None` at the end. Must be called on a thread that may block.
    pub fn next_piece(&mut self) -> Result<Option<Bytes>, Error> {
        self.0.blocking_recv().transpose()
    }
}

/// Runs `work` on a thread that may wait for its client.
pub async fn with_pieces<B, T>(
    admission: Admission,
    body: B,
    work: impl FnOnce(&mut Pieces) -> T + Send + 'static,
) -> Result<T, Error>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    T: Send + 'static,
{
    let permit = admission.acquire().await;
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let account = Arc::clone(admission.account());
    account.keep(UPLOAD_BYTES).await?;
    account.set_receiving(true);
    let task = admission.spawn(move || work(&mut Pieces(receiver)));
    let (done, ()) = tokio::join!(task.end(), send(body, sender, permit, admission.timeout(), &account));
    account.set_receiving(false);
    Ok(done?)
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
            () = sender.closed() => return,
        };
        let piece = match frame {
            None => return,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => piece,
                Err(_) => continue,
            },
            Some(Err(error)) => {
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
