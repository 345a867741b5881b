//! `_cluster_setup`: called by installers and set-up scripts of clients. Each process is a complete server, so
//! only the actions for a single node have an effect.

use std::sync::Arc;

use hyper::StatusCode;
use settee_model::json::{Kind, Value};
use settee_settings::{Persist, chttpd};

use crate::node::Node;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, body, bridge};

const SYSTEM_DATABASES: [&str; 3] = ["_users", "_replicator", "_global_changes"];

const DATABASES_MAX: usize = 100;

pub(super) async fn state(_: Request) -> Answer {
    Ok(respond::json(StatusCode::OK, br#"{"state":"single_node_enabled"}"#.to_vec()))
}

pub(super) async fn run(mut request: Request) -> Answer {
    body::require_json(&request.headers)?;
    // CouchDB's message has this apostrophe.
    let missing_body = || Error::bad_request("Missing JSON body'");
    let setup = request.read_json().await;
    // As in CouchDB a body with an unsupported encoding is no JSON.
    let is_no_json = |status| [StatusCode::BAD_REQUEST, StatusCode::UNSUPPORTED_MEDIA_TYPE].contains(&status);
    let setup = setup.map_err(|error| if is_no_json(error.status) { missing_body() } else { error })?;
    let setup = setup.value();
    if !setup.is_object() {
        return Err(missing_body());
    }
    let action = setup.get("action").and_then(Value::as_str).unwrap_or_default().into_owned();
    let node = Arc::clone(&request.node);
    match action.as_str() {
        "enable_single_node" => {
            let (settings, missing) = (single_node(&node, setup)?, missing(&node, &databases(setup)?));
            bridge::blocking(&request.threads, move || {
                for Setting { section, key, value } in settings {
                    node.settings.set(section, &key, &value, Persist::Yes)?;
                }
                create(&node, &missing)
            })
            .await?;
        }
        "finish_cluster" => {
            let missing = missing(&node, &databases(setup)?);
            if missing.is_empty() {
                return Err(Error::bad_request("Cluster is already finished"));
            }
            bridge::blocking(&request.threads, move || create(&node, &missing)).await?;
        }
        "enable_cluster" if is_enabled(&node) => return Err(Error::bad_request("Cluster is already enabled")),
        "add_node" if !is_enabled(&node) => return Err(Error::bad_request("Cluster is not enabled.")),
        "enable_cluster" | "add_node" | "remove_node" | "receive_cookie" => {
            return Err(Error::not_implemented("a cluster has one node here: use the action enable_single_node"));
        }
        _ => return Err(Error::bad_request("Invalid Action'")),
    }
    Ok(respond::ok(StatusCode::CREATED))
}

struct Setting {
    section: &'static str,
    key: String,
    value: String,
}

/// Returns the settings of `enable_single_node` in a safe order: the administrator precedes the address.
fn single_node(node: &Node, setup: Value<'_>) -> Result<Vec<Setting>, Error> {
    let setting = |section, key: &str, value: String| Setting { section, key: key.to_owned(), value };
    let mut settings = Vec::new();
    let password = match text(setup, "password_hash")? {
        None => text(setup, "password")?,
        hash => hash,
    };
    match (text(setup, "username")?, password) {
        (Some(name), Some(password)) if !name.is_empty() && !password.is_empty() => {
            settings.push(setting("admins", &name, password));
        }
        (None, None) if node.authenticator.has_admins() => {}
        (None, None) => return Err(Error::bad_request("Cluster setup requires admin account to be configured")),
        _ => return Err(Error::bad_request("username and password belong together")),
    }
    let address = text(setup, "bind_address")?.unwrap_or_else(|| "0.0.0.0".to_owned());
    if address != "any" && address.parse::<std::net::IpAddr>().is_err() {
        return Err(Error::bad_request(format!("Setup requires a valid IP bind_address. {address} is invalid.")));
    }
    settings.push(setting("chttpd", "bind_address", address));
    settings.push(setting("cluster", "n", "1".to_owned()));
    if let Some(port) = setup.get("port") {
        let number = port.as_str().map_or_else(|| port.as_u64(), |text| text.trim().parse().ok());
        let number = number.filter(|number| (1..=65_535).contains(number));
        let number = number.ok_or_else(|| Error::bad_request("port must be a number from 1 to 65535"))?;
        settings.push(setting("chttpd", "port", number.to_string()));
    }
    Ok(settings)
}

fn text(setup: Value<'_>, name: &str) -> Result<Option<String>, Error> {
    let Some(value) = setup.get(name).filter(|value| value.kind() != Kind::Null) else { return Ok(None) };
    let text = value.as_str().ok_or_else(|| Error::bad_request(format!("{name} must be a string")))?;
    Ok(Some(text.into_owned()))
}

/// Returns true under CouchDB's condition for a cluster: a public address and an administrator.
fn is_enabled(node: &Node) -> bool {
    let address = chttpd::BIND_ADDRESS.of(&*node.settings);
    !matches!(address.as_str(), "" | "127.0.0.1") && node.authenticator.has_admins()
}

fn databases(setup: Value<'_>) -> Result<Vec<String>, Error> {
    let Some(wanted) = setup.get("ensure_dbs_exist") else {
        return Ok(SYSTEM_DATABASES.map(str::to_owned).into());
    };
    let refused = || Error::bad_request("ensure_dbs_exist must be a list of names of databases");
    if wanted.kind() != Kind::Array || wanted.elements().count() > DATABASES_MAX {
        return Err(refused());
    }
    wanted.elements().map(|name| name.as_str().map(Into::into).ok_or_else(refused)).collect()
}

fn missing(node: &Node, names: &[String]) -> Vec<String> {
    names.iter().filter(|name| node.database(name).is_err()).cloned().collect()
}

fn create(node: &Node, names: &[String]) -> Result<(), Error> {
    for name in names {
        node.databases.create(name)?;
    }
    Ok(())
}
