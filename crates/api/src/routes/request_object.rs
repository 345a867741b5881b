//! The request object of design functions: [`RequestObject`].

use std::sync::Arc;

use hyper::{Method, header};
use percent_encoding::percent_decode_str;
use settee_database::{Database, Reader};
use settee_model::json::{self, Json, write_string};
use settee_settings::chttpd;

use super::databases::write_info;
use crate::params::{Query, Raw};
use crate::request::Request;
use crate::{Error, path};
use settee_service::write_user;

/// Parameters that functions receive as JSON values.
const JSON_PARAMETERS: [&str; 4] = ["startkey", "endkey", "key", "descending"];

/// Headers that functions do not receive, because they contain the credentials of the client.
const SECRET_HEADERS: [header::HeaderName; 2] = [header::AUTHORIZATION, header::COOKIE];

pub(super) struct RequestObject {
    id: Option<String>,
    members: Json,
    form: Vec<u8>,
    uuid: String,
    user: Vec<u8>,
    reader: Reader,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Members {
    All,
    /// The members for rewrites: without `info`, `uuid`, `id` and `form`.
    OfRewrite,
}

impl RequestObject {
    pub(super) fn new(request: &Request, id: Option<&str>, body: &[u8]) -> Result<Self, Error> {
        let head = &request.head;
        let plus = request.node.policy().plus;
        let requested_path = path::segments(head.requested.as_deref().unwrap_or(head.uri.path()), plus)?;
        let path = path::segments(head.uri.path(), plus)?;
        let query = query_members(&request.query)?;
        let members = json::object(|object| {
            write_method(object.name("method"), &head.method);
            object.strings("requested_path", &requested_path).strings("path", &path);
            object.string("raw_path", head.uri.path_and_query().map_or("/", |target| target.as_str()));
            write_object(object.name("query"), query.into_iter());
            write_headers(object.name("headers"), request);
            object.string("body", &text_of_body(request, body)).string("peer", &head.peer.to_string());
            write_cookies(object.name("cookie"), request);
        });
        let mut form = Vec::new();
        write_form(&mut form, request, body);
        let mut user = Vec::new();
        write_user(&mut user, request.captures.get("db"), &request.user);
        let id = id.map(str::to_owned);
        Ok(Self {
            id,
            members: Json::trusted(members),
            form,
            uuid: request.node.uuid(),
            user,
            reader: request.reader.clone(),
        })
    }

    pub(super) fn to_json(&self, database: &Arc<Database>, members: Members) -> Result<Vec<u8>, Error> {
        let mut info = Vec::new();
        if members == Members::All {
            write_info(&mut info, database, &self.reader)?;
        }
        // Members of a database with per-document access do not read the security object.
        let security = match self.reader {
            Reader::Administrator => settee_service::security(database)?,
            Reader::Member(_) => Json::empty_object(),
        };
        Ok(json::object(|object| {
            if members == Members::All {
                object.json("info", &info).string("uuid", &self.uuid);
                object.string_or_null("id", self.id.as_deref()).json("form", &self.form);
            }
            object.members(self.members.value()).json("userCtx", &self.user).json("secObj", security.as_bytes());
        }))
    }
}

/// As in CouchDB a missing body is the text `undefined`.
fn text_of_body(request: &Request, body: &[u8]) -> String {
    let sent =
        [header::CONTENT_LENGTH, header::TRANSFER_ENCODING].iter().any(|name| request.headers.contains_key(name));
    if !sent && body.is_empty() { "undefined".to_owned() } else { String::from_utf8_lossy(body).into_owned() }
}

/// CouchDB's HTTP library represents unknown methods as strings, which become lists of character codes.
fn write_method(out: &mut Vec<u8>, method: &Method) {
    const NAMED: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "COPY"];
    if NAMED.contains(&method.as_str()) {
        return write_string(out, method.as_str());
    }
    let letters: Vec<String> = method.as_str().bytes().map(|letter| letter.to_string()).collect();
    out.extend_from_slice(format!("[{}]", letters.join(",")).as_bytes());
}

/// Appends an object; the last of several members with one name applies.
fn write_object<'a>(out: &mut Vec<u8>, members: impl Iterator<Item = (&'a str, Vec<u8>)>) {
    let mut last: Vec<(&str, Vec<u8>)> = Vec::new();
    for (name, value) in members {
        match last.iter_mut().find(|(known, _)| *known == name) {
            Some(member) => member.1 = value,
            None => last.push((name, value)),
        }
    }
    settee_model::json::write_object(out, last, |out, value| out.extend_from_slice(&value));
}

fn string(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_string(&mut out, text);
    out
}

fn query_members(query: &Query) -> Result<Vec<(&str, Vec<u8>)>, Error> {
    let members = query.raw().map(|(name, raw)| match raw {
        Raw::Text(text) if JSON_PARAMETERS.contains(&name) => Ok((name, Json::parse(text.as_bytes())?.into_bytes())),
        Raw::Text(text) => Ok((name, string(&text))),
        Raw::Json(json) => Ok((name, json.into_bytes())),
    });
    members.collect()
}

fn shows_secrets(request: &Request) -> bool {
    !chttpd::SCRUB_JSON_REQUEST.of(&*request.node.settings)
}

fn write_headers(out: &mut Vec<u8>, request: &Request) {
    let shown = |name: &&header::HeaderName| shows_secrets(request) || !SECRET_HEADERS.contains(name);
    let names: Vec<(String, Vec<u8>)> = request
        .headers
        .keys()
        .filter(shown)
        .map(|name| {
            let values = request.headers.get_all(name).iter();
            let values: Vec<_> = values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect();
            (capitalize(name.as_str()), string(&values.join(", ")))
        })
        .collect();
    write_object(out, names.iter().map(|(name, value)| (name.as_str(), value.clone())));
}

fn capitalize(name: &str) -> String {
    let mut first = true;
    let capital = |letter: char| {
        let capital = if std::mem::replace(&mut first, letter == '-') { letter.to_ascii_uppercase() } else { letter };
        first = letter == '-';
        capital
    };
    name.chars().map(capital).collect()
}

fn write_cookies(out: &mut Vec<u8>, request: &Request) {
    let cookies = request.header(header::COOKIE).filter(|_| shows_secrets(request)).unwrap_or_default();
    let pairs = cookies.split(';').filter_map(|cookie| cookie.trim().split_once('='));
    write_object(out, pairs.map(|(name, value)| (name, string(value.trim_matches('"')))));
}

fn write_form(out: &mut Vec<u8>, request: &Request, body: &[u8]) {
    let is_form = request
        .header(header::CONTENT_TYPE)
        .is_some_and(|content_type| content_type.starts_with("application/x-www-form-urlencoded"));
    let body = String::from_utf8_lossy(if is_form { body } else { b"" }).into_owned();
    let decode = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = body.split('&').filter(|pair| !pair.is_empty());
    let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let pairs: Vec<(String, Vec<u8>)> = pairs.map(|(name, value)| (decode(name), string(&decode(value)))).collect();
    write_object(out, pairs.iter().map(|(name, value)| (name.as_str(), value.clone())));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_capitalized() {
        for (name, expected) in [("content-type", "Content-Type"), ("x-couch-id", "X-Couch-Id"), ("te", "Te")] {
            assert_eq!(capitalize(name), expected);
        }
    }

    #[test]
    fn the_last_of_equal_members_counts() {
        let mut out = Vec::new();
        write_object(&mut out, [("a", b"1".to_vec()), ("b", b"2".to_vec()), ("a", b"3".to_vec())].into_iter());
        assert_eq!(out, br#"{"a":3,"b":2}"#);
    }
}
