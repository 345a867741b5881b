//! [`check`]: verifies the checksums of all files of a store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::batch::Writes;
use super::blob;
use super::directory::{Directory, blob_path, table_path};
use super::log::{self, Item, Log};
use super::manifest::Manifest;
use super::table::{Damage, Table};
use crate::damage::{self, DamagedFiles};
use crate::keys::shard as shard_of;
use crate::options;
use crate::shards::Stored;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FileKind {
    Table,
    Blob,
    Log,
    Manifest,
    Current,
    /// Options and the identity of the store, for operators.
    Text,
    DamagedFiles,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Table => "sorted file",
            Self::Blob => "blob file",
            Self::Log => "log of writes",
            Self::Manifest => "manifest",
            Self::Current => "name of the manifest",
            Self::Text => "text",
            Self::DamagedFiles => "list of damage",
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub file: PathBuf,
    pub kind: FileKind,
    pub offset: u64,
    pub length: u64,
    pub description: String,
    pub shards: Vec<RangeInclusive<u64>>,
    /// True if the fault looks like the result of a crash: the log ends within an unacknowledged write.
    pub is_torn_tail: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    Full,
    Metadata,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    pub files: u64,
    pub bytes: u64,
    pub faults: Vec<Fault>,
}

impl Checked {
    fn fault(&mut self, file: &Path, kind: FileKind, description: impl Into<String>, damage: Option<&Damage>) {
        let (offset, length) = damage.map_or((0, 0), |damage| (damage.offset as u64, damage.length as u64));
        let shards =
            damage.and_then(|damage| damage.keys.as_ref()).map(|(from, through)| shard_of(from)..=shard_of(through));
        let shards = shards.into_iter().collect();
        self.faults.push(Fault {
            file: file.to_owned(),
            kind,
            offset,
            length,
            description: description.into(),
            shards,
            is_torn_tail: false,
        });
    }

    fn damage(&mut self, file: &Path, kind: FileKind, damage: &[Damage]) {
        for damage in damage {
            self.fault(file, kind, damage.description, Some(damage));
        }
    }
}

/// Returns the part of a manifest before its first damage, if all files that this part names exist. Then no durable
/// state depends on the rest: a durable later record would have removed the files that it replaced. Returns `None` if
/// the manifest is undamaged or must not be cut.
pub(crate) fn cut_manifest<'a>(directory: &Path, bytes: &'a [u8]) -> io::Result<Option<&'a [u8]>> {
    let damage = Log::new(bytes).find_map(|item| match item {
        Item::Damage { offset, .. } => Some(offset),
        Item::Record(..) => None,
    });
    // The start of a manifest is durable before the manifest is used.
    let Some(length) = damage.filter(|length| *length > 0) else { return Ok(None) };
    let (found, manifest) = (Directory::read(directory)?, Manifest::read(&bytes[..length]));
    let has_tables = manifest.tables.keys().all(|number| found.tables.contains_key(number));
    // Until the next flush, the manifest states the successor of the last recovered log as the minimum log.
    let opened = found.manifests.keys().next_back().copied().unwrap_or(0);
    let is_first = |log: u64| log == manifest.min_log || (manifest.min_log..opened).contains(&log);
    let mut needed = found.logs.keys().filter(|log| **log >= manifest.min_log);
    let has_logs = needed.next().is_none_or(|log| is_first(*log));
    Ok((has_tables && has_logs).then_some(&bytes[..length]))
}

/// The store may be in use: files that it removes concurrently are skipped. `progress` receives the number of bytes of
/// each read and the total. Fails if the directory cannot be read.
pub fn check(directory: &Path, depth: Depth, progress: &mut dyn FnMut(u64, u64)) -> io::Result<Checked> {
    let found = Directory::read(directory)?;
    let mut checked = Checked::default();
    if let Err(why) = &found.current {
        checked.fault(&directory.join("CURRENT"), FileKind::Current, why, None);
    }
    checked.files += 1;
    let Some(manifest) = found.manifest()? else {
        checked.fault(&directory.join("CURRENT"), FileKind::Manifest, "there is no manifest", None);
        return Ok(checked);
    };
    check_manifest(&found, &manifest, &mut checked);
    for path in &found.texts {
        checked.files += 1;
        check_text(path, &mut checked);
    }
    let all = found.tables.values().chain(found.blobs.values()).chain(found.logs.values());
    let total = all.map(|path| fs::metadata(path).map_or(0, |metadata| metadata.len())).sum();
    let mut reading = Reading { directory, checked, progress, total };
    match depth {
        Depth::Full => {
            reading.tables(&found, &manifest)?;
            reading.blobs(&found, &manifest)?;
        }
        Depth::Metadata => reading.outlines(&manifest)?,
    }
    reading.logs(&found, &manifest)?;
    reading.list();
    Ok(reading.checked)
}

