//! Map functions, server side: [`Mapper`].

use std::sync::Arc;

use settee_design::{
    CompileError, Document, DocumentBatch, Emissions, Limits, MapFailure, MapSource, RunError, SearchKind, TakeRows,
};
use settee_model::json;

use super::requests::{Failure, compile, excerpt, run_error, timeout, write_limits};
use crate::pool::{Answer, Lease, Pool, Worker, WorkerError};
use crate::protocol::{self, Kind, Progress, Record, RecordKind, Writer};

/// Approximate length of a request: amortizes waking two processes, and fits their caches.
const REQUEST_BYTES: usize = 1 << 20;

pub(super) struct Mapper {
    pool: Arc<Pool>,
    source: MapSource,
    search: Option<SearchKind>,
    /// Indexes of the functions in the whole program, which rows and messages use.
    numbers: Vec<u32>,
    limits: Limits,
    /// `None` before the first request and after a failure.
    lease: Option<Lease>,
    /// Private copy of worker output that is not validated yet.
    received: Vec<u8>,
    validated: Vec<u8>,
}

#[derive(Debug, Default)]
pub(super) struct Log {
    lines: Vec<LogLine>,
    bytes: usize,
}

#[derive(Debug)]
struct LogLine {
    document: u32,
    function: u32,
    line: String,
}

const LOG_BYTES: usize = 1 << 20;

impl Log {
    pub(super) fn push(&mut self, document: u32, function: u32, line: String) {
        let bytes = self.bytes + line.len();
        if bytes <= LOG_BYTES {
            self.bytes = bytes;
            self.lines.push(LogLine { document, function, line });
        }
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(super) fn truncate(&mut self, lines: usize) {
        let dropped: usize = self.lines.drain(lines..).map(|line| line.line.len()).sum();
        self.bytes -= dropped;
    }

    pub(super) fn take(&mut self) -> impl Iterator<Item = String> {
        self.bytes = 0;
        self.lines.sort_by_key(|line| (line.document, line.function));
        std::mem::take(&mut self.lines).into_iter().map(|line| line.line)
    }
}

pub(super) struct MapOutput<'a, 't> {
    pub(super) output: &'a mut Emissions,
    pub(super) log: &'a mut Log,
    pub(super) take: &'a mut TakeRows<'t>,
}

#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    pub(super) batch: &'a DocumentBatch,
    pub(super) documents: &'a [u32],
}

impl<'a> Selection<'a> {
    fn get(self, index: usize) -> Document<'a> {
        self.batch.get(self.documents[index] as usize)
    }
}

#[derive(Default)]
struct Position {
    call: (u32, u16),
    rows: u64,
    bytes: u64,
}

impl Mapper {
    pub(super) fn new(
        pool: Arc<Pool>,
        source: MapSource,
        search: Option<SearchKind>,
        numbers: Vec<u32>,
        limits: Limits,
    ) -> Self {
        let (received, validated) = Default::default();
        Self { pool, source, search, numbers, limits, lease: None, received, validated }
    }

    pub(super) fn of(
        pool: &Arc<Pool>,
        source: &MapSource,
        search: Option<SearchKind>,
        numbers: Vec<u32>,
        limits: Limits,
    ) -> Self {
        let functions = numbers.iter().map(|index| Arc::clone(&source.functions[*index as usize])).collect();
        let source = MapSource { functions, library: source.library.clone() };
        Self::new(Arc::clone(pool), source, search, numbers, limits)
    }

    pub(super) fn compile(&mut self) -> Result<(), CompileError> {
        let mut program = Vec::new();
        let mut writer = Writer(&mut program);
        write_limits(&mut writer, self.limits);
        writer.u32(protocol::search_number(self.search));
        writer.u32(u32::from(self.source.library.is_some()));
        if let Some(library) = &self.source.library {
            writer.bytes(library.as_bytes());
        }
        for function in &self.source.functions {
            writer.bytes(function.as_bytes());
        }
        let count = self.source.functions.len();
        let (lease, _) = compile(&self.pool, Kind::CompileMap, count, &program, self.limits)?;
        self.lease = Some(lease);
        Ok(())
    }

