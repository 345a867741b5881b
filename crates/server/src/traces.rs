//! [`Traces`]: what a start creates until it serves. A start that fails removes it, so that the directory is as it was found.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use settee_storage::durable;

use crate::verify::ENGINE;
use crate::{backends, control, lock, names, storage, version};

/// The names that a server gives to files in its data directory.
const OWN: [&str; 9] = [
    ENGINE,
    backends::RESERVE,
    version::FILE,
    names::FILE,
    storage::FILE,
    lock::FILE,
    control::SOCKET,
    control::CHECKPOINTS,
    "local.ini",
];

/// Removes what was created when it is dropped, unless it was kept.
pub(crate) struct Traces {
    data: PathBuf,
    /// Directories that were created for the data directory, the outermost first.
    directories: Vec<PathBuf>,
    had_lock: bool,
    /// Names in the data directory. None until this process has the lock: they may be those of another one.
    present: Option<BTreeSet<OsString>>,
    is_kept: AtomicBool,
}

impl Traces {
    /// Creates the data directory if it is missing.
    pub(crate) fn begin(data: &Path) -> anyhow::Result<Self> {
        let missing = data.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let mut directories: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        directories.reverse();
        let had_lock = data.join(lock::FILE).exists();
        let traces =
            Self { data: data.to_owned(), directories, had_lock, present: None, is_kept: AtomicBool::new(false) };
        durable::create_directories(data)
            .with_context(|| format!("the data directory {} cannot be created", data.display()))?;
        Ok(traces)
    }

    /// Lists what is there before this process creates anything. The caller must have the lock.
    pub(crate) fn look(&mut self) -> anyhow::Result<()> {
        let names = fs::read_dir(&self.data).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let mut names: BTreeSet<OsString> = names.with_context(|| format!("{} cannot be read", self.data.display()))?;
        if !self.had_lock {
            names.remove(std::ffi::OsStr::new(lock::FILE));
        }
        self.present = Some(names);
        Ok(())
    }

    /// Keeps everything: the server serves.
    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        if self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        // What cannot be removed stays: the start fails for a reason that matters more.
        if let Some(present) = &self.present {
            for name in OWN.iter().filter(|name| !present.contains(std::ffi::OsStr::new(name))) {
                let path = self.data.join(name);
                let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            }
        }
        for directory in self.directories.iter().rev() {
            let _ = fs::remove_dir(directory);
        }
    }
}
