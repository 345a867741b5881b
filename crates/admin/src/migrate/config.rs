//! Migration of administrators and of settings that applications depend on.

use std::collections::BTreeMap;

use anyhow::Context as _;
use settee_model::json::{Json, Value, write_string};
use settee_replication::{Peer, RequestMethod};
use settee_settings::{find, is_sensitive};

use crate::remote_server::RemoteServer;

/// By section. An empty list of keys migrates all settings of a section whose keys are names.
const CARRIED: &[(&str, &str)] = &[
    (
        "couchdb",
        "max_document_size max_attachment_size max_document_id_length max_partition_size max_bulk_docs_count \
         max_bulk_get_count default_security os_process_timeout users_db_security_editable",
    ),
    (
        "chttpd",
        "require_valid_user require_valid_user_except_for_up authentication_handlers admin_only_all_dbs WWW-Authenticate \
         enable_cors max_http_request_size enable_xframe_options allow_jsonp secure_rewrites",
    ),
    (
        "chttpd_auth",
        "require_valid_user secret timeout allow_persistent_cookies cookie_domain same_site proxy_use_secret \
         x_auth_username x_auth_roles x_auth_token users_db_public public_fields hash_algorithms password_regexp",
    ),
    ("cors", "origins credentials headers methods exposed_headers max_age"),
    ("x_frame_options", "same_origin hosts"),
    ("jwt_auth", "required_claims allowed_algorithms roles_claim_name roles_claim_path"),
    ("jwt_keys", ""),
    ("vhosts", ""),
    ("uuids", "algorithm utc_id_suffix max_count"),
    ("attachments", "compression_level compressible_types"),
    ("query_server_config", "reduce_limit query_limit partition_query_limit"),
    ("purge", "max_document_id_number max_revisions_number"),
];

pub(super) struct Found {
    admins: Vec<(String, String)>,
    settings: BTreeMap<(String, String), String>,
}

pub(super) async fn read(source: &RemoteServer, notes: &mut Vec<String>) -> anyhow::Result<Option<Found>> {
    match configuration(source.root()).await? {
        Ok(json) => Ok(Some(Found::of(json.value()))),
        Err(why) => {
            notes.push(format!(
                "the source does not show its configuration: no administrators and settings were copied: {why}"
            ));
            Ok(None)
        }
    }
}

pub(super) async fn apply_settings(
    found: &Found,
    target: &RemoteServer,
    notes: &mut Vec<String>,
) -> anyhow::Result<()> {
    let here = configuration(target.root()).await?;
    let here = here.map_err(|why| anyhow::anyhow!("the target does not show its configuration: {why}"))?;
    let here = Found::of(here.value()).settings;
    for ((section, key), value) in &found.settings {
        let default = find(section, key).and_then(|setting| setting.default);
        let now = here.get(&(section.clone(), key.clone())).map(String::as_str).or(default);
        if now == Some(value) {
            continue;
        }
        let shown = if is_sensitive(section, key) { "(not shown)" } else { value };
        match set(target.root(), section, key, value).await? {
            None => notes.push(format!("set [{section}] {key} = {shown}")),
            Some(why) => notes.push(format!("not set: [{section}] {key} = {shown}: {why}")),
        }
    }
    Ok(())
}

pub(super) async fn apply_admins(found: &Found, target: &RemoteServer, notes: &mut Vec<String>) -> anyhow::Result<()> {
    let here = configuration(target.root()).await?;
    let here = here.map_err(|why| anyhow::anyhow!("the target does not show its configuration: {why}"))?;
    let here = Found::of(here.value()).admins;
    let mut made = Vec::new();
    for (name, hash) in found.admins.iter().filter(|(name, _)| here.iter().all(|(other, _)| other != name)) {
        // Plain text would be hashed again; other texts are no passwords.
        if !hash.starts_with('-') {
            notes.push(format!("the password of the administrator {name} is not hashed: create the account here"));
            continue;
        }
        made.push((name, hash));
    }
    for (name, hash) in made {
        match set(target.root(), "admins", name, hash).await? {
            None => notes.push(format!("created the administrator {name}, with the password from the source")),
            Some(why) => notes.push(format!("the administrator {name} was not created: {why}")),
        }
    }
    Ok(())
}

