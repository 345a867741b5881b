//! Settings shared by the nodes on one store: all except those of a single node ([`is_own`]) are in the store and
//! override files, environment and command line. The first node stores its own; the others adopt them and later
//! changes. Changes in memory apply only to the node that received them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use settee_database::{Catalog, SharedSettings};
use settee_settings::{chttpd_auth, cluster, is_own};

use super::{Change, Configuration, Origin, Sections, SettingsError, insert, load};
use crate::uuids::random_hex;

pub(super) struct Shared {
    /// `None` if the settings are only inspected.
    catalog: Option<Arc<Catalog>>,
    /// True if another node may have changed a setting since the last read.
    is_stale: Arc<AtomicBool>,
    known: Mutex<SharedSettings>,
}

impl Configuration {
    /// Shares settings with the other nodes from now on. Returns remarks about local settings that are ignored.
    pub(crate) fn share(&self, catalog: &Arc<Catalog>) -> Result<Vec<String>, SettingsError> {
        let is_stale = Arc::new(AtomicBool::new(false));
        let marked = Arc::clone(&is_stale);
        catalog.on_foreign_change(move || marked.store(true, Ordering::Release));
        let change_lock = self.change_lock();
        let own = of_all(&self.sections());
        let first = self.with_shared_secrets(own.clone());
        let stored =
            catalog.change_shared_settings(|found| found.is_none().then(|| first.clone()))?.unwrap_or_default();
        let ignored_setting_warnings = ignored_setting_warnings(&own, &stored);
        let shared = Shared { catalog: Some(Arc::clone(catalog)), is_stale, known: Mutex::new(stored) };
        let is_new = self.shared.set(shared).is_ok();
        assert!(is_new, "settings are shared once");
        let loaded = self.load()?;
        self.install(loaded);
        drop(change_lock);
        Ok(ignored_setting_warnings)
    }

    /// Puts shared settings into force that were read from the store without write access.
    pub(crate) fn read_shared(&self, stored: SharedSettings) -> Result<Vec<String>, SettingsError> {
        let ignored_setting_warnings = ignored_setting_warnings(&of_all(&self.sections()), &stored);
        let shared = Shared { catalog: None, is_stale: Arc::default(), known: Mutex::new(stored) };
        let is_new = self.shared.set(shared).is_ok();
        assert!(is_new, "settings are shared once");
        let loaded = self.load_as_it_is()?;
        self.install(loaded);
        Ok(ignored_setting_warnings)
    }

    pub(super) fn all_shared(&self) -> SharedSettings {
        self.shared.get().map(|shared| shared.known().clone()).unwrap_or_default()
    }

    /// Moves shared settings out of a store whose data were moved here: they are written to the file.
    pub(crate) fn unshare(&self, catalog: &Catalog) -> Result<(), SettingsError> {
        let Some(stored) = catalog.shared_settings()? else { return Ok(()) };
        let _changing = self.change_lock();
        let mut layers = self.files.read()?;
        let last = layers.last_mut().expect("a chain always has a file");
        for ((section, key), value) in &stored {
            last.ini.set(section, key, value);
        }
        last.save()?;
        catalog.change_shared_settings(|_| Some(SharedSettings::new()))?;
        let loaded = self.load()?;
        self.install(loaded);
        Ok(())
    }

    /// Adds the secrets that all nodes need to the settings of the first node.
    fn with_shared_secrets(&self, mut settings: SharedSettings) -> SharedSettings {
        for secret in [chttpd_auth::SECRET.setting(), cluster::SECRET.setting()] {
            let name = (secret.section.to_owned(), secret.key.to_owned());
            settings.entry(name).or_insert_with(|| random_hex(&*self.entropy, 16));
        }
        settings
    }

    pub(super) fn overlay(&self, sections: &mut Sections) {
        let Some(shared) = self.shared.get() else { return };
        for ((section, key), value) in &*shared.known() {
            insert(sections, section, key, value.clone(), Origin::Set);
        }
    }

