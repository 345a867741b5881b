//! [`Shipper`]: uploads new commits and the time up to which the log is complete.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Context as _;
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use settee_storage::{CommitLog, Engine, LogPosition, LogRead};

use super::piece::Piece;
use super::{Through, piece_name};
use crate::backup::remote::Store;
use crate::{environment, time};

const PIECE_BYTES: usize = 8 << 20;

/// An idle server updates the time up to which the log is complete in this interval.
const IDLE_US: u64 = 60_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stream {
    pub id: String,
    pub begins: LogPosition,
}

impl Stream {
    pub(crate) fn begin(engine: &dyn Engine) -> anyhow::Result<Self> {
        let mut random = [0; 4];
        environment::random(&mut random);
        let id = format!("{}-{}", time::file_name(environment::now_us()), HEXLOWER.encode(&random));
        Ok(Self { id, begins: log(engine)?.end()? })
    }
}

fn log(engine: &dyn Engine) -> anyhow::Result<&dyn CommitLog> {
    engine.log().context("the engine keeps no log")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shipped {
    All,
    /// Some commits were no longer available: a new stream has started and needs a backup.
    Restarted,
}

pub(crate) struct Shipper {
    store: Store,
    engine: Arc<dyn Engine>,
    stream: Arc<Mutex<Stream>>,
    shipped: LogPosition,
    reported_us: u64,
}

impl Shipper {
    pub(crate) fn new(store: Store, engine: Arc<dyn Engine>, stream: Arc<Mutex<Stream>>) -> Self {
        let shipped = stream.lock().begins;
        Self { store, engine, stream, shipped, reported_us: 0 }
    }

    pub(crate) fn ship(&mut self) -> anyhow::Result<Shipped> {
        self.go(false)
    }

    /// Sends the remaining commits. The caller must have stopped all writers.
    pub(crate) fn close(&mut self) -> anyhow::Result<Shipped> {
        self.go(true)
    }

    fn go(&mut self, is_closed: bool) -> anyhow::Result<Shipped> {
        self.store.prepare()?;
        let stream = self.stream.lock().id.clone();
        // The reads below find every commit that was acknowledged before this time.
        let now_us = environment::now_us();
        let before = self.shipped;
        loop {
            let Some(piece) = self.next()? else { return self.restart_stream() };
            if piece.is_empty() {
                break;
            }
            let (after, end) = (piece.after, piece.end);
            self.store.put(&piece_name(&stream, after), piece.finish()?)?;
            self.shipped.number = end;
        }
        if is_closed || self.shipped != before || now_us.saturating_sub(self.reported_us) >= IDLE_US {
            let through = Through { time_us: now_us, position: self.shipped.number, is_closed };
            through.put(&self.store, &stream)?;
            self.reported_us = now_us;
        }
        Ok(Shipped::All)
    }

    fn next(&self) -> anyhow::Result<Option<Piece>> {
        let mut piece = Piece::new(self.shipped.number);
        let read = log(self.engine.as_ref())?.read(self.shipped, &mut |record| {
            piece.push(record);
            if piece.len() < PIECE_BYTES { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })?;
        Ok((read != LogRead::Gap).then_some(piece))
    }

    fn restart_stream(&mut self) -> anyhow::Result<Shipped> {
        let stream = Stream::begin(self.engine.as_ref())?;
        self.shipped = stream.begins;
        self.reported_us = 0;
        *self.stream.lock() = stream;
        Ok(Shipped::Restarted)
    }
}