fn check_manifest(found: &Directory, manifest: &Manifest, checked: &mut Checked) {
    checked.files += 1;
    let path = found.current.as_ref().ok().or(found.manifests.values().next_back());
    for (offset, length) in &manifest.damage {
        if let Some(path) = path {
            let damage = Damage::beside_data(*offset, *length, "list of files");
            checked.damage(path, FileKind::Manifest, &[damage]);
        }
    }
}

/// Text files have no checksums, but contain only printable characters.
fn check_text(path: &Path, checked: &mut Checked) {
    let is_plain = |byte: &u8| matches!(byte, b'\n' | b'\t' | b' '..=b'~');
    match fs::read(path) {
        Ok(bytes) => {
            checked.bytes += bytes.len() as u64;
            if let Some(offset) = bytes.iter().position(|byte| !is_plain(byte)) {
                let last = bytes.iter().rposition(|byte| !is_plain(byte)).unwrap_or(offset);
                let damage = Damage::beside_data(offset, last + 1 - offset, "bytes that are not text");
                checked.damage(path, FileKind::Text, &[damage]);
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => checked.fault(path, FileKind::Text, format!("cannot be read: {error}"), None),
    }
}

struct Reading<'a> {
    directory: &'a Path,
    checked: Checked,
    progress: &'a mut dyn FnMut(u64, u64),
    total: u64,
}

impl Reading<'_> {
    /// Returns `None` for a file that is no longer in use.
    fn read(
        &mut self,
        path: &Path,
        kind: FileKind,
        is_used: impl Fn(&Manifest) -> bool,
    ) -> io::Result<Option<Vec<u8>>> {
        match fs::read(path) {
            Ok(bytes) => {
                self.checked.files += 1;
                self.checked.bytes += bytes.len() as u64;
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let now = Directory::read(self.directory)?.manifest()?;
                if now.is_none_or(|manifest| is_used(&manifest)) {
                    self.checked.fault(path, kind, "is missing", None);
                }
                Ok(None)
            }
            Err(error) => {
                self.checked.fault(path, kind, format!("cannot be read: {error}"), None);
                Ok(None)
            }
        }
    }

    fn tables(&mut self, found: &Directory, manifest: &Manifest) -> io::Result<()> {
        let mut numbers: BTreeSet<u64> = manifest.tables.keys().copied().collect();
        if !manifest.damage.is_empty() {
            // The lost part of the manifest may name further files.
            numbers.extend(found.tables.keys().filter(|number| !manifest.gone.contains(number)));
        }
        for number in numbers {
            let path = table_path(self.directory, number);
            let known = manifest.tables.get(&number);
            let before = self.checked.faults.len();
            if let Some(bytes) = self.read(&path, FileKind::Table, |now| now.tables.contains_key(&number))? {
                if let Some(known) = known.filter(|known| known.size != bytes.len() as u64) {
                    let description = format!("has {} bytes instead of {}", bytes.len(), known.size);
                    self.checked.fault(&path, FileKind::Table, description, None);
                }
                let total = self.total;
                let damage = Table::open(&bytes).check(|length| (self.progress)(length as u64, total));
                self.checked.damage(&path, FileKind::Table, &damage);
            }
            // Damage outside of the data hides some or all of the data.
            if let Some(known) = known {
                let all = shard_of(&known.smallest)..=shard_of(&known.largest);
                for fault in &mut self.checked.faults[before..] {
                    match fault.shards.first_mut() {
                        Some(range) => *range = (*range.start()).max(*all.start())..=(*range.end()).min(*all.end()),
                        None if matches!(fault.description.as_str(), "filter" | "index of filters") => {}
                        None => fault.shards.push(all.clone()),
                    }
                }
            }
        }
        Ok(())
    }

    fn list(&mut self) {
        if let Err(error) = DamagedFiles::load(self.directory) {
            self.checked.fault(&self.directory.join(damage::FILE), FileKind::DamagedFiles, error.to_string(), None);
        }
    }

    fn outlines(&mut self, manifest: &Manifest) -> io::Result<()> {
        for (number, known) in &manifest.tables {
            let path = table_path(self.directory, *number);
            let description = match fs::metadata(&path) {
                Ok(metadata) if metadata.len() == known.size => continue,
                Ok(metadata) => format!("has {} bytes instead of {}", metadata.len(), known.size),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let now = Directory::read(self.directory)?.manifest()?;
                    if now.is_some_and(|manifest| !manifest.tables.contains_key(number)) {
                        continue;
                    }
                    "is missing".to_owned()
                }
                Err(error) => format!("cannot be read: {error}"),
            };
            self.checked.fault(&path, FileKind::Table, description, None);
        }
        Ok(())
    }

    fn blobs(&mut self, found: &Directory, manifest: &Manifest) -> io::Result<()> {
        // Files of an unfinished flush are not in the manifest and incomplete.
        for number in
            found.blobs.keys().filter(|number| !manifest.damage.is_empty() || manifest.blobs.contains_key(number))
        {
            let path = blob_path(self.directory, *number);
            if let Some(bytes) = self.read(&path, FileKind::Blob, |_| false)? {
                let total = self.total;
                let damage = blob::check(&bytes, |length| (self.progress)(length as u64, total));
                self.checked.damage(&path, FileKind::Blob, &damage);
            }
        }
        Ok(())
    }

    fn logs(&mut self, found: &Directory, manifest: &Manifest) -> io::Result<()> {
        let state = manifest.columns.iter().find(|(_, name)| *name == options::STATE).map(|(number, _)| *number);
        let mut versions = Versions::new(state);
        for (number, path) in found.logs.iter().filter(|(number, _)| **number >= manifest.min_log) {
            let is_last = found.logs.keys().next_back() == Some(number);
            let Some(mut bytes) = self.read(path, FileKind::Log, |_| false)? else { continue };
            (self.progress)(bytes.len() as u64, self.total);
            if is_last {
                bytes = settled(bytes, path)?;
            }
            let before = self.checked.faults.len();
            for item in Log::new(&bytes) {
                match item {
                    Item::Record(offset, record) => match Writes::decode(&record) {
                        Some(writes) => versions.note(&writes),
                        None => {
                            let damage = Damage::beside_data(offset, record.len(), "writes that cannot be understood");
                            self.checked.damage(path, FileKind::Log, &[damage]);
                        }
                    },
                    Item::Damage { offset, length, is_last: is_end } => {
                        let is_torn_tail = is_last && is_end && log::is_cut(&bytes, offset)
                            || log::is_torn(&bytes, offset)
                            || has_hole(offset, &bytes[offset..offset + length]);
                        let description = if is_torn_tail { "a write that is cut off" } else { "writes" };
                        self.checked.damage(path, FileKind::Log, &[Damage::beside_data(offset, length, description)]);
                        self.checked.faults.last_mut().expect("it was just noted").is_torn_tail = is_torn_tail;
                    }
                }
            }
            let gaps = versions.take_gaps();
            for fault in &mut self.checked.faults[before..] {
                fault.shards = gaps.iter().map(|shard| *shard..=*shard).collect();
            }
        }
        Ok(())
    }
}

