//! Files outside the engine that must survive a power loss. All such files of the product are written by this module. A
//! name is durable once its directory was synced, and contents once the file was; the system guarantees no order.
//! Therefore a file is written under a temporary name, synced and renamed, and then its directory is synced: after a
//! power loss either the old or the new file is complete, and after the function has returned it is the new one. If a
//! function fails, its effect may not be durable.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// Read permissions of a new file. A file that replaces another one inherits its permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Only the owner, for secrets and data.
    Owner,
    /// The default of the system.
    Default,
}

/// Writes a complete file, replacing an existing one. A symbolic link is preserved: its target is replaced. If it
/// fails, either the old or the new file exists.
pub fn write(path: &Path, readers: Readers, content: &[u8]) -> io::Result<()> {
    let mut new = Replacement::begin(path, readers)?;
    new.write_all(content)?;
    match new.commit() {
        // A file that is itself a mount point (common in containers) cannot be replaced by a rename, only overwritten.
        Err(error) if error.kind() == ErrorKind::ResourceBusy => overwrite(path, content),
        done => done,
    }
}

/// A file that replaces another one when it is complete.
#[derive(Debug)]
pub struct Replacement {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
}

impl Replacement {
    /// Creates a temporary file next to `path`, and the directory if it does not exist.
    pub fn begin(path: &Path, readers: Readers) -> io::Result<Self> {
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let directory = parent(&path);
        create_directories(directory)?;
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".new");
        let temporary = directory.join(name);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true);
        #[cfg(unix)]
        if readers == Readers::Owner {
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        let file = options.open(&temporary)?;
        let new = Self { file, temporary, path };
        if let Ok(metadata) = fs::metadata(&new.path) {
            new.file.set_permissions(metadata.permissions())?;
        }
        Ok(new)
    }

    /// Renames the file to its final name, durably. If it fails, either the old or the new file exists.
    pub fn commit(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)?;
        sync_directory(parent(&self.path))
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}

/// Creates a directory and its missing parents, durably.
pub fn create_directories(directory: &Path) -> io::Result<()> {
    if directory.as_os_str().is_empty() || directory.is_dir() {
        return Ok(());
    }
    let above = parent(directory);
    create_directories(above)?;
    match fs::create_dir(directory) {
        // Another process created it concurrently, and may not have synced it yet.
        Err(error) if error.kind() != ErrorKind::AlreadyExists || !directory.is_dir() => return Err(error),
        _ => {}
    }
    sync_directory(above)
}

/// Renames a file or directory, whose contents must be durable already. Durable when the function returns.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)?;
    sync_directory(parent(to))?;
    if parent(from) == parent(to) { Ok(()) } else { sync_directory(parent(from)) }
}

/// Makes the names in a directory durable.
#[cfg(unix)]
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    File::open(directory)?.sync_all()
}

/// Does nothing: this platform has no such operation.
#[cfg(not(unix))]
pub fn sync_directory(_: &Path) -> io::Result<()> {
    Ok(())
}

/// Makes a directory and everything below it durable: contents and names.
pub fn sync_tree(directory: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let kind = entry.file_type()?;
        if kind.is_dir() {
            sync_tree(&entry.path())?;
        } else if kind.is_file() {
            File::open(entry.path())?.sync_all()?;
        }
    }
    sync_directory(directory)
}

fn overwrite(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn parent(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn names(directory: &Path) -> Vec<OsString> {
        let mut names: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_made_and_replaced_with_the_directories_above_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b/file");
        for content in ["one", "", "three"] {
            write(&path, Readers::Owner, content.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(names(path.parent().unwrap()), ["file"]);
        }
    }

    #[test]
    fn an_unfinished_file_replaces_and_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        write(&path, Readers::Default, b"old").unwrap();
        let mut new = Replacement::begin(&path, Readers::Default).unwrap();
        new.write_all(b"ne").unwrap();
        drop(new);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(directory.path()), ["file"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_stays_a_link_and_permissions_stay() {
        use std::os::unix::fs::PermissionsExt as _;
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        write(&file, Readers::Owner, b"old").unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write(&link, Readers::Owner, b"new").unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
    }
}
