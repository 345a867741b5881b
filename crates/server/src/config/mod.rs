//! [`Configuration`]: the settings of the running server, as in CouchDB. In increasing precedence: the table of
//! defaults, a preset, the files of a CouchDB configuration directory, the configuration file, `local.d/*.ini`, the
//! environment and the command line. Changes through the API are written to the last file. Nodes that share a store
//! share most settings. A component reads a setting when it needs it, or registers with [`Configuration::on_change`].
//! Passwords of `[admins]` never stay in plain text, neither in memory nor in the files.

pub(crate) mod check;
mod couchdb;
pub(crate) mod doctor;
pub(crate) mod guide;
mod load;
pub(crate) mod presets;
mod settings;
mod shared;
pub(crate) mod show;
pub(crate) mod store;

use crate::uuids::Entropy;
use check::violation;
use settee_settings::chttpd;
use settee_settings::ini;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use store::Files;

pub(crate) struct Options {
    pub(crate) data_dir: PathBuf,
    /// The configuration file, which must exist. `None` is `local.ini` in the data directory, created when needed.
    pub(crate) file: Option<PathBuf>,
    pub(crate) preset: Vec<Override>,
    /// Settings of command line and environment. They override the files and are never written to them.
    pub(crate) overrides: Vec<Override>,
    /// `COUCHDB_USER` and `COUCHDB_PASSWORD`: an admin that is created unless the files have one with that name.
    pub(crate) admin: Option<AdminSeed>,
    pub(crate) entropy: Arc<dyn Entropy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    pub(crate) section: String,
    pub(crate) key: String,
    pub(crate) value: String,
    pub(crate) source: String,
}

pub(crate) struct AdminSeed {
    pub(crate) name: String,
    /// Plain text, of which only the hash is stored.
    pub(crate) password: String,
}

/// CouchDB's header `X-Couch-Persist`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persist {
    /// Written to the configuration file before the call returns.
    Disk,
    /// In force until the next reload or restart.
    Memory,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    /// The text is for the client (`bad_request`).
    #[error("{0}")]
    Invalid(String),
    /// No server starts with this configuration. The text has one line per mistake, each with its place.
    #[error("the configuration is invalid:\n{0}")]
    Mistakes(String),
    /// Nothing was changed.
    #[error("configuration file {0}")]
    Io(std::io::Error),
    /// The store of the shared settings failed. It has the change only if its outcome is unknown.
    #[error("the settings in the store: {0}")]
    Store(#[from] settee_database::DatabaseError),
}

impl From<std::io::Error> for SettingsError {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

pub(crate) struct Change<'a> {
    pub(crate) section: &'a str,
    pub(crate) key: &'a str,
    /// `None` if the value was deleted. A default may apply now: see [`Configuration::effective`].
    pub(crate) value: Option<&'a str>,
}

