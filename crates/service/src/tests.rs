//! Shared parts of this crate's tests: databases in memory, and the services that write to them.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_auth::Authenticator;
use settee_database::{Catalog, Database, DatabaseOptions, Layout};
use settee_design::{CallError, Language, LimitsSource};
use settee_model::json::Json;
use settee_storage::memory::MemoryEngine;

use settee_settings::{Persist, Settings, SettingsError};
use settee_threads::GiveWay;

use crate::{Error, Hashers, Programs, Users, UsersDependencies, Writer};

#[derive(Default)]
pub(crate) struct Values(Mutex<HashMap<(String, String), String>>);

impl Values {
    pub(crate) fn of(settings: &[&str]) -> Self {
        let values = Self::default();
        for setting in settings {
            let (path, value) = setting.split_once('=').unwrap();
            let (section, key) = path.split_once('/').unwrap();
            values.set(section, key, value, Persist::No).unwrap();
        }
        values
    }
}

impl Settings for Values {
    fn get(&self, section: &str, key: &str) -> Option<String> {
        self.0.lock().get(&(section.to_owned(), key.to_owned())).cloned()
    }

    fn section(&self, _: &str) -> Vec<(String, String)> {
        Vec::new()
    }

    fn all(&self) -> Vec<(String, Vec<(String, String)>)> {
        Vec::new()
    }

    fn set(&self, section: &str, key: &str, value: &str, _: Persist) -> Result<Option<String>, SettingsError> {
        Ok(self.0.lock().insert((section.to_owned(), key.to_owned()), value.to_owned()))
    }

    fn delete(&self, section: &str, key: &str, _: Persist) -> Result<String, SettingsError> {
        self.0.lock().remove(&(section.to_owned(), key.to_owned())).ok_or(SettingsError::Unknown)
    }

    fn reload(&self) -> Result<(), SettingsError> {
        Ok(())
    }
}

pub(crate) struct Services {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) writer: Arc<Writer>,
}

pub(crate) fn services(languages: Vec<Arc<dyn Language>>) -> Services {
    let catalog = Arc::new(Catalog::open(Arc::new(MemoryEngine::new()), 1).unwrap());
    let settings: Arc<dyn Settings> = Arc::new(Values::default());
    let find = move |name: &str| languages.iter().find(|language| language.name() == name).cloned();
    let programs = Arc::new(Programs::new(Arc::new(find), LimitsSource::default(), settings.as_ref()));
    let idle: GiveWay = Arc::new(|| {});
    let users = Users::new(UsersDependencies {
        catalog: Arc::clone(&catalog),
        settings,
        authenticator: Authenticator::new([7; 32]),
        hashers: Arc::new(Hashers::start(1, &idle)),
        count: Arc::new(|_| {}),
        entropy: Arc::new(|| 7),
    });
    Services { catalog, writer: Arc::new(Writer::new(programs, Arc::new(users))) }
}

pub(crate) fn database() -> Arc<Database> {
    let options = DatabaseOptions { created_ms: 0, instance: 7, layout: Layout::Whole, q: 1 };
    services(Vec::new()).catalog.create("db", options).unwrap()
}

pub(crate) fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

pub(crate) fn show(error: &Error) -> String {
    match error {
        Error::Unauthorized(reason) => format!("unauthorized: {reason}"),
        Error::Forbidden(reason) => format!("forbidden: {reason}"),
        Error::Call(CallError::Unauthorized(reason)) => format!("unauthorized: {reason}"),
        Error::Call(CallError::Forbidden(reason)) => format!("forbidden: {reason}"),
        Error::Call(CallError::Failed { name, reason }) => format!("{name}: {reason}"),
        other => other.to_string(),
    }
}
