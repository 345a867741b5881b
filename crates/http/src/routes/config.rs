//! The configuration: `/_node/{node}/_config`, and `/_config` as in version 1.

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue};
use settee_model::json::write_string;

use super::server::require_node;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Applies, Error, Persist};

/// Tells when a change counts.
const APPLIES: HeaderName = HeaderName::from_static("x-settee-applies");

/// `GET …/_config`
pub(super) async fn all(request: Request) -> Answer {
    require_node(&request)?;
    let mut out = b"{".to_vec();
    for (index, (section, values)) in request.node.settings.all().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(&mut out, section);
        out.push(b':');
        write_section(&mut out, values);
    }
    out.push(b'}');
    Ok(respond::json(StatusCode::OK, out))
}

/// `GET …/_config/{section}`
pub(super) async fn section(request: Request) -> Answer {
    require_node(&request)?;
    let mut out = Vec::new();
    write_section(&mut out, &request.node.settings.section(request.captures.get("section")));
    Ok(respond::json(StatusCode::OK, out))
}

/// `GET …/_config/{section}/{key}`
pub(super) async fn get(request: Request) -> Answer {
    require_node(&request)?;
    let (section, key) = (request.captures.get("section"), request.captures.get("key"));
    let value = request.node.settings.get(section, key);
    let value = value.ok_or_else(|| Error::not_found("unknown_config_value"))?;
    Ok(text(&value))
}

/// `PUT …/_config/{section}/{key}`: a JSON string in, the old value out.
pub(super) async fn set(mut request: Request) -> Answer {
    require_node(&request)?;
    let body = request.read_json().await?;
    let value = body.value().as_str().ok_or_else(|| Error::bad_request("A configuration value is a JSON string."))?;
    let settings = std::sync::Arc::clone(&request.node.settings);
    let (section, key) = (request.captures.get("section").to_owned(), request.captures.get("key").to_owned());
    let (value, persist) = (value.into_owned(), persist(&request));
    let applies = settings.applies(&section, &key);
    let old = crate::bridge::blocking(move || Ok(settings.set(&section, &key, &value, persist)?)).await?;
    Ok(changed(&old.unwrap_or_default(), applies))
}

/// `DELETE …/_config/{section}/{key}`
pub(super) async fn delete(request: Request) -> Answer {
    require_node(&request)?;
    let settings = std::sync::Arc::clone(&request.node.settings);
    let (section, key) = (request.captures.get("section").to_owned(), request.captures.get("key").to_owned());
    let persist = persist(&request);
    let applies = settings.applies(&section, &key);
    let old = crate::bridge::blocking(move || Ok(settings.delete(&section, &key, persist)?)).await?;
    Ok(changed(&old, applies))
}

/// `POST …/_config/_reload`
pub(super) async fn reload(request: Request) -> Answer {
    require_node(&request)?;
    let settings = std::sync::Arc::clone(&request.node.settings);
    crate::bridge::blocking(move || Ok(settings.reload()?)).await?;
    Ok(respond::ok(StatusCode::OK))
}

fn persist(request: &Request) -> Persist {
    if request.header("x-couch-persist") == Some("false") { Persist::No } else { Persist::Yes }
}

/// The old value, and when the change counts.
fn changed(old: &str, applies: Applies) -> respond::Response {
    let mut response = text(old);
    let when = match applies {
        Applies::AtOnce => "at-once",
        Applies::AfterRestart => "after-restart",
        Applies::Nowhere => "nowhere",
    };
    response.headers_mut().insert(APPLIES, HeaderValue::from_static(when));
    response
}

fn text(value: &str) -> respond::Response {
    let mut out = Vec::new();
    write_string(&mut out, value);
    respond::json(StatusCode::OK, out)
}

fn write_section(out: &mut Vec<u8>, values: &[(String, String)]) {
    out.push(b'{');
    for (index, (key, value)) in values.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_string(out, key);
        out.push(b':');
        write_string(out, value);
    }
    out.push(b'}');
}
