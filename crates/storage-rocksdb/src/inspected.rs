//! [`Inspected`]: a checked directory, which contains a complete store or none, and which [`Inspected::open`] opens.

use std::path::PathBuf;

use settee_storage::{Result, StorageError};

use crate::files::Found;
use crate::files::acknowledged::Recorder;
use crate::options::{Log, Options};
use crate::space::Space;
use crate::store::Store;
use crate::{RocksEngine, create, log};

#[derive(Debug)]
pub struct Inspected {
    pub(crate) path: PathBuf,
    pub(crate) found: Found,
}

impl Inspected {
    #[must_use]
    pub fn is_new(&self) -> bool {
        !matches!(self.found, Found::Store(_))
    }

    /// Describes incomplete, unacknowledged writes at the end of a log, which opening the store drops.
    #[must_use]
    pub fn torn(&self) -> Option<&str> {
        match &self.found {
            Found::Store(repairs) => repairs.torn.as_deref(),
            Found::Nothing | Found::Unfinished => None,
        }
    }

    /// Opens the store, or creates it. A full disk permits only reading until
    /// [`Engine::maintain`](settee_storage::Engine::maintain) opens it for writing. Fails if another process uses it,
    /// or it is damaged.
    pub fn open(self, options: &Options) -> Result<RocksEngine> {
        let path = self.path.as_path();
        let space = Space::new(path.ancestors().find(|above| above.is_dir()).unwrap_or(path), options);
        match &self.found {
            Found::Nothing | Found::Unfinished => create::create(path, options)?,
            Found::Store(repairs) => repairs.apply().map_err(|error| StorageError::Io(error.to_string()))?,
        }
        if matches!(options.log, Log::Discarded) {
            log::forget(path);
        }
        match Store::open(path, options, None) {
            Err(error @ StorageError::Full(_)) => {
                space.release_reserve();
                // If the store cannot be read either, the first error is returned.
                let store = Store::open_read_only(path, options).map_err(|_| error.clone())?;
                Ok(RocksEngine::on(store, Some(error), space, path, options))
            }
            opened => {
                let mut engine = RocksEngine::on(opened?, None, space, path, options);
                engine.space.check_space();
                engine.recorder = Some(Recorder::new(path));
                engine.acknowledge(&*engine.store()?)?;
                Ok(engine)
            }
        }
    }
}