    pub(super) fn map(&mut self, batch: Selection<'_>, output_sink: &mut MapOutput<'_, '_>) -> Result<(), RunError> {
        let mut first = 0;
        while first < batch.documents.len() {
            first += self.map_request(batch, first, output_sink)?;
        }
        Ok(())
    }

    fn map_request(
        &mut self,
        batch: Selection<'_>,
        first: usize,
        output_sink: &mut MapOutput<'_, '_>,
    ) -> Result<usize, RunError> {
        if self.lease.is_none() {
            self.compile().map_err(|error| RunError::Machinery(error.to_string()))?;
        }
        let mut count = 0;
        let exchanged = self.send(batch, first).and_then(|sent| {
            count = sent;
            self.receive(batch, first, count, output_sink)
        });
        match exchanged {
            Ok(None) => Ok(count),
            Ok(Some(progress)) => {
                self.drop_worker();
                let stopped = std::mem::take(&mut self.received);
                Err(self.error(Failure::Stopped(&stopped, progress), batch, first, count))
            }
            Err(error) => {
                self.drop_worker();
                Err(self.error(Failure::Worker(error), batch, first, count))
            }
        }
    }

    fn drop_worker(&mut self) {
        if let Some(lease) = self.lease.take() {
            lease.discard();
        }
    }

    fn error(&self, failure: Failure<'_>, batch: Selection<'_>, first: usize, count: usize) -> RunError {
        run_error(failure, self.limits, |document, function| {
            let source = self.source.functions.get(function).map_or_else(String::new, |source| excerpt(source));
            let id = if document < count { batch.get(first + document).id } else { "?" };
            let number = self.numbers.get(function).map_or(0, |number| number + 1);
            format!("map function {number} ({source}) on document \"{id}\"")
        })
    }

    fn worker(&mut self) -> &mut Worker {
        self.lease.as_mut().expect("compiled before anything is sent").worker()
    }

    fn send(&mut self, batch: Selection<'_>, first: usize) -> Result<usize, WorkerError> {
        let worker = self.worker();
        let mut at = 0;
        let mut index = first;
        while index < batch.documents.len() {
            let text = batch.get(index).json;
            let end = at + 4 + text.len();
            if end > REQUEST_BYTES && index > first {
                break;
            }
            let len = u32::try_from(text.len())
                .map_err(|_| WorkerError::ProtocolViolation("a document of more than 4 GiB"))?;
            worker.reserve(end)?;
            worker.write(at, &len.to_le_bytes());
            worker.write(at + 4, text);
            at = end;
            index += 1;
        }
        worker.send(Kind::Map, index - first, at)?;
        Ok(index - first)
    }

    fn receive(
        &mut self,
        batch: Selection<'_>,
        first: usize,
        count: usize,
        output_sink: &mut MapOutput<'_, '_>,
    ) -> Result<Option<Progress>, WorkerError> {
        self.received.clear();
        let mut position = Position::default();
        loop {
            let worker = self.lease.as_mut().expect("documents were sent").worker();
            let Answer { kind, more } = worker.receive(timeout(self.limits), &mut self.received)?;
            match kind {
                Kind::Done => {}
                Kind::Stopped if !more => return Ok(Some(worker.progress())),
                _ => return Err(WorkerError::ProtocolViolation("an unexpected response")),
            }
            self.validate_records(batch, first, count, &mut position, output_sink)?;
            if more {
                self.worker().send(Kind::Next, 0, 0)?;
            } else if self.received.is_empty() {
                return Ok(None);
            } else {
                return Err(WorkerError::ProtocolViolation("a truncated record"));
            }
        }
    }

