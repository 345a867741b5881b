//! Shared test utilities: an account, and fixed settings.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use settee_settings::{Persist, Settings, SettingsError};
use settee_threads::GiveWay;

use crate::Error;
use crate::budget::{Account, Budget, Share};

pub(crate) fn account() -> Arc<Account> {
    Account::new(&Budget::new(64 << 20), None, Share::Admin)
}

pub(crate) fn nothing() -> GiveWay {
    Arc::new(|| {})
}

pub(crate) fn show(error: &Error) -> String {
    format!("{} {}: {}", error.status.as_u16(), error.name, error.reason)
}

#[derive(Default)]
pub(crate) struct Values(BTreeMap<(String, String), String>);

impl Values {
    pub(crate) fn of(settings: &[&str]) -> Self {
        let parse = |setting: &&str| {
            let (path, value) = setting.split_once('=').unwrap();
            let (section, key) = path.split_once('/').unwrap();
            ((section.to_owned(), key.to_owned()), value.to_owned())
        };
        Self(settings.iter().map(parse).collect())
    }
}

impl Settings for Values {
    fn get(&self, section: &str, key: &str) -> Option<String> {
        self.0.get(&(section.to_owned(), key.to_owned())).cloned()
    }

    fn section(&self, _: &str) -> Vec<(String, String)> {
        Vec::new()
    }

    fn all(&self) -> Vec<(String, Vec<(String, String)>)> {
        Vec::new()
    }

    fn set(&self, _: &str, _: &str, _: &str, _: Persist) -> Result<Option<String>, SettingsError> {
        Err(SettingsError::Unknown)
    }

    fn delete(&self, _: &str, _: &str, _: Persist) -> Result<String, SettingsError> {
        Err(SettingsError::Unknown)
    }

    fn reload(&self) -> Result<(), SettingsError> {
        Ok(())
    }
}
