//! External query servers as view languages: [`QueryServer`] drives programs that speak CouchDB's line protocol, such as
//! `couchpy` for Python, and the Erlang query server that comes with Settee ([`erlang`]).
//!
//! One command is one line of JSON, and so is its answer. Where CouchDB writes a document and waits, here many lines are
//! written before the first answer is read: a server that reads one line after the other cannot tell, and neither side
//! waits for the other. From the indexer to the program:
//!
//! 1. A [`settee_design::Program`] borrows a process from the pool for each batch, one that knows its functions if there is one.
//! 2. The process is fed as much as its pipes hold, and its answers are taken as they come. No side can block the other,
//!    because Settee's ends of the pipes never block.
//! 3. A process that dies is replaced, and its unanswered documents are mapped again, once. What takes too long or breaks the
//!    protocol ends the build, with the function, the document and the reason.
//!
//! Map functions in Python are sent only those members of documents that they can see, where their source proves which those
//! are.
//!
//! Query servers run **without a sandbox**, as the user that runs Settee: whoever may configure them is trusted with that
//! user's rights. They get a small environment and no open files but their three pipes. This crate reads no configuration and
//! keeps no clock of its own but for deadlines.

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
