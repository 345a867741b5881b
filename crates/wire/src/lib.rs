//! Shapes of the protocol that both sides of a connection need: bodies of several parts ([`multipart`]), and messages of several requests between nodes
//! ([`frames`]).
//!
//! Nothing here reads a socket or knows what the parts mean; callers bring bytes and take events.

pub mod frames;
pub mod multipart;
