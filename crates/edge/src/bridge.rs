//! Streamed responses, and work that needs much memory.

pub mod permits;
pub mod pipe;

use std::ops::{ControlFlow, Deref};
use std::sync::Arc;
use std::time::Duration;

use crate::budget::{Account, Held};
use bytes::Bytes;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use settee_threads::{Cancellation, Failed, lower_priority};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use permits::{Admission, ClientPermit};
use pipe::{Pieces, Pipe};

use crate::Error;
use crate::respond::{self, Aborted, Response};

/// A smaller response is sent whole.
const PIECE_BYTES: usize = 32 << 10;

const LONG_BYTES: usize = 128 << 10;

const PIECES_WAITING: usize = 4;

/// Memory of a streamed response: the buffers of its connection, the cursors of its snapshot, and a stack.
const LONG_ANSWER_BYTES: usize = 256 << 10;

/// Runs `write` on a thread that may wait for its client. The output is sent whole if it is short and streamed
/// otherwise. After the first piece `write` must report errors by [`Output::fail`]. [`Output::set_head`] can replace
/// the status and the headers.
pub async fn stream(
    admission: Admission,
    write: impl FnOnce(&mut Output) -> Result<(), Error> + Send + 'static,
) -> Result<Response, Error> {
    let permit = admission.acquire().await;
    let (begun, first_piece) = oneshot::channel();
    let timeout = admission.timeout();
    let account = Arc::clone(admission.account());
    // Reserved before the work starts and owned by the output. A short response releases it immediately.
    let memory = account.hold(LONG_ANSWER_BYTES.min(account.limit() / 2)).await?;
    let task = admission.spawn(move || {
        let sink = Sink::Unsent { begun, permit, timeout };
        let (head, buffer, expected) = Default::default();
        let mut output = Output { head, buffer, sink, account, expected, has_failed: false, _memory: Some(memory) };
        let result = write(&mut output);
        output.finish(result)
    });
    match first_piece.await {
        Ok((head, pieces)) => Ok(head.apply(respond::streamed("application/json", pieces))),
        // The writer ended before the first piece was full.
        Err(_) => {
            let (head, body) = task.end().await??;
            Ok(whole(head, body))
        }
    }
}

/// Calls `write` on this thread, without a permit. Returns `None` if the response is longer than a piece or needs more
/// memory: then the output is discarded, and the caller must call [`stream`].
pub fn short(
    account: &Arc<Account>,
    write: impl FnOnce(&mut Output) -> Result<(), Error>,
) -> Option<Result<Response, Error>> {
    let (head, buffer, expected) = Default::default();
    let account = Arc::clone(account);
    let mut output = Output { head, buffer, sink: Sink::Short, account, expected, has_failed: false, _memory: None };
    let result = write(&mut output);
    let is_short = matches!(output.sink, Sink::Short);
    is_short.then(|| result.map(|()| whole(output.head, Bytes::from(output.buffer))))
}

fn whole(head: Head, body: Bytes) -> Response {
    head.apply(respond::whole(StatusCode::OK, "application/json", body))
}

pub async fn piping<T: Send + 'static>(
    admission: Admission,
    sender: mpsc::Sender<Result<Bytes, Aborted>>,
    work: impl FnOnce(Pipe) -> T + Send + 'static,
) -> Result<T, Failed> {
    let permit = admission.acquire().await;
    let pipe = Pipe::sharing_sender(sender, permit, admission.timeout(), Arc::clone(admission.account()));
    admission.spawn(move || work(pipe)).end().await
}

/// Runs work that needs much memory and time, once both are available. The work yields to short work.
pub async fn long<T: Send + 'static>(
    admission: Admission,
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Error> {
    let _permit = admission.acquire().await;
    let _memory = admission.account().hold(bytes).await?;
    let work_with_low_priority = move || {
        lower_priority();
        work()
    };
    Ok(admission.spawn(work_with_low_priority).end().await?)
}

#[derive(Clone, Debug, Default)]
pub struct Head {
    replacement: Option<(StatusCode, HeaderMap)>,
    additional: HeaderMap,
}

impl Head {
    pub fn new(status: StatusCode, headers: HeaderMap) -> Self {
        Self { replacement: Some((status, headers)), additional: HeaderMap::new() }
    }

    fn apply(self, mut response: Response) -> Response {
        if let Some((status, headers)) = self.replacement {
            *response.status_mut() = status;
            *response.headers_mut() = headers;
            response.headers_mut().entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        }
        response.headers_mut().extend(self.additional);
        response
    }
}

pub struct Output {
    head: Head,
    buffer: Vec<u8>,
    sink: Sink,
    account: Arc<Account>,
    expected: Vec<Held>,
    has_failed: bool,
    _memory: Option<Held>,
}

