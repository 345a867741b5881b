//! [`Key`]: typed access to a setting, and [`Setting`]: its description.

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::{Applies, Settings};

/// CouchDB's word for "no limit".
pub const INFINITY: &str = "infinity";

const DATA: &str = "{data}";

#[derive(Debug)]
pub struct Setting {
    pub section: &'static str,
    pub key: &'static str,
    /// `{data}` is replaced by the data directory. `None` if the setting has no default or the value is generated at
    /// the first start.
    pub default: Option<&'static str>,
    pub kind: Kind,
    pub visibility: Visibility,
    pub applies: Applies,
    pub doc: &'static str,
}

/// CouchDB's `default.ini` sets some values and mentions others only in comments. The latter are in effect, but reading
/// them returns `unknown_config_value`, and the first change returns `""` as the old value. Scripts can observe that,
/// so it is preserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    Listed,
    /// In effect, but not part of the configuration until it is set.
    Implied,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Text,
    Bool,
    /// Inclusive bounds.
    Integer(u64, u64),
    /// An integer or `infinity`.
    Limit,
    /// Milliseconds or `infinity`.
    Milliseconds,
    Seconds,
    Address,
    Word(&'static [&'static str]),
}

/// A setting and the type of its values: [`Number`], [`Switch`], [`Guard`] or [`Text`].
#[derive(Debug)]
pub struct Key<T> {
    setting: Setting,
    of: PhantomData<fn() -> T>,
}

/// `infinity` is `u64::MAX`.
#[derive(Debug)]
pub struct Number;

#[derive(Debug)]
pub struct Switch;

/// A protection that only `false` disables. Any invalid value keeps it enabled, because it was hardly meant as `false`.
#[derive(Debug)]
pub struct Guard;

#[derive(Debug)]
pub struct Text;

impl<T> Key<T> {
    pub(crate) const fn new(setting: Setting) -> Self {
        Self { setting, of: PhantomData }
    }

    #[must_use]
    pub const fn setting(&self) -> &Setting {
        &self.setting
    }

    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.setting.key
    }

    #[must_use]
    pub fn is(&self, section: &str, key: &str) -> bool {
        (self.setting.section, self.setting.key) == (section, key)
    }

    /// Returns the value, or else the default; `None` if both are empty.
    #[must_use]
    pub fn text(&self, settings: &dyn Settings) -> Option<String> {
        let Setting { section, key, default, .. } = self.setting;
        let default = || default.filter(|text| !text.contains(DATA)).map(str::to_owned);
        let is_something = |text: &String| !text.trim().is_empty();
        settings.effective(section, key).filter(is_something).or_else(|| default().filter(is_something))
    }
}

impl Key<Number> {
    /// Returns the effective number; 0 without a value and a default, see [`find`](Self::find).
    #[must_use]
    pub fn of(&self, settings: &dyn Settings) -> u64 {
        self.find(settings).unwrap_or_default()
    }

    #[must_use]
    pub fn find(&self, settings: &dyn Settings) -> Option<u64> {
        let number = |text: &str| match text.trim() {
            INFINITY => Some(u64::MAX),
            text => text.parse().ok(),
        };
        self.text(settings).and_then(|text| number(&text)).or_else(|| number(self.setting.default?))
    }
}

impl Key<Switch> {
    #[must_use]
    pub fn of(&self, settings: &dyn Settings) -> bool {
        match self.text(settings).as_deref().map(str::trim) {
            Some("true") => true,
            Some("false") => false,
            _ => self.setting.default == Some("true"),
        }
    }
}

impl Key<Guard> {
    /// Returns true unless the value is `false` or empty.
    #[must_use]
    pub fn of(&self, settings: &dyn Settings) -> bool {
        let given = settings.given(self.setting.section, self.setting.key).unwrap_or_default();
        !matches!(given.trim(), "" | "false")
    }
}

impl Key<Text> {
    /// Returns the configured text, even an empty one, or else the default.
    #[must_use]
    pub fn literal(&self, settings: &dyn Settings) -> String {
        let Setting { section, key, default, .. } = self.setting;
        settings.get(section, key).unwrap_or_else(|| default.unwrap_or_default().to_owned())
    }

    #[must_use]
    pub fn of(&self, settings: &dyn Settings) -> String {
        self.text(settings).unwrap_or_default()
    }
}

impl Setting {
    #[must_use]
    pub fn default_for(&self, data_dir: &Path) -> Option<String> {
        self.default.map(|text| text.replace(DATA, &data_dir.display().to_string()))
    }

    pub(crate) const fn at_start(mut self) -> Self {
        self.applies = Applies::AfterRestart;
        self
    }

    /// Marks a setting that has no effect and is stored only because clients set or read it.
    pub(crate) const fn kept(mut self) -> Self {
        self.applies = Applies::Nowhere;
        self
    }
}

pub(crate) const fn setting(
    section: &'static str,
    key: &'static str,
    default: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Setting {
    Setting { default: Some(default), ..unset(section, key, kind, doc) }
}

pub(crate) const fn listed(
    section: &'static str,
    key: &'static str,
    default: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Setting {
    Setting { visibility: Visibility::Listed, ..setting(section, key, default, kind, doc) }
}

pub(crate) const fn unset(section: &'static str, key: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting { section, key, default: None, kind, visibility: Visibility::Implied, applies: Applies::AtOnce, doc }
}

impl Kind {
    /// Returns the rule that `value` violates, as the end of a sentence that starts with "must be". An empty value is
    /// always valid: it resets the setting.
    #[must_use]
    pub fn violation(self, value: &str) -> Option<String> {
        let number = value.parse::<u64>().ok();
        let (fits, wanted) = match self {
            Kind::Text => return None,
            Kind::Bool => (matches!(value, "true" | "false"), "true or false".to_owned()),
            Kind::Integer(min, max) => {
                (number.is_some_and(|n| (min..=max).contains(&n)), format!("an integer from {min} to {max}"))
            }
            Kind::Limit => (number.is_some() || value == INFINITY, "an integer or infinity".to_owned()),
            Kind::Milliseconds => (number.is_some() || value == INFINITY, "milliseconds or infinity".to_owned()),
            Kind::Seconds => (number.is_some(), "a number of seconds".to_owned()),
            Kind::Address => (address(value).is_some(), "an IP address, localhost or any".to_owned()),
            Kind::Word(words) => (words.contains(&value), format!("one of {}", words.join(", "))),
        };
        (!fits && !value.is_empty()).then_some(wanted)
    }
}

/// Returns the address that `[chttpd] bind_address` denotes.
#[must_use]
pub fn address(value: &str) -> Option<IpAddr> {
    match value.trim() {
        "" | "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        "any" => Some(Ipv4Addr::UNSPECIFIED.into()),
        text => text.parse().ok(),
    }
}
