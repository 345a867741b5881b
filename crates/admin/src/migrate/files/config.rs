//! The configuration files of a CouchDB: [`read`].

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, ensure};
use settee_couch_files::configuration;
use settee_model::json::{Json, write_object, write_string};

use crate::migrate::config::Found;
use settee_settings::ini::Ini;

/// Reads a file, or a configuration directory in CouchDB's order: `default.ini`, `default.d`, `local.ini`, `local.d`.
pub(super) fn read(path: &Path) -> anyhow::Result<Found> {
    let files = if path.is_dir() { configuration::files(path)? } else { vec![path.to_owned()] };
    ensure!(!files.is_empty(), "{} contains no configuration: default.ini, local.ini or local.d", path.display());
    let mut settings: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
    for file in files {
        let text = std::fs::read(&file).with_context(|| format!("{} cannot be read", file.display()))?;
        for (section, key, value) in Ini::parse(&String::from_utf8_lossy(&text)).entries() {
            let section = settings.entry(section.to_owned()).or_default();
            match value {
                Some(value) => drop(section.insert(key.to_owned(), value.to_owned())),
                None => drop(section.remove(key)),
            }
        }
    }
    let mut out = Vec::new();
    write_object(&mut out, &settings, |out, section| {
        write_object(out, section, |out, value| write_string(out, value));
    });
    Ok(Found::of(Json::parse(&out).context("the configuration")?.value()))
}
