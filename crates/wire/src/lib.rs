//! Wire formats that both sides of a connection need: multipart bodies ([`multipart`]), and messages of several
//! requests between nodes ([`frames`]).
//!
//! This crate performs no I/O and does not interpret the parts: callers supply bytes and receive events.

pub mod frames;
pub mod multipart;
