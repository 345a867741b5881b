//! [`DatabaseUrl`]: location of a database, and credentials.

use std::fmt::Write as _;

use anyhow::{bail, ensure};
use settee_model::base64;

/// `http://[user:password@]host[:port]/[prefix/]database`
#[derive(Clone, PartialEq, Eq)]
pub(super) struct DatabaseUrl {
    pub(super) authority: String,
    pub(super) authorization: Option<String>,
    pub(super) path: String,
    pub(super) name: String,
}

impl DatabaseUrl {
    pub(super) fn parse(url: &str) -> anyhow::Result<Self> {
        let Some(rest) = url.strip_prefix("http://") else {
            bail!(
                "the URL of a database must start with http://; for TLS use a tunnel, or run this command at the server"
            )
        };
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let path = path.trim_end_matches('/');
        ensure!(
            !path.is_empty() && !path.contains(['?', '#']),
            "the URL contains no database: http://host:port/database"
        );
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((credentials, place)) => (Some(credentials), place),
            None => (None, authority),
        };
        ensure!(!place.is_empty(), "the URL contains no host");
        let has_port = place.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let authorization = credentials.map(|credentials| {
            let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
            let mut value = b"Basic ".to_vec();
            base64::encode(&[&decode(user)[..], b":", &decode(password)].concat(), &mut value);
            String::from_utf8_lossy(&value).into_owned()
        });
        let name = path.rsplit('/').next().unwrap_or_default();
        Ok(Self {
            authority: if has_port { place.to_owned() } else { format!("{place}:5984") },
            authorization,
            path: format!("/{path}"),
            name: String::from_utf8_lossy(&decode(name)).into_owned(),
        })
    }
}

fn decode(text: &str) -> Vec<u8> {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        let escape = tail.get(..2).and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match (first, escape) {
            (b'%', Some(byte)) => {
                out.push(byte);
                rest = &tail[2..];
            }
            _ => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

pub fn segment(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
        out
    })
}

pub(super) fn document(id: &str) -> String {
    for prefix in ["_design/", "_local/"] {
        if let Some(name) = id.strip_prefix(prefix) {
            return format!("{prefix}{}", segment(name));
        }
    }
    segment(id)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn urls_of_databases() {
        let check = |url: &str, authority: &str, authorization: Option<&str>, path: &str, name: &str| {
            let found = DatabaseUrl::parse(url).unwrap();
            let found = (found.authority.as_str(), found.authorization.as_deref(), found.path.as_str(), &*found.name);
            assert_eq!(found, (authority, authorization, path, name), "{url}");
        };
        check("http://h/db", "h:5984", None, "/db", "db");
        check("http://ann:s%40x@h:1/a/b%2Fc/", "h:1", Some("Basic YW5uOnNAeA=="), "/a/b%2Fc", "b/c");
        check("http://[::1]:5984/db", "[::1]:5984", None, "/db", "db");
        for wrong in ["https://h/db", "h/db", "http://h", "http://h/", "http:///db", "http://h/db?x=1"] {
            assert!(DatabaseUrl::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn paths_of_documents() {
        assert_eq!(document("a/b ü"), "a%2Fb%20%C3%BC");
        assert_eq!(document("_design/x/y"), "_design/x%2Fy");
        assert_eq!(document("_local/é"), "_local/%C3%A9");
    }
}
