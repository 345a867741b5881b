//! [`Endpoint`]: where a database is, and what is needed to reach it.
//!
//! `Display` and `Debug` never show credentials: neither those of the URL, nor headers, nor the `auth` object.

use std::borrow::Cow;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use settee_model::base64;
use settee_model::json::Value;

/// The characters that may stay as they are in a segment of a path or in a value of a query.
pub(crate) const COMPONENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The place of a database.
#[derive(Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Reached by a URL.
    Remote(Remote),
    /// A database of this server.
    Local(Local),
}

/// A database behind a URL.
#[derive(Clone, PartialEq, Eq)]
pub struct Remote {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Name or address (in brackets if of version 6), as written.
    pub host: String,
    /// The port, also if it was not written.
    pub port: u16,
    /// The path and query behind the host, as CouchDB completes it: ends with `/` unless there is a query.
    pub path: String,
    /// The URL as it was written, without credentials and with that slash.
    pub url: String,
    /// Additional headers by name, without `Authorization: Basic`, which became [`Auth`].
    pub headers: Vec<(String, String)>,
    /// The credentials.
    pub auth: Auth,
    /// The URL of a proxy, perhaps with credentials: `http`, `https` or `socks5`.
    pub proxy: Option<String>,
    /// The user that asked for the replication: not everybody may have this server connect to its own network.
    pub user: User,
}

/// A database of this server.
#[derive(Clone, PartialEq, Eq)]
pub struct Local {
    /// The name of the database.
    pub name: String,
    /// The user that reads and writes there: the one who asked for the replication.
    pub user: User,
}

/// A user of this server, in the words of `user_ctx`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name; nobody in particular without.
    pub name: Option<String>,
    /// The roles.
    pub roles: Roles,
}

/// The roles of a [`User`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Roles {
    /// These.
    Given(Vec<String>),
    /// Those that the account of the name has at the time of each exchange.
    OfAccount,
}

impl Default for Roles {
    fn default() -> Self {
        Self::Given(Vec::new())
    }
}

impl Roles {
    /// Those that were given.
    #[must_use]
    pub fn given(&self) -> &[String] {
        match self {
            Self::Given(roles) => roles,
            Self::OfAccount => &[],
        }
    }
}

/// Credentials.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Auth {
    /// None.
    #[default]
    None,
    /// A name and a password. A session (cookie) is tried first where the peer has `_session`, as CouchDB does.
    Basic {
        /// The name.
        username: String,
        /// The password.
        password: String,
    },
}

/// The fault of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// There is none.
    #[error("Missing replicator database")]
    Missing,
    /// The URL is none, or none of `http` and `https`.
    #[error("endpoint has an invalid url")]
    InvalidUrl,
    /// The URL of the proxy.
    #[error("proxy has an invalid url")]
    InvalidProxy,
    /// Headers that are no object of strings.
    #[error("endpoint has invalid headers")]
    InvalidHeaders,
    /// An `auth` object that is not understood.
    #[error("endpoint has an invalid auth object")]
    InvalidAuth,
}

impl Endpoint {
    /// Who asked for the replication.
    pub(crate) fn user_mut(&mut self) -> &mut User {
        match self {
            Self::Remote(Remote { user, .. }) | Self::Local(Local { user, .. }) => user,
        }
    }

    /// Takes the `source` or `target` of a replication: a URL, a bare name, or an object with `url`, `headers` and `auth`.
    ///
    /// # Errors
    /// The fault.
    pub fn parse(value: Option<Value<'_>>, proxy: Option<&str>, user: &User) -> Result<Self, EndpointError> {
        let value = value.filter(|value| !value.is_null()).ok_or(EndpointError::Missing)?;
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
        // Something with a scheme that is not spoken here is a bad URL and no name.
        if name.is_empty() || name.contains("://") {
            return Err(EndpointError::InvalidUrl);
        }
        Ok(Self::Local(Local { name: name.to_owned(), user: user.clone() }))
    }

    /// The URI of the database itself without the slash at its end: `http://host:5984/db`, or `/db` for local ones.
    #[must_use]
    pub fn database_uri(&self) -> String {
        match self {
            Self::Remote(remote) => remote.url.split('?').next().unwrap_or_default().trim_end_matches('/').to_owned(),
            Self::Local(local) => format!("/{}", utf8_percent_encode(&local.name, COMPONENT)),
        }
    }

    /// The URI of the server: `http://host:5984`, or nothing for local ones. A proxy that puts databases below a path keeps
    /// its path.
    #[must_use]
    pub fn server_uri(&self) -> String {
        let database = self.database_uri();
        // What is no database but a server has nothing behind its host.
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
    /// The database of this name, where this is the URL of its server.
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
    /// Host and port as written.
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
    // A password may hold an unescaped @.
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

/// Headers in the order in which they enter into ids, and the credentials of a basic authorization, which stands among them no
/// longer, even where it cannot be decoded.
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
    // CouchDB then passes them through a container that sorts names without case.
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
