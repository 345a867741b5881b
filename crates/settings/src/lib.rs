//! The settings of the server: [`SETTINGS`] is the table of all settings, a [`Key`] reads one, and [`Settings`] is the
//! source of values. Readers use keys, so that name, type and default of a setting are defined once. This crate does
//! not read files and does not implement the effect of any setting.

mod derived;
pub mod ini;
pub mod key;
mod names;
mod table;

pub use derived::Derived;
pub use key::{INFINITY, Key, Kind, Setting, Visibility};
pub use names::{find, is_own, is_sensitive, old_section};
pub use table::*;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    Yes,
    /// Until the next start (`X-Couch-Persist: false`).
    No,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    #[error("unknown_config_value")]
    Unknown,
    /// The text names the valid values.
    #[error("{0}")]
    Invalid(String),
    #[error("{0}")]
    File(String),
    /// The store of the settings is unreachable, or the outcome of the change is unknown. A retry may succeed.
    #[error("{0}")]
    Unavailable(String),
}

/// Time at which a change takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// At the next request or shortly after.
    AtOnce,
    AfterRestart,
    /// Never: the value is only stored.
    Nowhere,
}

pub trait Settings: Send + Sync {
    /// Returns the value that was set under this name, as the HTTP API shows it. A default is returned only by
    /// [`Self::effective`].
    fn get(&self, section: &str, key: &str) -> Option<String>;
    fn section(&self, section: &str) -> Vec<(String, String)>;
    fn all(&self) -> Vec<(String, Vec<(String, String)>)>;
    fn set(&self, section: &str, key: &str, value: &str, persist: Persist) -> Result<Option<String>, SettingsError>;
    fn delete(&self, section: &str, key: &str, persist: Persist) -> Result<String, SettingsError>;
    fn reload(&self) -> Result<(), SettingsError>;

    /// Takes over changes that other nodes made: nodes that share a store share settings. The caller must call it after
    /// it was notified of a change and before it authorizes a request. May block.
    fn follow(&self) -> Result<(), SettingsError> {
        Ok(())
    }

    /// Returns true if [`Self::follow`] has changes to take over. Does not block.
    fn is_behind(&self) -> bool {
        false
    }

    /// Returns a number that differs after every change; `None` if changes are not counted.
    fn version(&self) -> Option<u64> {
        None
    }

    /// Includes defaults and old names of sections.
    fn effective(&self, section: &str, key: &str) -> Option<String> {
        self.get(section, key)
    }

    fn default_of(&self, setting: &Setting) -> Option<String> {
        setting.default.map(str::to_owned)
    }

    /// Returns the configured value, valid or not, also under an old name of its section.
    fn given(&self, section: &str, key: &str) -> Option<String> {
        self.get(section, key)
    }
}

#[must_use]
pub fn applies(section: &str, key: &str) -> Applies {
    // The keys of these sections are user-defined names.
    if matches!(section, "admins" | "jwt_keys") {
        return Applies::AtOnce;
    }
    find(section, key).map_or(Applies::Nowhere, |setting| setting.applies)
}

#[cfg(test)]
mod tests;