    /// Validates the complete records, and keeps the remaining bytes.
    fn validate_records(
        &mut self,
        batch: Selection<'_>,
        first: usize,
        count: usize,
        position: &mut Position,
        output_sink: &mut MapOutput<'_, '_>,
    ) -> Result<(), WorkerError> {
        let mut rest = &self.received[..];
        while rest.len() >= Record::BYTES {
            let record = Record::from_bytes(rest).ok_or(WorkerError::ProtocolViolation("an unknown kind of record"))?;
            let functions = self.source.functions.len();
            if record.document as usize >= count || usize::from(record.function) >= functions {
                return Err(WorkerError::ProtocolViolation("a record of no document or function"));
            }
            if position.advance(record, self.limits)? {
                output_sink.output.hand_on(&self.limits, output_sink.take).map_err(|_| WorkerError::SinkClosed)?;
            }
            let Some(body) = rest.get(Record::BYTES..Record::BYTES + record.body_len()) else {
                break;
            };
            rest = &rest[Record::BYTES + record.body_len()..];
            let (key, value) = body.split_at(record.first as usize);
            let document = batch.documents[first + record.document as usize];
            let function = self.numbers[usize::from(record.function)];
            position.take(record);
            match record.kind {
                RecordKind::Row => {
                    self.validated.clear();
                    json::compact(key, &mut self.validated)
                        .map_err(|_| WorkerError::ProtocolViolation("a key is not JSON"))?;
                    let middle = self.validated.len();
                    json::compact(value, &mut self.validated)
                        .map_err(|_| WorkerError::ProtocolViolation("a value is not JSON"))?;
                    let (key, value) = self.validated.split_at(middle);
                    output_sink.output.push(document, function, key, value);
                }
                RecordKind::Failure => {
                    let message = String::from_utf8_lossy(key).into_owned();
                    let id = batch.get(first + record.document as usize).id;
                    let line = format!("function raised exception {message} with doc._id {id}");
                    output_sink.log.push(document, function, line);
                    output_sink.output.failures.push(MapFailure { document, function, message });
                }
                RecordKind::Log => {
                    output_sink.log.push(document, function, String::from_utf8_lossy(key).into_owned());
                }
            }
        }
        let used = self.received.len() - rest.len();
        self.received.drain(..used);
        Ok(())
    }
}

impl Position {
    /// Records must be in order and within the limits. Returns true if another function or document starts.
    fn advance(&mut self, record: Record, limits: Limits) -> Result<bool, WorkerError> {
        let call = (record.document, record.function);
        if call < self.call {
            return Err(WorkerError::ProtocolViolation("records out of order"));
        }
        let is_next = call != self.call;
        if is_next {
            (self.rows, self.bytes) = (0, 0);
        }
        self.call = call;
        let bytes = self.bytes.saturating_add(record.body_len() as u64);
        let texts = matches!(record.kind, RecordKind::Failure | RecordKind::Log) && bytes <= TEXT_BYTES;
        let rows = self.rows < u64::from(limits.rows_per_document) && bytes <= limits.bytes_per_document;
        if texts || rows { Ok(is_next) } else { Err(WorkerError::ProtocolViolation("records beyond the limits")) }
    }

    fn take(&mut self, record: Record) {
        if record.kind == RecordKind::Row {
            self.rows += 1;
            self.bytes += record.body_len() as u64;
        }
    }
}

