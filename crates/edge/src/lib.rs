//! The edge of the server: connections, HTTP/1.1 and HTTP/2, TLS, request bodies, responses, and the memory and the
//! threads that they may use.
//!
//! This crate is independent of databases and of CouchDB's interface: a handler of the crate above answers the requests.

pub mod accept;
pub mod beginning;
pub mod origin;
pub mod proxies;
pub mod shutdown;
pub mod slots;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod tls;
