//! [`restore`]: restores one database from the backup of a whole server, which is restored to a temporary directory and
//! served to this command.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use settee_storage::durable;

use crate::{environment, export};

/// Serves a data directory to this process alone, until it is dropped.
pub trait Served {
    /// Contains credentials.
    fn url(&self, database: &str) -> String;
}

pub type Serve = dyn Fn(&Path) -> anyhow::Result<Box<dyn Served>>;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("the temporary directory {} cannot be removed: {error}", self.0.display());
        }
    }
}

/// `fill` restores the server of the database `name` into a directory below `scratch`.
pub fn restore(
    scratch: &Path,
    name: &str,
    url: &str,
    serve: &Serve,
    fill: &mut dyn FnMut(&Path) -> anyhow::Result<()>,
) -> anyhow::Result<export::Report> {
    let scratch = Scratch(scratch.join(format!("settee-restore-{:016x}", environment::random_u64())));
    durable::create_directories(&scratch.0).with_context(|| format!("{} cannot be created", scratch.0.display()))?;
    let data = scratch.0.join("data");
    fill(&data)?;
    // The administrators and addresses of that server must not apply to this command.
    for settings in ["local.ini", "local.d"] {
        let path = data.join(settings);
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("{} cannot be removed", path.display()));
            }
            _ => {}
        }
    }
    let file = scratch.0.join("database.jsonl");
    let served = serve(&data)?;
    export::write(&served.url(name), &file).with_context(|| format!("the database {name} cannot be read"))?;
    drop(served);
    export::read(&file, url)
}
