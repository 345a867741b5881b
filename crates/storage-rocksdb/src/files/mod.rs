//! Access to the files of a store without RocksDB, for [`check()`] and [`salvage()`].
//! RocksDB stops at the first block that does not match its checksum, and does not open a store with a damaged
//! manifest. Therefore this module reads RocksDB's formats with safe code that treats every byte as untrusted. It
//! writes none of these formats: RocksDB writes a salvaged store.

pub(crate) mod acknowledged;
pub(crate) mod batch;
mod blob;
mod block;
mod bytes;
mod check;
mod directory;
mod entry;
mod inspection;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod inspection_tests;
mod log;
mod manifest;
mod merge;
mod salvage;
mod table;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

#[cfg(test)]
pub(crate) use check::cut_manifest;
pub use check::{Checked, Depth, Fault, FileKind, check};
pub(crate) use inspection::{Found, UNFINISHED, check_logs_in, inspect};
pub use salvage::{Salvaged, salvage};
