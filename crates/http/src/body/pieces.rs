//! Bodies that are too large to be read whole: [`Pieces`] brings them to a thread that may block.

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Body;
use tokio::sync::mpsc;

use crate::{Error, bridge};

/// How many pieces may wait for their reader.
const PIECES_WAITING: usize = 4;

/// How many bytes are still read when the reader has stopped: a client that sent that much hears the answer instead
/// of a broken connection.
const DRAINED_BYTES: usize = 1 << 20;

/// A body, piece by piece.
pub(crate) struct Pieces(mpsc::Receiver<Result<Bytes, Error>>);

impl Pieces {
    /// The next piece, `None` at the end. Waits: only for threads that may.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Error> {
        self.0.blocking_recv().transpose()
    }
}

/// Runs `work` on a thread that may block, with the pieces of `body`.
pub(crate) async fn with_pieces<B, T>(
    body: B,
    work: impl FnOnce(&mut Pieces) -> Result<T, Error> + Send + 'static,
) -> Result<T, Error>
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
    T: Send + 'static,
{
    let (sender, receiver) = mpsc::channel(PIECES_WAITING);
    let work = bridge::blocking(move || work(&mut Pieces(receiver)));
    let (done, ()) = tokio::join!(work, send(body, sender));
    done
}

async fn send<B>(mut body: B, sender: mpsc::Sender<Result<Bytes, Error>>)
where
    B: Body<Data = Bytes, Error: std::fmt::Display> + Unpin,
{
    let mut drained = 0;
    while drained < DRAINED_BYTES {
        let piece = match body.frame().await {
            None => return,
            Some(Ok(frame)) => match frame.into_data() {
                Ok(piece) => piece,
                Err(_) => continue,
            },
            Some(Err(error)) => {
                let error = Error::bad_request(format!("the request body ended early: {error}"));
                // Nobody cares when the reader has stopped.
                let _ = sender.send(Err(error)).await;
                return;
            }
        };
        let length = piece.len();
        if sender.send(Ok(piece)).await.is_err() {
            drained += length;
        }
    }
}
