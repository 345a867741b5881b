//! Safe reading of regular files: a FIFO would block forever, a device has no end, and a link may lead to any file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::OFlags;

/// Fails if the last component of the path is a link, or if the file is not regular.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::NOFOLLOW)
}

/// A user has named the file, so it may be a link to a regular file.
pub(crate) fn open_named(path: &Path) -> io::Result<File> {
    open_with(path, OFlags::empty())
}

fn open_with(path: &Path, flags: OFlags) -> io::Result<File> {
    // Opening a FIFO for reading would block until a writer opens it.
    let flags = (flags | OFlags::NONBLOCK).bits() as i32;
    let file =
        OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|error| {
            match fs::symlink_metadata(path) {
                Ok(found) if !found.is_file() => irregular(),
                _ => error,
            }
        })?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(irregular()) }
}

fn irregular() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")
}

pub(crate) fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Fails if a path in a data directory that a server reads leads to anything but a regular file or a directory.
pub(crate) fn check_data(data: &Path) -> anyhow::Result<()> {
    for directory in [data.to_owned(), data.join("local.d")] {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_read = directory != data
                || matches!(name.as_str(), "version" | "databases" | "storage" | "local.ini" | "reserve" | "lock");
            // Links are followed, because a mounted configuration may be one.
            let is_regular = fs::metadata(entry.path()).is_ok_and(|found| found.is_file() || found.is_dir());
            anyhow::ensure!(!is_read || is_regular, "{} is not a regular file", entry.path().display());
        }
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let directory = std::env::temp_dir().join(format!("settee-regular-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = |name: &str| directory.join(name);
        fs::write(path("file"), "text").unwrap();
        symlink(path("file"), path("link")).unwrap();
        symlink(path("loop"), path("loop")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
            .unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        assert_eq!(read_to_string(&path("file")).unwrap(), "text");
        open_named(&path("link")).unwrap();
        for other in [path("link"), path("loop"), path("fifo"), path("socket"), directory.clone(), "/dev/zero".into()] {
            assert_eq!(open(&other).unwrap_err().to_string(), "it is not a regular file", "{}", other.display());
        }
        for other in [path("loop"), path("fifo"), path("socket"), directory.clone(), "/dev/zero".into()] {
            open_named(&other).unwrap_err();
        }
        check_data(&directory).unwrap();
        symlink(path("fifo"), path("version")).unwrap();
        check_data(&directory).unwrap_err();
        fs::remove_dir_all(&directory).unwrap();
    }
}
