//! Paths of the files in a configuration directory of CouchDB: [`files`].

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Returns the files in the order in which CouchDB reads them.
pub fn files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for (file, further) in [("default.ini", "default.d"), ("local.ini", "local.d")] {
        files.extend(Some(directory.join(file)).filter(|path| path.is_file()));
        files.extend(drop_ins(&directory.join(further))?);
    }
    Ok(files)
}

/// Returns the sorted `*.ini` files of a directory; none if the directory does not exist.
pub fn drop_ins(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        Err(error) => return Err(at(directory, &error)),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "ini") && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

fn at(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
