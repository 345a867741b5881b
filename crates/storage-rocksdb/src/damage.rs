//! [`Damage`]: the damaged files of a store, and the automatic compactions that stop because of them.
//!
//! RocksDB stops all writes when a compaction reads a damaged block, and the next attempt reads the same block.
//! Therefore a column family with a damaged sorted file is not compacted, and with a damaged blob file no blobs are
//! moved. Reads of damaged blocks fail, and all other data is read and written. RocksDB has no interface to remove the
//! damaged part, so this lasts until the store is restored or salvaged. A separate file stores the list of damaged
//! files.
//!
//! RocksDB opens no store for writing that has a missing sorted file, or one with damaged metadata; such a store is
//! opened for reading only. A damaged log is not opened, because the writes after the damage would be lost silently.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use parking_lot::Mutex;
use settee_storage::durable::{self, Readers};
use settee_storage::{Keyspace, Result, StorageError};

use crate::error::translate;
use crate::{Database, options};

pub(crate) const FILE: &str = "DAMAGED";

const UNNAMED: &str = "?";

const HEAD: &str = "settee damage 2";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DamagedFiles(BTreeSet<String>);

impl DamagedFiles {
    /// Fails if the file exists and cannot be read, or lists parts of the store that an earlier version removed.
    pub(crate) fn load(store: &Path) -> Result<Self> {
        match fs::read_to_string(store.join(FILE)) {
            Ok(text) => Self::parse(&text).ok_or_else(|| {
                let path = store.join(FILE);
                StorageError::Corrupt(format!(
                    "{}, the list of damaged files, is damaged or was written by an earlier version",
                    path.display()
                ))
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(StorageError::Io(error.to_string())),
        }
    }

    /// Removes the file if the list is empty.
    pub(crate) fn save(&self, store: &Path) -> io::Result<()> {
        if self.0.is_empty() {
            return match fs::remove_file(store.join(FILE)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => durable::sync_directory(store),
            };
        }
        durable::write(&store.join(FILE), Readers::Owner, self.text().as_bytes())
    }

    fn text(&self) -> String {
        let lines: String = self.0.iter().map(|name| format!("file {name}\n")).collect();
        let text = format!("{HEAD}\n{lines}");
        let sum = crc32c::crc32c(text.as_bytes());
        format!("{text}crc32c {sum:08x}\n")
    }

    fn parse(text: &str) -> Option<Self> {
        let (rest, sum) = text.strip_suffix('\n')?.rsplit_once("crc32c ")?;
        if u32::from_str_radix(sum, 16).ok()? != crc32c::crc32c(rest.as_bytes()) {
            return None;
        }
        let names = rest.strip_prefix(HEAD)?.lines().skip(1);
        names.map(|line| Some(line.strip_prefix("file ")?.to_owned())).collect::<Option<_>>().map(Self)
    }

    fn has_blobs(&self) -> bool {
        self.0.iter().any(|name| !name.ends_with(".sst"))
    }

    /// Adds the files that the message of an error names. Returns true if the list has changed.
    fn add(&mut self, message: &str) -> bool {
        let before = self.0.len();
        let named = named(message);
        // Errors of large values name no file, and errors of the manifest mean no damage of other files.
        if named.is_empty() && !message.contains("MANIFEST-") {
            self.0.insert(UNNAMED.to_owned());
        }
        self.0.extend(named);
        self.0.len() > before
    }

    fn describe(&self) -> Option<String> {
        let named = |file: &String| if file == UNNAMED { "a file of large values".to_owned() } else { file.clone() };
        let files: Vec<String> = self.0.iter().map(named).collect();
        match files.as_slice() {
            [] => None,
            [file] => Some(format!("{file} is damaged")),
            files => Some(format!("{} are damaged", files.join(", "))),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Damage {
    /// Directory of the list. `None` for a store that was opened for reading, whose list is not changed.
    path: Option<PathBuf>,
    files: Mutex<DamagedFiles>,
    /// Keyspaces that must not be compacted.
    compaction_disabled: [AtomicBool; Keyspace::ALL.len()],
}

impl Damage {
    pub(crate) fn load(path: &Path, is_written: bool) -> Result<Self> {
        let files = Mutex::new(DamagedFiles::load(path)?);
        Ok(Self { path: is_written.then(|| path.to_owned()), files, compaction_disabled: Default::default() })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.files.lock().0.is_empty()
    }

    pub(crate) fn is_compaction_disabled(&self, space: Keyspace) -> bool {
        self.compaction_disabled[space as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn describe(&self) -> Option<String> {
        self.files.lock().describe()
    }

    pub(crate) fn save(&self, store: &Path) -> Result<()> {
        let files = self.files.lock();
        if files.0.is_empty() {
            return Ok(());
        }
        files.save(store).map_err(|error| StorageError::Io(error.to_string()))
    }

    /// Stops the compactions that would read damaged files, and removes files from the list that are no longer in use.
    pub(crate) fn apply(&self, database: &Database) -> Result<()> {
        let Some(path) = &self.path else { return Ok(()) };
        let mut files = self.files.lock();
        let live = database.live_files().map_err(translate)?;
        let is_used = |name: &String| live.iter().any(|file| file.name.trim_start_matches('/') == name);
        let before = files.clone();
        files.0.retain(|name| !name.ends_with(".sst") || is_used(name));
        if *files != before {
            files.save(path).map_err(|error| StorageError::Io(error.to_string()))?;
        }
        let damaged = live.iter().filter(|file| files.0.contains(file.name.trim_start_matches('/')));
        let columns: BTreeSet<&str> = damaged.map(|file| file.column_family_name.as_str()).collect();
        let moves_blobs = if files.has_blobs() { "false" } else { "true" };
        for name in Keyspace::ALL.iter().map(|space| space.name()).chain([options::STATE]) {
            let is_compaction_disabled = columns.contains(name);
            if let Some(space) = Keyspace::ALL.iter().find(|space| space.name() == name) {
                self.compaction_disabled[*space as usize].store(is_compaction_disabled, Ordering::Relaxed);
            }
            let column = database.cf_handle(name).expect("the database was opened with all of them");
            let compaction_disabled = if is_compaction_disabled { "true" } else { "false" };
            let set =
                [("disable_auto_compactions", compaction_disabled), ("enable_blob_garbage_collection", moves_blobs)];
            database.set_options_cf(column, &set).map_err(translate)?;
        }
        Ok(())
    }

    /// Adds the files that an error of a read names, and stops the compactions that would read them.
    pub(crate) fn note(&self, database: &Database, error: &StorageError) {
        let mut files = self.files.lock();
        if !files.add(&error.to_string()) {
            return;
        }
        // Without the list, a compaction finds the damage again.
        let _ = self.path.as_ref().map(|path| files.save(path));
        drop(files);
        let _ = self.apply(database);
    }

    /// Removes the damaged blob files from the list. The next compaction finds remaining damage again.
    pub(crate) fn retry(&self, database: &Database) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.files.lock().0.retain(|name| name.ends_with(".sst"));
        self.apply(database)
    }
}

pub(crate) fn record(path: &Path, cause: &StorageError) -> Result<bool> {
    let mut files = DamagedFiles::load(path)?;
    if !is_damage(cause) || !files.add(&cause.to_string()) {
        return Ok(false);
    }
    files.save(path).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull => StorageError::Full(error.to_string()),
        _ => StorageError::Io(error.to_string()),
    })?;
    Ok(true)
}

/// A missing sorted file or blob file is damage, too.
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
        | StorageError::Deposed
        | StorageError::Dropped
        | StorageError::WouldBlock
        | StorageError::TooLarge(_) => false,
    }
}

/// Removes the path of the store from an error, because clients must not see it.
pub(crate) fn without_path(path: &Path, error: StorageError) -> StorageError {
    match error {
        StorageError::Corrupt(text) => StorageError::Corrupt(text.replace(&format!("{}/", path.display()), "")),
        error => error,
    }
}

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
    use crate::{Options, RocksEngine};

    fn corrupt(text: &str) -> StorageError {
        StorageError::Corrupt(text.to_owned())
    }

    #[test]
    fn the_list_is_stored_and_a_damaged_one_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(DamagedFiles::load(path).unwrap(), DamagedFiles::default());
        assert!(record(path, &corrupt("Corruption: block checksum mismatch in /d/000123.sst offset 4096")).unwrap());
        assert!(record(path, &corrupt("Corruption: CRC mismatch")).unwrap());
        assert!(!record(path, &corrupt("Corruption: CRC mismatch")).unwrap());
        assert!(!record(path, &corrupt("Corruption: MANIFEST-000005 is damaged")).unwrap());
        let files = DamagedFiles::load(path).unwrap();
        assert_eq!(files.describe().unwrap(), "000123.sst, a file of large values are damaged");
        let text = fs::read_to_string(path.join(FILE)).unwrap();
        for damaged in [text.replace("123", "124"), text[..text.len() - 3].to_owned(), String::new()] {
            fs::write(path.join(FILE), damaged).unwrap();
            DamagedFiles::load(path).unwrap_err();
        }
        DamagedFiles::default().save(path).unwrap();
        assert!(!path.join(FILE).exists());
    }

    #[test]
    fn a_replaced_file_is_no_damage() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        drop(RocksEngine::open(path, &Options::default()).unwrap());
        let reason = "IO error: No such file or directory: While open a file for random read: /d/000099.sst";
        assert!(record(path, &StorageError::Io(reason.to_owned())).unwrap());
        drop(RocksEngine::open(path, &Options::default()).unwrap());
        assert_eq!(DamagedFiles::load(path).unwrap(), DamagedFiles::default());
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
