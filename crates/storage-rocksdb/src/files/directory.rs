//! [`Directory`]: the files in the directory of a store, and the manifest in use.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use super::manifest::Manifest;

const CURRENT: &str = "CURRENT";

pub(super) struct Directory {
    pub(super) path: PathBuf,
    pub(super) tables: BTreeMap<u64, PathBuf>,
    pub(super) blobs: BTreeMap<u64, PathBuf>,
    pub(super) logs: BTreeMap<u64, PathBuf>,
    pub(super) manifests: BTreeMap<u64, PathBuf>,
    pub(super) texts: Vec<PathBuf>,
    /// The last entry that is neither a regular file nor a directory, such as a FIFO.
    irregular: Option<PathBuf>,
    /// The manifest that `CURRENT` names, or the reason why it cannot be determined.
    pub(super) current: Result<PathBuf, String>,
}

impl Directory {
    /// Fails if an entry of the directory is not a regular file.
    pub(super) fn read(path: &Path) -> io::Result<Self> {
        let directory = Self::read_regular(path)?;
        match &directory.irregular {
            Some(irregular) => Err(io::Error::other(format!("{} is not a regular file", irregular.display()))),
            None => Ok(directory),
        }
    }

    /// Skips entries that are not regular files.
    pub(super) fn read_regular(path: &Path) -> io::Result<Self> {
        let mut directory = Self {
            path: path.to_owned(),
            tables: BTreeMap::new(),
            blobs: BTreeMap::new(),
            logs: BTreeMap::new(),
            manifests: BTreeMap::new(),
            texts: Vec::new(),
            irregular: None,
            current: current(path),
        };
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            let is_regular = fs::metadata(entry.path()).is_ok_and(|found| found.is_file() || found.is_dir());
            if !is_regular && fs::symlink_metadata(entry.path()).is_ok() {
                directory.irregular = Some(entry.path());
                continue;
            }
            let name = entry.file_name().to_string_lossy().into_owned();
            let (stem, extension) = name.rsplit_once('.').unwrap_or((&name, ""));
            let number = stem.parse::<u64>().ok();
            match (number, extension) {
                (Some(number), "sst") => drop(directory.tables.insert(number, entry.path())),
                (Some(number), "blob") => drop(directory.blobs.insert(number, entry.path())),
                (Some(number), "log") => drop(directory.logs.insert(number, entry.path())),
                _ if name == "IDENTITY" || name.starts_with("OPTIONS-") && extension != "dbtmp" => {
                    directory.texts.push(entry.path());
                }
                _ => {
                    let number = name.strip_prefix("MANIFEST-").and_then(|number| number.parse::<u64>().ok());
                    directory.manifests.extend(number.map(|number| (number, entry.path())));
                }
            }
        }
        directory.texts.sort();
        Ok(directory)
    }

    /// Reads the manifest in use, or the newest one if that cannot be determined.
    pub(super) fn manifest(&self) -> io::Result<Option<Manifest>> {
        let path = self.current.as_ref().ok().or(self.manifests.values().next_back());
        path.map(|path| Ok(Manifest::read(&fs::read(path)?))).transpose()
    }
}

pub(crate) fn identity(path: &Path) -> Option<String> {
    Directory::read(path).ok()?.manifest().ok()??.identity
}

/// Returns the number of the manifest, and the number, path and length of the newest log. Fails if it was removed.
pub(crate) fn newest_log(path: &Path) -> io::Result<Option<(u64, u64, PathBuf, u64)>> {
    let found = Directory::read(path)?;
    let (Some((log, path)), Ok(current)) = (found.logs.last_key_value(), &found.current) else { return Ok(None) };
    let manifest = found.manifests.iter().find(|(_, path)| *path == current).map_or(0, |(number, _)| *number);
    Ok(Some((manifest, *log, path.clone(), path.metadata()?.len())))
}

fn current(path: &Path) -> Result<PathBuf, String> {
    if fs::metadata(path.join(CURRENT)).is_ok_and(|found| !found.is_file()) {
        return Err("is not a regular file".to_owned());
    }
    let text = fs::read(path.join(CURRENT)).map_err(|error| format!("cannot be read: {error}"))?;
    let name = std::str::from_utf8(&text).ok().and_then(|text| text.strip_suffix('\n'));
    let digits = name.and_then(|name| name.strip_prefix("MANIFEST-"));
    match (name, digits) {
        (Some(name), Some(digits)) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            let manifest = path.join(name);
            if manifest.is_file() { Ok(manifest) } else { Err(format!("names {name}, which does not exist")) }
        }
        _ => Err("does not contain the name of a manifest".to_owned()),
    }
}

/// Opening a FIFO would block.
pub(super) fn open_regular(path: &Path) -> io::Result<File> {
    match fs::metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::Error::other(format!("{} is not a regular file", path.display()))),
    }
}

pub(super) fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_regular(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

pub(super) fn table_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}.sst"))
}

pub(super) fn blob_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:06}.blob"))
}
