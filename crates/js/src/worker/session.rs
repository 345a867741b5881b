//! The rows that a running list function reads and the chunks that it sends ([`Session`]).
//!
//! Rows arrive in batches: only when one is used up the function waits for the server, which then receives everything
//! that the function has sent. If the server disconnects, the process ends at once.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use super::engine::Host;
use super::link::Link;
use super::qjs::{Context, Thrown, Value};
use crate::protocol::{Kind, Progress, Reader, Writer};

/// Maximum size of chunks that wait for the next row.
const WAITING_BYTES: usize = 256 << 10;

/// Maximum length of the text of a response that a function may start.
const RESPONSE_BYTES: usize = 128 << 10;

/// Connection of a running list function to the server.
#[derive(Default)]
pub(super) struct Session {
    link: RefCell<Option<Rc<Link>>>,
    rows: RefCell<(Vec<u8>, usize)>,
    last: Cell<bool>,
    taken: Cell<u32>,
    /// A response that was not sent to the server yet.
    response: RefCell<Vec<u8>>,
    chunks: RefCell<Vec<u8>>,
    sent: Cell<bool>,
    /// Bytes sent since the last row.
    since_row: Cell<u64>,
}

/// Error: a function has sent more bytes without reading a row than its memory limit.
pub(super) struct TooMuch;

impl Session {
    pub(super) fn begin(&self, link: Rc<Link>) {
        self.link.replace(Some(link));
        self.rows.take();
        self.response.take();
        self.chunks.take();
        self.last.set(false);
        self.taken.set(0);
        self.sent.set(false);
        self.since_row.set(0);
    }

    /// Ends the call; the server receives the rest.
    pub(super) fn end(&self) {
        if let Some(link) = self.link.take() {
            self.flush(&link, Part::More);
        }
    }

    /// Ends the call after a failure.
    pub(super) fn abandon(&self) {
        self.link.take();
    }

    /// Sets the response that the function starts; it applies only before the first chunk.
    pub(super) fn respond(&self, context: Context, response: Vec<u8>) -> Result<(), Thrown> {
        if response.len() > RESPONSE_BYTES {
            return Err(context.throw_range_error("response headers too long"));
        }
        if !self.sent.get() {
            self.response.replace(response);
        }
        Ok(())
    }

    /// Sends a chunk. Time spent waiting for the client does not count as time of the function.
    pub(super) fn send(&self, host: &Host, chunk: &[u8]) -> Result<(), TooMuch> {
        if chunk.is_empty() {
            return Ok(());
        }
        let since_row = self.since_row.get().saturating_add(chunk.len() as u64);
        self.since_row.set(since_row);
        if since_row > host.limits.memory_bytes {
            return Err(TooMuch);
        }
        self.sent.set(true);
        self.chunks.borrow_mut().extend_from_slice(chunk);
        if self.chunks.borrow().len() >= WAITING_BYTES
            && let Some(link) = &*self.link.borrow()
        {
            let begun = Instant::now();
            self.flush(link, Part::More);
            host.stop_clock_for(begun.elapsed());
        }
        Ok(())
    }

    pub(super) fn next_row(&self, host: &Host, context: Context) -> Result<Value, Thrown> {
        let Some(link) = self.link.borrow().clone() else {
            return Ok(context.undefined());
        };
        loop {
            if let Some(mut row) = self.take_row() {
                self.taken.set(self.taken.get().wrapping_add(1));
                self.since_row.set(0);
                link.report(Progress { document: self.taken.get(), function: 0 });
                host.start_clock();
                return context.parse_json(&mut row);
            }
            if self.last.get() {
                return Ok(context.undefined());
            }
            self.flush(&link, Part::Last);
            self.await_rows(&link);
        }
    }

    fn take_row(&self) -> Option<Vec<u8>> {
        let mut rows = self.rows.borrow_mut();
        let (bytes, at) = &mut *rows;
        let mut reader = Reader(bytes.get(*at..)?);
        let row = reader.bytes()?.to_vec();
        *at += 8 + row.len();
        Some(row)
    }

    fn await_rows(&self, link: &Link) {
        let frame = match link.receive() {
            Ok(Some(frame)) if frame.kind == Kind::Rows => frame,
            // The response is no longer needed.
            _ => std::process::exit(1),
        };
        let rows = match link.input(frame) {
            Ok(input) => input.to_vec(),
            Err(_) => std::process::exit(1),
        };
        self.rows.replace((rows, 0));
        self.last.set(frame.count != 0);
    }

    fn flush(&self, link: &Link, part: Part) {
        let response = self.response.take();
        let chunks = self.chunks.take();
        let mut message = Vec::with_capacity(8 + response.len() + chunks.len().min(WAITING_BYTES));
        let mut pieces = chunks.chunks(WAITING_BYTES).peekable();
        Writer(&mut message).bytes(&response);
        loop {
            message.extend_from_slice(pieces.next().unwrap_or_default());
            let more = pieces.peek().is_some();
            if !more && part == Part::More && message.len() == 8 {
                return;
            }
            let sent = if more || part == Part::More {
                link.send_part(Kind::Chunks, &message)
            } else {
                link.answer(Kind::Chunks, &message)
            };
            if sent.is_err() {
                std::process::exit(1);
            }
            if !more {
                return;
            }
            message.clear();
            Writer(&mut message).bytes(b"");
        }
    }
}

/// Continuation after a message: the worker continues, or waits for rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    More,
    Last,
}
