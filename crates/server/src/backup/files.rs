//! Files of backups: finding, copying, checksums.

use data_encoding::HEXLOWER;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

/// How much is read at a time.
const PIECE_BYTES: usize = 1 << 20;

/// A file to be backed up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) file: PathBuf,
    /// Its place in the backup.
    pub(super) path: PathBuf,
}

/// The files of a directory, sorted. Engines have no directories in theirs.
pub(super) fn below(directory: &Path, place: &Path) -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| format!("{} cannot be read", directory.display()))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            sources.push(Source { file: entry.path(), path: place.join(entry.file_name()) });
        }
    }
    sources.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(sources)
}

/// The files of the configuration and the mark of the layout.
pub(super) fn configuration(data: &Path) -> anyhow::Result<Vec<Source>> {
    let mut sources = Vec::new();
    for name in ["local.ini", "version", crate::names::FILE] {
        if data.join(name).is_file() {
            sources.push(Source { file: data.join(name), path: name.into() });
        }
    }
    if data.join("local.d").is_dir() {
        sources.extend(below(&data.join("local.d"), Path::new("local.d"))?);
    }
    Ok(sources)
}

/// Copies a file, syncs the copy, and answers size and checksum of what was copied. Nobody else can read the copy.
pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<(u64, String)> {
    let mut options = OpenOptions::new();
    let mut target = options.write(true).create_new(true).mode(0o600).open(to);
    let target = target.as_mut().map_err(|error| anyhow::anyhow!("{} cannot be made: {error}", to.display()))?;
    let found = each_piece(from, |piece| target.write_all(piece).with_context(|| format!("writing {}", to.display())))?;
    target.sync_all().with_context(|| format!("{} cannot be synced", to.display()))?;
    Ok(found)
}

/// Size and checksum of a file.
pub(super) fn digest(path: &Path) -> anyhow::Result<(u64, String)> {
    each_piece(path, |_| Ok(()))
}

/// The checksum of a text.
pub(super) fn digest_of(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

fn each_piece(path: &Path, mut each: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<(u64, String)> {
    let mut file = File::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let (mut hasher, mut bytes, mut piece) = (Sha256::new(), 0, vec![0; PIECE_BYTES]);
    loop {
        let length = file.read(&mut piece).with_context(|| format!("reading {}", path.display()))?;
        if length == 0 {
            return Ok((bytes, HEXLOWER.encode(&hasher.finalize())));
        }
        hasher.update(&piece[..length]);
        each(&piece[..length])?;
        bytes += length as u64;
    }
}
