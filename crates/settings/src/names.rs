//! Lookup of settings by section and key, including CouchDB's old names of sections.

use crate::SETTINGS;
use crate::key::Setting;

const SECTION_NAMES: [(&str, &str); 2] = [("chttpd", "httpd"), ("chttpd_auth", "couch_httpd_auth")];

#[must_use]
pub fn find(section: &str, key: &str) -> Option<&'static Setting> {
    let exact =
        |section: &str| SETTINGS.iter().copied().find(|setting| setting.section == section && setting.key == key);
    exact(section).or_else(|| exact(modern_section(section, key)?))
}

/// Returns the former name of a section, which CouchDB 3 reads if `section` does not set `key`.
#[must_use]
pub fn old_section(section: &str, key: &str) -> Option<&'static str> {
    SECTION_NAMES.into_iter().find(|(new, _)| *new == section && is_shared(section, key)).map(|(_, old)| old)
}

#[must_use]
pub fn is_sensitive(section: &str, key: &str) -> bool {
    let named_so = |word| key.to_ascii_lowercase().contains(word);
    // A URL may contain a password.
    matches!(section, "admins" | "jwt_keys")
        || (section, key) == ("storage", "url")
        || ["secret", "password", "token"].into_iter().any(named_so)
}

/// Returns true for settings that belong to one node when several nodes share a store: its name and addresses, its
/// files, its use of the machine, and the programs that it starts. All other settings apply to all nodes.
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

/// Returns true if CouchDB also reads the setting from the old section. An old `[httpd]` configured another interface,
/// so its address and its way to authenticate must not change this one.
fn is_shared(section: &str, key: &str) -> bool {
    match section {
        "chttpd" => !matches!(
            key,
            "port"
                | "bind_address"
                | "authentication_handlers"
                | "require_valid_user_except_for_up"
                | "admin_only_all_dbs"
                | "max_db_number_for_dbs_info_req"
                | "decode_plus_to_space"
                | "scrub_json_request"
                | "prefer_minimal"
        ),
        "chttpd_auth" => !matches!(key, "authentication_db" | "upgrade_hash_on_auth"),
        _ => true,
    }
}