impl Found {
    pub(super) fn of(config: Value<'_>) -> Self {
        let section = |name: &str| -> Vec<(String, String)> {
            let members = config.get(name).into_iter().flat_map(Value::members);
            members.map(|(key, value)| (key.to_text(), value.to_text())).collect()
        };
        let mut settings = BTreeMap::new();
        for (name, keys) in CARRIED {
            let old = config.members().map(|(old, _)| old.to_text());
            // The section's current name takes precedence over its old names.
            for from in old.filter(|old| old != name).chain([(*name).to_owned()]) {
                for (key, value) in section(&from) {
                    let is_named = keys.is_empty() && from == *name;
                    let is_known = || {
                        let is_carried = keys.split_ascii_whitespace().any(|carried| carried == key);
                        is_carried && find(&from, &key).is_some_and(|setting| setting.section == *name)
                    };
                    let is_shown = !value.is_empty() && !value.bytes().all(|byte| byte == b'*');
                    if is_shown && (is_named || is_known()) {
                        settings.insert(((*name).to_owned(), key), value);
                    }
                }
            }
        }
        Self { admins: section("admins"), settings }
    }
}

/// The error is the reason why the configuration is not shown. Since version 2 it belongs to a node.
async fn configuration(root: &Peer) -> anyhow::Result<Result<Json, String>> {
    let mut why = String::new();
    for path in ["_node/_local/_config", "_config"] {
        let reply = root.request(RequestMethod::Get, path, "").await?;
        match reply.json() {
            Ok(json) if json.value().is_object() => return Ok(Ok(json)),
            Ok(_) => "it is not an object".clone_into(&mut why),
            Err(error) => why = error.to_string(),
        }
    }
    Ok(Err(why))
}

async fn set(root: &Peer, section: &str, key: &str, value: &str) -> anyhow::Result<Option<String>> {
    let mut body = Vec::new();
    write_string(&mut body, value);
    let path = ["_node/_local/_config", section, key].map(|part| match part.starts_with("_node") {
        true => part.to_owned(),
        false => Peer::document_path(part),
    });
    let reply =
        root.request(RequestMethod::Put, &path.join("/"), body).await.with_context(|| format!("[{section}] {key}"))?;
    Ok((!reply.is_success()).then(|| reply.error().to_string()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn settings_that_applications_notice() {
        let check = |config: &str, expected: &[&str]| {
            let json = Json::parse(config.as_bytes()).unwrap();
            let found = Found::of(json.value());
            let found: Vec<String> =
                found.settings.iter().map(|((section, key), value)| format!("{section}/{key}={value}")).collect();
            assert_eq!(found, expected, "{config}");
        };
        check(
            r#"{"httpd":{"enable_cors":"true","port":"5984","bind_address":"0.0.0.0"}}"#,
            &["chttpd/enable_cors=true"],
        );
        check(r#"{"chttpd":{"enable_cors":"false"},"httpd":{"enable_cors":"true"}}"#, &["chttpd/enable_cors=false"]);
        check(r#"{"httpd":{"enable_cors":"true"},"chttpd":{"port":"1"}}"#, &["chttpd/enable_cors=true"]);
        check(
            r#"{"couch_httpd_auth":{"timeout":"900","secret":"*****","iterations":"10"}}"#,
            &["chttpd_auth/timeout=900"],
        );
        check(
            r#"{"couchdb":{"uuid":"x","database_dir":"/d","max_document_size":"9"}}"#,
            &["couchdb/max_document_size=9"],
        );
        check(
            r#"{"httpd":{"WWW-Authenticate":"Basic","authentication_handlers":"{a, b}"},"purge":{"max_document_id_number":"7"}}"#,
            &["chttpd/WWW-Authenticate=Basic", "purge/max_document_id_number=7"],
        );
        check(r#"{"vhosts":{"a.example":"/db"},"log":{"level":"debug"}}"#, &["vhosts/a.example=/db"]);
    }
}
