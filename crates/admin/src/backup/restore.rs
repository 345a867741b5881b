//! Restore of a data directory: all files are copied to a temporary directory, verified, and then moved into place.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use settee_storage::durable;

use super::files;
use super::manifest::{ENGINE, Entry, MANIFEST, Manifest};
use crate::version::RESTORING;

pub(super) fn run(directory: &Path, data: &Path) -> anyhow::Result<Manifest> {
    let manifest = Manifest::read(&directory.join(MANIFEST)).with_context(|| {
        format!(
            "{} is not a complete backup; specify the directory named after the time of the backup",
            directory.display()
        )
    })?;
    let mut copy = |entry: &Entry, target: &Path| {
        let copied = files::copy(&directory.join(&entry.path), target)?;
        ensure!(
            copied == (entry.bytes, entry.sha256.clone()),
            "{} is damaged: its content differs from what was backed up. Nothing was restored; \
             choose another backup.",
            directory.join(&entry.path).display()
        );
        Ok(())
    };
    fill(&manifest, data, &mut copy, &mut |_| Ok(()))?;
    Ok(manifest)
}

/// Fills the empty or missing data directory `data`. `fetch` creates each file and verifies its checksum; `finish` may
/// modify the files before they are moved into place.
pub(super) fn fill(
    manifest: &Manifest,
    data: &Path,
    fetch: &mut dyn FnMut(&Entry, &Path) -> anyhow::Result<()>,
    finish: &mut dyn FnMut(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    durable::create_directories(data).with_context(|| format!("{} cannot be created", data.display()))?;
    if let Some(entry) = fs::read_dir(data)?.flatten().find(|entry| entry.file_name() != "lost+found") {
        bail!(
            "{} is not empty: {} is in it. Restore into a new directory, or check and empty this one.",
            data.display(),
            entry.file_name().to_string_lossy()
        );
    }
    let aside = data.join(RESTORING);
    for entry in &manifest.entries {
        let target = aside.join(&entry.path);
        durable::create_directories(target.parent().expect("the path is below the directory"))?;
        fetch(entry, &target)?;
    }
    finish(&aside)?;
    durable::sync_tree(&aside).context("the restored data cannot be synced")?;
    let mut names: Vec<_> = fs::read_dir(&aside)?.map(|entry| Ok(entry?.file_name())).collect::<anyhow::Result<_>>()?;
    // The engine's files are moved last: without them the directory is not recognized as data.
    names.sort_by_key(|name| name == ENGINE);
    for name in names {
        durable::rename(&aside.join(&name), &data.join(&name))
            .context("the restored data cannot be moved into the directory")?;
    }
    fs::remove_dir(&aside).context("the temporary directory cannot be removed")?;
    durable::sync_directory(data)?;
    Ok(())
}
