//! Operations of the server on databases on behalf of users: authorization, validation of writes, the rules of `_users`
//! and `_replicator`, calls of functions of design documents, feeds, password hashing.
//!
//! The crate is independent of HTTP: an [`Error`] describes the cause, and the caller chooses the status code. Blocking
//! work runs on separate threads ([`settee_threads`]).

mod access;
pub mod commits;
mod databases;
mod error;
mod feeds;
mod functions;
mod hashing;
pub mod replicator_documents;
pub mod revisions;
mod security;
#[cfg(test)]
mod tests;
mod upgrade;
mod users;
mod validation;

pub use access::{Access, Permission, Place};
pub use databases::{Databases, DatabasesDependencies, RULES_DELAY, Release};
pub use error::Error;
pub use feeds::{Feeds, Progress};
pub use functions::{Functions, Programs};
pub use hashing::Hashers;
pub use security::{MalformedSecurity, Security, administers, reader, security};
pub use upgrade::upgrade;
pub use users::{Counted, Counting, Entropy, UserPolicy, Users, UsersDependencies, Visibility, public_part};
pub use validation::{Writer, write_user};
