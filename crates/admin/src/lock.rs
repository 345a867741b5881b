//! [`DataLock`]: guarantees that only one server uses a data directory.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};

/// The system releases the lock when the process ends for any reason.
pub struct DataLock {
    _file: File,
}

pub const FILE: &str = "lock";

impl DataLock {
    pub fn take(data: &Path) -> anyhow::Result<Self> {
        let path = data.join(FILE);
        // Opening a FIFO would block until a reader opens it.
        ensure!(
            fs::metadata(&path).is_ok_and(|found| found.is_file()) || !is_there(&path),
            "{} is not a regular file",
            path.display()
        );
        loop {
            let file = File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
            match file.try_lock() {
                // A failed start removes the file that it created, and the lock of a removed file protects nothing.
                Ok(()) if is_same(&file, &path) => return Ok(Self { _file: file }),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => bail!(
                    "another server uses the data directory {}.\nStop it first, or choose another directory with --data.",
                    data.display()
                ),
                Err(TryLockError::Error(error)) => {
                    return Err(error).with_context(|| format!("{} cannot be locked", path.display()));
                }
            }
        }
    }
}

fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
}

fn is_same(file: &File, path: &Path) -> bool {
    let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    matches!((file.metadata().map(inode), fs::metadata(path).map(inode)), (Ok(one), Ok(other)) if one == other)
}
