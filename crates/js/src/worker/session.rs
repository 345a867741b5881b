//! [`Session`]: the rows that a running list function reads and the chunks that it sends. At the end of a batch of rows
//! the function waits for the server, which then receives everything that was sent.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use super::clock::Clock;
use super::connection::ServerConnection;
use super::qjs::{Context, Thrown, Value};
use crate::protocol::{Kind, Progress, Reader, Writer};

const FLUSH_BYTES: usize = 256 << 10;

const RESPONSE_BYTES: usize = 128 << 10;

#[derive(Default)]
pub(super) struct Session {
    connection: RefCell<Option<Rc<ServerConnection>>>,
    rows: RefCell<(Vec<u8>, usize)>,
    is_last_batch: Cell<bool>,
    rows_read: Cell<u32>,
    response: RefCell<Vec<u8>>,
    chunks: RefCell<Vec<u8>>,
    has_sent: Cell<bool>,
    bytes_since_row: Cell<u64>,
}

/// A function has sent more bytes without reading a row than its memory limit.
pub(super) struct OutputTooLarge;

impl Session {
    pub(super) fn begin(&self, connection: Rc<ServerConnection>) {
        self.connection.replace(Some(connection));
        self.rows.take();
        self.response.take();
        self.chunks.take();
        self.is_last_batch.set(false);
        self.rows_read.set(0);
        self.has_sent.set(false);
        self.bytes_since_row.set(0);
    }

    pub(super) fn end(&self) {
        if let Some(connection) = self.connection.take() {
            self.flush(&connection, Part::More);
        }
    }

    pub(super) fn abandon(&self) {
        self.connection.take();
    }

    /// The response applies only before the first chunk.
    pub(super) fn respond(&self, context: Context, response: Vec<u8>) -> Result<(), Thrown> {
        if response.len() > RESPONSE_BYTES {
            return Err(context.throw_range_error("response headers too long"));
        }
        if !self.has_sent.get() {
            self.response.replace(response);
        }
        Ok(())
    }

    /// Time spent waiting for the client does not count as time of the function.
    pub(super) fn send(&self, clock: &Clock, bytes_max: u64, chunk: &[u8]) -> Result<(), OutputTooLarge> {
        if chunk.is_empty() {
            return Ok(());
        }
        let bytes_since_row = self.bytes_since_row.get().saturating_add(chunk.len() as u64);
        self.bytes_since_row.set(bytes_since_row);
        if bytes_since_row > bytes_max {
            return Err(OutputTooLarge);
        }
        self.has_sent.set(true);
        self.chunks.borrow_mut().extend_from_slice(chunk);
        if self.chunks.borrow().len() >= FLUSH_BYTES
            && let Some(connection) = &*self.connection.borrow()
        {
            let begun = Instant::now();
            self.flush(connection, Part::More);
            clock.stop_for(begun.elapsed());
        }
        Ok(())
    }

    pub(super) fn next_row(&self, clock: &Clock, context: Context) -> Result<Value, Thrown> {
        let Some(connection) = self.connection.borrow().clone() else {
            return Ok(context.undefined());
        };
        loop {
            if let Some(mut row) = self.read_row() {
                self.rows_read.set(self.rows_read.get().wrapping_add(1));
                self.bytes_since_row.set(0);
                connection.report(Progress { document: self.rows_read.get(), function: 0 });
                clock.start();
                return context.parse_json(&mut row);
            }
            if self.is_last_batch.get() {
                return Ok(context.undefined());
            }
            self.flush(&connection, Part::Last);
            self.receive_rows(&connection);
        }
    }

    fn read_row(&self) -> Option<Vec<u8>> {
        let mut rows = self.rows.borrow_mut();
        let (bytes, at) = &mut *rows;
        let mut reader = Reader(bytes.get(*at..)?);
        let row = reader.bytes()?.to_vec();
        *at += 8 + row.len();
        Some(row)
    }

    fn receive_rows(&self, connection: &ServerConnection) {
        let frame = match connection.receive() {
            Ok(Some(frame)) if frame.kind == Kind::Rows => frame,
            _ => std::process::exit(1),
        };
        let rows = match connection.input(frame) {
            Ok(input) => input.to_vec(),
            Err(_) => std::process::exit(1),
        };
        self.rows.replace((rows, 0));
        self.is_last_batch.set(frame.count != 0);
    }

    fn flush(&self, connection: &ServerConnection, part: Part) {
        let response = self.response.take();
        let chunks = self.chunks.take();
        let mut message = Vec::with_capacity(8 + response.len() + chunks.len().min(FLUSH_BYTES));
        let mut pieces = chunks.chunks(FLUSH_BYTES).peekable();
        Writer(&mut message).bytes(&response);
        loop {
            message.extend_from_slice(pieces.next().unwrap_or_default());
            let more = pieces.peek().is_some();
            if !more && part == Part::More && message.len() == 8 {
                return;
            }
            let has_sent = if more || part == Part::More {
                connection.send_part(Kind::Chunks, &message)
            } else {
                connection.answer(Kind::Chunks, &message)
            };
            if has_sent.is_err() {
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    More,
    Last,
}
