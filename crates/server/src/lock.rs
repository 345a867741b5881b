//! [`DataLock`]: one server for one data directory. It does not guard single files; what is in the directory
//! belongs to the holder as a whole, the configuration included.

use std::fs::{File, TryLockError};
use std::path::Path;

use anyhow::{Context as _, bail};

/// Held while a server uses a data directory. The system releases it however the process ends.
pub(crate) struct DataLock {
    _file: File,
}

impl DataLock {
    /// Takes the lock of the directory `data`, or says who is in the way.
    pub(crate) fn take(data: &Path) -> anyhow::Result<Self> {
        let path = data.join("lock");
        let file = File::create(&path).with_context(|| format!("{} cannot be written", path.display()))?;
        match file.try_lock() {
            Ok(()) => Ok(Self { _file: file }),
            Err(TryLockError::WouldBlock) => bail!(
                "another server uses the data directory {}.\nStop it first, or choose another directory with --data.",
                data.display()
            ),
            Err(TryLockError::Error(error)) => {
                Err(error).with_context(|| format!("{} cannot be locked", path.display()))
            }
        }
    }
}
