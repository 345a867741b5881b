//! WebAssembly as a language of views: [`Wasm`] compiles modules and runs their map and reduce functions.
//! `docs/webassembly.md` specifies the interface of modules. Modules are compiled in separate processes
//! ([`compiler_main`]). Their code runs in this process: it can access only its own memory and the documented imports,
//! which exclude files, clock, network and WASI. Instructions, time and memory are limited.

mod cache;
mod compiler;
mod engine;
mod host;
mod map;
mod reduce;
mod source;

use std::sync::Arc;

use settee_design::{CompileError, Language, Limits, MapSource, Program, Reducer};

use self::engine::Machine;

pub use self::compiler::{CompilerCommand, compiler_main};

pub const NAME: &str = "wasm";

/// Language `wasm`. Processes and threads start with the first module.
#[derive(Clone)]
pub struct Wasm {
    machine: Arc<Machine>,
}

impl Wasm {
    /// Returns an error if this processor is not supported.
    pub fn new(compiler: CompilerCommand) -> Result<Self, CompileError> {
        Ok(Self { machine: Arc::new(Machine::new(compiler)?) })
    }
}

impl Language for Wasm {
    fn name(&self) -> &str {
        NAME
    }

    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(map::Mapper::new(&self.machine, source, limits)?))
    }

    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        Ok(Box::new(reduce::FunctionReducer::new(&self.machine, source, limits)?))
    }
}
