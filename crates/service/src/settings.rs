//! What is needed of the configuration: [`Settings`], implemented by the server.

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

/// What is known of a setting beside its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownSetting {
    /// Where it is set.
    pub section: &'static str,
    /// Its name there.
    pub key: &'static str,
    /// The value without a setting; `None`: nothing, or made up at the first start.
    pub default: Option<String>,
    /// When a change counts.
    pub applies: Applies,
    /// What it does, in a line.
    pub doc: &'static str,
}

/// Configuration values by section and key, with CouchDB's names.
pub trait Settings: Send + Sync {
    /// The value in force.
    fn get(&self, section: &str, key: &str) -> Option<String>;
    /// All values of a section.
    fn section(&self, section: &str) -> Vec<(String, String)>;
    /// All sections.
    fn all(&self) -> Vec<(String, Vec<(String, String)>)>;
    /// Sets a value and answers the old one.
    ///
    /// # Errors
    /// When nothing was changed.
    fn set(&self, section: &str, key: &str, value: &str, persist: Persist) -> Result<Option<String>, SettingsError>;
    /// Removes a value and answers it.
    ///
    /// # Errors
    /// When nothing was changed.
    fn delete(&self, section: &str, key: &str, persist: Persist) -> Result<String, SettingsError>;
    /// Reads the files again.
    ///
    /// # Errors
    /// When a file could not be read.
    fn reload(&self) -> Result<(), SettingsError>;

    /// Another number after every change; `None` if nobody counts.
    fn version(&self) -> Option<u64> {
        None
    }

    /// The value in force: the default counts, and so do old names of sections.
    fn effective(&self, section: &str, key: &str) -> Option<String> {
        self.get(section, key)
    }

    /// When a change of this value counts.
    fn applies(&self, _section: &str, _key: &str) -> Applies {
        Applies::AtOnce
    }

    /// The settings that the server knows, whether they are set or not.
    fn known(&self) -> Vec<KnownSetting> {
        Vec::new()
    }

    /// A value as a number.
    fn number(&self, section: &str, key: &str, default: u64) -> u64 {
        self.get(section, key).and_then(|value| value.trim().parse().ok()).unwrap_or(default)
    }

    /// A switch that keeps something out: only `false` opens it, and it is `false` unless somebody set it. What makes no sense
    /// was meant to be something else.
    fn guard(&self, section: &str, key: &str) -> bool {
        let value = self.get(section, key).unwrap_or_default();
        !matches!(value.trim(), "" | "false")
    }

    /// A value as a switch.
    fn switch(&self, section: &str, key: &str, default: bool) -> bool {
        match self.get(section, key).as_deref().map(str::trim) {
            Some("true") => true,
            Some("false") => false,
            _ => default,
        }
    }
}
