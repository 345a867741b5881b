//! [`Cors`]: the rules for requests of pages of other origins.

use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};

use super::text;
use settee_edge::respond::Body;
use settee_settings::{Key, Settings, chttpd, cors, key::Text};

use crate::respond::{self, Response};

/// Response headers that pages can always read. CouchDB lists those that are present nevertheless.
const SIMPLE_HEADERS: [HeaderName; 5] =
    [header::CACHE_CONTROL, header::CONTENT_LANGUAGE, header::EXPIRES, header::LAST_MODIFIED, header::PRAGMA];

pub(super) struct Cors {
    origins: Vec<String>,
    credentials: bool,
    methods: Vec<String>,
    headers: Vec<String>,
    exposed: String,
    max_age: String,
}

impl Cors {
    pub(super) fn of(settings: &dyn Settings) -> Option<Self> {
        if !chttpd::ENABLE_CORS.of(settings) {
            return None;
        }
        let words = |key: &Key<Text>| list(&key.of(settings));
        Some(Self {
            origins: words(&cors::ORIGINS),
            credentials: cors::CREDENTIALS.of(settings),
            methods: words(&cors::METHODS),
            headers: words(&cors::HEADERS).iter().map(|name| name.to_ascii_lowercase()).collect(),
            exposed: words(&cors::EXPOSED_HEADERS).join(", ").to_ascii_lowercase(),
            max_age: cors::MAX_AGE.of(settings).to_string(),
        })
    }

    pub(super) fn knows(&self, origin: &str) -> bool {
        self.origins.iter().any(|known| known == "*" || known == origin)
    }

    pub(super) fn preflight(&self, asked: &HeaderMap) -> Option<Response> {
        let origin = text(asked, header::ORIGIN).filter(|origin| self.knows(origin))?;
        let method = text(asked, header::ACCESS_CONTROL_REQUEST_METHOD)?;
        if !self.methods.iter().any(|known| known == method) {
            return None;
        }
        let wanted = text(asked, header::ACCESS_CONTROL_REQUEST_HEADERS).unwrap_or_default();
        if !list(wanted).iter().all(|name| self.headers.contains(&name.to_ascii_lowercase())) {
            return None;
        }
        let mut response = Response::new(Body::Whole(None));
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        self.allow(origin, headers);
        respond::set(headers, header::ACCESS_CONTROL_MAX_AGE, &self.max_age);
        respond::set(headers, header::ACCESS_CONTROL_ALLOW_METHODS, &self.methods.join(", "));
        if !wanted.is_empty() {
            respond::set(headers, header::ACCESS_CONTROL_ALLOW_HEADERS, wanted);
        }
        Some(response)
    }

    pub(super) fn mark(&self, origin: Option<&str>, headers: &mut HeaderMap) {
        // A cache must not serve the response for one origin to another origin.
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if headers.contains_key(header::ACCESS_CONTROL_ALLOW_METHODS) {
            return;
        }
        let Some(origin) = origin.filter(|origin| self.knows(origin)) else { return };
        let mut exposed = "content-type".to_owned();
        for name in headers.keys().filter(|name| SIMPLE_HEADERS.contains(name)) {
            exposed.push_str(", ");
            exposed.push_str(name.as_str());
        }
        if !self.exposed.is_empty() {
            exposed.push_str(", ");
            exposed.push_str(&self.exposed);
        }
        self.allow(origin, headers);
        respond::set(headers, header::ACCESS_CONTROL_EXPOSE_HEADERS, &exposed);
    }

    fn allow(&self, origin: &str, headers: &mut HeaderMap) {
        respond::set(headers, header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if self.credentials && origin != "*" {
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
    }
}

pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
