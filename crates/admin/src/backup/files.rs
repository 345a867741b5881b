//! Files of backups: listing, copying, checksums.

use data_encoding::HEXLOWER;
use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use crate::regular;

const PIECE_BYTES: usize = 1 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) file: PathBuf,
    pub(super) path: PathBuf,
}

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

pub(super) fn copy(from: &Path, to: &Path) -> anyhow::Result<(u64, String)> {
    let mut target = Target::make(to)?;
    each_piece(from, |piece| target.write(piece))?;
    target.finish()
}

pub(super) struct Target {
    path: PathBuf,
    file: File,
    tally: Tally,
}

impl Target {
    pub(super) fn make(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let file = file.with_context(|| format!("{} cannot be created", path.display()))?;
        Ok(Self { path: path.to_owned(), file, tally: Tally::default() })
    }

    pub(super) fn write(&mut self, piece: &[u8]) -> anyhow::Result<()> {
        self.tally.add(piece);
        self.file.write_all(piece).with_context(|| format!("writing {}", self.path.display()))
    }

    pub(super) fn finish(self) -> anyhow::Result<(u64, String)> {
        self.file.sync_all().with_context(|| format!("{} cannot be synced", self.path.display()))?;
        Ok(self.tally.finish())
    }
}

#[derive(Default)]
pub(super) struct Tally {
    bytes: u64,
    hasher: Sha256,
}

impl Tally {
    pub(super) fn add(&mut self, piece: &[u8]) {
        self.bytes += piece.len() as u64;
        self.hasher.update(piece);
    }

    pub(super) fn finish(self) -> (u64, String) {
        (self.bytes, HEXLOWER.encode(&self.hasher.finalize()))
    }
}

pub(super) fn digest(path: &Path) -> anyhow::Result<(u64, String)> {
    let mut tally = Tally::default();
    each_piece(path, |piece| {
        tally.add(piece);
        Ok(())
    })?;
    Ok(tally.finish())
}

pub(super) fn digest_of(bytes: &[u8]) -> String {
    HEXLOWER.encode(&Sha256::digest(bytes))
}

fn each_piece(path: &Path, mut each: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<()> {
    let mut file = regular::open(path).with_context(|| format!("{} cannot be read", path.display()))?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let length = file.read(&mut piece).with_context(|| format!("reading {}", path.display()))?;
        if length == 0 {
            return Ok(());
        }
        each(&piece[..length])?;
    }
}
