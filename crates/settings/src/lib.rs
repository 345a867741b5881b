//! The settings of the server: [`SETTINGS`] is the table of all, a [`Key`] reads one, and [`Settings`] is where values are.
//!
//! Readers go through keys, so that the name, the type and the default of a setting are in one place. Values come from the
//! server, which reads files; this crate knows no files, and does not know what a setting does.

mod derived;
pub mod key;
mod names;
mod table;

pub use derived::Derived;
pub use key::{INFINITY, Key, Kind, Setting, Visibility};
pub use names::{find, is_own, is_sensitive, old_section};
pub use table::*;

/// Whether a change of the configuration outlives the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persist {
    /// Written to the configuration file.
    Yes,
    /// Kept in memory (`X-Couch-Persist: false`).
    No,
}

/// Why the configuration did not change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// There is no value to delete.
    #[error("unknown_config_value")]
    Unknown,
    /// The value makes no sense for this key; the text says what would.
    #[error("{0}")]
    Invalid(String),
    /// The file could not be read or written.
    #[error("{0}")]
    File(String),
}

/// When a change of a value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applies {
    /// With the next request, or soon.
    AtOnce,
    /// When the server starts again.
    AfterRestart,
    /// Nobody reads the value: it is only kept.
    Nowhere,
}

/// Configuration values by section and key, with CouchDB's names.
pub trait Settings: Send + Sync {
    /// The value in force.
    fn get(&self, section: &str, key: &str) -> Option<String>;
    /// All values of a section.
    fn section(&self, section: &str) -> Vec<(String, String)>;
    /// All sections.
    fn all(&self) -> Vec<(String, Vec<(String, String)>)>;
    /// Sets a value and returns the old one.
    ///
    /// # Errors
    /// When nothing was changed.
    fn set(&self, section: &str, key: &str, value: &str, persist: Persist) -> Result<Option<String>, SettingsError>;
    /// Removes a value and returns it.
    ///
    /// # Errors
    /// When nothing was changed.
    fn delete(&self, section: &str, key: &str, persist: Persist) -> Result<String, SettingsError>;
    /// Reads the files again.
    ///
    /// # Errors
    /// When a file could not be read.
    fn reload(&self) -> Result<(), SettingsError>;

    /// Takes over what other nodes have changed, if anything: nodes that share a store share settings. To be called when it is known
    /// what they changed, before a request is judged. May block.
    ///
    /// # Errors
    /// When the store cannot be read.
    fn follow(&self) -> Result<(), SettingsError> {
        Ok(())
    }

    /// Whether [`Self::follow`] has anything to take over, of which this node has heard. Waits for nothing.
    fn is_behind(&self) -> bool {
        false
    }

    /// Another number after every change; `None` if nobody counts.
    fn version(&self) -> Option<u64> {
        None
    }

    /// The value in force: the default counts, and so do old names of sections.
    fn effective(&self, section: &str, key: &str) -> Option<String> {
        self.get(section, key)
    }

    /// The default of a setting on this server.
    fn default_of(&self, setting: &Setting) -> Option<String> {
        setting.default.map(str::to_owned)
    }

    /// The value that was set, whether or not it makes sense, also under an old name of its section.
    fn given(&self, section: &str, key: &str) -> Option<String> {
        self.get(section, key)
    }
}

/// When a change of a setting counts.
#[must_use]
pub fn applies(section: &str, key: &str) -> Applies {
    // Their keys are names.
    if matches!(section, "admins" | "jwt_keys") {
        return Applies::AtOnce;
    }
    find(section, key).map_or(Applies::Nowhere, |setting| setting.applies)
}

#[cfg(test)]
mod tests;
