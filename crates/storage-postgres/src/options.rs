//! [`Options`]: location of the database and parameters of connections, parsed from a URL.

use std::path::PathBuf;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

const DEFAULT_SCHEMA: &str = "settee";

const NAME_BYTES_MAX: usize = 63;

pub const CONNECTIONS: usize = 50;

/// Minimum number of connections with which readers and writers do not block each other.
pub const CONNECTIONS_MIN: usize = 8;

/// After this time the next host is tried.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Approximate time after which the loss of the remote machine is detected, on busy and idle connections.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verification {
    /// Protects against passive eavesdropping only.
    AnyCertificate,
    /// A certificate for the host name, issued by an authority of this file, or else by a public one.
    Verified(Option<PathBuf>),
}

#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) config: Config,
    pub(crate) schema: String,
    pub(crate) verification: Verification,
    pub(crate) connections: usize,
    pub(crate) layout: i64,
}

impl Options {
    /// Parses a URL such as `postgres://user:password@host1,host2/database?sslmode=verify-full`. In addition to the
    /// parameters of PostgreSQL's own programs, `schema` names the schema of the tables. The message of an error does
    /// not contain the password.
    pub fn parse(url: &str) -> Result<Self, String> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err("it does not start with postgres://".to_owned());
        }
        let (address, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut schema, mut mode, mut authorities) = (DEFAULT_SCHEMA.to_owned(), "prefer".to_owned(), None);
        let mut others = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("schema", name)) => name.clone_into(&mut schema),
                Some(("sslmode", name)) => name.clone_into(&mut mode),
                Some(("sslrootcert", path)) => authorities = Some(PathBuf::from(percent_decoded(path)?)),
                _ => others.push(pair),
            }
        }
        check_name(&schema)?;
        let rest = if others.is_empty() { address.to_owned() } else { format!("{address}?{}", others.join("&")) };
        let mut config: Config = rest.parse().map_err(|error: tokio_postgres::Error| describe(&error))?;
        let verification = match (mode.as_str(), authorities) {
            ("disable" | "prefer" | "require", None) => Verification::AnyCertificate,
            // A file of authorities enables verification, as in PostgreSQL's own library.
            ("require" | "verify-full", authorities) => Verification::Verified(authorities),
            ("disable" | "prefer", Some(_)) => {
                return Err("sslrootcert requires sslmode=require or verify-full".to_owned());
            }
            _ => return Err(format!("invalid sslmode {mode}: it must be disable, prefer, require or verify-full")),
        };
        // Connections over a local socket need no encryption.
        let is_local = !config.get_hosts().is_empty() && config.get_hosts().iter().all(is_socket);
        config.ssl_mode(match mode.as_str() {
            _ if is_local => SslMode::Disable,
            "disable" => SslMode::Disable,
            "prefer" => SslMode::Prefer,
            _ => SslMode::Require,
        });
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("settee");
        }
        // Of several hosts, the one that accepts writes, because a standby may return outdated data.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        // An explicit value has priority. The default of the library is two hours.
        if config.get_keepalives_idle() == Config::new().get_keepalives_idle() {
            config.keepalives_idle(KEEPALIVE_IDLE);
        }
        if config.get_keepalives_interval().is_none() {
            config.keepalives_interval(KEEPALIVE_INTERVAL);
        }
        if config.get_tcp_user_timeout().is_none() {
            config.tcp_user_timeout(TCP_USER_TIMEOUT);
        }
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err("it contains no host".to_owned());
        }
        Ok(Self { config, schema, verification, connections: CONNECTIONS, layout: 0 })
    }

    /// Has no effect if the URL contains a password.
    #[must_use]
    pub fn with_password(mut self, password: &str) -> Self {
        if self.config.get_password().is_none() {
            self.config.password(password);
        }
        self
    }

    /// Uses at least [`CONNECTIONS_MIN`].
    #[must_use]
    pub fn with_connections(mut self, connections: usize) -> Self {
        self.connections = connections.max(CONNECTIONS_MIN);
        self
    }

    /// Sets the layout of entries that the caller writes. Data of a later layout are rejected, those of an earlier one
    /// are marked with the new layout.
    #[must_use]
    pub fn with_layout(mut self, layout: u32) -> Self {
        self.layout = i64::from(layout);
        self
    }

    pub(crate) fn hosts(&self) -> Vec<Config> {
        let (hosts, addresses) = (self.config.get_hosts(), self.config.get_hostaddrs());
        let ports = self.config.get_ports();
        let one = |at: usize| {
            let mut config = self.without_host();
            match hosts.get(at) {
                Some(Host::Tcp(name)) => {
                    config.host(name);
                }
                #[cfg(unix)]
                Some(Host::Unix(path)) => {
                    config.host_path(path);
                }
                None => {}
            }
            if let Some(address) = addresses.get(at) {
                config.hostaddr(*address);
            }
            if let Some(port) = ports.get(at).or(ports.first()) {
                config.port(*port);
            }
            config
        };
        (0..hosts.len().max(addresses.len())).map(one).collect()
    }

    fn without_host(&self) -> Config {
        let (all, mut config) = (&self.config, Config::new());
        config.ssl_mode(all.get_ssl_mode()).ssl_negotiation(all.get_ssl_negotiation());
        config.keepalives(all.get_keepalives()).keepalives_idle(all.get_keepalives_idle());
        config.channel_binding(all.get_channel_binding()).target_session_attrs(all.get_target_session_attrs());
        if let Some(name) = all.get_user() {
            config.user(name);
        }
        if let Some(password) = all.get_password() {
            config.password(password);
        }
        if let Some(name) = all.get_dbname() {
            config.dbname(name);
        }
        if let Some(options) = all.get_options() {
            config.options(options);
        }
        if let Some(name) = all.get_application_name() {
            config.application_name(name);
        }
        if let Some(timeout) = all.get_connect_timeout() {
            config.connect_timeout(*timeout);
        }
        if let Some(timeout) = all.get_tcp_user_timeout() {
            config.tcp_user_timeout(*timeout);
        }
        if let Some(interval) = all.get_keepalives_interval() {
            config.keepalives_interval(interval);
        }
        if let Some(retries) = all.get_keepalives_retries() {
            config.keepalives_retries(retries);
        }
        config
    }

    /// Contains no secrets.
    #[must_use]
    pub fn location(&self) -> String {
        let host = |host: &Host| match host {
            Host::Tcp(name) => name.clone(),
            #[cfg(unix)]
            Host::Unix(path) => path.display().to_string(),
        };
        let hosts: Vec<String> = self.config.get_hosts().iter().map(host).collect();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or_default();
        format!("database {database} on {}, schema {}", hosts.join(", "), self.schema)
    }
}

