//! The files of a store without the store: [`check()`] compares all of them with their checksums, also beside a running
//! server, and [`salvage()`] makes a new store of everything in them that can be read.
//!
//! RocksDB itself stops at the first block that does not fit its checksum, and opens nothing whose manifest is damaged.
//! So its formats are read here, by safe code that takes every byte for possibly wrong: [`table`] sorted files, [`blob`]
//! blob files, [`log`] logs of writes ([`batch`]) and the [`manifest`]. Nothing here writes into a store that exists, but for
//! [`repair`], which makes one without the damaged parts of sorted files.

pub(crate) mod batch;
mod blob;
mod block;
mod bytes;
mod check;
mod directory;
mod entry;
mod log;
mod manifest;
mod merge;
pub(crate) mod repair;
mod salvage;
mod table;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

pub use check::{Checked, Depth, Fault, FileKind, check};
pub(crate) use check::{check_logs, cut_manifest};
pub use salvage::{Salvaged, salvage};

use directory::blob_path;