/// Reads the log again while it ends within a write in progress.
fn settled(mut bytes: Vec<u8>, path: &Path) -> io::Result<Vec<u8>> {
    for _ in 0..5 {
        let ends_whole = !matches!(Log::new(&bytes).last(), Some(Item::Damage { is_last: true, .. }));
        if ends_whole {
            break;
        }
        let again = fs::read(path)?;
        if again == bytes {
            break;
        }
        bytes = again;
    }
    Ok(bytes)
}

/// Unit in which file systems write.
const PAGE: usize = 4096;

/// Returns true if a page is missing that was never synced: after a power loss it contains zeros. `bytes` are the
/// damaged bytes at `offset`; their first and last page may mostly belong to other data.
pub(super) fn has_hole(offset: usize, bytes: &[u8]) -> bool {
    let (first, others) = bytes.split_at(bytes.len().min(PAGE - offset % PAGE));
    let mut pages = std::iter::once(first).chain(others.chunks(PAGE)).filter(|page| !page.is_empty());
    pages.any(|page| page.iter().all(|byte| *byte == 0))
}

/// Commits of each shard in the logs. A missing version means that the shard has lost a commit.
pub(super) struct Versions {
    state: Option<u32>,
    last: BTreeMap<u64, u64>,
    gaps: BTreeSet<u64>,
}

impl Versions {
    /// `state` is the number of the column family of versions.
    pub(super) fn new(state: Option<u32>) -> Self {
        Self { state, last: BTreeMap::new(), gaps: BTreeSet::new() }
    }

    pub(super) fn take_gaps(&mut self) -> BTreeSet<u64> {
        std::mem::take(&mut self.gaps)
    }

    pub(super) fn note(&mut self, writes: &Writes) {
        for write in writes.writes.iter().filter(|write| Some(write.column) == self.state) {
            let shard = shard_of(&write.entry.key);
            let Ok(Stored { state, .. }) = Stored::decode(Some(&write.entry.value)) else {
                self.last.remove(&shard);
                continue;
            };
            let before = self.last.insert(shard, state.version.0);
            if before.is_some_and(|before| state.version.0 > before + 1) {
                self.gaps.insert(shard);
            }
        }
    }
}
