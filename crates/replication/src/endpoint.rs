//! [`Endpoint`]: the location of a database and the parameters to reach it. `Display` and `Debug` omit the credentials
//! in URLs, headers and the `auth` object.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use settee_model::base64;
use settee_model::json::Value;

pub(crate) const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    Remote(Remote),
    Local(Local),
}

#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    pub scheme: &'static str,
    /// Host name or address as written, in brackets for IPv6.
    pub host: String,
    pub port: u16,
    /// Path and query, completed as in CouchDB: the path ends with `/` unless there is a query.
    pub path: String,
    /// The URL as written, without credentials and with the final slash of `path`.
    pub url: String,
    /// Additional headers, without `Authorization: Basic`, which [`Auth`] represents.
    pub headers: Vec<(String, String)>,
    pub auth: Auth,
    /// URL of a proxy, optionally with credentials: `http`, `https` or `socks5`.
    pub proxy: Option<String>,
    /// User that requested the replication. Not every user may make this server connect to its own network.
    pub user: User,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Local {
    pub name: String,
    pub user: User,
}

/// CouchDB's `user_ctx`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// `None` for an anonymous user.
    pub name: Option<String>,
    pub roles: Roles,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roles {
    Given(Vec<String>),
    /// Roles of the user's account at the time of each exchange.
    OfAccount,
}

impl Default for Roles {
    fn default() -> Self {
        Self::Given(Vec::new())
    }
}

impl Roles {
    #[must_use]
    pub fn given(&self) -> &[String] {
        match self {
            Self::Given(roles) => roles,
            Self::OfAccount => &[],
        }
    }
}

#[derive(Clone, Default, PartialEq, Eq)]
pub enum Auth {
    #[default]
    None,
    /// As in CouchDB, a session cookie is requested first if the peer has `_session`.
    Basic { username: String, password: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error("Missing replicator database")]
    Missing,
    #[error("endpoint has an invalid url")]
    InvalidUrl,
    #[error("proxy has an invalid url")]
    InvalidProxy,
    #[error("endpoint has invalid headers")]
    InvalidHeaders,
    #[error("endpoint has an invalid auth object")]
    InvalidAuth,
}

impl Endpoint {
    pub(crate) fn user_mut(&mut self) -> &mut User {
        match self {
            Self::Remote(Remote { user, .. }) | Self::Local(Local { user, .. }) => user,
        }
    }

    /// `value` is a URL, a bare name, or an object with `url`, `headers` and `auth`.
    pub fn parse(value: Option<Value<'_>>, proxy: Option<&str>, user: &User) -> Result<Self, EndpointError> {
        let value = value.ok_or(EndpointError::Missing)?;
        if value.is_object() {
            let url = value.get("url").and_then(Value::as_str).ok_or(EndpointError::InvalidUrl)?;
            return match is_url(&url) {
                true => Remote::parse(&url, value.get("headers"), value.get("auth"), proxy, user).map(Self::Remote),
                false => Self::local(&url, user),
            };
        }
        let text = value.as_str().ok_or(EndpointError::InvalidUrl)?;
        match is_url(&text) {
            true => Remote::parse(&text, None, None, proxy, user).map(Self::Remote),
            false => Self::local(&text, user),
        }
    }

    fn local(name: &str, user: &User) -> Result<Self, EndpointError> {
        if name.is_empty() || name.contains("://") {
            return Err(EndpointError::InvalidUrl);
        }
        Ok(Self::Local(Local { name: name.to_owned(), user: user.clone() }))
    }

    #[must_use]
    pub fn database_uri(&self) -> String {
        match self {
            Self::Remote(remote) => remote.url.split('?').next().unwrap_or_default().trim_end_matches('/').to_owned(),
            Self::Local(local) => format!("/{}", utf8_percent_encode(&local.name, COMPONENT)),
        }
    }

    /// Returns `http://host:5984`, or an empty string for local databases. Keeps the path of a proxy.
    #[must_use]
    pub fn server_uri(&self) -> String {
        let database = self.database_uri();
        let host = database.find("://").map_or(0, |scheme| scheme + 3);
        match database[host..].rfind('/') {
            Some(end) => database[..host + end].to_owned(),
            None if host > 0 => database,
            None => String::new(),
        }
    }
}

fn is_url(text: &str) -> bool {
    text.starts_with("http://") || text.starts_with("https://")
}

impl Remote {
    #[must_use]
    pub fn database(&self, name: &str) -> Self {
        let name = utf8_percent_encode(name, COMPONENT);
        let below = |url: &str| format!("{}/{name}/", url.trim_end_matches('/'));
        Self { path: below(&self.path), url: below(&self.url), ..self.clone() }
    }

