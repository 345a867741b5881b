//! [`ServerConnection`]: the worker's end of the connection to the server.

use std::cell::{Cell, Ref, RefCell};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;

use crate::protocol::{Frame, Kind, Progress};
use crate::shared_memory::{INPUT, OUTPUT, SharedMemory};

pub(super) const PART_BYTES: usize = OUTPUT.end - OUTPUT.start;

pub(super) struct ServerConnection {
    socket: UnixStream,
    memory: RefCell<SharedMemory>,
    /// Counts requests, so that the progress of two requests differs.
    request_number: Cell<u16>,
}

pub(super) fn protocol_error(label: &str) -> io::Error {
    io::Error::other(label)
}

impl ServerConnection {
    pub(super) fn new(socket: UnixStream, memory: SharedMemory) -> Self {
        Self { socket, memory: RefCell::new(memory), request_number: Cell::new(0) }
    }

    /// Returns `None` if the server has disconnected.
    pub(super) fn receive(&self) -> io::Result<Option<Frame>> {
        let Some(frame) = Frame::read_from(&self.socket)? else {
            return Ok(None);
        };
        let region = usize::try_from(frame.region).map_err(|_| protocol_error("a region too large"))?;
        self.memory.borrow_mut().remap(region)?;
        self.request_number.set(self.request_number.get().wrapping_add(1));
        self.report(Progress { document: 0, function: 0 });
        Ok(Some(frame))
    }

    /// The bytes are stable until the next request. Nothing can be sent while they are borrowed.
    pub(super) fn input(&self, frame: Frame) -> io::Result<Ref<'_, [u8]>> {
        let len = usize::try_from(frame.len).map_err(|_| protocol_error("a request too large"))?;
        Ok(Ref::map(self.memory.borrow(), |memory| memory.bytes(INPUT..INPUT + len)))
    }

    pub(super) fn report(&self, progress: Progress) {
        self.memory.borrow().counter().store(progress.pack(self.request_number.get()), Ordering::Relaxed);
    }

    pub(super) fn answer(&self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while rest.len() > PART_BYTES {
            let (part, later) = rest.split_at(PART_BYTES);
            self.send_part(kind, part)?;
            rest = later;
        }
        self.send(kind, rest, 0)
    }

    /// Waits until the server requests the next part.
    pub(super) fn send_part(&self, kind: Kind, part: &[u8]) -> io::Result<()> {
        self.send(kind, part, 1)?;
        match Frame::read_from(&self.socket)? {
            Some(Frame { kind: Kind::Next, .. }) => Ok(()),
            _ => Err(protocol_error("the server did not take the answer")),
        }
    }

    fn send(&self, kind: Kind, part: &[u8], more: u64) -> io::Result<()> {
        let mut memory = self.memory.borrow_mut();
        memory.write(OUTPUT.start, part);
        let frame = Frame { kind, count: more, len: part.len() as u64, region: memory.len() as u64 };
        frame.write_to(&self.socket)
    }
}
