//! Checks of the files of a data directory that the server writes itself: [`damaged`].

use std::fs;
use std::path::{Path, PathBuf};

use settee_auth::is_hashed;

use crate::{names, version};
use settee_settings::ini::Ini;

pub fn damaged(data: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    if let Err(error) = version::read(data) {
        found.push((data.join("version"), format!("{:#}", error.root_cause())));
    } else if data.join("engine").is_dir() && !data.join("version").exists() {
        found.push((data.join("version"), "is missing".to_owned()));
    }
    if names::read(data).is_none() {
        found.push((data.join(names::FILE), "is damaged; the next start rewrites it".to_owned()));
    }
    let mut files = vec![data.join("local.ini")];
    if let Ok(entries) = fs::read_dir(data.join("local.d")) {
        files.extend(
            entries.flatten().map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == "ini")),
        );
    }
    for path in files.into_iter().filter(|path| path.exists()) {
        if let Err(why) = readable(&path) {
            found.push((path, why));
        }
    }
    found
}

fn readable(path: &Path) -> Result<(), String> {
    let bytes = fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
    let text =
        std::str::from_utf8(&bytes).map_err(|error| format!("is not UTF-8 from byte {} on", error.valid_up_to()))?;
    let is_odd = |c: char| c.is_control() && !matches!(c, '\n' | '\r' | '\t');
    if let Some(at) = text.find(is_odd) {
        return Err(format!("is not UTF-8 at byte {at}"));
    }
    let ini = Ini::parse(text);
    let is_broken = |value: &str| value.starts_with("-pbkdf2") && !is_hashed(value);
    let broken = ini.entries().find(|(section, _, value)| *section == "admins" && value.is_some_and(is_broken));
    broken.map_or(Ok(()), |(_, name, _)| Err(format!("the password of {name} cannot be parsed")))
}
