//! Wire formats: multipart bodies ([`multipart`]) and the headers of proxies ([`forwarded`]). This crate performs no
//! I/O.

pub mod forwarded;
pub mod multipart;