    pub(super) fn is_shared(&self, section: &str, key: &str) -> bool {
        self.shared.get().is_some() && !is_own(section, key)
    }

    pub(super) fn follow(&self) -> Result<(), SettingsError> {
        let Some(shared) = self.shared.get() else { return Ok(()) };
        let Some(catalog) = &shared.catalog else { return Ok(()) };
        let _changing = self.change_lock();
        if !shared.is_stale.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        match catalog.shared_settings() {
            Ok(stored) => self.adopt(shared, &stored.unwrap_or_default()),
            Err(error) => {
                shared.is_stale.store(true, Ordering::Release);
                return Err(error.into());
            }
        }
        Ok(())
    }

    /// True if another node may have changed a setting that this one has not read yet.
    pub(super) fn is_behind(&self) -> bool {
        // A concurrent change on this node may be about to adopt it.
        let is_stale = |shared: &Shared| shared.is_stale.load(Ordering::Acquire);
        self.change_lock.try_lock().is_err() || self.shared.get().is_some_and(is_stale)
    }

    /// Sets or removes a value for all nodes. The caller must hold the lock of changes.
    pub(super) fn change_shared(&self, section: &str, key: &str, value: Option<&str>) -> Result<(), SettingsError> {
        let shared = self.shared.get().expect("asked for shared settings only");
        let catalog = shared.catalog.as_ref().expect("reading changes nothing");
        let mut refusal = Ok(());
        let stored = catalog.change_shared_settings(|found| {
            let mut changed = found.cloned().unwrap_or_default();
            let name = (section.to_owned(), key.to_owned());
            match value {
                Some(value) => changed.insert(name, value.to_owned()),
                None => changed.remove(&name),
            };
            // Another node may have removed other admins concurrently.
            let is_last = value.is_none() && section == load::ADMINS && !changed.keys().any(|(of, _)| of == section);
            refusal = if is_last { self.reject_remote_without_admins() } else { Ok(()) };
            refusal.is_ok().then_some(changed)
        })?;
        refusal?;
        self.adopt(shared, &stored.unwrap_or_default());
        Ok(())
    }

    /// Puts the stored settings into force. Changes in memory are kept.
    fn adopt(&self, shared: &Shared, stored: &SharedSettings) {
        let before = std::mem::replace(&mut *shared.known(), stored.clone());
        let changed = stored.iter().filter(|(name, value)| before.get(*name) != Some(*value));
        let changed = changed.map(|(name, value)| (name, Some(value)));
        let removed = before.keys().filter(|name| !stored.contains_key(*name)).map(|name| (name, None));
        for ((section, key), value) in changed.chain(removed) {
            match value {
                Some(value) => insert(&mut self.sections_mut(), section, key, value.clone(), Origin::Set),
                None => {
                    self.sections_mut().get_mut(section).map(|values| values.remove(key));
                }
            }
            self.notify(&Change { section, key, value: value.map(String::as_str) });
        }
    }
}

impl Shared {
    fn known(&self) -> std::sync::MutexGuard<'_, SharedSettings> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn of_all(sections: &Sections) -> SharedSettings {
    let shared =
        super::flat(sections).filter(|(section, key, value)| value.origin == Origin::Set && !is_own(section, key));
    shared.map(|(section, key, value)| ((section.to_owned(), key.to_owned()), value.text.clone())).collect()
}

/// Returns remarks about local settings that are ignored, except a uuid, which each node generates, and admins that the
/// store has, because hashes of the same password differ.
fn ignored_setting_warnings(own: &SharedSettings, stored: &SharedSettings) -> Vec<String> {
    let counts = |(name, value): &(&(String, String), &String)| match (name.0.as_str(), name.1.as_str()) {
        ("couchdb", "uuid") => true,
        (load::ADMINS, _) => stored.contains_key(*name),
        _ => stored.get(*name) == Some(*value),
    };
    let without = own.iter().filter(|setting| !counts(setting));
    without
        .map(|((section, key), _)| {
            format!("[{section}] {key} is set here but ignored: the nodes on this store share the setting, and the store has another value")
        })
        .collect()
}
