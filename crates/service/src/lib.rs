//! What the server does with databases on behalf of users, however it is asked: who may do what, what becomes of a write before
//! it is one, the rules of `_users` and `_replicator`, calls of functions of design documents, feeds, hashing.
//!
//! Each part is a type of its own that is given the parts it needs. Errors ([`Error`]) say what was wrong; which status they
//! have, and everything else of HTTP, is up to the crate that serves it. Work that may block runs on threads for it ([`threads`]).

mod access;
mod databases;
mod error;
mod feeds;
mod functions;
mod hashing;
mod permits;
pub mod replicator_documents;
pub mod revisions;
mod security;
#[cfg(test)]
mod tests;
pub mod threads;
mod upgrade;
mod users;
mod validation;

pub use access::{Access, Permission, Place};
pub use databases::{Databases, DatabasesDependencies, Release};
pub use error::Error;
pub use feeds::{Feeds, Progress};
pub use functions::{Functions, Programs};
pub use hashing::Hashers;
pub use permits::{Owner, Permit, Permits};
pub use security::{MalformedSecurity, Security, administers, security};
pub use upgrade::upgrade;
pub use users::{Counted, Counting, Entropy, UserPolicy, Users, UsersDependencies, Visibility, public_part};
pub use validation::{Writer, write_user};
