//! The configuration: `/_node/{node}/_config`, and `/_config` as in CouchDB 1.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use settee_model::json::{append_object, write_array, write_object, write_string};
use settee_settings::{Applies, Key, Persist, SETTINGS, key::Switch, query_server_config};

use super::server::require_node;
use crate::Error;
use crate::request::Request;
use crate::respond::{self, Answer};

/// Sections of CouchDB 1 and 2 that start programs or handle paths; read-only over HTTP since CVE-2017-12636.
const LOCKED: [&str; 7] = [
    "daemons",
    "os_daemons",
    "external",
    "update_notification",
    "httpd_global_handlers",
    "httpd_db_handlers",
    "httpd_design_handlers",
];

/// Sections that start programs on this server. Changes over HTTP must be enabled by [`SWITCH`].
const STARTING_PROGRAMS: [&str; 2] = ["query_servers", "native_query_servers"];

/// A client that can set this key could grant itself the right, so only the file and the environment set it.
static SWITCH: &Key<Switch> = &query_server_config::CONFIGURE_OVER_HTTP;

const APPLIES: HeaderName = HeaderName::from_static("x-settee-applies");

pub(super) async fn all(request: Request) -> Answer {
    require_node(&request)?;
    let mut out = Vec::new();
    let sections = request.node.settings.all();
    let sections = sections.iter().map(|(section, values)| (section, values));
    write_object(&mut out, sections, |out, values| write_section(out, values));
    Ok(respond::json(StatusCode::OK, out))
}

pub(super) async fn section(request: Request) -> Answer {
    require_node(&request)?;
    let mut out = Vec::new();
    write_section(&mut out, &request.node.settings.section(request.captures.get("section")));
    Ok(respond::json(StatusCode::OK, out))
}

pub(super) async fn get(request: Request) -> Answer {
    require_node(&request)?;
    let (section, key) = (request.captures.get("section"), request.captures.get("key"));
    let value = request.node.settings.get(section, key);
    let value = value.ok_or_else(|| Error::not_found("unknown_config_value"))?;
    Ok(text(&value))
}

/// The body is a JSON string, the response the old value.
pub(super) async fn set(mut request: Request) -> Answer {
    require_changeable(&request)?;
    require_node(&request)?;
    let body = request.read_json().await?;
    let value = body.value().as_str().ok_or_else(|| Error::bad_request("a JSON string expected"))?;
    let settings = std::sync::Arc::clone(&request.node.settings);
    let (section, key) = (request.captures.get("section").to_owned(), request.captures.get("key").to_owned());
    let (value, persist) = (value.trim().to_owned(), persist(&request));
    let applies = settee_settings::applies(&section, &key);
    let old =
        crate::bridge::blocking(&request.threads, move || Ok(settings.set(&section, &key, &value, persist)?)).await?;
    request.node.databases.guard_users_database();
    Ok(changed(&old.unwrap_or_default(), applies))
}

pub(super) async fn delete(request: Request) -> Answer {
    require_changeable(&request)?;
    require_node(&request)?;
    let settings = std::sync::Arc::clone(&request.node.settings);
    let (section, key) = (request.captures.get("section").to_owned(), request.captures.get("key").to_owned());
    let persist = persist(&request);
    let applies = settee_settings::applies(&section, &key);
    let old = crate::bridge::blocking(&request.threads, move || Ok(settings.delete(&section, &key, persist)?)).await?;
    request.node.databases.guard_users_database();
    Ok(changed(&old, applies))
}

/// Requires a content type that HTML forms cannot send.
pub(super) async fn reload(request: Request) -> Answer {
    require_node(&request)?;
    crate::body::require_json(&request.headers)?;
    let settings = std::sync::Arc::clone(&request.node.settings);
    crate::bridge::blocking(&request.threads, move || Ok(settings.reload()?)).await?;
    request.node.databases.guard_users_database();
    Ok(respond::ok(StatusCode::OK))
}

/// Refuses changes that are not permitted over HTTP. While no administrator exists, every client could become
/// one, so that CouchDB 1's way to configure a query server works by default then.
fn require_changeable(request: &Request) -> Result<(), Error> {
    let (section, key) = (request.captures.get("section"), request.captures.get("key"));
    let locked = || Error::forbidden("Config section blacklisted for modification over HTTP API.");
    if LOCKED.contains(&section) || SWITCH.is(section, key) {
        return Err(locked());
    }
    if !STARTING_PROGRAMS.contains(&section) {
        return Ok(());
    }
    let allowed = SWITCH.text(&*request.node.settings);
    match allowed.as_deref() {
        Some("true") => Ok(()),
        None if !request.node.authenticator.has_admins() => Ok(()),
        _ => Err(locked()),
    }
}

