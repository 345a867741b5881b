//! [`Rendered`]: the response of a design function, with `code`, `headers` and one of `body`, `json` and `base64`.

use std::borrow::Cow;

use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use settee_database::Reader;
use settee_edge::bridge::Head;
use settee_model::base64;
use settee_model::json::{Kind, Value};
use settee_settings::{Settings, csp};

use super::views::function_failed;
use crate::node::Node;
use crate::respond::{self, Response};
use crate::{Error, authentication};

#[derive(Debug)]
pub(super) struct Rendered {
    status: StatusCode,
    headers: HeaderMap,
    body: Vec<u8>,
    /// True if the body was given as `json`: plain data, which no browser executes.
    json: bool,
}

impl Rendered {
    /// `status` is the default of `code`.
    pub(super) fn parse(object: Value<'_>, status: StatusCode) -> Result<Self, Error> {
        let mut rendered = Self { status, headers: HeaderMap::new(), body: Vec::new(), json: false };
        let mut content_type = "application/json";
        for (name, value) in object.members() {
            let name = name.as_str().unwrap_or_default();
            match &*name {
                "code" => rendered.status = code(value)?,
                "headers" => rendered.set_headers(value)?,
                "json" => {
                    rendered.json = true;
                    rendered.body = value.raw().to_vec();
                    rendered.body.push(b'\n');
                    content_type = "application/json";
                }
                "body" => {
                    let text = text(value).ok_or_else(|| invalid(&name, value))?;
                    rendered.set_text(text.into_bytes());
                    content_type = "text/html; charset=utf-8";
                }
                "base64" => {
                    let text = value.as_str().ok_or_else(|| invalid(&name, value))?;
                    rendered.set_text(base64::decode(text.as_bytes()).ok_or_else(|| invalid(&name, value))?);
                    content_type = "application/binary";
                }
                "stop" => {}
                _ => return Err(invalid(&name, value)),
            }
        }
        rendered.headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(content_type));
        Ok(rendered)
    }

    /// A JSON body takes precedence.
    fn set_text(&mut self, text: Vec<u8>) {
        if !self.json {
            self.body = text;
        }
    }

    fn set_headers(&mut self, headers: Value<'_>) -> Result<(), Error> {
        if headers.kind() != Kind::Object {
            return Err(invalid("headers", headers));
        }
        for (name, value) in headers.members() {
            let name = name.as_str().unwrap_or_default();
            let value_text = text(value).unwrap_or_else(|| value.to_text());
            let pair = (HeaderName::try_from(&*name), HeaderValue::try_from(value_text));
            let (Ok(name), Ok(text)) = pair else {
                return Err(invalid(&name, value));
            };
            if !is_reserved(&name, &text) {
                self.headers.insert(name, text);
            }
        }
        Ok(())
    }

    pub(super) fn set(&mut self, name: HeaderName, value: &str) {
        respond::set(&mut self.headers, name, value);
    }

    /// Prevents browsers from executing the output of a function with the origin of the server. JSON output is
    /// sent like the server's own JSON, unless it has another type. A policy of the function is sent in
    /// addition to that of the server; browsers enforce both, so it can only restrict.
    pub(super) fn sandbox(mut self, node: &Node) -> Self {
        if self.json && self.is_typed_as_json() {
            let revalidate = HeaderValue::from_static("must-revalidate");
            self.headers.entry(header::CACHE_CONTROL).or_insert(revalidate);
            return self;
        }
        let settings: &dyn Settings = node.settings.as_ref();
        if csp::SHOWLIST_ENABLE.of(settings) {
            let own = self.headers.remove(header::CONTENT_SECURITY_POLICY);
            let policy = csp::SHOWLIST_HEADER_VALUE.literal(settings);
            self.set(header::CONTENT_SECURITY_POLICY, &policy);
            if let Some(own) = own {
                self.headers.append(header::CONTENT_SECURITY_POLICY, own);
            }
        }
        self
    }

    fn is_typed_as_json(&self) -> bool {
        let content_type = self.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = content_type.unwrap_or_default().split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("application/json")
    }

    pub(super) fn into_head(self) -> Head {
        Head::new(self.status, self.headers)
    }

    pub(super) fn into_response(self) -> Response {
        let mut response = respond::whole(self.status, "application/json", self.body);
        *response.headers_mut() = self.headers;
        response
    }
}

