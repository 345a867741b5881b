//! Backups in a [`Store`]: [`upload`] writes one, [`restore`] creates a data directory from one.
//!
//! ```text
//! about.json           the format, and the id of the key that encrypts the rest
//! backups/TIME         a manifest: the files of a backup, with their checksums
//! files/XX/CHECKSUM    a file; any number of backups may share it
//! full                 the name of the newest backup for which everything was sent
//! log/                 the commit log, see `log`
//! ```
//!
//! Engine files never change once they are written, so files that the newest backup also has are neither read nor sent.
//! `retention` removes files that no manifest names. Only one server may write to a store.

pub(super) mod retention;
pub(super) mod s3;
mod seal;
mod store;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
pub(super) mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use anyhow::{Context as _, bail, ensure};

pub(super) use store::Store;

use super::checkpoint::CheckpointOwner;
use super::files::{self, Source, Target};
use super::manifest::{ENGINE, Entry, Logged, Manifest, Report};
use crate::{environment, time};

const BACKUPS: &str = "backups";

const FULL: &str = "full";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    New,
    Full,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    pub total_files: usize,
    pub files: usize,
    pub sent_bytes: u64,
}

pub(super) fn run(store: &Store, data: &Path, effort: Effort) -> anyhow::Result<Report> {
    let data = data.canonicalize().with_context(|| format!("{} cannot be found", data.display()))?;
    ensure!(data.join(ENGINE).is_dir(), "{} contains no data of a server", data.display());
    store.prepare()?;
    let begun_us = environment::now_us();
    let held = CheckpointOwner::take(&data)?;
    upload(store, &sources(held.directory(), &data)?, begun_us, None, effort, &|_| false)
}

pub(super) fn sources(engine: &Path, data: &Path) -> anyhow::Result<Vec<Source>> {
    let mut sources = files::below(engine, Path::new(ENGINE))?;
    sources.extend(files::configuration(data)?);
    Ok(sources)
}

/// Uploads files as the backup with this start time. `progress` is called before each file, and may interrupt it.
pub(super) fn upload(
    store: &Store,
    sources: &[Source],
    begun_us: u64,
    log: Option<Logged>,
    effort: Effort,
    progress: &dyn Fn(Progress) -> bool,
) -> anyhow::Result<Report> {
    let name = time::file_name(begun_us);
    let names = names(store)?;
    ensure!(!names.contains(&name), "a backup of this second already exists: {name} in {}", store.shown());
    let previous = names.last().map(|name| manifest(store, name)).transpose()?;
    let mut sending = Sending::new(store, previous.as_ref(), effort)?;
    let mut entries = Vec::new();
    for (files, source) in sources.iter().enumerate() {
        let now = Progress { total_files: sources.len(), files, sent_bytes: sending.sent_bytes };
        ensure!(!progress(now), "the backup was interrupted");
        entries.push(sending.keep(source)?);
    }
    let manifest = Manifest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        begun: time::rfc3339(begun_us),
        finished: time::rfc3339(environment::now_us()),
        entries,
        log,
    };
    store.put(&format!("{BACKUPS}/{name}"), manifest.to_text().into_bytes())?;
    if effort == Effort::Full {
        store.put(FULL, name.clone().into_bytes())?;
    }
    Ok(Report {
        directory: PathBuf::from(format!("{}/{name}", store.shown())),
        files: sources.len(),
        bytes: manifest.bytes(),
        copied_bytes: sending.sent_bytes,
    })
}

struct Sending<'a> {
    store: &'a Store,
    previous: Option<&'a Manifest>,
    effort: Effort,
    /// Objects that need not be sent, because the newest backup protects them from removal.
    there: BTreeSet<String>,
    sent_bytes: u64,
}

impl<'a> Sending<'a> {
    fn new(store: &'a Store, previous: Option<&'a Manifest>, effort: Effort) -> anyhow::Result<Self> {
        let entries = previous.filter(|_| effort == Effort::New).into_iter().flat_map(|previous| &previous.entries);
        let kept: BTreeSet<String> = entries.map(|entry| store.name_of(&entry.sha256)).collect();
        let listed = if kept.is_empty() { Vec::new() } else { store.list("files")? };
        let there = listed.into_iter().map(|object| object.name).filter(|name| kept.contains(name)).collect();
        Ok(Self { store, previous, effort, there, sent_bytes: 0 })
    }

