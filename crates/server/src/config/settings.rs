//! Implementation of `settee_settings::Settings` for [`Configuration`].

use settee_database::DatabaseError;

use super::{Configuration, Persist, SettingsError};
use settee_settings::{Setting, Settings};

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
        persist: settee_settings::Persist,
    ) -> Result<Option<String>, settee_settings::SettingsError> {
        Ok(Configuration::set(self, section, key, value, persist.into())?)
    }

    fn delete(
        &self,
        section: &str,
        key: &str,
        persist: settee_settings::Persist,
    ) -> Result<String, settee_settings::SettingsError> {
        Configuration::delete(self, section, key, persist.into())?.ok_or(settee_settings::SettingsError::Unknown)
    }

    fn reload(&self) -> Result<(), settee_settings::SettingsError> {
        Configuration::reload(self)?;
        self.log_warnings();
        Ok(())
    }

    fn follow(&self) -> Result<(), settee_settings::SettingsError> {
        Ok(Configuration::follow(self)?)
    }

    fn is_behind(&self) -> bool {
        Configuration::is_behind(self)
    }

    fn version(&self) -> Option<u64> {
        Some(Configuration::version(self))
    }

    fn effective(&self, section: &str, key: &str) -> Option<String> {
        Configuration::effective(self, section, key)
    }

    fn given(&self, section: &str, key: &str) -> Option<String> {
        self.set_text(section, key)
    }

    fn default_of(&self, setting: &Setting) -> Option<String> {
        setting.default_for(&self.data_dir)
    }
}

impl From<settee_settings::Persist> for Persist {
    fn from(persist: settee_settings::Persist) -> Persist {
        match persist {
            settee_settings::Persist::Yes => Persist::Disk,
            settee_settings::Persist::No => Persist::Memory,
        }
    }
}

impl From<SettingsError> for settee_settings::SettingsError {
    fn from(error: SettingsError) -> settee_settings::SettingsError {
        match error {
            SettingsError::Invalid(reason) | SettingsError::Mistakes(reason) => {
                settee_settings::SettingsError::Invalid(reason)
            }
            SettingsError::Store(DatabaseError::Storage(ref cause)) if cause.is_temporary() => {
                settee_settings::SettingsError::Unavailable(error.to_string())
            }
            SettingsError::Io(_) | SettingsError::Store(_) => settee_settings::SettingsError::File(error.to_string()),
        }
    }
}
