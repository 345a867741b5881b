//! Backups of a whole server: [`run`] writes one, [`restore`] creates a data directory from one. A backup is a
//! directory whose name is the time of its start. It contains the files of the storage engine at that time, the
//! configuration, and `manifest.json` with the size and the SHA-256 of each file. A file that the previous backup also
//! has is hard-linked. Therefore each backup is complete and takes only the space of its new files.

mod backup_control;
mod checkpoint;
pub mod commands;
mod files;
mod log;
mod manifest;
pub mod one;
mod remote;
mod restore;
pub mod schedule;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
pub(crate) mod tests;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};

use settee_storage::durable;

use crate::{environment, storage, time};
pub use backup_control::BackupControl;
use checkpoint::CheckpointOwner;
use files::Source;
pub(crate) use log::replay::RestoreTime;
use manifest::{ENGINE, Entry, MANIFEST};
pub use manifest::{Manifest, Report};

const PARTIAL: &str = ".partial-";

/// Writes a backup of the server whose data is in `data` into a new directory below `backups`.
pub fn run(data: &Path, backups: &Path) -> anyhow::Result<Report> {
    let data = data.canonicalize().with_context(|| format!("{} cannot be found", data.display()))?;
    storage::refuse_elsewhere(&data)?;
    ensure!(data.join(ENGINE).is_dir(), "{} contains no data of a server", data.display());
    durable::create_directories(backups).with_context(|| format!("{} cannot be created", backups.display()))?;
    let backups = backups.canonicalize()?;
    ensure!(!backups.starts_with(&data), "the backup is inside the data directory and would be lost with it");
    remove_partial(&backups)?;
    let begun_us = environment::now_us();
    let name = time::file_name(begun_us);
    let (directory, partial) = (backups.join(&name), backups.join(format!("{PARTIAL}{name}")));
    ensure!(!directory.exists(), "a backup of this second already exists: {}", directory.display());
    let previous = newest(&backups)?;
    let held = CheckpointOwner::take(&data)?;
    let mut sources = files::below(held.directory(), Path::new(ENGINE))?;
    sources.extend(files::configuration(&data)?);
    let report = write(&sources, &partial, previous.as_ref(), begun_us)?;
    drop(held);
    durable::rename(&partial, &directory).context("the backup cannot be renamed")?;
    Ok(Report { directory, ..report })
}

fn write(
    sources: &[Source],
    partial: &Path,
    previous: Option<&(PathBuf, Manifest)>,
    begun_us: u64,
) -> anyhow::Result<Report> {
    let mut report = Report { directory: partial.to_owned(), files: sources.len(), bytes: 0, copied_bytes: 0 };
    let mut entries = Vec::new();
    for source in sources {
        let target = partial.join(&source.path);
        let parent = target.parent().expect("the path is below the backup");
        durable::create_directories(parent).with_context(|| format!("{} cannot be created", parent.display()))?;
        let known = previous.and_then(|(directory, manifest)| Some((directory, manifest.find(&source.path)?)));
        let (entry, is_copied) = keep(source, &target, known)?;
        report.bytes += entry.bytes;
        report.copied_bytes += if is_copied { entry.bytes } else { 0 };
        entries.push(entry);
    }
    let manifest = Manifest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        begun: time::rfc3339(begun_us),
        finished: time::rfc3339(environment::now_us()),
        entries,
        log: None,
    };
    manifest.write(&partial.join(MANIFEST))?;
    durable::sync_tree(partial).context("the backup cannot be synced")?;
    Ok(report)
}

/// Links a file to that of the previous backup if both have the same content, and otherwise copies it.
fn keep(source: &Source, target: &Path, known: Option<(&PathBuf, &Entry)>) -> anyhow::Result<(Entry, bool)> {
    if let Some((directory, entry)) = known
        && fs::metadata(&source.file).is_ok_and(|metadata| metadata.len() == entry.bytes)
        && files::digest(&source.file)?.1 == entry.sha256
        // Linking fails across file systems and at the link limit. The file is copied then.
        && fs::hard_link(directory.join(&entry.path), target).is_ok()
    {
        return Ok((entry.clone(), false));
    }
    let (bytes, sha256) = files::copy(&source.file, target)?;
    Ok((Entry { path: source.path.clone(), bytes, sha256, modified_ns: 0 }, true))
}

fn newest(backups: &Path) -> anyhow::Result<Option<(PathBuf, Manifest)>> {
    let mut names: Vec<PathBuf> = fs::read_dir(backups)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    names.sort();
    let readable = |path: PathBuf| Manifest::read(&path.join(MANIFEST)).ok().map(|manifest| (path, manifest));
    Ok(names.into_iter().rev().find_map(readable))
}

fn remove_partial(backups: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(backups)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(PARTIAL) {
            fs::remove_dir_all(entry.path()).context("the rest of an interrupted backup cannot be removed")?;
        }
    }
    Ok(())
}

pub fn verify(directory: &Path) -> anyhow::Result<Manifest> {
    let manifest = Manifest::read(&directory.join(MANIFEST))
        .with_context(|| format!("{} is not a complete backup", directory.display()))?;
    for entry in &manifest.entries {
        let found = files::digest(&directory.join(&entry.path))?;
        if found != (entry.bytes, entry.sha256.clone()) {
            bail!("{} is damaged: its content differs from what was backed up", directory.join(&entry.path).display());
        }
    }
    Ok(manifest)
}
