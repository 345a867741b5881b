//! Merge of all layers of the configuration, hashing of plain-text passwords, the admin of the environment, the uuid.

use super::check::{Finding, SettingSource, Severity, check};
use super::store::Layer;
use super::{AdminSeed, Configuration, Origin, Override, Sections, SettingsError, insert, lookup};
use crate::uuids::{Entropy, random_hex};
use settee_auth::{hash_password, is_hashed};
use settee_settings::{SETTINGS, Visibility};
use std::num::NonZeroU32;

pub(super) const ADMINS: &str = "admins";

pub(super) struct Loaded {
    pub(super) sections: Sections,
    pub(super) warnings: Vec<String>,
}

impl Configuration {
    /// Reads all layers for the first time, and adds the settings that a server requires.
    pub(super) fn load_first(&mut self, admin: Option<AdminSeed>) -> Result<Loaded, SettingsError> {
        let mut layers = self.files.read()?;
        // Mistakes are refused before anything is written.
        reject_mistakes(self.given(&layers))?;
        let iterations = iterations(&self.merge(&layers));
        let mut warnings = self.hash_files(&mut layers, iterations);
        for given in &mut self.overrides {
            if given.section == ADMINS && !is_hashed(&given.value) {
                given.value = hash(&*self.entropy, &given.value, iterations);
            }
        }
        let merged = self.merge(&layers);
        let mut additions = Vec::new();
        let known = admin.as_ref().and_then(|admin| Some(lookup(&merged, ADMINS, &admin.name)?.text.clone()));
        if let (Some(AdminSeed { name, password }), Some(stored)) = (&admin, &known) {
            warnings.extend(password_warning(name, password, stored));
        }
        if let Some(AdminSeed { name, password }) = admin.filter(|_| known.is_none()) {
            super::check(ADMINS, &name, &password)?;
            let stored = if is_hashed(&password) { password } else { hash(&*self.entropy, &password, iterations) };
            additions.push((ADMINS.to_owned(), name, stored));
        }
        if lookup(&merged, "couchdb", "uuid").is_none() {
            additions.push(("couchdb".to_owned(), "uuid".to_owned(), random_hex(&*self.entropy, 16)));
        }
        if !additions.is_empty() {
            let last = layers.last_mut().expect("a chain always has a file");
            for (section, key, value) in &additions {
                last.ini.set(section, key, value);
            }
            if let Err(error) = last.save() {
                warnings.push(format!("settings added to the configuration are kept in memory only: {error}"));
                self.overrides.extend(additions.into_iter().map(|(section, key, value)| {
                    let source = "kept in memory".to_owned();
                    Override { section, key, value, source }
                }));
            }
        }
        Ok(self.loaded(&layers, warnings))
    }

    /// In increasing order of precedence.
    pub(super) fn given(&self, layers: &[Layer]) -> Vec<SourcedSetting> {
        let outside = |Override { section, key, value, source }: &Override| {
            (SettingSource::Override(source.clone()), section.clone(), key.clone(), Some(value.clone()))
        };
        let mut given: Vec<SourcedSetting> = self.preset.iter().map(outside).collect();
        given.extend(in_files(layers));
        given.extend(self.overrides.iter().map(outside));
        given
    }

    pub(super) fn load_as_it_is(&self) -> Result<Loaded, SettingsError> {
        Ok(self.loaded(&self.files.read()?, Vec::new()))
    }

    pub(super) fn load(&self) -> Result<Loaded, SettingsError> {
        let mut layers = self.files.read()?;
        let iterations = iterations(&self.merge(&layers));
        let warnings = self.hash_files(&mut layers, iterations);
        Ok(self.loaded(&layers, warnings))
    }

    pub(super) fn protect(&self, section: &str, value: &str) -> String {
        if section == ADMINS && !is_hashed(value) {
            hash(&*self.entropy, value, iterations(&self.sections()))
        } else {
            value.to_owned()
        }
    }

    /// Hashes passwords in plain text and writes them back. Returns warnings about files that could not be written.
    fn hash_files(&self, layers: &mut [Layer], iterations: NonZeroU32) -> Vec<String> {
        let hash_plain = |value: &str| (!is_hashed(value)).then(|| hash(&*self.entropy, value, iterations));
        let mut warnings = Vec::new();
        for layer in layers {
            if layer.ini.rewrite(ADMINS, hash_plain)
                && let Err(error) = layer.save()
            {
                warnings.push(format!("a password remains in plain text on disk: {error}"));
            }
        }
        warnings
    }

