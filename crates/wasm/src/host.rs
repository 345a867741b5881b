//! The server side of a running module: [`Guest`] calls its functions, [`Host`] implements its imports. All values from
//! a module are validated: bounds, JSON, counts and sizes.

use std::sync::Arc;

use settee_design::{Allowance, CompileError, Excess, Limits, RunError};
use settee_model::json;
use wasmtime::{
    Caller, Engine, Error, Instance, Linker, Memory, ResourceLimiter, Store, Trap, TypedFunc, UpdateDeadline,
};

use crate::engine::{self, GuestMemory, Machine};
use crate::source::Source;

const MESSAGE_BYTES_MAX: usize = 4 << 10;
/// Maximum number of log lines per call.
const LOG_LINES_MAX: usize = 100;
const TABLE_ELEMENTS_MAX: usize = 100_000;

pub(crate) struct Host {
    memory: Option<Memory>,
    limits: Limits,
    allowance: Allowance,
    pub(crate) text: Vec<u8>,
    pub(crate) rows: Vec<(u32, u32)>,
    pub(crate) log: Vec<String>,
    failed: Option<String>,
    excess: Option<Excess>,
    was_memory_refused: bool,
    guests: Arc<GuestMemory>,
    memory_bytes: u64,
    pub(crate) is_too_long: bool,
}

pub(crate) enum Failure {
    /// Reason given by the function; equivalent to an exception in JavaScript.
    Failed(String),
    Stopped(&'static str, String),
}

pub(crate) struct Guest {
    store: Store<Host>,
    memory: Memory,
    alloc: TypedFunc<u32, u32>,
    function: TypedFunc<(u32, u32), u32>,
    buffer: (u32, u32),
    limits: Limits,
}

impl Host {
    fn new(limits: Limits, guests: &Arc<GuestMemory>) -> Self {
        Self {
            guests: Arc::clone(guests),
            memory_bytes: 0,
            memory: None,
            limits,
            allowance: Allowance::new(limits),
            text: Vec::new(),
            rows: Vec::new(),
            log: Vec::new(),
            failed: None,
            excess: None,
            was_memory_refused: false,
            is_too_long: false,
        }
    }

    fn begin(&mut self) {
        self.text.clear();
        self.rows.clear();
        self.log.clear();
        self.allowance = Allowance::new(self.limits);
        (self.failed, self.excess, self.was_memory_refused, self.is_too_long) = (None, None, false, false);
    }

    /// Appends a JSON value; an empty one is null.
    fn take(&mut self, label: &str, bytes: &[u8]) -> Result<u32, Error> {
        let before = self.text.len();
        let bytes = if bytes.is_empty() { b"null" } else { bytes };
        if let Err(error) = json::compact(bytes, &mut self.text) {
            self.failed = Some(format!("{label} is not JSON: {error}"));
            return Err(Error::msg("not JSON"));
        }
        Ok((self.text.len() - before) as u32)
    }
}

impl ResourceLimiter for Host {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let more = (desired as u64).saturating_sub(self.memory_bytes);
        let may_grow = desired as u64 <= self.limits.memory_bytes && self.guests.take(more);
        if may_grow {
            self.memory_bytes += more;
        }
        self.was_memory_refused |= !may_grow;
        Ok(may_grow)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MAX)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        10
    }

    fn memories(&self) -> usize {
        1
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.guests.give_back(self.memory_bytes);
    }
}

pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<Host>> {
    let mut linker = Linker::new(engine);
    linker.func_wrap("settee", "emit", emit)?;
    linker.func_wrap("settee", "result", |mut caller: Caller<'_, Host>, at: u32, len: u32| -> Result<(), Error> {
        let (memory, host) = parts(&mut caller)?;
        let value = piece(memory, at, len)?;
        host.text.clear();
        host.rows.clear();
        host.is_too_long = value.len() as u64 > host.limits.reduction_bytes;
        if host.is_too_long {
            return Ok(());
        }
        let len = host.take("the result", value)?;
        host.rows.push((0, len));
        Ok(())
    })?;
    linker.func_wrap("settee", "log", |mut caller: Caller<'_, Host>, at: u32, len: u32| -> Result<(), Error> {
        let (memory, host) = parts(&mut caller)?;
        if host.log.len() < LOG_LINES_MAX {
            host.log.push(message(piece(memory, at, len)?));
        }
        Ok(())
    })?;
    linker.func_wrap("settee", "fail", |mut caller: Caller<'_, Host>, at: u32, len: u32| -> Result<(), Error> {
        let (memory, host) = parts(&mut caller)?;
        host.failed = Some(message(piece(memory, at, len)?));
        Err(Error::msg("failed"))
    })?;
    linker.func_wrap("env", "abort", |_: u32, _: u32, line: u32, column: u32| -> Result<(), Error> {
        Err(Error::msg(format!("aborted at line {line}, column {column}")))
    })?;
    Ok(linker)
}