/// Lists all known settings, set or not.
pub(super) async fn known(request: Request) -> Answer {
    require_node(&request)?;
    let settings = &*request.node.settings;
    Ok(respond::object(StatusCode::OK, |object| {
        write_array(object.name("settings"), SETTINGS, |out, setting| {
            append_object(out, |object| {
                object.string("section", setting.section).string("key", setting.key).string("doc", setting.doc);
                object.string_or_null("default", settings.default_of(setting).as_deref());
                object.string("applies", when(setting.applies));
            });
        });
    }))
}

fn persist(request: &Request) -> Persist {
    if request.header("x-couch-persist") == Some("false") { Persist::No } else { Persist::Yes }
}

fn changed(old: &str, applies: Applies) -> respond::Response {
    let mut response = text(old);
    response.headers_mut().insert(APPLIES, HeaderValue::from_static(when(applies)));
    response
}

fn when(applies: Applies) -> &'static str {
    match applies {
        Applies::AtOnce => "at-once",
        Applies::AfterRestart => "after-restart",
        Applies::Nowhere => "nowhere",
    }
}

fn text(value: &str) -> respond::Response {
    let mut out = Vec::new();
    write_string(&mut out, value);
    respond::json(StatusCode::OK, out)
}

fn write_section(out: &mut Vec<u8>, values: &[(String, String)]) {
    write_object(out, values.iter().map(|(key, value)| (key, value)), |out, value| write_string(out, value));
}

#[cfg(test)]
mod tests {
    use crate::tests::node::{Ask, World};

    const LOCKED: &str =
        r#"403 {"error":"forbidden","reason":"Config section blacklisted for modification over HTTP API."}"#;

    async fn check(world: &World, path: &str, expected: &str) {
        for base in ["/_config", "/_node/_local/_config", "/_node/nobody@nowhere/_config"] {
            for method in ["PUT", "DELETE"] {
                let line = format!("{method} {base}/{path}");
                let reply = world.ask(Ask::new(&line).basic("admin", "pw").json("\"x\"")).await;
                if expected == LOCKED {
                    assert_eq!(reply.line(), LOCKED, "{line}");
                } else if !base.contains("nowhere") {
                    assert_eq!(reply.status.as_u16().to_string(), expected, "{line}");
                }
            }
        }
    }

    #[tokio::test]
    async fn sections_that_start_programs_or_change_routes_are_not_changed_over_http() {
        let world = World::new();
        for section in super::LOCKED.iter().chain(&super::STARTING_PROGRAMS) {
            check(&world, &format!("{section}/x"), LOCKED).await;
            // The check applies to every encoding of the name.
            check(&world, &format!("%{:02x}{}/x", section.as_bytes()[0], &section[1..]), LOCKED).await;
        }
        check(&world, "query_server_config/configure_over_http", LOCKED).await;
        check(&world, "query_server_config/os_process_limit", "200").await;
        assert!(world.node.settings.get("query_servers", "x").is_none());
    }

    #[tokio::test]
    async fn query_servers_are_configured_over_http_only_where_that_is_allowed() {
        let world = World::new();
        let settee_settings::Setting { section, key, .. } = super::SWITCH.setting();
        world.set(section, key, "true");
        for path in ["query_servers/python", "native_query_servers/enable_erlang_query_server"] {
            check(&world, path, "200").await;
        }
        check(&world, "os_daemons/x", LOCKED).await;
        world.set(section, key, "yes");
        check(&world, "query_servers/python", LOCKED).await;
        world.set(section, key, "false");
        world.set_admins(&[]);
        let put = || Ask::new("PUT /_config/query_servers/python").json("\"x\"");
        assert_eq!(world.ask(put()).await.line(), LOCKED);
        world.node.settings.delete(section, key, settee_settings::Persist::No).expect("it is set");
        assert_eq!(
            world.ask(put()).await.line(),
            r#"200 """#,
            "without an administrator nothing else is locked either"
        );
        world.set_admins(&["admin"]);
        check(&world, "query_servers/python", LOCKED).await;
    }
}
