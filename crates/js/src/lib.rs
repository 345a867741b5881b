//! JavaScript as a view language: [`JavaScript`] is the [`settee_design::Language`] of `"language": "javascript"`.
//!
//! Map functions of a common subset are walked as trees in the server's own process (crate `native`). All other user code runs
//! only in worker processes, which [`worker_main`] is the program of. From the server's side to the script:
//!
//! 1. [`JavaScript`] takes a worker from its pool for each program and reducer that needs one, and puts it back afterwards.
//! 2. Documents are copied once into memory that both processes see; a small message says that they are there.
//! 3. The worker lets the engine (QuickJS-ng) call the map functions. A document is an object over its text: only members
//!    that are touched come into being.
//! 4. Emitted values are written as JSON text into the shared memory, and checked by the server before it trusts them.
//!
//! No server code touches the engine, and no worker code touches files, sockets or other processes.

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
