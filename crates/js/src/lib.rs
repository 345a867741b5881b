//! JavaScript as a view language: [`JavaScript`] is the [`settee_design::Language`] of `"language": "javascript"`.
//!
//! Map functions of the subset are evaluated in the server's own process (crate `native`). All other user code runs in
//! worker processes, whose main function is [`worker_main`]:
//!
//! 1. [`JavaScript`] leases a worker from its pool for each program and reducer that needs one.
//! 2. Documents are copied once into memory shared by both processes; a small message announces them.
//! 3. The engine of the worker (QuickJS-ng) calls the map functions. A document is a lazy object over its text: only
//!    accessed members are parsed.
//! 4. Emitted values are written as JSON text into the shared memory. The server validates them before use.
//!
//! The worker has no access to files, sockets or other processes.

mod coffeescript;
mod language;
mod pool;
mod protocol;
mod shared_memory;
mod worker;

pub use coffeescript::CoffeeScript;
pub use language::{Evaluator, JavaScript, ReduceLimit, SandboxReport};
pub use pool::{PoolSettings, WorkerCommand};
pub use worker::worker_main;
