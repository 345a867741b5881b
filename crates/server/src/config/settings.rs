//! [`Configuration`] as the HTTP interface sees it: `settee_service::Settings`.

use super::{Configuration, Persist, SettingsError};
use settee_service::Settings;

impl Settings for Configuration {
    fn get(&self, section: &str, key: &str) -> Option<String> {
        Configuration::get(self, section, key)
    }

    fn section(&self, section: &str) -> Vec<(String, String)> {
        Configuration::section(self, section)
    }

    fn all(&self) -> Vec<(String, Vec<(String, String)>)> {
        Configuration::all(self)
    }

    fn set(
        &self,
        section: &str,
        key: &str,
        value: &str,
        persist: settee_service::Persist,
    ) -> Result<Option<String>, settee_service::SettingsError> {
        Ok(Configuration::set(self, section, key, value, persist.into())?)
    }

    fn delete(
        &self,
        section: &str,
        key: &str,
        persist: settee_service::Persist,
    ) -> Result<String, settee_service::SettingsError> {
        Configuration::delete(self, section, key, persist.into())?.ok_or(settee_service::SettingsError::Unknown)
    }

    fn reload(&self) -> Result<(), settee_service::SettingsError> {
        Configuration::reload(self)?;
        self.log_warnings();
        Ok(())
    }

    fn version(&self) -> Option<u64> {
        Some(Configuration::version(self))
    }

    fn effective(&self, section: &str, key: &str) -> Option<String> {
        Configuration::effective(self, section, key)
    }

    fn applies(&self, section: &str, key: &str) -> settee_service::Applies {
        super::guide::applies(section, key)
    }

    fn known(&self) -> Vec<settee_service::KnownSetting> {
        let describe = |setting: &super::defaults::Setting| settee_service::KnownSetting {
            section: setting.section,
            key: setting.key,
            default: setting.default_for(&self.data_dir),
            applies: super::guide::applies(setting.section, setting.key),
            doc: setting.doc,
        };
        super::defaults::SETTINGS.iter().map(describe).collect()
    }

    /// The number in force: old section names and the table of defaults count, `infinity` is `u64::MAX`.
    fn number(&self, section: &str, key: &str, default: u64) -> u64 {
        self.get_u64(section, key).unwrap_or(default)
    }

    /// As it was set, under either name of its section.
    fn guard(&self, section: &str, key: &str) -> bool {
        self.set_text(section, key).is_some_and(|value| value != "false")
    }

    /// The switch in force, likewise.
    fn switch(&self, section: &str, key: &str, default: bool) -> bool {
        match self.effective(section, key).as_deref() {
            Some("true") => true,
            Some("false") => false,
            _ => default,
        }
    }
}

impl From<settee_service::Persist> for Persist {
    fn from(persist: settee_service::Persist) -> Persist {
        match persist {
            settee_service::Persist::Yes => Persist::Disk,
            settee_service::Persist::No => Persist::Memory,
        }
    }
}

impl From<SettingsError> for settee_service::SettingsError {
    fn from(error: SettingsError) -> settee_service::SettingsError {
        match error {
            SettingsError::Invalid(reason) | SettingsError::Mistakes(reason) => {
                settee_service::SettingsError::Invalid(reason)
            }
            SettingsError::Io(_) => settee_service::SettingsError::File(error.to_string()),
        }
    }
}