/// An error of the compiler contains the source of the design document, which members of a database with per-document
/// access do not read.
pub(super) fn error_for(user: &Reader, error: Error) -> Error {
    let shows_source = error.name == "compilation_error" && *user != Reader::Administrator;
    if shows_source { function_failed("compilation_error") } else { error }
}

/// Headers of framing and connections, those that the server sets, and those that affect the whole server.
const RESERVED: [&str; 22] = [
    "alt-svc",
    "clear-site-data",
    "connection",
    "content-length",
    "date",
    "expect-ct",
    "keep-alive",
    "nel",
    "proxy-authenticate",
    "proxy-connection",
    "public-key-pins",
    "report-to",
    "reporting-endpoints",
    "server",
    "service-worker-allowed",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-couch-request-id",
    "x-couchdb-body-time",
];

/// Only `[cors]` configures the access of other origins, and only the server starts sessions, after a login.
fn is_reserved(name: &HeaderName, value: &HeaderValue) -> bool {
    let is_of_session = *name == header::SET_COOKIE && authentication::is_session_cookie(value);
    is_of_session || name.as_str().starts_with("access-control-") || RESERVED.contains(&name.as_str())
}

fn text(value: Value<'_>) -> Option<String> {
    if value.is_array() { value.elements().map(text).collect() } else { value.as_str().map(Cow::into_owned) }
}

/// The status is a number, or a string that starts with one, such as `"404"` or `"404 Not Found"`.
fn code(value: Value<'_>) -> Result<StatusCode, Error> {
    let text = value.as_str();
    let number = match &text {
        Some(text) => text.split(' ').next().filter(|digits| digits.len() == 3).and_then(|digits| digits.parse().ok()),
        None => value.as_u64(),
    };
    let code = number.and_then(|code| u16::try_from(code).ok()).filter(|code| (200..600).contains(code));
    code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or_else(|| invalid("code", value))
}