#[cfg(unix)]
fn is_socket(host: &Host) -> bool {
    matches!(host, Host::Unix(_))
}

#[cfg(not(unix))]
fn is_socket(_host: &Host) -> bool {
    false
}

fn describe(error: &tokio_postgres::Error) -> String {
    use std::error::Error as _;
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {cause}"))
}

/// Names of schemas are part of statements.
fn check_name(name: &str) -> Result<(), String> {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    let has_valid_start = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if is_plain && has_valid_start && name.len() <= NAME_BYTES_MAX && !name.starts_with("pg_") {
        return Ok(());
    }
    Err(format!(
        "invalid schema name {name:?}: it must consist of lowercase letters, digits and _, and not start with a digit or pg_"
    ))
}

fn percent_decoded(text: &str) -> Result<String, String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, remainder)) = rest.split_first() {
        rest = remainder;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(value.ok_or_else(|| format!("{text:?} has a % that is not followed by two hexadecimal digits"))?);
        rest = &rest[2..];
    }
    String::from_utf8(bytes).map_err(|_| format!("{text:?} is not valid UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        let verified = |path: &str| Verification::Verified(Some(path.into()));
        let rows: [(&str, &str, Verification); 6] = [
            ("postgres://u@h/d", "database d on h, schema settee", Verification::AnyCertificate),
            (
                "postgresql://u:secret@h1,h2:5433/d?schema=other",
                "database d on h1, h2, schema other",
                Verification::AnyCertificate,
            ),
            ("postgres://u@%2Frun%2Fpg/d", "database d on /run/pg, schema settee", Verification::AnyCertificate),
            ("postgres://u@h/d?sslmode=verify-full", "database d on h, schema settee", Verification::Verified(None)),
            ("postgres://u@h?sslmode=require&sslrootcert=/a%20b", "database u on h, schema settee", verified("/a b")),
            (
                "postgres://u@h/d?connect_timeout=9&sslmode=disable",
                "database d on h, schema settee",
                Verification::AnyCertificate,
            ),
        ];
        for (url, location, verification) in rows {
            let options = Options::parse(url).expect(url);
            assert_eq!(options.location(), location, "{url}");
            assert_eq!(options.verification, verification, "{url}");
            assert_eq!(options.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite, "{url}");
            let hosts = options.hosts();
            let names: Vec<_> = hosts.iter().flat_map(Config::get_hosts).cloned().collect();
            assert_eq!(names, options.config.get_hosts(), "{url}");
            assert!(hosts.len() > 1 || hosts[0] == options.config, "{url}");
            assert!(hosts.iter().all(|host| host.get_password() == options.config.get_password()), "{url}");
        }
    }

    #[test]
    fn errors_do_not_contain_the_password() {
        let rows = [
            ("mysql://u@h/d", "it does not start with postgres://"),
            ("postgres://u:secret@h/d?schema=Robert'); --", "invalid schema name"),
            ("postgres://u:secret@h/d?schema=pg_catalog", "invalid schema name"),
            ("postgres://u:secret@h/d?sslmode=verify-ca", "invalid sslmode verify-ca"),
            ("postgres://u:secret@h/d?sslmode=prefer&sslrootcert=/x", "sslrootcert requires"),
            ("postgres://u:secret@h/d?sslmode=require&sslrootcert=%2", "\"%2\" has a %"),
            ("postgres://u:secret@h/d?nonsense=1", "invalid connection string: unknown option"),
            ("postgres:///d", "it contains no host"),
        ];
        for (url, wanted) in rows {
            let found = Options::parse(url).expect_err(url);
            assert!(found.starts_with(wanted) && !found.contains("secret"), "{url}: {found}");
        }
    }

    #[test]
    fn the_separate_password_applies_if_the_url_has_none() {
        for (url, wanted) in [("postgres://u@h/d", "separate"), ("postgres://u:within@h/d", "within")] {
            let options = Options::parse(url).expect(url).with_password("separate");
            assert_eq!(options.config.get_password(), Some(wanted.as_bytes()), "{url}");
        }
    }
}
