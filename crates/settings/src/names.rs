//! Settings by section and key, also by CouchDB's old names of sections.

use crate::SETTINGS;
use crate::key::Setting;

const SECTION_NAMES: [(&str, &str); 2] = [("chttpd", "httpd"), ("chttpd_auth", "couch_httpd_auth")];

/// The setting of this name. CouchDB's old names of sections find what they became.
#[must_use]
pub fn find(section: &str, key: &str) -> Option<&'static Setting> {
    let exact =
        |section: &str| SETTINGS.iter().copied().find(|setting| setting.section == section && setting.key == key);
    exact(section).or_else(|| exact(modern_section(section, key)?))
}

/// Where CouchDB 3 looks for `key` if `section` does not say anything: the name the section had before.
#[must_use]
pub fn old_section(section: &str, key: &str) -> Option<&'static str> {
    SECTION_NAMES.into_iter().find(|(new, _)| *new == section && is_shared(section, key)).map(|(_, old)| old)
}

/// Whether a value must not be shown in logs.
#[must_use]
pub fn is_sensitive(section: &str, key: &str) -> bool {
    let named_so = |word| key.to_ascii_lowercase().contains(word);
    // A URL may have a password.
    matches!(section, "admins" | "jwt_keys")
        || (section, key) == ("storage", "url")
        || ["secret", "password", "token"].into_iter().any(named_so)
}

fn modern_section(section: &str, key: &str) -> Option<&'static str> {
    SECTION_NAMES.into_iter().find(|(new, old)| *old == section && is_shared(new, key)).map(|(new, _)| new)
}

/// The old `[httpd] port` was that of another interface in CouchDB 2: it must not move this one.
fn is_shared(section: &str, key: &str) -> bool {
    section != "chttpd" || !matches!(key, "port" | "bind_address")
}