fn invalid(name: &str, value: Value<'_>) -> Error {
    let reason = format!("Invalid data from external server: \"{name}\": {}", String::from_utf8_lossy(value.raw()));
    Error::new(StatusCode::INTERNAL_SERVER_ERROR, "external_response_error", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{json, show};

    #[test]
    fn objects_become_responses() {
        let check = |text: &str, status: u16, content_type: &str, body: &[u8]| {
            let rendered = Rendered::parse(json(text).value(), StatusCode::OK).expect(text);
            assert_eq!(rendered.status.as_u16(), status, "{text}");
            assert_eq!(rendered.headers[header::CONTENT_TYPE], content_type, "{text}");
            assert_eq!(rendered.body, body, "{text}");
        };
        check("{}", 200, "application/json", b"");
        check(r#"{"body":"x"}"#, 200, "text/html; charset=utf-8", b"x");
        check(r#"{"body":["x",["y"],""]}"#, 200, "text/html; charset=utf-8", b"xy");
        check(r#"{"json":{"a":1},"code":203}"#, 203, "application/json", b"{\"a\":1}\n");
        check(r#"{"json":1,"body":"x"}"#, 200, "text/html; charset=utf-8", b"1\n");
        check(r#"{"body":"x","json":1}"#, 200, "application/json", b"1\n");
        check(r#"{"base64":"AAEC","headers":{"content-type":"x/y"}}"#, 200, "x/y", &[0, 1, 2]);
        check(r#"{"code":"404"}"#, 404, "application/json", b"");
        check(r#"{"code":"404 Not Here","body":"x"}"#, 404, "text/html; charset=utf-8", b"x");
        check(r#"{"code":302,"headers":{"Location":"/x"},"stop":true}"#, 302, "application/json", b"");
        for (name, value, is_kept) in [
            ("Content-Security-Policy", "x", true),
            ("Content-Security-Policy-Report-Only", "x", true),
            ("X-Frame-Options", "x", true),
            ("X-Content-Type-Options", "nosniff", true),
            ("Set-Cookie", "lang=de", true),
            ("Set-Cookie", "AuthSessionOther=de", true),
            ("Set-Cookie", "AuthSession=x; Path=/", false),
            ("set-cookie", " authsession = x", false),
            ("Set-Cookie", "=AuthSession=x", false),
            ("Access-Control-Allow-Origin", "*", false),
            ("Access-Control-Allow-Credentials", "true", false),
            ("Access-Control-Allow-Methods", "GET", false),
            ("access-control-max-age", "9", false),
            ("Strict-Transport-Security", "max-age=0", false),
            ("Clear-Site-Data", "*", false),
            ("Service-Worker-Allowed", "/", false),
            ("Transfer-Encoding", "chunked", false),
            ("Content-Length", "1", false),
            ("Connection", "close", false),
            ("Keep-Alive", "timeout=1", false),
            ("Upgrade", "h2c", false),
            ("Trailer", "x", false),
            ("Date", "x", false),
            ("Server", "x", false),
            ("X-Couch-Request-ID", "x", false),
        ] {
            let rendered =
                Rendered::parse(json(&format!(r#"{{"headers":{{"{name}":"{value}"}}}}"#)).value(), StatusCode::OK);
            let headers = rendered.map(|rendered| rendered.headers).unwrap_or_default();
            assert_eq!(headers.contains_key(name), is_kept, "{name}: {value}");
        }
        let numbered = Rendered::parse(json(r#"{"headers":{"X-N":5,"Content-Length":9}}"#).value(), StatusCode::OK);
        let headers = numbered.map(|rendered| rendered.headers).unwrap_or_default();
        assert_eq!((&headers["x-n"], headers.contains_key(header::CONTENT_LENGTH)), (&HeaderValue::from(5), false));
    }

    #[test]
    fn members_receive_no_source_of_a_design_document() {
        let member = Reader::Member(settee_database::Member::new(Some("eve"), []));
        for (name, is_hidden) in [("compilation_error", true), ("forbidden", false)] {
            let error = || Error::new(StatusCode::BAD_REQUEST, name, "function (doc) {");
            let reason = |user: &Reader| error_for(user, error()).reason.to_string();
            assert_eq!(reason(&Reader::Administrator), "function (doc) {");
            assert_eq!(reason(&member) == "function (doc) {", !is_hidden, "{name}");
        }
    }

    #[test]
    fn other_objects_are_refused() {
        let refused =
            |text: &str| Rendered::parse(json(text).value(), StatusCode::OK).map_err(|error| show(&error)).err();
        let table = [
            r#"{"other":1}"#,
            r#"{"code":""}"#,
            r#"{"code":"99"}"#,
            r#"{"code":"+404"}"#,
            r#"{"code":"4040"}"#,
            r#"{"code":"Not Found"}"#,
            r#"{"code":null}"#,
            r#"{"code":[404]}"#,
            r#"{"code":404.5}"#,
            r#"{"code":99}"#,
            r#"{"body":1}"#,
            r#"{"body":null}"#,
            r#"{"body":["a",1]}"#,
            r#"{"base64":"%"}"#,
            r#"{"headers":[]}"#,
            r#"{"headers":{"a b":"c"}}"#,
            r#"{"headers":{"a":"b\nc"}}"#,
        ];
        for text in table {
            let error = refused(text).unwrap_or_default();
            assert!(
                error.starts_with("500 external_response_error: Invalid data from external server: "),
                "{text}: {error}"
            );
        }
    }
}