    fn keep(&mut self, source: &Source) -> anyhow::Result<Entry> {
        let shown = source.file.display();
        let metadata = fs::metadata(&source.file).with_context(|| format!("{shown} cannot be read"))?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ns = modified.and_then(|since| i64::try_from(since.as_nanos()).ok()).unwrap_or_default();
        let known = self.previous.filter(|_| self.effort == Effort::New).and_then(|known| known.find(&source.path));
        if let Some(known) = known.filter(|_| never_changes(&source.path))
            && (known.bytes, known.modified_ns) == (metadata.len(), modified_ns)
            && self.there.contains(&self.store.name_of(&known.sha256))
        {
            return Ok(known.clone());
        }
        let (bytes, sha256) = files::digest(&source.file)?;
        let name = self.store.name_of(&sha256);
        if self.there.insert(name.clone()) {
            self.store.put_file(&name, &source.file, bytes, &sha256)?;
            self.sent_bytes += bytes;
        }
        Ok(Entry { path: source.path.clone(), bytes, sha256, modified_ns })
    }
}

/// Returns true if the engine writes a file with this name only once.
fn never_changes(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "sst" || extension == "blob")
}

pub(super) fn names(store: &Store) -> anyhow::Result<Vec<String>> {
    let listed = store.list(BACKUPS)?.into_iter();
    Ok(listed.filter_map(|object| Some(object.name.rsplit_once('/')?.1.to_owned())).collect())
}

pub(super) fn last_full(store: &Store) -> anyhow::Result<Option<u64>> {
    let name = store.get(FULL)?.and_then(|name| String::from_utf8(name).ok());
    Ok(name.and_then(|name| time::parse(&name)))
}

pub(super) fn manifest(store: &Store, name: &str) -> anyhow::Result<Manifest> {
    let text = store.get(&format!("{BACKUPS}/{name}"))?;
    let text = text.with_context(|| format!("there is no backup {name} in {}", store.shown()))?;
    let manifest = String::from_utf8(text).context("it is not UTF-8 text").and_then(|text| Manifest::parse(&text));
    manifest.with_context(|| format!("the backup {name} in {} cannot be used", store.shown()))
}

pub(super) fn newest(store: &Store) -> anyhow::Result<String> {
    ensure!(store.check()?, "there are no backups in {}", store.shown());
    names(store)?.pop().with_context(|| format!("there is no complete backup in {}", store.shown()))
}

pub(super) fn verify(store: &Store, name: &str) -> anyhow::Result<Manifest> {
    let manifest = manifest(store, name)?;
    for entry in &manifest.entries {
        let mut tally = files::Tally::default();
        fetch(store, entry, &mut |piece| {
            tally.add(piece);
            Ok(())
        })?;
        compare(store, entry, &tally.finish())?;
    }
    Ok(manifest)
}

fn fetch(store: &Store, entry: &Entry, each: &mut dyn FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let name = store.name_of(&entry.sha256);
    ensure!(store.fetch(&name, each)?, "{} is missing in {}: {name}", entry.path.display(), store.shown());
    Ok(())
}

fn compare(store: &Store, entry: &Entry, found: &(u64, String)) -> anyhow::Result<()> {
    if *found == (entry.bytes, entry.sha256.clone()) {
        return Ok(());
    }
    bail!(
        "{} in {} is damaged: its content differs from what was backed up; choose another backup, and write a full \
         one with `settee backup --full`",
        entry.path.display(),
        store.shown()
    )
}

/// `finish` may modify the fetched files before they are moved into place.
pub(super) fn restore(
    store: &Store,
    name: &str,
    data: &Path,
    finish: &mut dyn FnMut(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<Manifest> {
    let manifest = manifest(store, name)?;
    let mut fetch = |entry: &Entry, to: &Path| {
        let mut target = Target::make(to)?;
        fetch(store, entry, &mut |piece| target.write(piece))?;
        compare(store, entry, &target.finish()?)
    };
    super::restore::fill(&manifest, data, &mut fetch, finish)?;
    Ok(manifest)
}