fn emit(mut caller: Caller<'_, Host>, key: u32, key_len: u32, value: u32, value_len: u32) -> Result<(), Error> {
    let (memory, host) = parts(&mut caller)?;
    if let Err(excess) = host.allowance.take(key_len as usize, value_len as usize) {
        if excess.ends_build() {
            host.excess = Some(excess);
        } else {
            host.failed = Some(excess.to_string());
        }
        return Err(Error::msg("limit"));
    }
    let key_len = host.take("an emitted key", piece(memory, key, key_len)?)?;
    let value_len = host.take("an emitted value", piece(memory, value, value_len)?)?;
    host.rows.push((key_len, value_len));
    Ok(())
}

fn parts<'a>(caller: &'a mut Caller<'_, Host>) -> Result<(&'a mut [u8], &'a mut Host), Error> {
    let memory = caller.data().memory.ok_or_else(|| Error::msg("imports cannot be called while the module starts"))?;
    Ok(memory.data_and_store_mut(caller))
}

fn piece(memory: &[u8], at: u32, len: u32) -> Result<&[u8], Error> {
    let range = at as usize..(at as usize).saturating_add(len as usize);
    memory.get(range).ok_or_else(|| Error::msg("an import was called with a range outside of the memory"))
}

fn message(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(MESSAGE_BYTES_MAX)]).into_owned()
}

impl Guest {
    pub(crate) fn new(machine: &Machine, source: &Source<'_>, limits: Limits) -> Result<Self, CompileError> {
        let module = machine.module(source)?;
        let refuse = |reason: String| CompileError::Source(reason);
        let mut store = Store::new(machine.engine(), Host::new(limits, machine.guests()));
        store.limiter(|host| host);
        store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Interrupt));
        store.set_epoch_deadline(engine::ticks(limits));
        store.set_fuel(engine::fuel(limits)).map_err(|error| CompileError::Unavailable(error.to_string()))?;
        let running = machine.run();
        let instance: Instance =
            machine.linker().instantiate(&mut store, &module).map_err(|error| refuse(format!("{error:#}")))?;
        drop(running);
        let memory = instance
            .get_memory(&mut store, "memory")
            .ok_or_else(|| refuse("the module exports no memory named `memory`".to_owned()))?;
        let missing = |name: &str, kind: &str| refuse(format!("the module exports no function `{name}` {kind}"));
        let alloc = instance
            .get_typed_func(&mut store, "settee_alloc")
            .map_err(|_| missing("settee_alloc", "from a size to an address (i32 -> i32)"))?;
        let function = instance
            .get_typed_func(&mut store, source.export)
            .map_err(|_| missing(source.export, "from address and length to a status (i32, i32 -> i32)"))?;
        store.data_mut().memory = Some(memory);
        Ok(Self { store, memory, alloc, function, buffer: (0, 0), limits })
    }

    /// Calls the function with `input`. After a failure the caller must replace the guest, because its state is
    /// undefined.
    pub(crate) fn call(&mut self, input: &[u8]) -> Result<&mut Host, Failure> {
        self.store.data_mut().begin();
        self.store.set_epoch_deadline(engine::ticks(self.limits));
        let fuelled = self.store.set_fuel(engine::fuel(self.limits));
        match fuelled.and_then(|()| self.enter(input)) {
            Ok(0) => Ok(self.store.data_mut()),
            Ok(status) => Err(self.failure(&Error::msg(format!("answered status {status}")))),
            Err(error) => Err(self.failure(&error)),
        }
    }

    fn enter(&mut self, input: &[u8]) -> wasmtime::Result<u32> {
        let len = u32::try_from(input.len()).map_err(|_| Error::msg("the input is too long for a module"))?;
        if len > self.buffer.1 {
            // The spare capacity avoids a new buffer for every slightly longer document.
            let size = len.saturating_add(len / 2).max(64 << 10);
            self.buffer = (self.alloc.call(&mut self.store, size)?, size);
        }
        let start = self.buffer.0 as usize;
        let target = self.memory.data_mut(&mut self.store).get_mut(start..start + input.len());
        target
            .ok_or_else(|| Error::msg("settee_alloc answered an address outside of the memory"))?
            .copy_from_slice(input);
        self.function.call(&mut self.store, (self.buffer.0, len))
    }

    fn failure(&mut self, error: &Error) -> Failure {
        let limits = self.limits;
        let host = self.store.data_mut();
        if let Some(reason) = host.failed.take() {
            return Failure::Failed(reason);
        }
        if let Some(excess) = host.excess.take() {
            return Failure::Stopped("limit_exceeded", excess.reason());
        }
        if host.was_memory_refused {
            return Failure::Stopped(
                "limit_exceeded",
                format!("needs more than {} bytes of memory", limits.memory_bytes),
            );
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::Interrupt | Trap::OutOfFuel) => {
                Failure::Stopped("os_process_error", format!("timed out: it took longer than {} ms", limits.timeout_ms))
            }
            Some(trap) => Failure::Failed(trap.to_string()),
            None => Failure::Failed(error.root_cause().to_string()),
        }
    }
}

impl Failure {
    /// `place` identifies the function and the document.
    pub(crate) fn fatal(name: &str, place: &str, reason: &str) -> RunError {
        RunError::Fatal { name: name.to_owned(), reason: format!("{place} {reason}") }
    }
}
