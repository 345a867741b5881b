//! [`inspect`]: checks that a store can be opened with all acknowledged writes. It changes no file. RocksDB itself
//! creates an empty store if `CURRENT` is missing, silently recovers from the logs that exist, and accepts a truncated
//! manifest. Therefore each file that the manifest names must exist with its size and belong to this store; the
//! sequence numbers in the logs must be contiguous; and the state recorded by [`Acknowledged`] must be reached. A power
//! loss leaves states that look like damage. For the rules see [`Repairs`] and [`check_logs`].

use std::path::{Path, PathBuf};
use std::{fs, io};

use settee_storage::durable::{self, Readers};
use settee_storage::{Keyspace, Result, StorageError};

use super::acknowledged::Acknowledged;
use super::batch::annotations;
use super::bytes::Bytes;
use super::check::{cut_manifest, has_hole};
use super::directory::{Directory, blob_path, table_path};
use super::log::{self, Item, Log};
use super::manifest::Manifest;
use super::table::{SESSION, session_at_end};
use crate::damage::DamagedFiles;
use crate::options;

pub(crate) const UNFINISHED: &str = "unfinished";

const BLOB_FRAME: u64 = 62;

#[derive(Debug)]
pub(crate) enum Found {
    Nothing,
    Unfinished,
    Store(Repairs),
}

/// Repairs that RocksDB needs after a power loss. No acknowledged write depends on the data that they remove.
#[derive(Debug, Default)]
pub(crate) struct Repairs {
    /// RocksDB writes a new manifest, names it in `CURRENT`, syncs the directory, and only then removes the previous
    /// manifest; so if the named one is missing, the previous one is complete.
    current: Option<(PathBuf, String)>,
    /// The part of the manifest before a record that was not synced.
    manifest: Option<(PathBuf, Vec<u8>)>,
    /// Describes the incomplete, unacknowledged writes at the end of a log, which RocksDB drops.
    pub(crate) torn: Option<String>,
}

impl Repairs {
    pub(crate) fn apply(&self) -> io::Result<()> {
        if let Some((path, whole)) = &self.manifest {
            durable::write(path, Readers::Owner, whole)?;
        }
        match &self.current {
            Some((path, name)) => durable::write(path, Readers::Owner, format!("{name}\n").as_bytes()),
            None => Ok(()),
        }
    }
}

fn unreadable(path: &Path, error: &io::Error) -> StorageError {
    match error.kind() {
        io::ErrorKind::NotFound => damaged(path, "is missing"),
        _ => StorageError::Io(format!("{} cannot be read: {error}", path.display())),
    }
}

fn damaged(path: &Path, description: impl std::fmt::Display) -> StorageError {
    StorageError::Corrupt(format!("{} {description}", path.display()))
}

/// Fails if a store cannot be opened with all acknowledged writes. The error names the first file that prevents it.
pub(crate) fn inspect(path: &Path) -> Result<Found> {
    let names = match names(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        names => names.map_err(|error| unreadable(path, &error))?,
    };
    let is_incidental =
        |name: &String| matches!(name.as_str(), "LOCK" | "LOG" | "lost+found") || name.starts_with("LOG.old.");
    if names.iter().all(is_incidental) {
        return Ok(Found::Nothing);
    }
    let has_data = names.iter().any(|name| name.ends_with(".sst") || name.ends_with(".blob"));
    let has_current = names.iter().any(|name| name == "CURRENT");
    if !has_current && !has_data && names.iter().any(|name| name == UNFINISHED) {
        return Ok(Found::Unfinished);
    }
    if !has_current {
        return Err(damaged(&path.join("CURRENT"), "is missing"));
    }
    let found = Directory::read(path).map_err(|error| unreadable(path, &error))?;
    let acknowledged = Acknowledged::load(path);
    let mut repairs = Repairs::default();
    let (list, number) = list(&found, acknowledged.as_ref(), &mut repairs)?;
    let bytes = fs::read(&list).map_err(|error| unreadable(&list, &error))?;
    let whole = cut_manifest(path, &bytes).map_err(|error| unreadable(path, &error))?;
    repairs.manifest = whole.map(|whole| (list.clone(), whole.to_vec()));
    let manifest = Manifest::read(whole.unwrap_or(&bytes));
    check_manifest(&list, &manifest, acknowledged.as_ref())?;
    check_data(&found, &manifest)?;
    let reached = RequiredState { manifest: number, acknowledged: acknowledged.as_ref() };
    repairs.torn = check_logs(&found, &manifest, reached)?;
    Ok(Found::Store(repairs))
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    fs::read_dir(path)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
}

