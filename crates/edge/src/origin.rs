//! The origin (scheme and host) of this server from the view of the client. No authorization depends on it.

use std::net::IpAddr;

use hyper::HeaderMap;
use hyper::header::{self, HeaderName};

use settee_settings::{Key, Settings, chttpd, key::Text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}

impl Scheme {
    pub fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Self::Http, Self::Https].into_iter().find(|scheme| scheme.name() == name)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// 127.0.0.1 for a Unix socket, the address of the client behind trusted proxies.
    pub ip: IpAddr,
    pub scheme: Scheme,
}

/// Headers with the original host and scheme (`[chttpd] x_forwarded_host`, `x_forwarded_ssl`, `x_forwarded_proto`).
#[derive(Clone, Debug)]
pub struct Forwarded {
    host: Option<HeaderName>,
    ssl: Option<HeaderName>,
    proto: Option<HeaderName>,
}

impl Forwarded {
    pub fn of(settings: &dyn Settings) -> Self {
        // No request can contain an invalid header name.
        let name = |key: &Key<Text>| key.of(settings).trim().parse().ok();
        Self {
            host: name(&chttpd::X_FORWARDED_HOST),
            ssl: name(&chttpd::X_FORWARDED_SSL),
            proto: name(&chttpd::X_FORWARDED_PROTO),
        }
    }

    /// Returns scheme and host, such as `https://example.com`, of a request that was received over `scheme`.
    pub fn origin(&self, headers: &HeaderMap, scheme: Scheme) -> String {
        let is_encrypted =
            forwarded_value(headers, &self.ssl) == Some("on") || forwarded_value(headers, &self.proto) == Some("https");
        let scheme = if is_encrypted { Scheme::Https } else { scheme };
        format!("{}://{}", scheme.name(), self.host(headers).unwrap_or("localhost"))
    }

    pub fn host<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        forwarded_value(headers, &self.host).or(headers.get(header::HOST).and_then(|value| value.to_str().ok()))
    }
}

fn forwarded_value<'a>(headers: &'a HeaderMap, name: &Option<HeaderName>) -> Option<&'a str> {
    headers.get(name.as_ref()?)?.to_str().ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::tests::Values;

    #[test]
    fn proxies_report_the_original_request() {
        let check = |settings: &[&str], sent: &[(&str, &str)], expected: &str| {
            let mut headers = HeaderMap::new();
            for (name, value) in sent {
                headers.insert(name.parse::<HeaderName>().unwrap(), value.parse().unwrap());
            }
            let forwarded = Forwarded::of(&Values::of(settings));
            assert_eq!(forwarded.origin(&headers, Scheme::Http), expected, "{settings:?} {sent:?}");
        };
        check(&[], &[], "http://localhost");
        check(&[], &[("host", "a:5984")], "http://a:5984");
        check(&[], &[("host", "a"), ("x-forwarded-host", "b.org")], "http://b.org");
        check(&[], &[("host", "a"), ("x-forwarded-host", "")], "http://a");
        check(&[], &[("host", "a"), ("x-forwarded-proto", "https")], "https://a");
        check(&[], &[("host", "a"), ("x-forwarded-proto", "gopher")], "http://a");
        check(&[], &[("host", "a"), ("x-forwarded-ssl", "on")], "https://a");
        check(&[], &[("host", "a"), ("x-forwarded-ssl", "off")], "http://a");
        check(&["chttpd/x_forwarded_host=X-Host"], &[("x-host", "b"), ("x-forwarded-host", "c")], "http://b");
        check(&["chttpd/x_forwarded_proto=X-P"], &[("host", "a"), ("x-p", "https")], "https://a");
        check(&["chttpd/x_forwarded_ssl=not a name"], &[("host", "a"), ("x-forwarded-ssl", "on")], "http://a");
        let encrypted = Forwarded::of(&Values::default()).origin(&HeaderMap::new(), Scheme::Https);
        assert_eq!(encrypted, "https://localhost");
    }
}