type Listener = Box<dyn Fn(&Change<'_>) + Send + Sync>;
type Sections = BTreeMap<String, BTreeMap<String, Value>>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct Value {
    text: String,
    origin: Origin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Default,
    Set,
}

pub(crate) struct Configuration {
    data_dir: PathBuf,
    files: Files,
    preset: Vec<Override>,
    /// Settings that override the files. Their passwords are hashed.
    overrides: Vec<Override>,
    entropy: Arc<dyn Entropy>,
    sections: RwLock<Sections>,
    version: AtomicU64,
    listeners: RwLock<Vec<Listener>>,
    warnings: RwLock<Vec<String>>,
    /// Held during any change, from the first file read to the last listener.
    change_lock: Mutex<()>,
    /// Set if several nodes use one store.
    shared: OnceLock<shared::Shared>,
}

impl Configuration {
    /// Reads the configuration, hashes passwords in plain text, creates the admin of the environment, and generates
    /// `[couchdb] uuid`. If files cannot be written, these changes apply to the running server only, with a warning.
    pub(crate) fn open(options: Options) -> Result<Configuration, SettingsError> {
        let (mut configuration, admin) = Self::unread(options)?;
        let loaded = configuration.load_first(admin)?;
        configuration.install(loaded);
        Ok(configuration)
    }

    pub(crate) fn open_without_corrections(options: Options) -> Result<Configuration, SettingsError> {
        let (configuration, _) = Self::unread(options)?;
        let loaded = configuration.load_as_it_is()?;
        configuration.install(loaded);
        Ok(configuration)
    }

    fn unread(options: Options) -> Result<(Configuration, Option<AdminSeed>), SettingsError> {
        let Options { data_dir, file, preset, overrides, admin, entropy } = options;
        let own = || Files::new(data_dir.join("local.ini"), store::Presence::Optional);
        let files = match file {
            Some(directory) if directory.is_dir() => own().after(directory),
            Some(file) => Files::new(file, store::Presence::Required),
            None => own(),
        };
        for Override { section, key, value, source } in &overrides {
            ini::check_entry(section, key, value)
                .map_err(|error| SettingsError::Mistakes(format!("{source}: {error}")))?;
        }
        let configuration = Configuration {
            data_dir,
            files,
            preset,
            overrides,
            entropy,
            sections: RwLock::default(),
            version: AtomicU64::default(),
            listeners: RwLock::default(),
            warnings: RwLock::default(),
            change_lock: Mutex::default(),
            shared: OnceLock::new(),
        };
        Ok((configuration, admin))
    }

    pub(crate) fn warnings(&self) -> Vec<String> {
        self.warnings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn log_warnings(&self) {
        for warning in self.warnings() {
            tracing::warn!("{warning}");
        }
    }

    /// Returns the value as the API shows it. A default may be in force if this is `None`: see
    /// [`effective`](Self::effective).
    pub(crate) fn get(&self, section: &str, key: &str) -> Option<String> {
        lookup(&self.sections(), section, key).map(|value| value.text.clone())
    }

    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Relaxed)
    }

    pub(crate) fn section(&self, section: &str) -> Vec<(String, String)> {
        self.sections().get(section).map(pairs).unwrap_or_default()
    }

    pub(crate) fn all(&self) -> Vec<(String, Vec<(String, String)>)> {
        self.sections().iter().map(|(section, values)| (section.clone(), pairs(values))).collect()
    }

    /// Returns the value in force: as set here, or under the section's old name (`httpd` for `chttpd`,
    /// `couch_httpd_auth` for `chttpd_auth`), or the default. Empty and invalid values are ignored.
    pub(crate) fn effective(&self, section: &str, key: &str) -> Option<String> {
        self.set_if(section, key, |section, text| violation(section, key, text).is_none()).or_else(|| {
            let setting = settee_settings::find(section, key)?;
            setting.default_for(&self.data_dir).filter(|text| !text.is_empty())
        })
    }

    /// Returns the value that was set, under the section's old name if necessary, even if it is invalid.
    pub(crate) fn set_text(&self, section: &str, key: &str) -> Option<String> {
        self.set_if(section, key, |_, _| true)
    }

    fn set_if(&self, section: &str, key: &str, counts: impl Fn(&str, &str) -> bool) -> Option<String> {
        let sections = self.sections();
        let set = |section: &str| {
            lookup(&sections, section, key)
                .filter(|value| value.origin == Origin::Set && !value.text.is_empty() && counts(section, &value.text))
                .map(|value| value.text.clone())
        };
        set(section).or_else(|| settee_settings::old_section(section, key).and_then(set))
    }

    /// Returns the old value. Passwords of `[admins]` are hashed first, which is deliberately slow.
    pub(crate) fn set(
        &self,
        section: &str,
        key: &str,
        value: &str,
        persist: Persist,
    ) -> Result<Option<String>, SettingsError> {
        let value = value.trim();
        check(section, key, value)?;
        let value = self.protect(section, value);
        let _changing = self.change_lock();
        if persist == Persist::Disk && self.is_shared(section, key) {
            let old = self.get(section, key);
            self.change_shared(section, key, Some(&value))?;
            return Ok(old);
        }
        if persist == Persist::Disk {
            let mut layers = self.files.read()?;
            let last = layers.last_mut().expect("a chain always has a file");
            last.ini.set(section, key, &value);
            last.save()?;
        }
        let old = self.get(section, key);
        insert(&mut self.sections_mut(), section, key, value.clone(), Origin::Set);
        self.notify(&Change { section, key, value: Some(&value) });
        Ok(old)
    }

    /// Deletes a value and returns it; `None` if it was not set. As in CouchDB a listed default disappears too until
    /// the next reload. The last admin cannot be deleted while the server listens on other than loopback addresses,
    /// because every client would be an admin.
    pub(crate) fn delete(&self, section: &str, key: &str, persist: Persist) -> Result<Option<String>, SettingsError> {
        let _changing = self.change_lock();
        let Some(old) = self.get(section, key) else {
            return Ok(None);
        };
        if section == load::ADMINS && self.section(section).len() == 1 {
            self.reject_remote_without_admins()?;
        }
        match persist {
            Persist::Disk if self.is_shared(section, key) => {
                self.change_shared(section, key, None)?;
                if self.get(section, key).is_none() {
                    return Ok(Some(old));
                }
            }
            Persist::Disk => self.delete_from_files(section, key)?,
            Persist::Memory => {}
        }
        if let Some(values) = self.sections_mut().get_mut(section) {
            values.remove(key);
        }
        self.notify(&Change { section, key, value: None });
        Ok(Some(old))
    }

    /// Reads the files again and discards changes that were made in memory only. Listeners receive the differences.
    pub(crate) fn reload(&self) -> Result<(), SettingsError> {
        let _changing = self.change_lock();
        let loaded = self.load()?;
        for (section, key, value) in flat(&loaded.sections) {
            // A value that was accepted before it was validated is kept, so that all other settings can be reloaded.
            if lookup(&self.sections(), section, key) != Some(value)
                && let Some(wanted) = settee_api::violation(section, key, &value.text)
            {
                return Err(SettingsError::Invalid(format!("[{section}] {key} must be {wanted}")));
            }
        }
        let admins = |sections: &Sections| sections.get(load::ADMINS).map_or(0, BTreeMap::len);
        if admins(&loaded.sections) == 0 && admins(&self.sections()) > 0 {
            self.reject_remote_without_admins()?;
        }
        let old = self.install(loaded);
        let new = self.sections().clone();
        for (section, key, _) in flat(&old) {
            if lookup(&new, section, key).is_none() {
                self.notify(&Change { section, key, value: None });
            }
        }
        for (section, key, value) in flat(&new) {
            if lookup(&old, section, key).is_none_or(|before| before.text != value.text) {
                self.notify(&Change { section, key, value: Some(&value.text) });
            }
        }
        Ok(())
    }

    /// Calls `listener` after each change, in order and never concurrently. It must not change the configuration.
    pub(crate) fn on_change(&self, listener: impl Fn(&Change<'_>) + Send + Sync + 'static) {
        self.listeners.write().unwrap_or_else(PoisonError::into_inner).push(Box::new(listener));
    }

    fn delete_from_files(&self, section: &str, key: &str) -> Result<(), SettingsError> {
        let mut layers = self.files.read()?;
        let mut last = layers.pop().expect("a chain always has a file");
        let inherited = layers.iter().any(|layer| layer.ini.entries().any(|(s, k, _)| s == section && k == key))
            || self.preset.iter().any(|given| given.section == section && given.key == key);
        let changed = if inherited {
            ini::check_entry(section, key, "").map_err(refused)?;
            last.ini.set(section, key, "");
            true
        } else {
            last.ini.remove(section, key)
        };
        if changed {
            last.save()?;
        }
        Ok(())
    }

    fn reject_remote_without_admins(&self) -> Result<(), SettingsError> {
        let address = chttpd::BIND_ADDRESS.of(self);
        if settee_settings::key::address(&address).is_some_and(|ip| ip.is_loopback()) {
            return Ok(());
        }
        Err(SettingsError::Invalid(format!("The last admin cannot be removed while the server listens on {address}")))
    }

    fn install(&self, loaded: load::Loaded) -> Sections {
        *self.warnings.write().unwrap_or_else(PoisonError::into_inner) = loaded.warnings;
        std::mem::replace(&mut *self.sections_mut(), loaded.sections)
    }

    fn notify(&self, change: &Change<'_>) {
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(change);
        }
    }

    fn sections(&self) -> RwLockReadGuard<'_, Sections> {
        self.sections.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn sections_mut(&self) -> std::sync::RwLockWriteGuard<'_, Sections> {
        let sections = self.sections.write().unwrap_or_else(PoisonError::into_inner);
        // Incremented within the lock, so a reader that observes the new number waits for the new values.
        self.version.fetch_add(1, Ordering::Relaxed);
        sections
    }

    fn change_lock(&self) -> MutexGuard<'_, ()> {
        self.change_lock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Configuration {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let sections = self.sections();
        let shown = flat(&sections).map(|(section, key, value)| {
            let text = if settee_settings::is_sensitive(section, key) { "****" } else { value.text.as_str() };
            (format!("{section}/{key}"), text)
        });
        formatter.debug_map().entries(shown).finish()
    }
}

