//! External query servers as view languages: [`QueryServer`] drives programs that implement CouchDB's line protocol,
//! such as `couchpy` for Python, and the Erlang query server of Settee ([`erlang`]).
//!
//! A command is one line of JSON, and so is its response. Where CouchDB writes a document and waits, this crate
//! pipelines: it writes many lines before it reads the first response. A server that reads line by line is not
//! affected, and neither side waits for the other. From the indexer to the program:
//!
//! 1. A [`settee_design::Program`] leases a process from the pool for each batch, preferably one that has loaded its
//!    functions.
//! 2. Commands are written as far as the pipe has capacity, and responses are read as they arrive. Deadlocks are
//!    impossible, because Settee's ends of the pipes are non-blocking.
//! 3. A process that dies is replaced, and its pending documents are mapped again, once. A timeout or a protocol
//!    violation ends the build, with the function, the document and the reason.
//!
//! Map functions in Python receive only those members of documents that they can see, if their source proves which ones
//! these are.
//!
//! Query servers run **without a sandbox**, as the user of Settee: every user that may configure them has that user's
//! rights. They get a small environment and no open files except their three pipes. This crate reads no configuration,
//! and a clock only for deadlines.

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
mod starter;

pub use language::QueryServer;
pub use settings::{Log, ReduceLimit, Settings};