    fn parse(
        url: &str,
        headers: Option<Value<'_>>,
        auth: Option<Value<'_>>,
        proxy: Option<&str>,
        user: &User,
    ) -> Result<Self, EndpointError> {
        let parts = split_url(url).ok_or(EndpointError::InvalidUrl)?;
        let (headers, from_headers) = take_headers(headers)?;
        let from_url = parts.credentials.map(|(username, password)| Auth::Basic { username, password });
        let auth = match (take_auth(auth)?, from_url, from_headers) {
            (Auth::None, Some(auth), _) | (Auth::None, None, auth) | (auth @ Auth::Basic { .. }, _, _) => auth,
        };
        if let Some(proxy) = proxy {
            let scheme = ["http://", "https://", "socks5://"].iter().any(|scheme| proxy.starts_with(scheme));
            if !scheme {
                return Err(EndpointError::InvalidProxy);
            }
        }
        let mut path = parts.path.to_owned();
        if !path.contains('?') && !path.ends_with('/') {
            path.push('/');
        }
        let shown = if path.starts_with('/') { path.clone() } else { format!("/{path}") };
        Ok(Self {
            scheme: parts.scheme,
            host: parts.host.to_owned(),
            port: parts.port,
            url: format!("{}://{}{}", parts.scheme, parts.authority, shown),
            path: shown,
            headers,
            auth,
            proxy: proxy.map(str::to_owned),
            user: user.clone(),
        })
    }
}

struct UrlParts<'a> {
    scheme: &'static str,
    credentials: Option<(String, String)>,
    authority: &'a str,
    host: &'a str,
    port: u16,
    path: &'a str,
}

fn split_url(url: &str) -> Option<UrlParts<'_>> {
    if url.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
        return None;
    }
    let (scheme, rest, default_port) = match url.split_once("://")? {
        ("http", rest) => ("http", rest, 80),
        ("https", rest) => ("https", rest, 443),
        _ => return None,
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let path = path.split('#').next().unwrap_or_default();
    let (credentials, authority) = match authority.rsplit_once('@') {
        Some((credentials, authority)) => {
            let (username, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            (Some((decode(username)?, decode(password)?)), authority)
        }
        None => (None, authority),
    };
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
        _ => (authority, default_port),
    };
    (!host.is_empty()).then_some(UrlParts { scheme, credentials, authority, host, port, path })
}

fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}

/// Returns the headers in the order in which ids contain them, and the credentials of a basic authorization header,
/// which is removed.
fn take_headers(value: Option<Value<'_>>) -> Result<(Vec<(String, String)>, Auth), EndpointError> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok((Vec::new(), Auth::None)) };
    if !value.is_object() {
        return Err(EndpointError::InvalidHeaders);
    }
    let mut auth = Auth::None;
    let mut has_authorization = false;
    let mut headers: Vec<(String, String)> = Vec::new();
    for (name, value) in value.members() {
        let (Some(name), Some(value)) = (name.as_str(), value.as_str()) else {
            return Err(EndpointError::InvalidHeaders);
        };
        let usable =
            http::HeaderName::from_bytes(name.as_bytes()).is_ok() && http::HeaderValue::from_str(&value).is_ok();
        if !usable {
            return Err(EndpointError::InvalidHeaders);
        }
        let is_authorization = name.eq_ignore_ascii_case("authorization");
        has_authorization |= is_authorization;
        match value.split_once(' ') {
            Some((scheme, encoded)) if is_authorization && scheme.eq_ignore_ascii_case("basic") => {
                auth = basic_credentials(encoded).unwrap_or_default();
            }
            _ => headers.push((name.into_owned(), value.into_owned())),
        }
    }
    headers.sort();
    // CouchDB then passes the headers through a container that sorts names case-insensitively.
    if has_authorization {
        headers.sort_by_key(|(name, _)| name.to_ascii_lowercase());
    }
    Ok((headers, auth))
}

fn basic_credentials(encoded: &str) -> Option<Auth> {
    let decoded = base64::decode(encoded.trim().as_bytes())?;
    let text = String::from_utf8(decoded).ok()?;
    let (username, password) = text.split_once(':')?;
    Some(Auth::Basic { username: username.to_owned(), password: password.to_owned() })
}

fn take_auth(value: Option<Value<'_>>) -> Result<Auth, EndpointError> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(Auth::None) };
    if !value.is_object() {
        return Err(EndpointError::InvalidAuth);
    }
    let Some(basic) = value.get("basic") else { return Ok(Auth::None) };
    let text = |name| basic.get(name).and_then(Value::as_str).map(Cow::into_owned);
    match (text("username"), text("password")) {
        (Some(username), Some(password)) => Ok(Auth::Basic { username, password }),
        _ => Err(EndpointError::InvalidAuth),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Remote(remote) => out.write_str(&remote.url),
            Self::Local(local) => out.write_str(&local.name),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Endpoint({self})")
    }
}

impl fmt::Debug for Auth {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::None => "None",
            Self::Basic { .. } => "Basic",
        })
    }
}
