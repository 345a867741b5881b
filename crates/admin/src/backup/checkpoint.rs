//! [`CheckpointOwner`]: the files of the storage engine at one time, from a running server or from data without one.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::control::{self, Checkpoint};
use crate::descriptors::Descriptors;
use crate::lock::DataLock;
use crate::{backends, version};

/// Valid while this is held.
pub(super) enum CheckpointOwner {
    /// Provided by a running server while the connection is open.
    Server { directory: PathBuf, _connection: UnixStream },
    /// Made by this process from data that no server uses.
    Command { checkpoint: Checkpoint, _lock: DataLock },
}

impl CheckpointOwner {
    pub(super) fn take(data: &Path) -> anyhow::Result<Self> {
        if let Some((answer, connection)) = control::ask(data, "checkpoint")? {
            let directory =
                answer.value().get("directory").and_then(|path| path.as_str().map(std::borrow::Cow::into_owned));
            let directory = PathBuf::from(directory.context("the server created no checkpoint")?);
            return Ok(Self::Server { directory, _connection: connection });
        }
        // Without a reachable server this process takes the lock. If a server holds it, this fails.
        let lock = DataLock::take(data)?;
        version::check(data)?;
        control::remove_checkpoints(data)?;
        let engine = backends::open(data, Descriptors::claim()?.engine)?;
        let checkpoint = Checkpoint::make(data, &*engine, 1)?;
        Ok(Self::Command { checkpoint, _lock: lock })
    }

    pub(super) fn directory(&self) -> &Path {
        match self {
            Self::Server { directory, .. } => directory,
            Self::Command { checkpoint, .. } => &checkpoint.0,
        }
    }
}
