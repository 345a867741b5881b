//! Reduce functions, server side: [`FunctionReducer`].

use std::sync::Arc;

use settee_design::{CompileError, Growth, Limits, ReduceRows, Reducer, RunError, overflow_text};
use settee_model::json;

use super::options::ReduceLimit;
use super::requests::{Failure, compile, excerpt, run_error, send_and_receive, write_limits};
use crate::pool::{Lease, Pool, WorkerError};
use crate::protocol::{Kind, Reader, Writer};

const REQUEST_BYTES: usize = 1 << 20;

/// Length of the input of CouchDB's query server around the rows: `["reduce",["…"],[…]]`.
const REDUCE_FRAME_BYTES: u64 = 18;
const REREDUCE_FRAME_BYTES: u64 = 20;

pub(super) struct FunctionReducer {
    pool: Arc<Pool>,
    source: Arc<str>,
    limits: Limits,
    reduce_limit: ReduceLimit,
    /// `None` after a failure, until the next request.
    lease: Option<Lease>,
    uses_keys: bool,
    request: Vec<u8>,
    log: Vec<String>,
}

#[derive(Default)]
struct Pending {
    groups: Vec<PendingGroup>,
}

#[derive(Clone, Copy)]
struct PendingGroup {
    /// Offset in the request.
    start: usize,
    /// Length of the group's input for CouchDB's query server, which the reduce limit compares with the output.
    couchdb_input_bytes: u64,
}

impl FunctionReducer {
    pub(super) fn new(
        pool: Arc<Pool>,
        source: &str,
        limits: Limits,
        reduce_limit: ReduceLimit,
    ) -> Result<Self, CompileError> {
        let (source, request, log) = (Arc::from(source), Vec::new(), Vec::new());
        let mut reducer = Self { pool, source, limits, reduce_limit, lease: None, uses_keys: true, request, log };
        reducer.compile()?;
        Ok(reducer)
    }

    fn compile(&mut self) -> Result<(), CompileError> {
        let mut program = Vec::new();
        let mut writer = Writer(&mut program);
        write_limits(&mut writer, self.limits);
        writer.bytes(self.source.as_bytes());
        let (lease, note) = compile(&self.pool, Kind::CompileReduce, 1, &program, self.limits)?;
        self.uses_keys = note != [0];
        self.lease = Some(lease);
        Ok(())
    }

    fn flush(&mut self, kind: Kind, pending: &mut Pending, results: &mut Vec<Vec<u8>>) -> Result<(), RunError> {
        let groups = std::mem::take(&mut pending.groups);
        let mut left = &groups[..];
        while let [first, ..] = left {
            // A worker stops when its response gets long; the remaining groups are sent again.
            let done = self.send_groups(kind, first.start, left, results)?;
            left = &left[done..];
        }
        self.request.clear();
        Ok(())
    }

    /// Sends the groups from offset `start` on, and appends their reductions. Returns their number, at least one.
    fn send_groups(
        &mut self,
        kind: Kind,
        start: usize,
        groups: &[PendingGroup],
        results: &mut Vec<Vec<u8>>,
    ) -> Result<usize, RunError> {
        if self.lease.is_none() {
            self.compile().map_err(|error| RunError::Machinery(error.to_string()))?;
        }
        let worker = self.lease.as_mut().expect("just compiled").worker();
        let answer = send_and_receive(worker, kind, groups.len(), &self.request[start..], self.limits);
        let progress = worker.progress();
        let failure = match &answer {
            Ok((Kind::Done, bytes)) => match self.parse_results(bytes, groups) {
                Some((mut reductions, mut log)) => {
                    let done = reductions.len();
                    results.append(&mut reductions);
                    self.log.append(&mut log);
                    return Ok(done);
                }
                None => Failure::Worker(WorkerError::ProtocolViolation("a reduction is not JSON")),
            },
            Ok((Kind::Stopped, bytes)) => Failure::Stopped(bytes, progress),
            Ok(_) => Failure::Worker(WorkerError::ProtocolViolation("an unexpected response")),
            Err(_) => match answer {
                Err(error) => Failure::Worker(error),
                Ok(_) => return Ok(0),
            },
        };
        self.request.clear();
        if let Some(lease) = self.lease.take() {
            lease.discard();
        }
        let location = |_, _| format!("reduce function ({})", excerpt(&self.source));
        Err(run_error(failure, self.limits, location))
    }

