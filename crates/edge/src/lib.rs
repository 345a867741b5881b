//! The edge of the server: connections, HTTP/1.1 and HTTP/2, TLS, bodies, responses, and their memory and threads.

mod error;
#[cfg(test)]
mod tests;

pub use error::Error;

pub mod accept;
pub mod body;
pub mod bridge;
pub mod budget;
pub mod connection;
pub mod etag;
pub mod origin;
pub mod proxies;
pub mod rate;
pub mod request_permits;
pub mod respond;
pub mod server;
pub mod shutdown;
pub mod slots;
pub mod stream;
pub mod target;
pub mod tls;
