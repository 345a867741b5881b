//! Databases of a data directory: [`DataDirectory`].
//!
//! | file | contents |
//! |---|---|
//! | `NAME.couch` | a database of CouchDB 1, or one that CouchDB 2 and 3 keep on each node (`_dbs`, `_nodes`) |
//! | `shards/00000000-7fffffff/NAME.1234567890.couch` | the shard of a database for a range of hashes |
//! | `….couch.compact`, `….compact.data`, `….compact.meta` | unfinished compactions |
//! | `NAME_design`, `.shards`, `.delete` | indexes, and files that are being deleted |
//!
//! Files may be in subdirectories, because database names may contain slashes. The database `_dbs` has a document for
//! each database: its id is the name, `shard_suffix` is the part of the file names between name and `.couch` as a list
//! of characters, `by_range` lists the ranges, and `props` the properties. Files with other suffixes are remains.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use settee_model::json::{Json, Value};

use crate::database::{Database, Lost};

const MAX_DIRECTORIES: usize = 32;

/// Databases that each node keeps for itself.
const INTERNAL: [&str; 3] = ["_dbs", "_nodes", "_metadata"];

#[derive(Debug)]
pub struct DataDirectory {
    pub databases: Vec<DatabaseFiles>,
    /// Reasons why files and entries were ignored.
    pub notes: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatabaseFiles {
    pub name: String,
    pub files: Vec<PathBuf>,
    /// Ranges of hashes without a file: their shards are on other nodes, or lost.
    pub missing: Vec<String>,
    /// Number of shards; `None` for a database of CouchDB 1.
    pub q: Option<usize>,
    pub is_partitioned: bool,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ShardFile {
    suffix: String,
    range: String,
    path: PathBuf,
}

impl DataDirectory {
    /// Unreadable subdirectories are errors.
    pub fn open(path: &Path) -> std::io::Result<DataDirectory> {
        let mut files = Vec::new();
        list(path, "", 0, &mut files)?;
        let mut single = BTreeMap::new();
        let mut shards: BTreeMap<String, Vec<ShardFile>> = BTreeMap::new();
        let mut notes = Vec::new();
        for (name, path) in files {
            match name.strip_prefix("shards/") {
                Some(shard) => match parse_shard_name(shard) {
                    Some((database, range, suffix)) => {
                        shards.entry(database).or_default().push(ShardFile { suffix, range, path });
                    }
                    None => notes.push(format!("{}: its name is not that of a shard", path.display())),
                },
                None if is_deleted(&name) => notes.push(format!("{}: a deleted database", path.display())),
                None => {
                    single.insert(name, path);
                }
            }
        }
        let map = match single.get("_dbs") {
            Some(path) => ShardMap::read(path, &mut notes),
            None => ShardMap::default(),
        };
        let mut databases = Vec::new();
        for (name, entry) in &map.databases {
            databases.push(entry.files(name, shards.remove(name).unwrap_or_default(), &mut notes));
        }
        for (name, files) in shards {
            match map.is_complete {
                true => notes.extend(
                    files
                        .iter()
                        .map(|file| format!("{}: the shard map does not list its database", file.path.display())),
                ),
                false => databases.push(unmapped(name, files, &mut notes)),
            }
        }
        for (name, path) in single {
            if INTERNAL.contains(&name.as_str()) {
                continue;
            }
            if databases.iter().any(|database| database.name == name) {
                notes.push(format!("{}: the database {name} has shards, which are used", path.display()));
                continue;
            }
            databases.push(DatabaseFiles {
                name,
                files: vec![path],
                missing: Vec::new(),
                q: None,
                is_partitioned: false,
            });
        }
        databases.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(DataDirectory { databases, notes })
    }
}

/// Returns true if a directory contains files of a CouchDB. Opens no file.
#[must_use]
pub fn is_couchdb(path: &Path) -> bool {
    let names = |path: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let is_range = |name: &String| parse_shard_name(&format!("{name}/name.0")).is_some();
    names(path).iter().any(|name| name.ends_with(".couch")) || names(&path.join("shards")).iter().any(is_range)
}

fn list(path: &Path, prefix: &str, depth: usize, files: &mut Vec<(String, PathBuf)>) -> std::io::Result<()> {
    if depth > MAX_DIRECTORIES {
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        let file_name = entry.file_name();
        let Some(file_name) = file_name.to_str().filter(|name| !name.starts_with('.')) else { continue };
        let path = entry.path();
        if path.is_dir() {
            if !file_name.ends_with("_design") && file_name != "lost+found" {
                list(&path, &format!("{prefix}{file_name}/"), depth + 1, files)?;
            }
        } else if let Some(name) = file_name.strip_suffix(".couch") {
            files.push((format!("{prefix}{name}"), path));
        } else if let Some(name) = file_name.strip_suffix(".couch.compact") {
            // The compaction deleted the old file, but did not rename the new one.
            let target = path.with_extension("");
            if !target.exists() {
                files.push((format!("{prefix}{name}"), path));
            }
        }
    }
    Ok(())
}

/// Returns name, range and suffix of `00000000-7fffffff/NAME.1234567890`.
fn parse_shard_name(shard: &str) -> Option<(String, String, String)> {
    let (range, name) = shard.split_once('/')?;
    let (low, high) = range.split_once('-')?;
    let is_hash = |text: &str| text.len() == 8 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let (database, suffix) = name.rsplit_once('.')?;
    let is_valid = is_hash(low) && is_hash(high) && suffix.bytes().all(|byte| byte.is_ascii_digit());
    is_valid.then(|| (database.to_owned(), range.to_owned(), format!(".{suffix}")))
}

/// CouchDB renames deleted files in this way if `enable_database_recovery` is set.
fn is_deleted(name: &str) -> bool {
    name.ends_with(".deleted")
}

fn unmapped(name: String, mut files: Vec<ShardFile>, notes: &mut Vec<String>) -> DatabaseFiles {
    let newest = files.iter().map(|file| (file.suffix.len(), file.suffix.clone())).max().unwrap_or_default().1;
    files.sort();
    let (current, old): (Vec<_>, Vec<_>) = files.into_iter().partition(|file| file.suffix == newest);
    notes.extend(old.iter().map(|file| format!("{}: an older database of this name", file.path.display())));
    notes.push(format!("{name}: no shard map lists it; the files ending in {newest}.couch are used"));
    let (missing, q) = (Vec::new(), Some(current.len()));
    let files = current.into_iter().map(|file| file.path).collect();
    DatabaseFiles { name, files, missing, q, is_partitioned: false }
}

#[derive(Default)]
struct ShardMap {
    databases: BTreeMap<String, MapEntry>,
    is_complete: bool,
}

struct MapEntry {
    suffix: String,
    ranges: Vec<String>,
    is_partitioned: bool,
}

impl ShardMap {
    fn read(path: &Path, notes: &mut Vec<String>) -> ShardMap {
        let mut map = ShardMap { databases: BTreeMap::new(), is_complete: true };
        let database = match Database::open(path) {
            Ok(database) => database,
            Err(error) => {
                notes.push(format!("{}: {error}; the shards are found by their names", path.display()));
                return ShardMap::default();
            }
        };
        let mut is_damaged = false;
        for document in database.documents(None) {
            map.add(&database, document, &mut is_damaged, path, notes);
        }
        if is_damaged {
            for document in database.recover() {
                map.add(&database, document, &mut is_damaged, path, notes);
            }
        }
        map.is_complete = !is_damaged;
        map
    }

    fn add(
        &mut self,
        database: &Database,
        document: Result<crate::DocInfo, Lost>,
        is_damaged: &mut bool,
        path: &Path,
        notes: &mut Vec<String>,
    ) {
        let document = match document {
            Ok(document) => document,
            Err(lost) => {
                *is_damaged = true;
                notes.push(format!("{}: {lost}", path.display()));
                return;
            }
        };
        let Some(leaf) = document.winner().filter(|leaf| !leaf.is_deleted) else { return };
        if document.id.starts_with("_design/") {
            return;
        }
        let contents = database.contents(leaf).map_err(|error| error.to_string());
        let entry = contents.and_then(|contents| {
            let json = Json::parse(&contents.body).map_err(|error| error.to_string())?;
            MapEntry::parse(json.value()).ok_or_else(|| "it is not a shard map".to_owned())
        });
        match entry {
            Ok(entry) => {
                self.databases.insert(document.id, entry);
            }
            Err(error) => {
                *is_damaged = true;
                notes.push(format!("{}: the shard map of {}: {error}", path.display(), document.id));
            }
        }
    }
}

impl MapEntry {
    fn parse(map: Value<'_>) -> Option<MapEntry> {
        let suffix = map.get("shard_suffix")?;
        let suffix = match suffix.as_str() {
            Some(text) => text.into_owned(),
            None => {
                let character = |code: Value<'_>| char::from_u32(u32::try_from(code.as_u64()?).ok()?);
                suffix.elements().map(character).collect::<Option<String>>()?
            }
        };
        let ranges = map.get("by_range")?.members().map(|(range, _)| range.to_text()).collect();
        let partitioned = map.get("props").and_then(|props| props.get("partitioned"));
        Some(MapEntry { suffix, ranges, is_partitioned: partitioned.and_then(Value::as_bool) == Some(true) })
    }

    fn files(&self, name: &str, found: Vec<ShardFile>, notes: &mut Vec<String>) -> DatabaseFiles {
        let mut files = Vec::new();
        let mut missing: Vec<String> = self.ranges.clone();
        for file in found {
            if file.suffix == self.suffix && self.ranges.contains(&file.range) {
                missing.retain(|range| *range != file.range);
                files.push(file.path);
            } else {
                notes.push(format!("{}: the shard map of {name} does not list it", file.path.display()));
            }
        }
        files.sort();
        let q = Some(self.ranges.len());
        DatabaseFiles { name: name.to_owned(), files, missing, q, is_partitioned: self.is_partitioned }
    }
}