fn lookup<'a>(sections: &'a Sections, section: &str, key: &str) -> Option<&'a Value> {
    sections.get(section)?.get(key)
}

fn insert(sections: &mut Sections, section: &str, key: &str, text: String, origin: Origin) {
    sections.entry(section.to_owned()).or_default().insert(key.to_owned(), Value { text, origin });
}

fn flat(sections: &Sections) -> impl Iterator<Item = (&str, &str, &Value)> {
    sections
        .iter()
        .flat_map(|(section, values)| values.iter().map(|(key, value)| (section.as_str(), key.as_str(), value)))
}

fn pairs(values: &BTreeMap<String, Value>) -> Vec<(String, String)> {
    values.iter().map(|(key, value)| (key.clone(), value.text.clone())).collect()
}

fn refused(invalid: ini::InvalidEntry) -> SettingsError {
    SettingsError::Invalid(invalid.to_string())
}

fn check(section: &str, key: &str, value: &str) -> Result<(), SettingsError> {
    ini::check_entry(section, key, value).map_err(refused)?;
    let wanted =
        violation(section, key, value).or_else(|| settee_api::violation(section, key, value).map(str::to_owned));
    if let Some(wanted) = wanted {
        return Err(SettingsError::Invalid(format!("[{section}] {key} must be {wanted}")));
    }
    if let Some(near) = check::suggestion(section, key) {
        // With such a name in the file the server would not start again.
        return Err(SettingsError::Invalid(format!("[{section}] {key} is not known; did you mean {near}?")));
    }
    if section == load::ADMINS && value.is_empty() {
        return Err(SettingsError::Invalid(format!("The password of {key} must not be empty")));
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
