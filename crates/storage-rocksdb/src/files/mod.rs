//! The files of a store without the store: [`check()`] compares all of them with their checksums, also beside a running
//! server, and [`salvage()`] makes a new store of everything in them that can be read.
//!
//! RocksDB itself stops at the first block that does not fit its checksum, and opens nothing whose manifest is damaged.
//! So its formats are read here, by safe code that takes every byte for possibly wrong: [`table`] sorted files, [`blob`]
//! blob files, [`log`] logs of writes ([`batch`]) and the [`manifest`]. Nothing here writes into a store that exists, but for
//! [`repair`], which makes one without the damaged parts of sorted files.

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

/// Returns the identity of the store in `path`.
pub(crate) fn identity(path: &Path) -> Option<String> {
    Directory::read(path).ok()?.manifest().ok()??.identity
}

/// Returns the number of the list of files, and the number, path and length of the newest log.
///
/// # Errors
/// When the directory cannot be read, or the log has gone.
pub(crate) fn newest_log(path: &Path) -> io::Result<Option<(u64, u64, PathBuf, u64)>> {
    let found = Directory::read(path)?;
    let (Some((log, path)), Ok(current)) = (found.logs.last_key_value(), &found.current) else { return Ok(None) };
    let manifest = found.manifests.iter().find(|(_, path)| *path == current).map_or(0, |(number, _)| *number);
    Ok(Some((manifest, *log, path.clone(), path.metadata()?.len())))
}
