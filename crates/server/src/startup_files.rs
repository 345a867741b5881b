//! [`StartupFiles`]: the files that a start creates before it serves. A failed start removes them.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use settee_storage::durable;

use settee_admin::verify::ENGINE;
use settee_admin::{backends, lock, names, storage, version};

const OWN: [&str; 10] = [
    ENGINE,
    backends::RESERVE,
    version::FILE,
    names::FILE,
    storage::FILE,
    lock::FILE,
    settee_admin::control::SOCKET,
    settee_admin::control::CHECKPOINTS,
    backends::SPILL,
    "local.ini",
];

pub(crate) struct StartupFiles {
    data: PathBuf,
    /// Directories that were created for the data directory, the outermost first.
    directories: Vec<PathBuf>,
    had_lock: bool,
    /// Names that existed in the data directory. `None` until this process has the lock.
    present: Option<BTreeSet<OsString>>,
    is_kept: AtomicBool,
}

impl StartupFiles {
    pub(crate) fn begin(data: &Path) -> anyhow::Result<Self> {
        let missing = data.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists());
        let mut directories: Vec<PathBuf> = missing.map(Path::to_owned).collect();
        directories.reverse();
        let had_lock = data.join(lock::FILE).exists();
        let startup_files =
            Self { data: data.to_owned(), directories, had_lock, present: None, is_kept: AtomicBool::new(false) };
        durable::create_directories(data)
            .with_context(|| format!("the data directory {} cannot be created", data.display()))?;
        Ok(startup_files)
    }

    /// Lists the existing files before this process creates any. The caller must hold the lock.
    pub(crate) fn open_without_corrections(&mut self) -> anyhow::Result<()> {
        let names = fs::read_dir(&self.data).and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        let mut names: BTreeSet<OsString> = names.with_context(|| format!("{} cannot be read", self.data.display()))?;
        if !self.had_lock {
            names.remove(std::ffi::OsStr::new(lock::FILE));
        }
        self.present = Some(names);
        Ok(())
    }

    /// Must be called when the server serves.
    pub(crate) fn keep(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for StartupFiles {
    fn drop(&mut self) {
        if self.is_kept.load(Ordering::Relaxed) {
            return;
        }
        // Errors are ignored, because the start already fails for a more important reason.
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