/// Upper bound of the text of an exception, and of the lines that a function may log for a document.
const TEXT_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::pool::{PoolSettings, WorkerCommand};

    fn batch() -> DocumentBatch {
        let mut batch = DocumentBatch::new();
        for id in ["a", "b", "c"] {
            batch.push_with(1, id, |_| Ok::<(), ()>(())).unwrap();
        }
        batch
    }

    /// Maps with two functions; `bytes` is the worker output about the last two of three documents.
    fn take(bytes: &[u8]) -> Result<(Emissions, usize), WorkerError> {
        let command = WorkerCommand { program: "/does/not/exist".into(), args: Vec::new() };
        let source = MapSource { functions: vec!["a".into(), "b".into()], library: None };
        let limits = Limits { rows_per_document: 2, bytes_per_document: 100, ..Limits::default() };
        let pool = Pool::new(command, PoolSettings::default());
        let mut mapper = Mapper::new(pool, source, None, vec![0, 1], limits);
        mapper.received = bytes.to_vec();
        let mut output = Emissions::new();
        let batch = Selection { batch: &batch(), documents: &[0, 1, 2] };
        let mut log = Log::default();
        let take: &mut TakeRows<'_> = &mut |_| std::ops::ControlFlow::Continue(());
        let mut output_sink = MapOutput { output: &mut output, log: &mut log, take };
        mapper.validate_records(batch, 1, 2, &mut Position::default(), &mut output_sink)?;
        output.log.extend(log.take());
        Ok((output, mapper.received.len()))
    }

    fn record(kind: RecordKind, document: u32, function: u16, first: &[u8], second: &[u8]) -> Vec<u8> {
        let len = |bytes: &[u8]| u32::try_from(bytes.len()).unwrap();
        let record = Record { kind, function, document, first: len(first), second: len(second) };
        [&record.to_bytes(), first, second].concat()
    }

    #[test]
    fn good_records_are_taken_and_half_ones_wait() {
        let row = |document, function| record(RecordKind::Row, document, function, b"[1]", b"null");
        let bytes = [row(0, 0), record(RecordKind::Log, 0, 1, b"line", b""), row(1, 0), row(1, 1)].concat();
        let (output, left) = take(&bytes).unwrap();
        assert_eq!((output.len(), output.log.len(), left), (3, 1, 0));
        assert_eq!(output.rows().map(|row| row.document).collect::<Vec<_>>(), [1, 2, 2]);
        for cut in 1..bytes.len() {
            let (_, left) = take(&bytes[..cut]).unwrap();
            assert!(left < 40);
        }
    }

    #[test]
    fn a_lying_worker_is_found_out() {
        let row = |document, function, key: &[u8]| record(RecordKind::Row, document, function, key, b"1");
        let liars = [
            vec![9; 16],
            row(2, 0, b"1"),
            row(0, 2, b"1"),
            row(0, 0, b"{"),
            row(0, 0, b"\xff"),
            row(0, 0, b"\"\\ud800\""),
            row(0, 0, b""),
            row(0, 0, &[b'1'; 101]),
            record(RecordKind::Row, 0, 0, b"1", b"1,2"),
            [row(1, 0, b"1"), row(0, 0, b"1")].concat(),
            [row(0, 1, b"1"), row(0, 0, b"1")].concat(),
            [row(0, 0, b"1"), row(0, 0, b"1"), row(0, 0, b"1")].concat(),
        ];
        for liar in liars {
            assert!(matches!(take(&liar), Err(WorkerError::ProtocolViolation(_))), "{liar:?}");
        }
    }

    #[test]
    fn random_bytes_do_no_harm() {
        let seed = 0x5851_f42d_4c95_7f2d_u64;
        println!("seed {seed}");
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33).to_le_bytes()[0]
        };
        for _ in 0..5_000 {
            let mut bytes = record(RecordKind::Row, 0, 0, b"[1,2]", b"{\"a\":true}");
            bytes.extend_from_slice(&record(RecordKind::Failure, 1, 1, b"text", b""));
            for _ in 0..next() % 8 {
                let at = usize::from(next()) % bytes.len();
                bytes[at] = if next() % 2 == 0 { next() } else { next() % 4 };
            }
            if let Ok((output, _)) = take(&bytes) {
                assert!(output.rows().all(|row| row.document < 3 && row.function < 2));
            }
        }
    }
}
