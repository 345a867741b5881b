//! [`isolate`]: makes a store usable again whose files are damaged, at the cost of those whose data was in them and of nobody
//! else. RocksDB opens no store with a missing file, and stops all writes when a compaction meets a damaged block. So a block
//! of data that cannot be read is replaced by an empty one, a file that cannot be read at all is taken out of the list of
//! files, and the keys that were there become [`Holes`]: whoever reads them gets an error. After that the store is whole as
//! far as RocksDB can see, and compactions go on. What was there before is kept in a directory beside.
//!
//! A damaged log is another matter: what follows the damage would be lost without a word, so that store is not opened; and a start
//! refuses a store of which a file is missing or another one ([`crate::files::inspect`]).

use std::collections::BTreeSet;
use std::path::Path;
use std::{fs, io};

use settee_storage::durable::{self, Readers};
use settee_storage::{Result, StorageError};

use crate::damage::{Hole, Holes, UNNAMED};
use crate::files::{self, repair};
use crate::options::Options;
use crate::store::Store;

/// The directory in that of the store where damaged files are kept as they were.
const KEPT: &str = "damaged";

/// How often files are mended for one opening: each time one was named that the time before was not seen.
const ROUNDS_MAX: u32 = 100;

/// Opens a store for writing that was inspected, or that was closed because of `cause`. What is damaged is isolated, also what
/// `cause` names.
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

/// Whether an error is about what is in sorted files and files of values, or that one of them does not.
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

/// Damage as clients may be told of it: they need not know where the store is.
pub(crate) fn without_place(path: &Path, error: StorageError) -> StorageError {
    match error {
        StorageError::Corrupt(text) => StorageError::Corrupt(text.replace(&format!("{}/", path.display()), "")),
        error => error,
    }
}

/// Looks at the files that `reason` names, or at all if it names none that is damaged, and isolates what cannot be read.
/// Returns whether there was anything.
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
        // Which files there are is not known then: nothing says that any of them is damaged.
        if reason.contains("MANIFEST-") {
            return Ok(false);
        }
        // Messages about large values name no file. Looking for it would take long, and changes nothing.
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
    // First of all, nobody may take what is left for the whole.
    holes.save(path).map_err(failed)?;
    let kept = path.join(KEPT);
    durable::create_directories(&kept).map_err(failed)?;
    for repair in found {
        let file = path.join(&repair.name);
        match &repair.mended {
            Some(bytes) => {
                // It is the same file until it is replaced.
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

/// Removes what is kept of damaged files, when nothing is damaged any more.
pub(crate) fn forget(path: &Path) {
    // It costs space only.
    let _ = fs::remove_dir_all(path.join(KEPT));
}

/// Whether a message is about a sorted file.
pub(crate) fn names_table(text: &str) -> bool {
    named(text).iter().any(|name| name.ends_with(".sst"))
}

/// The names of sorted files and files of values in a message.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '/' | '\'' | '"' | '(' | ')'));
    let is_name = |word: &&str| {
        let stem = word.strip_suffix(".sst").or_else(|| word.strip_suffix(".blob"));
        stem.is_some_and(|stem| !stem.is_empty() && stem.bytes().all(|byte| byte.is_ascii_digit()))
    };
    words.filter(is_name).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
