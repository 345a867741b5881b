//! Output of commands.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, bail};

/// Ignores a closed pipe, as after `head`.
pub fn print_text(text: &str) {
    let mut stdout = std::io::stdout().lock();
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}

/// Fails if the file exists and overwriting is not forced, or if the path is anything but a regular file.
pub fn refuse_existing(path: &Path, is_forced: bool) -> anyhow::Result<()> {
    let shown = path.display();
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{shown} cannot be written")),
        Ok(found) if !found.is_file() && !path.is_file() => bail!("{shown} exists and is not a file"),
        Ok(_) if is_forced => Ok(()),
        Ok(_) => bail!("{shown} already exists: choose another file, or overwrite it with --force"),
    }
}
