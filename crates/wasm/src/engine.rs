//! [`Machine`] owns the compiled modules, the memory account of all running modules, and the clock for timeouts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use settee_design::{CompileError, Limits};
use wasmtime::{Config, Engine, EngineWeak, Linker, Module, OptLevel};

use crate::cache::{self, Modules};
use crate::compiler::{Compiler, CompilerCommand};
use crate::host::{self, Host};
use crate::source::Source;

const TICK_MS: u64 = 10;

/// Instructions per millisecond of the timeout, about the rate of a slow processor. The limit stops endless functions
/// on machines of any speed.
const FUEL_PER_MS: u64 = 2_000_000;

const STACK_BYTES: usize = 512 << 10;

/// Maximum memory of all running modules; it is part of the server's memory.
const GUESTS_BYTES_MAX: u64 = 512 << 20;

pub(crate) struct Machine {
    engine: Engine,
    linker: Linker<Host>,
    compiler: Compiler,
    modules: Mutex<Modules>,
    guests: Arc<GuestMemory>,
    clock: Arc<Clock>,
}

/// The server and the compiler process must use the same configuration.
pub(crate) fn config() -> Config {
    let mut config = Config::new();
    config.consume_fuel(true).epoch_interruption(true).max_wasm_stack(STACK_BYTES);
    config.cranelift_opt_level(OptLevel::Speed);
    config
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn unavailable(error: wasmtime::Error) -> CompileError {
    CompileError::Unavailable(format!("no WebAssembly: {error:#}"))
}

#[derive(Default)]
pub(crate) struct GuestMemory(AtomicU64);

impl GuestMemory {
    /// Reserves `bytes`. Returns false above the limit.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= GUESTS_BYTES_MAX);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    pub(crate) fn give_back(&self, bytes: u64) {
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Clock {
    state: Mutex<ClockState>,
    woken: Condvar,
}

#[derive(Default)]
struct ClockState {
    running: usize,
    has_thread: bool,
}

pub(crate) struct Running<'a>(&'a Clock);

impl Machine {
    pub(crate) fn new(command: CompilerCommand) -> Result<Self, CompileError> {
        let engine = Engine::new(&config()).map_err(unavailable)?;
        let linker = host::linker(&engine).map_err(unavailable)?;
        let (modules, guests, clock) = Default::default();
        Ok(Self { engine, linker, compiler: Compiler::new(command), modules, guests, clock })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn linker(&self) -> &Linker<Host> {
        &self.linker
    }

    pub(crate) fn module(&self, source: &Source<'_>) -> Result<Module, CompileError> {
        let bytes = source.bytes()?;
        let name = cache::name(source.module);
        if let Some(known) = lock(&self.modules).find(&name) {
            return known;
        }
        match self.compiler.compile(bytes) {
            Ok(code) => {
                let module = self.load(&code)?;
                lock(&self.modules).insert(name, code.len(), Ok(module.clone()));
                Ok(module)
            }
            Err(CompileError::Source(reason)) => {
                lock(&self.modules).insert(name, 0, Err(&reason));
                Err(CompileError::Source(reason))
            }
            Err(error) => Err(error),
        }
    }

    #[expect(unsafe_code, reason = "loads machine code")]
    fn load(&self, code: &[u8]) -> Result<Module, CompileError> {
        // SAFETY: `code` is the output of `Engine::precompile_module` in a process of the same program. Loading it
        // requires the same trust in the compiler as compiling here.
        unsafe { Module::deserialize(&self.engine, code) }.map_err(unavailable)
    }

    pub(crate) fn guests(&self) -> &Arc<GuestMemory> {
        &self.guests
    }

    pub(crate) fn run(&self) -> Running<'_> {
        let mut state = lock(&self.clock.state);
        state.running += 1;
        if !state.has_thread {
            let (clock, engine) = (Arc::downgrade(&self.clock), self.engine.weak());
            let ticking = thread::Builder::new().name("wasm-clock".to_owned());
            // If the thread cannot start, the instruction limit ends endless functions.
            state.has_thread = ticking.spawn(move || tick(&clock, &engine)).is_ok();
        }
        self.clock.woken.notify_all();
        Running(&self.clock)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.clock.woken.notify_all();
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).running -= 1;
    }
}

pub(crate) fn ticks(limits: Limits) -> u64 {
    limits.timeout_ms.div_ceil(TICK_MS) + 1
}

pub(crate) fn fuel(limits: Limits) -> u64 {
    limits.timeout_ms.saturating_mul(FUEL_PER_MS).max(FUEL_PER_MS)
}

fn tick(clock: &std::sync::Weak<Clock>, engine: &EngineWeak) {
    while let (Some(clock), Some(engine)) = (clock.upgrade(), engine.upgrade()) {
        let state = lock(&clock.state);
        if state.running == 0 {
            // The timeout bounds the time until a dropped machine is detected.
            let asleep = Duration::from_secs(60);
            drop(clock.woken.wait_timeout(state, asleep).unwrap_or_else(PoisonError::into_inner));
            continue;
        }
        drop(state);
        drop(clock);
        thread::sleep(Duration::from_millis(TICK_MS));
        engine.increment_epoch();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every critical section leaves the state consistent, so a poisoned lock is usable.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
