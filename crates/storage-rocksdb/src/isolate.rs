//! [`isolate`]: makes a store with damaged files usable again, at the expense of only the databases in those files.
//! RocksDB does not open a store with a missing file, and stops all writes when a compaction reads a damaged block.
//! So an unreadable data block is replaced by an empty one, an unreadable file is removed from the manifest, and the
//! affected key ranges become [`Holes`], reads of which fail. Afterwards the store is consistent for RocksDB, and
//! compactions continue. The original files are kept in a subdirectory.
//!
//! Damaged logs are not isolated: the writes after the damage would be lost silently, so such a store is not opened.
//! A start also refuses a store with a missing or foreign file ([`crate::files::inspect`]).

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use settee_storage::durable::{self, Readers};
use settee_storage::{Result, StorageError};

use crate::damage::{Hole, Holes, UNNAMED};
use crate::files::{self, repair};
use crate::options::Options;
use crate::store::Store;

/// Name of the subdirectory for the original damaged files.
const KEPT: &str = "damaged";

/// Maximum number of repairs per opening; each handles a file that the previous error did not name.
const ROUNDS_MAX: u32 = 100;

/// Opens a store for writing that was inspected, or that was closed because of `cause`. Damage is isolated, including
/// that in `cause`.
pub(crate) fn open(path: &Path, options: &Options, cause: Option<&StorageError>) -> Result<Store> {
    if cause.is_some() {
        files::check_logs_of(path)?;
    }
    if let Some(cause) = cause.filter(|cause| is_damage(cause)) {
        isolate(path, &cause.to_string())?;
    }
    let mut rounds = 0;
    loop {
        match Store::open(path, options) {
            Err(error) if is_damage(&error) && rounds < ROUNDS_MAX && isolate(path, &error.to_string())? => rounds += 1,
            opened => return opened,
        }
    }
}

/// Returns true if an error is caused by damaged contents of the store, or by a missing sorted file or blob file.
pub(crate) fn is_damage(error: &StorageError) -> bool {
    match error {
        StorageError::Corrupt(_) => true,
        StorageError::Io(text) => text.contains("No such file") && !named(text).is_empty(),
        StorageError::Unreached(_)
        | StorageError::InDoubt(_)
        | StorageError::Interrupted(_)
        | StorageError::Poisoned(_)
        | StorageError::Full(_)
        | StorageError::Present(_)
        | StorageError::Outdated
        | StorageError::Dropped
        | StorageError::TooLarge(_) => false,
    }
}

/// Removes the path of the store from an error, because clients must not see it.
pub(crate) fn without_place(path: &Path, error: StorageError) -> StorageError {
    match error {
        StorageError::Corrupt(text) => StorageError::Corrupt(text.replace(&format!("{}/", path.display()), "")),
        error => error,
    }
}

/// Examines the files that `reason` names, or all files if it names no damaged one, and isolates unreadable data.
/// Returns true if anything was isolated.
fn isolate(path: &Path, reason: &str) -> Result<bool> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::StorageFull => StorageError::Full(error.to_string()),
        _ => StorageError::Io(error.to_string()),
    };
    let mut holes = Holes::load(path)?;
    let before = holes.clone();
    let named = named(reason);
    let mut found = repair::find(path, Some(&named)).map_err(failed)?;
    let mut blobs: Vec<String> = named.iter().filter(|name| name.ends_with(".blob")).cloned().collect();
    if found.is_empty() && blobs.is_empty() {
        // With a damaged manifest the files in use are unknown, and the error does not mean that any of them is
        // damaged. A named sorted file without damage has been replaced by a compaction since.
        if reason.contains("MANIFEST-") || !named.is_empty() {
            return Ok(false);
        }
        // Errors of large values name no file. A search for it would be slow and is not needed.
        match holes.has_blobs() {
            false => blobs.push(UNNAMED.to_owned()),
            true => found = repair::find(path, None).map_err(failed)?,
        }
    }
    for repair in &found {
        for (from, to) in &repair.holes {
            let column = repair.column.clone();
            holes.add(Hole { column, from: from.clone(), to: to.clone(), file: repair.name.clone() });
        }
    }
    blobs.iter().for_each(|name| holes.add_blobs(name));
    if found.is_empty() && holes == before {
        return Ok(false);
    }
    // The list is stored first, so that partial data is never returned as complete.
    holes.save(path).map_err(failed)?;
    let kept = path.join(KEPT);
    durable::create_directories(&kept).map_err(failed)?;
    for repair in found {
        let file = path.join(&repair.name);
        match &repair.repaired {
            Some(bytes) => {
                // The link refers to the original file, which is replaced, not changed.
                let _ = fs::hard_link(&file, kept.join(format!("{}.original", repair.name)));
                durable::write(&file, Readers::Owner, bytes).map_err(failed)?;
            }
            None => {
                match durable::rename(&file, &kept.join(&repair.name)) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
                    _ => {}
                }
                repair::take_out(path, &repair).map_err(failed)?;
            }
        }
    }
    Ok(true)
}

/// Removes the original damaged files when no damage is left.
pub(crate) fn forget(path: &Path) {
    // Remaining files only waste space.
    let _ = fs::remove_dir_all(path.join(KEPT));
}

/// Returns true if a message names a sorted file.
pub(crate) fn names_table(text: &str) -> bool {
    named(text).iter().any(|name| name.ends_with(".sst"))
}

/// Returns the names of sorted files and blob files in a message.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '/' | '\'' | '"' | '(' | ')'));
    let is_name = |word: &&str| {
        let stem = word.strip_suffix(".sst").or_else(|| word.strip_suffix(".blob"));
        stem.is_some_and(|stem| !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit()))
    };
    words.filter(is_name).map(str::to_owned).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::RocksEngine;

    #[test]
    fn an_error_of_a_replaced_file_is_no_damage() {
        let directory = tempfile::tempdir().unwrap();
        drop(RocksEngine::open(directory.path(), &Options::default()).unwrap());
        let reason = "IO error: No such file or directory: While open a file for random read: /d/000099.sst";
        assert!(!isolate(directory.path(), reason).unwrap());
        assert!(Holes::load(directory.path()).unwrap().is_empty());
        assert!(isolate(directory.path(), "Corruption: CRC mismatch").unwrap());
        assert!(Holes::load(directory.path()).unwrap().has_blobs());
    }

    #[test]
    fn files_are_named_by_messages() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(named(text).iter().map(String::as_str).collect::<Vec<_>>(), expected, "{text}");
        };
        check("Corruption: block checksum mismatch: stored = 1, in /d/engine/000123.sst offset 4096", &["000123.sst"]);
        check("IO error: No such file or directory: While open a file: /d/000009.blob: x", &["000009.blob"]);
        check("Corruption: Can't access /000012.sst: IO error", &["000012.sst"]);
        check("Corruption: a database called x.sst", &[]);
    }
}
