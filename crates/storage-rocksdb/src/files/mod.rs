//! Access to the files of a store without RocksDB: [`check()`] verifies the checksums of all files, also while a
//! server uses them, and [`salvage()`] creates a new store from all readable data.
//!
//! RocksDB stops at the first block that does not match its checksum, and does not open a store with a damaged
//! manifest. This module therefore reads RocksDB's formats with safe code that treats every byte as untrusted:
//! [`table`] sorted files, [`blob`] blob files, [`log`] logs of writes ([`batch`]), and the [`manifest`]. It does not
//! write to existing stores, except for [`repair`], which removes the damaged parts of sorted files.

pub(crate) mod acknowledged;
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
mod whole;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod whole_tests;

#[cfg(test)]
pub(crate) use check::cut_manifest;
pub use check::{Checked, Depth, Fault, FileKind, check};
pub use salvage::{Salvaged, salvage};
pub(crate) use whole::{Found, UNFINISHED, check_logs_of, inspect};

use std::io;
use std::path::{Path, PathBuf};

use directory::{Directory, blob_path};

pub(crate) fn identity(path: &Path) -> Option<String> {
    Directory::read(path).ok()?.manifest().ok()??.identity
}

/// Returns the number of the manifest, and the number, path and length of the newest log.
///
/// # Errors
/// Fails if the directory cannot be read, or if the log was removed concurrently.
pub(crate) fn newest_log(path: &Path) -> io::Result<Option<(u64, u64, PathBuf, u64)>> {
    let found = Directory::read(path)?;
    let (Some((log, path)), Ok(current)) = (found.logs.last_key_value(), &found.current) else { return Ok(None) };
    let manifest = found.manifests.iter().find(|(_, path)| *path == current).map_or(0, |(number, _)| *number);
    Ok(Some((manifest, *log, path.clone(), path.metadata()?.len())))
}
