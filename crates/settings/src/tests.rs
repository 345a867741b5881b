//! Values of all types, read through keys.

use std::collections::BTreeMap;

use super::*;

struct Values(BTreeMap<(&'static str, &'static str), &'static str>);

impl Settings for Values {
    fn get(&self, section: &str, key: &str) -> Option<String> {
        self.0.get(&(section, key)).map(|value| (*value).to_owned())
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

fn with(section: &'static str, key: &'static str, value: &'static str) -> Values {
    Values(BTreeMap::from([((section, key), value)]))
}

#[test]
fn numbers_that_make_no_sense_are_the_default() {
    for (value, expected) in
        [("17", 17), (" 17 ", 17), ("infinity", u64::MAX), ("", 100), (" ", 100), ("-1", 100), ("many", 100)]
    {
        assert_eq!(chttpd::MAX_HEADERS.of(&with("chttpd", "max_headers", value)), expected, "{value:?}");
    }
    assert_eq!(couchdb::MAX_DOCUMENT_ID_LENGTH.of(&Values(BTreeMap::new())), u64::MAX);
    assert_eq!(chttpd::MAX_REQUEST_MEMORY.find(&Values(BTreeMap::new())), None);
    assert_eq!(chttpd::MAX_REQUEST_MEMORY.find(&with("chttpd", "max_request_memory", "9")), Some(9));
}

#[test]
fn only_false_disables_access_restrictions() {
    for (value, is_kept_out) in [("true", true), ("false", false), ("", false), ("flase", true), ("1", true)] {
        let values = with("chttpd", "require_valid_user", value);
        assert_eq!(chttpd::REQUIRE_VALID_USER.of(&values), is_kept_out, "{value:?}");
    }
    for (value, is_on) in [("true", true), ("false", false), ("", true), ("flase", true)] {
        assert_eq!(csp::UTILS_ENABLE.of(&with("csp", "utils_enable", value)), is_on, "{value:?}");
    }
}

#[test]
fn texts_are_their_default_unless_set() {
    let (empty, set) = (with("vendor", "name", ""), with("vendor", "name", "Sofa"));
    assert_eq!(vendor::NAME.of(&empty), "Settee");
    assert_eq!(vendor::NAME.literal(&empty), "", "as it was set");
    assert_eq!((vendor::NAME.of(&set), vendor::NAME.literal(&set)), ("Sofa".to_owned(), "Sofa".to_owned()));
    assert_eq!(ssl::CERT_FILE.text(&empty), None);
    assert_eq!(couchdb::DATABASE_DIR.text(&empty), None, "only a server has a data directory");
}

#[test]
fn old_names_of_sections_find_the_new_ones() {
    for (section, key, expected) in [
        ("httpd", "max_uri_length", Some("chttpd")),
        ("httpd", "port", None),
        ("httpd", "authentication_handlers", None),
        ("couch_httpd_auth", "authentication_db", None),
        ("couch_httpd_auth", "timeout", Some("chttpd_auth")),
        ("chttpd", "port", Some("chttpd")),
        ("mine", "own", None),
    ] {
        assert_eq!(find(section, key).map(|setting| setting.section), expected, "{section}/{key}");
    }
}

#[test]
fn defaults_are_values_that_may_be_set() {
    for setting in SETTINGS {
        assert_eq!(setting.kind.violation(setting.default.unwrap_or_default()), None, "{setting:?}");
    }
}

#[test]
fn settings_of_a_machine_are_not_shared() {
    for setting in SETTINGS {
        let is_file = ["_file", "_dir", "unix_socket"].iter().any(|end| setting.key.ends_with(end));
        assert!(!is_file || is_own(setting.section, setting.key), "{}/{}", setting.section, setting.key);
    }
    for (section, key, expected) in [
        ("admins", "ann", false),
        ("chttpd_auth", "secret", false),
        ("couchdb", "uuid", false),
        ("couchdb", "maintenance_mode", true),
        ("cluster", "node", true),
        ("cluster", "secret", false),
        ("chttpd", "port", true),
        ("httpd", "port", true),
        ("chttpd", "require_valid_user", false),
        ("query_servers", "python", true),
        ("mine", "own", false),
    ] {
        assert_eq!(is_own(section, key), expected, "{section}/{key}");
    }
}
