//! [`create`]: atomic creation of a store in a subdirectory. `CURRENT`, without which none exists, is moved up last.

use std::path::Path;
use std::{fs, io};

use settee_storage::durable;
use settee_storage::{Result, StorageError};

use crate::files::UNFINISHED;
use crate::options::Options;
use crate::store::Store;

/// `path` must not contain a store, but may contain the remains of an interrupted call.
pub(crate) fn create(path: &Path, options: &Options) -> Result<()> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::StorageFull => StorageError::Full(error.to_string()),
        _ => StorageError::Io(format!("{}: {error}", path.display())),
    };
    let made = path.join(UNFINISHED);
    durable::create_directories(path).map_err(failed)?;
    match fs::remove_dir_all(&made) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    durable::create_directories(&made).map_err(failed)?;
    drop(Store::create(&made, options)?);
    move_up(&made, path).map_err(failed)
}

fn move_up(made: &Path, path: &Path) -> io::Result<()> {
    durable::sync_tree(made)?;
    for entry in fs::read_dir(made)? {
        let name = entry?.file_name();
        let is_last = name == "CURRENT";
        if !is_last {
            durable::rename(&made.join(&name), &path.join(&name))?;
        }
    }
    durable::rename(&made.join("CURRENT"), &path.join("CURRENT"))?;
    fs::remove_dir_all(made)?;
    durable::sync_directory(path)
}
