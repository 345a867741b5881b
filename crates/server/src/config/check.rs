//! Validation of settings: [`Finding`]s with the place of each setting. An invalid value, or a name that looks
//! mistyped, prevents a start. Other unknown names are accepted, because clients store their own settings.

use std::fmt;
use std::path::PathBuf;

use super::couchdb;
use settee_settings::SETTINGS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SettingSource {
    File(PathBuf, usize),
    Override(String),
}

impl fmt::Display for SettingSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, line) => write!(f, "{}:{line}", path.display()),
            Self::Override(how) => f.write_str(how),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Severity {
    /// Prevents a start.
    Mistake,
    /// The setting has no effect.
    NoEffect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) source: SettingSource,
    pub(crate) severity: Severity,
    pub(crate) text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.text)
    }
}

pub(super) fn check(source: SettingSource, section: &str, key: &str, value: &str) -> Option<Finding> {
    let finding = |severity, text| Some(Finding { source, severity, text });
    if key.starts_with('#') {
        return finding(Severity::NoEffect, format!("[{section}] {key} changes nothing; comments start with `;`"));
    }
    if let Some(wanted) = violation(section, key, value) {
        let shown = if settee_settings::is_sensitive(section, key) { "****" } else { value };
        return finding(Severity::Mistake, format!("[{section}] {key} = {shown}: it must be {wanted}"));
    }
    if settee_settings::find(section, key).is_some() || couchdb::is_user_named(section) {
        return None;
    }
    if couchdb::is_known(section, key) {
        return finding(
            Severity::NoEffect,
            format!("[{section}] {key} is a setting of CouchDB that changes nothing here"),
        );
    }
    if let Some(near) = suggestion(section, key) {
        return finding(Severity::Mistake, format!("[{section}] {key} is not known; did you mean {near}?"));
    }
    let elsewhere = SETTINGS.iter().find(|setting| setting.key == key);
    let hint = elsewhere.map(|setting| format!("; there is [{}] {key}", setting.section)).unwrap_or_default();
    finding(Severity::NoEffect, format!("[{section}] {key} is not known, and changes nothing{hint}"))
}

pub(super) fn suggestion(section: &str, key: &str) -> Option<String> {
    if settee_settings::find(section, key).is_some() || couchdb::is_known(section, key) {
        return None;
    }
    let sections = || SETTINGS.iter().map(|setting| setting.section).chain(couchdb::sections());
    let is_section = sections().any(|known| known == section);
    let section = if is_section { section } else { nearest(section, sections())? };
    if !is_section && (settee_settings::find(section, key).is_some() || couchdb::is_known(section, key)) {
        return Some(format!("[{section}] {key}"));
    }
    let own = SETTINGS.iter().filter(|setting| setting.section == section).map(|setting| setting.key);
    let near = nearest(key, own).or_else(|| nearest(key, couchdb::keys(section)))?;
    Some(format!("[{section}] {near}"))
}

/// `None` if the difference to all names is large.
fn nearest<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = match text.len() {
        0..=3 => return None,
        4..=5 => 1,
        _ => 2,
    };
    let near = names.map(|name| (distance(name, text), name)).min()?;
    (near.0 <= most && near.0 > 0).then_some(near.1)
}

/// Edit distance: the number of characters to change, add, remove, or swap with the next one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for (i, letter) in a.iter().enumerate() {
        let before = &rows[i];
        let mut row = vec![i + 1];
        for (j, other) in b.iter().enumerate() {
            let changed = before[j] + usize::from(letter != other);
            let mut least = changed.min(before[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *letter == b[j - 1] && a[i - 1] == *other {
                least = least.min(rows[i - 1][j - 1] + 1);
            }
            row.push(least);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Returns the rule that `value` violates; `None` for an unknown setting.
pub(super) fn violation(section: &str, key: &str, value: &str) -> Option<String> {
    settee_settings::find(section, key)?.kind.violation(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistyped_names_are_distinguished_from_unknown_ones() {
        for (section, key, expected) in [
            ("chttpd", "prot", Some("[chttpd] port")),
            ("chttpd", "bind_adress", Some("[chttpd] bind_address")),
            ("chtttpd", "port", Some("[chttpd] port")),
            ("couchdb", "max_documents_size", Some("[couchdb] max_document_size")),
            ("admin", "ann", Some("[admins] ann")),
            ("cors", "origin", Some("[cors] origins")),
            ("couchdb", "max_dbs_opne", Some("[couchdb] max_dbs_open")),
            ("chttpd", "port", None),
            ("httpd", "enable_cors", None),
            ("mem3", "shards_db", None),
            ("admins", "bob", None),
            ("chttpdd", "prot", Some("[chttpd] port")),
            ("chttpdd", "of_a_plugin", None),
            ("smoosh.ratio_views", "min_priority", None),
            ("my section", "a key", None),
            ("mine", "brief", None),
            ("test", "foo", None),
        ] {
            assert_eq!(suggestion(section, key).as_deref(), expected, "[{section}] {key}");
        }
    }

    #[test]
    fn findings_name_place_and_remedy() {
        let check = |section: &str, key: &str, value: &str| {
            let found = check(SettingSource::File("local.ini".into(), 3), section, key, value);
            found.map(|finding| (finding.severity, finding.to_string()))
        };
        let wrong = |text: &str| Some((Severity::Mistake, text.to_owned()));
        let idle = |text: &str| Some((Severity::NoEffect, text.to_owned()));
        for ((section, key, value), expected) in [
            (
                ("chttpd", "port", "59x"),
                wrong("local.ini:3: [chttpd] port = 59x: it must be an integer from 0 to 65535"),
            ),
            (("chttpd", "prot", "1"), wrong("local.ini:3: [chttpd] prot is not known; did you mean [chttpd] port?")),
            (("chttpd", "port", "5984"), None),
            (("chttpd", "bind_address", "localhost"), None),
            (
                ("ioq", "ratio", "0.01"),
                idle("local.ini:3: [ioq] ratio is a setting of CouchDB that changes nothing here"),
            ),
            (
                ("chttpd", "# server_options", "[]"),
                idle("local.ini:3: [chttpd] # server_options changes nothing; comments start with `;`"),
            ),
            (("mine", "brief", "x"), idle("local.ini:3: [mine] brief is not known, and changes nothing")),
        ] {
            assert_eq!(check(section, key, value), expected, "[{section}] {key} = {value}");
        }
    }
}
