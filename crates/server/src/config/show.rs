//! `settee config show` and `settee config check`: settings in force with their sources, and mistakes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::check::{Finding, Place, Severity};
use super::store::{Files, Presence};
use super::{Configuration, SettingsError, load};
use settee_settings::SETTINGS;

/// The place of settings in the store.
const SHARED: &str = "shared by all nodes";

impl Configuration {
    /// All settings in force, as an INI file with the source of each.
    pub(crate) fn show(&self) -> Result<String, SettingsError> {
        let mut places = BTreeMap::new();
        for (place, section, key, value) in self.given(&self.files.read()?) {
            match value {
                Some(_) => drop(places.insert((section, key), place)),
                None => drop(places.remove(&(section, key))),
            }
        }
        places.retain(|(section, key), _| !self.is_shared(section, key));
        places.extend(self.all_shared().into_keys().map(|name| (name, Place::Given(SHARED.to_owned()))));
        let mut names: Vec<(String, String)> =
            SETTINGS.iter().map(|s| (s.section.to_owned(), s.key.to_owned())).collect();
        names.extend(places.keys().cloned());
        // Settings of the table come first, in its order; all others follow.
        let mut sections: Vec<&str> = Vec::new();
        for (section, _) in &names {
            if !sections.contains(&section.as_str()) {
                sections.push(section);
            }
        }
        let mut text = String::new();
        for section in &sections {
            let _ = writeln!(text, "[{section}]");
            let mut shown: Vec<&str> = Vec::new();
            for (_, key) in names.iter().filter(|(own, _)| own == section) {
                if shown.contains(&key.as_str()) {
                    continue;
                }
                shown.push(key);
                let place = places.get(&((*section).to_owned(), key.clone()));
                let own = self.get(section, key).filter(|_| place.is_some());
                let value = own.or_else(|| self.effective(section, key)).unwrap_or_default();
                let value =
                    if settee_settings::is_sensitive(section, key) && !value.is_empty() { "****" } else { &value };
                let old = settee_settings::old_section(section, key).filter(|_| place.is_none());
                let old = old.and_then(|old| places.get(&(old.to_owned(), key.clone())));
                let from = place.or(old).map_or_else(|| "default".to_owned(), ToString::to_string);
                let line = format!("{key} = {value}");
                let _ = writeln!(text, "{} ; {from}", line.trim_end());
            }
            text.push('\n');
        }
        Ok(text)
    }

    /// The mistakes in the files, the environment and on the command line.
    pub(crate) fn findings(&self) -> Result<Vec<Finding>, SettingsError> {
        let layers = self.files.read()?;
        Ok(load::findings(self.given(&layers)))
    }
}

/// The mistakes and invalid lines of one file, the most severe first.
pub(crate) fn check_file(file: &Path) -> Result<Vec<(Severity, String)>, SettingsError> {
    let layers = Files::new(file.to_owned(), Presence::Required).read_main()?;
    let mut found: Vec<(Severity, String)> =
        load::findings(load::in_files(&layers)).iter().map(|finding| (finding.severity, finding.to_string())).collect();
    for layer in &layers {
        for line in layer.ini.invalid_lines() {
            found.push((Severity::Wrong, format!("{}:{line}: the line is invalid", layer.path.display())));
        }
    }
    found.sort_by_key(|(severity, _)| *severity == Severity::Idle);
    Ok(found)
}