enum Sink {
    /// Nothing may be sent before the end.
    Short,
    Unsent {
        begun: oneshot::Sender<(Head, Pieces)>,
        permit: ClientPermit,
        timeout: Duration,
    },
    Pieces(Pipe),
    Closed,
}

impl Output {
    /// Has no effect after the first piece is sent.
    pub fn set_head(&mut self, head: Head) {
        self.head.replacement = head.replacement;
    }

    /// Adds the header to any head. Has no effect after the first piece is sent.
    pub fn add_header(&mut self, name: HeaderName, value: &str) {
        respond::set(&mut self.head.additional, name, value);
    }

    pub fn account(&self) -> &Arc<Account> {
        &self.account
    }

    pub fn cancellation(&self) -> &Cancellation {
        self.account.cancellation()
    }

    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.buffer
    }

    /// Reserves memory for a large text before it is written. After an error the caller must not write more.
    pub fn expect(&mut self, bytes: usize) -> Result<(), Error> {
        if bytes >= LONG_BYTES {
            lower_priority();
        }
        if bytes >= PIECE_BYTES && matches!(self.sink, Sink::Short) {
            self.sink = Sink::Closed;
            return Err(Error::internal("the response is not short"));
        }
        if bytes >= PIECE_BYTES {
            self.expected.push(Handle::current().block_on(self.account.hold(bytes))?);
        }
        Ok(())
    }

    /// Sends the buffer if it is large enough. Must be called between rows.
    pub fn row_done(&mut self) -> ControlFlow<()> {
        if self.cancellation().is_cancelled() {
            return ControlFlow::Break(());
        }
        if self.buffer.len() < PIECE_BYTES { ControlFlow::Continue(()) } else { self.send() }
    }

    /// Sends the buffer, regardless of its size. The response then has no `Content-Length`.
    pub fn begin(&mut self) -> ControlFlow<()> {
        self.send()
    }

    #[must_use]
    pub fn is_begun(&self) -> bool {
        !matches!(self.sink, Sink::Unsent { .. } | Sink::Short)
    }

    /// Ends a partly sent response with `text`, and aborts it, because no client must take it for complete.
    pub fn fail(&mut self, error: &Error, text: &[u8]) {
        tracing::warn!(name = %error.name, reason = %error.reason, "a response was aborted");
        self.buffer.extend_from_slice(text);
        self.has_failed = true;
    }

    /// Ends a body that is not JSON: with the error if nothing was sent yet, otherwise by aborting the connection.
    pub fn break_off<E: Deref<Target = Error>>(&mut self, error: E) -> Result<(), E> {
        match std::mem::replace(&mut self.sink, Sink::Closed) {
            unsent @ (Sink::Unsent { .. } | Sink::Short) => {
                self.sink = unsent;
                Err(error)
            }
            Sink::Pieces(pipe) => {
                tracing::warn!(name = %error.name, reason = %error.reason, "a response was aborted");
                self.buffer.clear();
                drop(pipe);
                Ok(())
            }
            Sink::Closed => Ok(()),
        }
    }

    fn send(&mut self) -> ControlFlow<()> {
        let piece = Bytes::from(std::mem::replace(&mut self.buffer, Vec::with_capacity(PIECE_BYTES + 1024)));
        self.expected.clear();
        let mut pipe = match std::mem::replace(&mut self.sink, Sink::Closed) {
            Sink::Unsent { begun, permit, timeout } => {
                let (pipe, pieces) = Pipe::new(PIECES_WAITING, permit, timeout, Arc::clone(&self.account));
                if begun.send((std::mem::take(&mut self.head), pieces)).is_err() {
                    return ControlFlow::Break(());
                }
                pipe
            }
            Sink::Pieces(pipe) => pipe,
            Sink::Closed | Sink::Short => return ControlFlow::Break(()),
        };
        pipe.send(piece)?;
        self.sink = Sink::Pieces(pipe);
        ControlFlow::Continue(())
    }

    fn finish(mut self, result: Result<(), Error>) -> Result<(Head, Bytes), Error> {
        if !self.is_begun() {
            return result.map(|()| (self.head, Bytes::from(self.buffer)));
        }
        if let Err(error) = result {
            self.fail(&error, b"");
        }
        if !self.buffer.is_empty() && self.send().is_break() {
            return Ok((self.head, Bytes::new()));
        }
        // A failed response must not be ended.
        if let (false, Sink::Pieces(pipe)) = (self.has_failed, self.sink) {
            pipe.end();
        }
        Ok((self.head, Bytes::new()))
    }
}

#[cfg(test)]
mod tests;
