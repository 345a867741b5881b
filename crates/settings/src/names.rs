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

/// Whether a setting is one of a node's own, where several share a store: what it is called and where it listens, where its files lie,
/// what it takes of its machine, and what starts programs there. All others hold for all nodes.
#[must_use]
pub fn is_own(section: &str, key: &str) -> bool {
    match section {
        "log" | "storage" | "ssl" | "backup" | "tracing" | "search" | "query_servers" | "native_query_servers" => true,
        "cluster" => matches!(key, "node" | "address"),
        "couchdb" => {
            matches!(key, "database_dir" | "view_index_dir" | "max_dbs_open" | "maintenance_mode")
        }
        "chttpd" | "httpd" => matches!(
            key,
            "port"
                | "bind_address"
                | "unix_socket"
                | "unix_socket_mode"
                | "max_connections"
                | "max_request_memory"
                | "max_long_answers"
                | "max_list_answers"
                | "max_function_calls"
                | "max_uploads"
        ),
        "view_updater" => key == "sort_memory_bytes",
        "jwt_auth" => key == "jwks_file",
        "replicator" => matches!(key, "ssl_trusted_certificates_file" | "cert_file" | "key_file"),
        "query_server_config" => {
            matches!(
                key,
                "configure_over_http" | "os_process_limit" | "os_process_soft_limit" | "os_process_memory_limit"
            )
        }
        "uuids" => key == "utc_id_suffix",
        _ => false,
    }
}

fn modern_section(section: &str, key: &str) -> Option<&'static str> {
    SECTION_NAMES.into_iter().find(|(new, old)| *old == section && is_shared(new, key)).map(|(new, _)| new)
}

/// The old `[httpd] port` was that of another interface in CouchDB 2: it must not move this one.
fn is_shared(section: &str, key: &str) -> bool {
    section != "chttpd" || !matches!(key, "port" | "bind_address")
}
