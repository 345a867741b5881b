//! [`Machine`]: the compiler with its limits, the modules that were compiled lately, and the clock that ends functions.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use settee_design::{CompileError, Limits};
use wasmtime::{Config, Engine, EngineWeak, Linker, Module, OptLevel};

use crate::host::{self, Host};
use crate::source::Source;

/// How exactly deadlines are kept.
const TICK_MS: u64 = 10;

/// Instructions that a function may run for each millisecond of its time-out, about what a slow processor does in one.
/// A function that runs out of them is stopped on a machine of any speed.
const FUEL_PER_MS: u64 = 2_000_000;

/// Depth of calls, in bytes.
const STACK_BYTES: usize = 512 << 10;

/// Compiled modules that are kept.
const MODULES_MAX: usize = 16;

pub(crate) struct Machine {
    engine: Engine,
    linker: Linker<Host>,
    modules: Mutex<VecDeque<(Arc<str>, Module)>>,
    clock: Arc<Clock>,
}

/// Counts time as long as functions run.
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

/// As long as it lives, deadlines come.
pub(crate) struct Running<'a>(&'a Clock);

impl Machine {
    pub(crate) fn new() -> Result<Self, CompileError> {
        let unavailable = |error: wasmtime::Error| CompileError::Unavailable(format!("no WebAssembly: {error:#}"));
        let mut config = Config::new();
        config.consume_fuel(true).epoch_interruption(true).max_wasm_stack(STACK_BYTES);
        config.cranelift_opt_level(OptLevel::Speed);
        let engine = Engine::new(&config).map_err(unavailable)?;
        let linker = host::linker(&engine).map_err(unavailable)?;
        Ok(Self { engine, linker, modules: Mutex::default(), clock: Arc::default() })
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    pub(crate) fn linker(&self) -> &Linker<Host> {
        &self.linker
    }

    /// The module of `source`, compiled now or lately.
    pub(crate) fn module(&self, source: &Source<'_>) -> Result<Module, CompileError> {
        if let Some((_, module)) = lock(&self.modules).iter().find(|(text, _)| **text == *source.module) {
            return Ok(module.clone());
        }
        let bytes = source.bytes()?;
        let module = Module::new(&self.engine, bytes).map_err(|error| CompileError::Source(format!("{error:#}")))?;
        let mut modules = lock(&self.modules);
        modules.truncate(MODULES_MAX - 1);
        modules.push_front((source.module.into(), module.clone()));
        Ok(module)
    }

    /// Has deadlines come until the answer is dropped.
    pub(crate) fn run(&self) -> Running<'_> {
        let mut state = lock(&self.clock.state);
        state.running += 1;
        if !state.has_thread {
            let (clock, engine) = (Arc::downgrade(&self.clock), self.engine.weak());
            let ticking = thread::Builder::new().name("wasm-clock".to_owned());
            // Without the thread the fuel ends what runs too long.
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

/// The ticks of a time-out.
pub(crate) fn ticks(limits: Limits) -> u64 {
    limits.timeout_ms.div_ceil(TICK_MS) + 1
}

pub(crate) fn fuel(limits: Limits) -> u64 {
    limits.timeout_ms.saturating_mul(FUEL_PER_MS).max(FUEL_PER_MS)
}

/// Ticks while functions run, sleeps while none does, ends when the machine has gone.
fn tick(clock: &std::sync::Weak<Clock>, engine: &EngineWeak) {
    while let (Some(clock), Some(engine)) = (clock.upgrade(), engine.upgrade()) {
        let state = lock(&clock.state);
        if state.running == 0 {
            // Wakes now and then to see whether the machine has gone.
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
    // Nothing that is guarded here is ever left half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
