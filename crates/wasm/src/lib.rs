//! WebAssembly as a language of views: [`Wasm`] compiles modules and runs their map and reduce functions.
//!
//! A function is an export of a module; it receives JSON text in the module's own memory and returns results through
//! imports. `docs/webassembly.md` specifies the contract with modules. Modules are compiled in a separate process
//! ([`compiler_main`]). Their code runs in this process, because it can access only its own memory and these imports;
//! instructions, time and memory are limited. There are no other imports: no files, no clock, no network, no WASI.

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

/// WebAssembly modules as `"language": "wasm"`. No process or thread is started before the first module is compiled.
#[derive(Clone)]
pub struct Wasm {
    machine: Arc<Machine>,
}

impl Wasm {
    /// Creates the language; `compiler` compiles modules.
    ///
    /// # Errors
    /// If this processor is not supported; the text is the reason.
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