    fn loaded(&self, layers: &[Layer], mut warnings: Vec<String>) -> Loaded {
        let sections = self.merge(layers);
        for Layer { path, ini } in layers {
            let ignored = |number| format!("{}:{number}: the line is invalid and is ignored", path.display());
            warnings.extend(ini.invalid_lines().map(ignored));
        }
        warnings.extend(findings(self.given(layers)).iter().map(ToString::to_string));
        warnings.extend(violations(&sections));
        Loaded { sections, warnings }
    }

    fn merge(&self, layers: &[Layer]) -> Sections {
        let mut sections = Sections::new();
        let listed = SETTINGS.iter().filter(|setting| setting.visibility == Visibility::Listed);
        for setting in listed.clone() {
            if let Some(text) = setting.default_for(&self.data_dir) {
                insert(&mut sections, setting.section, setting.key, text, Origin::Default);
            }
        }
        // Shared settings come from the store, so those in files are ignored.
        let counts = |section: &str, key: &str| !self.is_shared(section, key);
        for Override { section, key, value, .. } in
            self.preset.iter().filter(|given| counts(&given.section, &given.key))
        {
            insert(&mut sections, section, key, value.clone(), Origin::Set);
        }
        let entries = layers.iter().flat_map(|layer| layer.ini.entries());
        for (section, key, value) in entries.filter(|(section, key, _)| counts(section, key)) {
            if let Some(text) = value {
                insert(&mut sections, section, key, text.to_owned(), Origin::Set);
                continue;
            }
            let default = listed.clone().find(|setting| setting.section == section && setting.key == key);
            match default.and_then(|setting| setting.default_for(&self.data_dir)) {
                Some(text) => insert(&mut sections, section, key, text, Origin::Default),
                None => {
                    sections.get_mut(section).map(|values| values.remove(key));
                }
            }
        }
        for Override { section, key, value, .. } in
            self.overrides.iter().filter(|given| counts(&given.section, &given.key))
        {
            insert(&mut sections, section, key, value.clone(), Origin::Set);
        }
        self.overlay(&mut sections);
        sections
    }
}

fn hash(entropy: &dyn Entropy, password: &str, iterations: NonZeroU32) -> String {
    hash_password(password, &random_hex(entropy, 16), iterations)
}

/// The number is read from the merged files, because these are not in force yet during the load.
fn iterations(sections: &Sections) -> NonZeroU32 {
    let read = |section| lookup(sections, section, "iterations").and_then(|value| value.text.parse().ok());
    let default = || settee_settings::chttpd_auth::ITERATIONS.setting().default?.parse().ok();
    read("chttpd_auth").or_else(|| read("couch_httpd_auth")).or_else(default).unwrap_or(NonZeroU32::MIN)
}

/// A setting with its place. Without a value it removes an earlier one.
type SourcedSetting = (SettingSource, String, String, Option<String>);

pub(super) fn in_files(layers: &[Layer]) -> Vec<SourcedSetting> {
    let mut given = Vec::new();
    for Layer { path, ini } in layers {
        given.extend(ini.numbered().map(|(line, section, key, value)| {
            (SettingSource::File(path.clone(), line), section.to_owned(), key.to_owned(), value.map(str::to_owned))
        }));
    }
    given
}

pub(super) fn findings(given: Vec<SourcedSetting>) -> Vec<Finding> {
    let found =
        given.into_iter().filter_map(|(source, section, key, value)| check(source, &section, &key, value.as_deref()?));
    found.collect()
}

fn reject_mistakes(given: Vec<SourcedSetting>) -> Result<(), SettingsError> {
    let wrong = |finding: &Finding| finding.severity == Severity::Mistake;
    let mistakes: Vec<String> =
        findings(given).iter().filter(|finding| wrong(finding)).map(ToString::to_string).collect();
    if mistakes.is_empty() { Ok(()) } else { Err(SettingsError::Mistakes(mistakes.join("\n"))) }
}

/// Warns that the password of the environment differs from the stored one, which is in force.
fn password_warning(name: &str, password: &str, stored: &str) -> Option<String> {
    let is_same = if is_hashed(password) {
        password == stored
    } else {
        settee_auth::PasswordHash::parse(stored).is_ok_and(|hash| hash.verify(password.as_bytes()))
    };
    (!is_same).then(|| {
        format!(
            "COUCHDB_PASSWORD is not the password of {name}: {name} already has one in the configuration, which takes precedence. \
             Change it with PUT /_node/_local/_config/admins/{name}, or remove its line from the section [admins] before the start"
        )
    })
}

/// Warns about settings whose values are invalid for the HTTP server. Other checks of single settings are in `check`.
fn violations(sections: &Sections) -> impl Iterator<Item = String> {
    super::flat(sections).filter_map(|(section, key, value)| {
        let wanted = settee_api::violation(section, key, &value.text)?;
        Some(format!("[{section}] {key} must be {wanted}: requests that depend on it are rejected"))
    })
}
