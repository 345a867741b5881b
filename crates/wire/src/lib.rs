//! Wire formats: multipart bodies ([`multipart`]), messages of several requests between nodes ([`frames`]), and the
//! headers of proxies ([`forwarded`]).
//!
//! This crate performs no I/O and does not interpret the parts: callers supply bytes and receive events.

pub mod forwarded;
pub mod frames;
pub mod multipart;