fn list(found: &Directory, acknowledged: Option<&Acknowledged>, repairs: &mut Repairs) -> Result<(PathBuf, u64)> {
    let current = found.path.join("CURRENT");
    let number_of = |path: &Path| found.manifests.iter().find(|(_, other)| *other == path).map(|(number, _)| *number);
    match &found.current {
        Ok(path) => Ok((path.clone(), number_of(path).unwrap_or(0))),
        Err(why) => {
            let newest = found.manifests.iter().next_back();
            // The manifest with which the store was opened completely is durable, and so are later ones.
            let least = acknowledged.map_or(0, |acknowledged| acknowledged.manifest);
            let is_name = fs::read_to_string(&current).is_ok_and(|text| text.starts_with("MANIFEST-"));
            match newest.filter(|(number, _)| is_name && **number >= least) {
                Some((number, path)) => {
                    repairs.current = Some((current, format!("MANIFEST-{number:06}")));
                    Ok((path.clone(), *number))
                }
                None => Err(damaged(&current, why)),
            }
        }
    }
}

fn check_manifest(list: &Path, manifest: &Manifest, acknowledged: Option<&Acknowledged>) -> Result<()> {
    if let Some((offset, length)) = manifest.damage.first() {
        return Err(damaged(list, format_args!("is damaged ({length} bytes at {offset})")));
    }
    let expected = || Keyspace::ALL.iter().map(|space| space.name()).chain([options::STATE, "default"]);
    if let Some(unknown) = manifest.columns.values().find(|name| expected().all(|known| known != *name)) {
        return Err(damaged(list, format_args!("names the keyspace {unknown}: a newer version of Settee wrote it")));
    }
    for name in expected() {
        let column = manifest.columns.iter().find(|(_, known)| *known == name).map(|(number, _)| number);
        if column.is_none_or(|column| !manifest.logged.contains(column)) {
            return Err(damaged(list, format_args!("is cut off: the keyspace {name} is not in it")));
        }
    }
    let expected = acknowledged.map(|acknowledged| acknowledged.identity.as_str()).filter(|id| !id.is_empty());
    match (expected, manifest.identity.as_deref()) {
        (Some(expected), Some(identity)) if expected != identity => {
            Err(damaged(list, "belongs to another store than the other files"))
        }
        _ => Ok(()),
    }
}