    fn parse_results(&self, bytes: &[u8], groups: &[PendingGroup]) -> Option<(Vec<Vec<u8>>, Vec<String>)> {
        let mut reader = Reader(bytes);
        let done = usize::try_from(reader.u64()?).ok().filter(|done| (1..=groups.len()).contains(done))?;
        let (mut reductions, mut log) = (Vec::with_capacity(done), Vec::new());
        for group in &groups[..done] {
            let text = reader.bytes()?;
            if text.is_empty() {
                reductions.push(overflow_text(group.couchdb_input_bytes, self.limits.reduction_bytes + 1));
                continue;
            }
            let mut checked = Vec::with_capacity(text.len());
            json::compact(text, &mut checked).ok()?;
            match (self.overflow(checked.len() as u64, group.couchdb_input_bytes), self.limits.growth) {
                (Some(text), Growth::Refused) => checked = text,
                (Some(text), Growth::Logged) => log.push(String::from_utf8_lossy(&text).into_owned()),
                (Some(_), Growth::Allowed) | (None, _) => {}
            }
            reductions.push(checked);
        }
        while let Some(line) = reader.bytes() {
            log.push(String::from_utf8_lossy(line).into_owned());
        }
        reader.0.is_empty().then_some((reductions, log))
    }

    fn overflow(&self, output_bytes: u64, input_bytes: u64) -> Option<Vec<u8>> {
        let ReduceLimit::On { threshold_bytes, ratio } = self.reduce_limit else {
            return None;
        };
        // CouchDB measures the array of the results of one call.
        let output_bytes = output_bytes + 2;
        #[expect(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]
        let grew = output_bytes as f64 * ratio > input_bytes as f64;
        (output_bytes > threshold_bytes && grew).then(|| overflow_text(input_bytes, output_bytes))
    }
}

impl Reducer for FunctionReducer {
    fn reduce(&mut self, groups: &[ReduceRows<'_>]) -> Result<Vec<Vec<u8>>, RunError> {
        let mut results = Vec::with_capacity(groups.len());
        let mut pending = Pending::default();
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for group in groups {
            keys.clear();
            values.clear();
            let mut couchdb_input_bytes = REDUCE_FRAME_BYTES;
            for (number, (key, id, value)) in group.rows.iter().enumerate() {
                let start = if number == 0 { b"[" } else { b"," };
                values.extend_from_slice(start);
                values.extend_from_slice(value);
                // `[["key","id"],value],`
                couchdb_input_bytes += (key.len() + id.len() + 2 + value.len() + 7) as u64;
                if self.uses_keys {
                    keys.extend_from_slice(start);
                    keys.push(b'[');
                    keys.extend_from_slice(key);
                    keys.push(b',');
                    json::write_string(&mut keys, id);
                    keys.push(b']');
                }
            }
            close_array(&mut values, group.rows.is_empty());
            if self.uses_keys {
                close_array(&mut keys, group.rows.is_empty());
            } else {
                keys.extend_from_slice(b"null");
            }
            let start = self.request.len();
            let mut writer = Writer(&mut self.request);
            writer.bytes(&keys);
            writer.bytes(&values);
            pending.groups.push(PendingGroup { start, couchdb_input_bytes: couchdb_input_bytes.saturating_sub(1) });
            if self.request.len() >= REQUEST_BYTES {
                self.flush(Kind::Reduce, &mut pending, &mut results)?;
            }
        }
        self.flush(Kind::Reduce, &mut pending, &mut results)?;
        Ok(results)
    }

    fn rereduce(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>, RunError> {
        let mut results = Vec::with_capacity(groups.len());
        let mut pending = Pending::default();
        let mut values = Vec::new();
        for group in groups {
            values.clear();
            for (number, value) in group.iter().enumerate() {
                values.push(if number == 0 { b'[' } else { b',' });
                values.extend_from_slice(value);
            }
            close_array(&mut values, group.is_empty());
            let start = self.request.len();
            let mut writer = Writer(&mut self.request);
            writer.bytes(b"null");
            writer.bytes(&values);
            pending
                .groups
                .push(PendingGroup { start, couchdb_input_bytes: REREDUCE_FRAME_BYTES + values.len() as u64 - 2 });
            if self.request.len() >= REQUEST_BYTES {
                self.flush(Kind::Rereduce, &mut pending, &mut results)?;
            }
        }
        self.flush(Kind::Rereduce, &mut pending, &mut results)?;
        Ok(results)
    }

    fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

fn close_array(array: &mut Vec<u8>, empty: bool) {
    array.extend_from_slice(if empty { b"[]" } else { b"]" });
}
