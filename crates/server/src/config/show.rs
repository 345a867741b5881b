//! `settee config show` and `settee config check`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use super::check::{Finding, SettingSource, Severity};
use super::store::{Files, Presence};
use super::{Configuration, SettingsError, load};
use settee_settings::SETTINGS;

const SHARED: &str = "shared by all nodes";

impl Configuration {
    pub(crate) fn show(&self) -> Result<String, SettingsError> {
        let mut sources = BTreeMap::new();
        for (source, section, key, value) in self.given(&self.files.read()?) {
            match value {
                Some(_) => drop(sources.insert((section, key), source)),
                None => drop(sources.remove(&(section, key))),
            }
        }
        sources.retain(|(section, key), _| !self.is_shared(section, key));
        sources.extend(self.all_shared().into_keys().map(|name| (name, SettingSource::Override(SHARED.to_owned()))));
        let mut names: Vec<(String, String)> =
            SETTINGS.iter().map(|s| (s.section.to_owned(), s.key.to_owned())).collect();
        names.extend(sources.keys().cloned());
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
                let source = sources.get(&((*section).to_owned(), key.clone()));
                let own = self.get(section, key).filter(|_| source.is_some());
                let value = own.or_else(|| self.effective(section, key)).unwrap_or_default();
                let value =
                    if settee_settings::is_sensitive(section, key) && !value.is_empty() { "****" } else { &value };
                let old = settee_settings::old_section(section, key).filter(|_| source.is_none());
                let old = old.and_then(|old| sources.get(&(old.to_owned(), key.clone())));
                let from = source.or(old).map_or_else(|| "default".to_owned(), ToString::to_string);
                let line = format!("{key} = {value}");
                let _ = writeln!(text, "{} ; {from}", line.trim_end());
            }
            text.push('\n');
        }
        Ok(text)
    }

    pub(crate) fn findings(&self) -> Result<Vec<Finding>, SettingsError> {
        let layers = self.files.read()?;
        Ok(load::findings(self.given(&layers)))
    }
}

pub(crate) fn check_file(file: &Path) -> Result<Vec<(Severity, String)>, SettingsError> {
    let layers = Files::new(file.to_owned(), Presence::Required).read_main()?;
    let mut found: Vec<(Severity, String)> =
        load::findings(load::in_files(&layers)).iter().map(|finding| (finding.severity, finding.to_string())).collect();
    for layer in &layers {
        for line in layer.ini.invalid_lines() {
            found.push((Severity::Mistake, format!("{}:{line}: the line is invalid", layer.path.display())));
        }
    }
    found.sort_by_key(|(severity, _)| *severity == Severity::NoEffect);
    Ok(found)
}
