//! [`Key`]: how a setting is read, and [`Setting`]: what is known of it.

use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use crate::{Applies, Settings};

/// CouchDB's word for no limit.
pub const INFINITY: &str = "infinity";

/// The text in a default that stands for the data directory.
const DATA: &str = "{data}";

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// CouchDB's section.
    pub section: &'static str,
    /// CouchDB's key.
    pub key: &'static str,
    /// The default; `None`: nothing, or made up at the first start. `{data}` stands for the data directory.
    pub default: Option<&'static str>,
    /// The type of the value.
    pub kind: Kind,
    /// Whether the configuration shows the default.
    pub visibility: Visibility,
    /// When a change counts.
    pub applies: Applies,
    /// One line for `settee config --defaults`.
    pub doc: &'static str,
}

/// CouchDB's `default.ini` states some values and has others only in comments: those are in force, but reading them gives
/// `unknown_config_value`, and the old value of the first change is `""`. Scripts can see that, so it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Visibility {
    /// Part of the configuration from the start.
    Listed,
    /// In force, but not part of the configuration until somebody sets it.
    Implied,
}

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`.
    Bool,
    /// An integer in this range.
    Integer(u64, u64),
    /// An integer or `infinity`.
    Limit,
    /// A time in milliseconds, or `infinity`.
    Milliseconds,
    /// A time in seconds.
    Seconds,
    /// An IP address to listen on.
    Address,
    /// One of these words.
    Word(&'static [&'static str]),
}

/// A setting and the type of its values: [`Number`], [`Switch`], [`Guard`] or [`Text`].
#[derive(Debug)]
pub struct Key<T> {
    setting: Setting,
    of: PhantomData<fn() -> T>,
}

/// An integer; `infinity` is `u64::MAX`.
#[derive(Debug)]
pub struct Number;

/// `true` or `false`.
#[derive(Debug)]
pub struct Switch;

/// A switch that keeps something out: only `false` opens it. A value that makes no sense was meant to be something else than
/// `false`.
#[derive(Debug)]
pub struct Guard;

/// A text.
#[derive(Debug)]
pub struct Text;

impl<T> Key<T> {
    pub(crate) const fn new(setting: Setting) -> Self {
        Self { setting, of: PhantomData }
    }

    /// The row of the table.
    #[must_use]
    pub const fn setting(&self) -> &Setting {
        &self.setting
    }

    /// The name in its section.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.setting.key
    }

    /// Whether this is the key of that name.
    #[must_use]
    pub fn is(&self, section: &str, key: &str) -> bool {
        (self.setting.section, self.setting.key) == (section, key)
    }

    /// The text in force: the value, or else the default; `None` if both are empty.
    #[must_use]
    pub fn text(&self, settings: &dyn Settings) -> Option<String> {
        let Setting { section, key, default, .. } = self.setting;
        let default = || default.filter(|text| !text.contains(DATA)).map(str::to_owned);
        let is_something = |text: &String| !text.trim().is_empty();
        settings.effective(section, key).filter(is_something).or_else(|| default().filter(is_something))
    }
}

impl Key<Number> {
    /// The number in force. A setting without a default is 0 until somebody sets it: see [`find`](Self::find).
    #[must_use]
    pub fn of(&self, settings: &dyn Settings) -> u64 {
        self.find(settings).unwrap_or_default()
    }

    /// The number in force, if there is one.
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
    /// Whether it is on.
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
    /// Whether it keeps out.
    #[must_use]
    pub fn of(&self, settings: &dyn Settings) -> bool {
        let given = settings.given(self.setting.section, self.setting.key).unwrap_or_default();
        !matches!(given.trim(), "" | "false")
    }
}

impl Key<Text> {
    /// The text as it was set, even an empty one, or else the default.
    #[must_use]
    pub fn literal(&self, settings: &dyn Settings) -> String {
        let Setting { section, key, default, .. } = self.setting;
        settings.get(section, key).unwrap_or_else(|| default.unwrap_or_default().to_owned())
    }

    /// The text in force, empty if there is none.
    #[must_use]
    pub fn of(&self, settings: &dyn Settings) -> String {
        self.text(settings).unwrap_or_default()
    }
}

impl Setting {
    /// The default for a server with this data directory.
    #[must_use]
    pub fn default_for(&self, data_dir: &Path) -> Option<String> {
        self.default.map(|text| text.replace(DATA, &data_dir.display().to_string()))
    }

    /// A change counts when the server starts again.
    pub(crate) const fn at_start(mut self) -> Self {
        self.applies = Applies::AfterRestart;
        self
    }

    /// Nothing reads the value: it is kept, because clients set it or look for it.
    pub(crate) const fn kept(mut self) -> Self {
        self.applies = Applies::Nowhere;
        self
    }
}

/// A setting whose default the configuration does not show.
pub(crate) const fn setting(
    section: &'static str,
    key: &'static str,
    default: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Setting {
    Setting { default: Some(default), ..unset(section, key, kind, doc) }
}

/// A setting whose default it does show.
pub(crate) const fn listed(
    section: &'static str,
    key: &'static str,
    default: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Setting {
    Setting { visibility: Visibility::Listed, ..setting(section, key, default, kind, doc) }
}

/// A setting without a default.
pub(crate) const fn unset(section: &'static str, key: &'static str, kind: Kind, doc: &'static str) -> Setting {
    Setting { section, key, default: None, kind, visibility: Visibility::Implied, applies: Applies::AtOnce, doc }
}

impl Kind {
    /// The rule that `value` breaks, if it does: the end of a sentence that begins with "must be". An empty value is
    /// always right: it takes a setting back.
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

/// The address that `[chttpd] bind_address` names.
#[must_use]
pub fn address(value: &str) -> Option<IpAddr> {
    match value.trim() {
        "" | "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        "any" => Some(Ipv4Addr::UNSPECIFIED.into()),
        text => text.parse().ok(),
    }
}
