//! External query servers as view languages: [`QueryServer`] drives programs that implement CouchDB's line protocol,
//! such as `couchpy` for Python, and the Erlang query server of Settee ([`erlang`]).
//!
//! CouchDB waits for the response to each document; this crate writes many lines before it reads the first response,
//! which servers that read line by line support.
//!
//! 1. A [`settee_design::Program`] leases a process from the pool for each batch, preferably one that has loaded its
//!    functions.
//! 2. It writes commands as far as the pipe has capacity, and reads responses as they arrive, so it cannot deadlock.
//! 3. If a process dies, another one maps its pending documents, at most once. A timeout or a protocol violation fails
//!    the build, with the function, the document and the reason.
//!
//! Query servers run **without a sandbox**, as the user of Settee, with a small environment and no open files except
//! their pipes: every user that may configure them has the rights of that user.

mod child;
pub mod erlang;
mod functions;
mod language;
mod map;
mod pool;
mod projection;
mod python;
mod reduce;
mod settings;
mod shared;
mod spawner;

pub use language::QueryServer;
pub use settings::{Log, ReduceLimit, Settings};