/// Checks that sorted files and blob files exist, with their sizes, and belong to this store.
fn check_data(found: &Directory, manifest: &Manifest) -> Result<()> {
    // Refuses a list that cannot be read, or of an earlier version.
    DamagedFiles::load(&found.path)?;
    let check = |path: PathBuf, size: u64| -> Result<()> {
        let there = fs::metadata(&path).map_err(|error| unreadable(&path, &error))?.len();
        match there == size {
            true => Ok(()),
            false => Err(damaged(&path, format_args!("has {there} bytes instead of {size}"))),
        }
    };
    for (number, table) in &manifest.tables {
        let path = table_path(&found.path, *number);
        check(path.clone(), table.size)?;
        let own = session_at_end(&path).map_err(|error| unreadable(&path, &error));
        // An unreadable session is damage within the file, which RocksDB reports.
        if let (Some(expected), Ok(Some(own))) = (table.session, own)
            && own != expected & SESSION
        {
            return Err(damaged(&path, "belongs to another store"));
        }
    }
    for (number, blob) in manifest.needed_blobs() {
        check(blob_path(&found.path, number), blob.bytes + BLOB_FRAME)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct RequiredState<'a> {
    manifest: u64,
    acknowledged: Option<&'a Acknowledged>,
}

pub(crate) fn check_logs_in(path: &Path) -> Result<()> {
    let Ok(found) = Directory::read(path) else { return Ok(()) };
    let Some(manifest) = found.manifest().ok().flatten() else { return Ok(()) };
    let acknowledged = Acknowledged::load(path);
    let reached = RequiredState { manifest: u64::MAX, acknowledged: acknowledged.as_ref() };
    check_logs(&found, &manifest, reached).map(drop)
}

/// Checks that the logs contain all acknowledged writes that are not in sorted files. Returns a description of
/// incomplete writes at the end. A new log is durable before the previous one is removed. Only the manifest written by
/// a start may be durable before the log that it names, which then has no writes.
fn check_logs(found: &Directory, manifest: &Manifest, reached: RequiredState<'_>) -> Result<Option<String>> {
    let RequiredState { manifest: number, acknowledged } = reached;
    let needed = || found.logs.iter().filter(|(log, _)| **log >= manifest.min_log);
    let is_first = |log: u64| log == manifest.min_log || (manifest.min_log..number).contains(&log);
    match needed().next() {
        Some((log, _)) if is_first(*log) => {}
        Some(_) => return Err(missing_log(found, manifest, acknowledged)),
        None => {
            let began = acknowledged.is_some_and(|acknowledged| number > acknowledged.manifest);
            let has_older = acknowledged.is_some_and(|acknowledged| {
                found.logs.keys().next_back().is_some_and(|newest| *newest >= acknowledged.log)
            });
            if !began || !has_older {
                return Err(missing_log(found, manifest, acknowledged));
            }
        }
    }
    let least = acknowledged.map_or(0, |acknowledged| acknowledged.sequence);
    if let Some(acknowledged) = acknowledged.filter(|acknowledged| acknowledged.log >= manifest.min_log) {
        let path = found.path.join(format!("{:06}.log", acknowledged.log));
        acknowledged.check_log(&path).map_err(|why| damaged(&path, why))?;
    }
    // All writes before this position were acknowledged.
    let bound = acknowledged.map_or((0, 0), |acknowledged| (acknowledged.log, acknowledged.length));
    let mut end = LogEnd { sequence: None, log: 0, length: 0 };
    let mut torn = None;
    for (number, path) in needed() {
        let bytes = fs::read(path).map_err(|error| unreadable(path, &error))?;
        let Err(tear) = read_log(path, &bytes, *number, manifest, &mut end)? else { continue };
        if (tear.log, tear.offset) < bound {
            return Err(damaged(
                path,
                format_args!(
                    "does not continue the log before it, or is damaged at {}: acknowledged writes are missing",
                    tear.offset
                ),
            ));
        }
        torn = Some(format!("{} from {} on", path.display(), tear.offset));
        break;
    }
    let last = end.sequence.unwrap_or(0).max(manifest.last_sequence);
    if last < least {
        let path = found.logs.values().next_back().cloned().unwrap_or_else(|| found.path.clone());
        return Err(damaged(&path, format_args!("ends before acknowledged writes (at {last} instead of {least})")));
    }
    Ok(torn)
}

/// Position up to which logs were read.
struct LogEnd {
    sequence: Option<u64>,
    log: u64,
    length: u64,
}

struct TornWrite {
    log: u64,
    offset: u64,
}

/// Reads a log that follows `end`. Fails if it has damage that a power loss does not cause.
fn read_log(
    path: &Path,
    bytes: &[u8],
    number: u64,
    manifest: &Manifest,
    end: &mut LogEnd,
) -> Result<Result<(), TornWrite>> {
    for item in Log::new(bytes) {
        match item {
            Item::Record(offset, record) => {
                let first = Bytes(&record).fixed64();
                let count = annotations(&record).map(|(count, _)| u64::from(count));
                let (Some(first), Some(count)) = (first, count) else {
                    return Err(damaged(path, format_args!("holds writes at {offset} that cannot be understood")));
                };
                match end.sequence {
                    // RocksDB starts another log only if the current one contains writes.
                    None if end.log != 0 => return Ok(Err(TornWrite { log: end.log, offset: end.length })),
                    None if first > manifest.last_sequence + 1 => {
                        return Err(damaged(
                            path,
                            format_args!(
                                "starts with write {first}, and those from {} on are missing",
                                manifest.last_sequence + 1
                            ),
                        ));
                    }
                    Some(last) if first > last + 1 => return Ok(Err(TornWrite { log: end.log, offset: end.length })),
                    // Only the first log may repeat writes, which are in sorted files already.
                    Some(last) if first <= last => {
                        return Err(damaged(
                            path,
                            format_args!(
                                "does not continue the log before it: write {first} at {offset} follows {last}"
                            ),
                        ));
                    }
                    _ => {}
                }
                end.sequence = end.sequence.max(Some((first + count).saturating_sub(1)));
            }
            Item::Damage { offset, length, .. } if is_torn(bytes, offset, length) => {
                return Ok(Err(TornWrite { log: number, offset: offset as u64 }));
            }
            Item::Damage { offset, length, .. } => {
                return Err(damaged(path, format_args!("is damaged ({length} bytes at {offset})")));
            }
        }
        // Within a log, the preceding writes are part of this log.
        (end.log, end.length) = (number, 0);
    }
    (end.log, end.length) = (number, bytes.len() as u64);
    Ok(Ok(()))
}

fn missing_log(found: &Directory, manifest: &Manifest, acknowledged: Option<&Acknowledged>) -> StorageError {
    let newest = acknowledged.map(|acknowledged| acknowledged.log).filter(|log| *log >= manifest.min_log);
    let missing = newest.filter(|log| !found.logs.contains_key(log)).unwrap_or(manifest.min_log);
    damaged(&found.path.join(format!("{missing:06}.log")), "or a log of writes after it is missing")
}

/// Returns true if the damaged bytes of a log look like writes that were not synced before a power loss.
fn is_torn(bytes: &[u8], offset: usize, length: usize) -> bool {
    let end = offset + length;
    end == bytes.len() && log::is_cut(bytes, offset)
        || log::is_torn(bytes, offset)
        || has_hole(offset, &bytes[offset..end])
}
