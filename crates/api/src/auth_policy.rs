//! [`AuthPolicy`]: the settings of authentication, cached until a setting changes.

use settee_auth::jwt::{JwtAlgorithm, RequiredClaim, RolesClaim, TokenPolicy};
use settee_auth::user_document::PasswordRules;
use settee_auth::{Algorithm, LockoutMode, LockoutPolicy, LoginPolicy};
use settee_edge::proxies::TrustedProxies;
use settee_settings::{Key, Settings, chttpd, chttpd_auth, chttpd_auth_lockout, cluster, jwt_auth, key::Number};

const JWKS_FILE_FRESH_MS: u64 = 2000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handler {
    Cookie,
    /// Basic credentials, and the admin party.
    Default,
    Proxy,
    Jwt,
}

const HANDLERS: [(&str, Handler); 4] =
    [("cookie", Handler::Cookie), ("default", Handler::Default), ("proxy", Handler::Proxy), ("jwt", Handler::Jwt)];

impl Handler {
    pub(crate) fn name(self) -> &'static str {
        HANDLERS.into_iter().find(|(_, handler)| *handler == self).map_or("", |(name, _)| name)
    }

    /// Parses Erlang text such as `{chttpd_auth, cookie_authentication_handler}`. Unknown handlers are ignored.
    fn list(setting: &str) -> Vec<Handler> {
        let words = setting.split(|symbol: char| !symbol.is_ascii_alphanumeric() && symbol != '_');
        let handler = |word: &str| {
            // Old configurations use the second spelling.
            let name = word
                .strip_suffix("_authentication_handler")
                .or_else(|| word.strip_suffix("_authentification_handler"))?;
            HANDLERS.into_iter().find(|(known, _)| *known == name).map(|(_, handler)| handler)
        };
        let mut handlers = Vec::new();
        for handler in words.filter_map(handler) {
            if !handlers.contains(&handler) {
                handlers.push(handler);
            }
        }
        handlers
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anonymous {
    Accepted,
    /// Requests without credentials are refused, except for login attempts.
    Refused,
    RefusedExceptUp,
}

#[derive(Clone, Debug)]
pub(crate) struct CookiePolicy {
    pub(crate) timeout_s: u64,
    pub(crate) persistent: bool,
    pub(crate) domain: Option<String>,
    /// `None`, `Lax` or `Strict`.
    pub(crate) same_site: Option<&'static str>,
}

#[derive(Clone, Debug)]
pub(crate) struct ProxyPolicy {
    pub(crate) needs_token: bool,
    pub(crate) name_header: String,
    pub(crate) roles_header: String,
    pub(crate) token_header: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeySource {
    /// The source of the keys: a URL with the scheme `http` or `https`, or the path of a file.
    pub(crate) address: String,
    pub(crate) fresh_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct JwtPolicy {
    /// `None` if the setting of the required claims is invalid.
    pub(crate) tokens: Option<TokenPolicy>,
    pub(crate) sources: Vec<KeySource>,
}

#[derive(Clone, Debug)]
pub(crate) struct AuthPolicy {
    pub(crate) handlers: Vec<Handler>,
    pub(crate) anonymous: Anonymous,
    pub(crate) secret: Option<String>,
    pub(crate) node_secret: Option<String>,
    pub(crate) algorithms: Vec<Algorithm>,
    pub(crate) cookie: CookiePolicy,
    pub(crate) proxy: ProxyPolicy,
    pub(crate) jwt: JwtPolicy,
    pub(crate) login: LoginPolicy,
    /// Value of `WWW-Authenticate` in responses with status 401.
    pub(crate) challenge: Option<String>,
    pub(crate) redirect: String,
}

impl AuthPolicy {
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        Self {
            handlers: Handler::list(&chttpd::AUTHENTICATION_HANDLERS.of(settings)),
            anonymous: anonymous(settings),
            secret: chttpd_auth::SECRET.text(settings),
            node_secret: cluster::SECRET.text(settings),
            algorithms: Algorithm::list(&chttpd_auth::HASH_ALGORITHMS.of(settings)),
            cookie: CookiePolicy {
                timeout_s: chttpd_auth::TIMEOUT.of(settings),
                persistent: chttpd_auth::ALLOW_PERSISTENT_COOKIES.of(settings),
                domain: chttpd_auth::COOKIE_DOMAIN.text(settings),
                same_site: same_site(&chttpd_auth::SAME_SITE.of(settings)),
            },
            proxy: ProxyPolicy {
                needs_token: chttpd_auth::PROXY_USE_SECRET.of(settings),
                name_header: chttpd_auth::X_AUTH_USERNAME.of(settings),
                roles_header: chttpd_auth::X_AUTH_ROLES.of(settings),
                token_header: chttpd_auth::X_AUTH_TOKEN.of(settings),
            },
            jwt: jwt(settings),
            login: LoginPolicy {
                iterations: rounds(&chttpd_auth::MIN_ITERATIONS, settings)
                    ..=rounds(&chttpd_auth::MAX_ITERATIONS, settings),
                lockout: lockout(settings),
            },
            challenge: chttpd::WWW_AUTHENTICATE.text(settings),
            redirect: chttpd_auth::AUTHENTICATION_REDIRECT.of(settings),
        }
    }
}

/// Returns the violated rule, as the end of a sentence that starts with "must be", if the value could lock out
/// all users or admit unauthenticated clients.
#[must_use]
pub fn violation(section: &str, key: &str, value: &str) -> Option<&'static str> {
    if value.trim().is_empty() {
        return None;
    }
    let names = |is_valid: &dyn Fn(&str) -> bool| value.split(',').map(str::trim).all(is_valid);
    let (fits, wanted) = match (section, key) {
        ("chttpd", "authentication_handlers") => (
            !Handler::list(value).is_empty(),
            "a list with at least one valid handler, such as {chttpd_auth, cookie_authentication_handler}, \
             {chttpd_auth, default_authentication_handler}: otherwise no user could log in",
        ),
        ("chttpd_auth" | "couch_httpd_auth", "hash_algorithms") => {
            (names(&|name| Algorithm::named(name).is_some()), "names of sha, sha224, sha256, sha384, sha512")
        }
        ("chttpd_auth" | "couch_httpd_auth", "same_site") => (same_site(value).is_some(), "None, Lax or Strict"),
        ("chttpd_auth" | "couch_httpd_auth", "password_regexp") => (
            PasswordRules::parse(value).is_ok(),
            "a list of regular expressions, such as [\"[a-z]\", {\".{10,}\", \"At least ten characters.\"}]",
        ),
        ("chttpd" | "httpd", "trusted_proxies") => (
            TrustedProxies::parse(value).is_some(),
            "none, or addresses and ranges such as 127.0.0.1, 10.0.0.0/8, 2001:db8::/32",
        ),
        ("jwt_auth", "required_claims") => (
            value.trim() == "[]" || RequiredClaim::list(value).is_some(),
            "names of claims and pairs such as {iss, \"https://example.com\"}",
        ),
        ("jwt_auth", "allowed_algorithms") => (
            names(&|name| JwtAlgorithm::list(name.trim_matches('"')).len() == 1),
            "names of algorithms such as RS256, ES256",
        ),
        _ => return None,
    };
    (!fits).then_some(wanted)
}

fn rounds(key: &Key<Number>, settings: &dyn Settings) -> u32 {
    u32::try_from(key.of(settings)).unwrap_or(u32::MAX)
}

fn jwt(settings: &dyn Settings) -> JwtPolicy {
    let roles = match jwt_auth::ROLES_CLAIM_PATH.text(settings) {
        Some(path) => RolesClaim::path(&path),
        None => RolesClaim::Name(jwt_auth::ROLES_CLAIM_NAME.of(settings)),
    };
    // The empty value resets the key to its default, so an empty list is written as `[]`.
    let required = jwt_auth::REQUIRED_CLAIMS.of(settings);
    let required = if required.trim() == "[]" { String::new() } else { required };
    let tokens = RequiredClaim::list(&required).map(|required| TokenPolicy {
        required,
        algorithms: JwtAlgorithm::list(&jwt_auth::ALLOWED_ALGORITHMS.of(settings)),
        roles,
    });
    let refresh_ms = jwt_auth::JWKS_REFRESH.of(settings).saturating_mul(1000);
    let sources = [(&jwt_auth::JWKS_FILE, JWKS_FILE_FRESH_MS), (&jwt_auth::JWKS_URL, refresh_ms)];
    let sources = sources
        .into_iter()
        .filter_map(|(key, fresh_ms)| Some(KeySource { address: key.text(settings)?.trim().to_owned(), fresh_ms }));
    JwtPolicy { tokens, sources: sources.collect() }
}

fn lockout(settings: &dyn Settings) -> LockoutPolicy {
    let mode = match chttpd_auth_lockout::MODE.of(settings).as_str() {
        "off" => LockoutMode::Off,
        "warn" => LockoutMode::Warn,
        // Any other value enables the lockout, because the key was set deliberately.
        _ => LockoutMode::Enforce,
    };
    LockoutPolicy {
        mode,
        threshold: chttpd_auth_lockout::THRESHOLD.of(settings),
        max_lifetime_ms: chttpd_auth_lockout::MAX_LIFETIME.of(settings),
    }
}

/// Reads the switch from both sections, because CouchDB moved it from one to the other and scripts set both.
fn anonymous(settings: &dyn Settings) -> Anonymous {
    let required = chttpd::REQUIRE_VALID_USER.of(settings) || chttpd_auth::REQUIRE_VALID_USER.of(settings);
    match (chttpd::REQUIRE_VALID_USER_EXCEPT_FOR_UP.of(settings), required) {
        (true, _) => Anonymous::RefusedExceptUp,
        (false, true) => Anonymous::Refused,
        (false, false) => Anonymous::Accepted,
    }
}

fn same_site(setting: &str) -> Option<&'static str> {
    ["None", "Lax", "Strict"].into_iter().find(|known| known.eq_ignore_ascii_case(setting.trim()))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn handlers_in_their_order() {
        use Handler::{Cookie, Default, Jwt, Proxy};
        for (setting, expected) in [
            (
                "{chttpd_auth, cookie_authentication_handler}, {chttpd_auth, default_authentication_handler}",
                vec![Cookie, Default],
            ),
            (
                "{chttpd_auth,jwt_authentication_handler},{couch_httpd_auth, proxy_authentification_handler}",
                vec![Jwt, Proxy],
            ),
            ("{chttpd_auth, null_authentication_handler}", vec![]),
            ("default_authentication_handler, default_authentication_handler", vec![Default]),
            ("cookie", vec![]),
        ] {
            assert_eq!(
                violation("chttpd", "authentication_handlers", setting).is_some(),
                expected.is_empty(),
                "{setting}"
            );
            assert_eq!(Handler::list(setting), expected, "{setting}");
        }
    }

    #[test]
    fn invalid_values_are_named() {
        let check = |path: &str, value: &str, fits: bool| {
            let (section, key) = path.split_once('/').unwrap();
            assert_eq!(crate::violation(section, key, value).is_none(), fits, "[{section}] {key} = {value}");
        };
        for empty in ["", " "] {
            check("chttpd/authentication_handlers", empty, true);
        }
        check("httpd/authentication_handlers", "{couch_httpd_auth, nonsense}", true);
        check("chttpd_auth/hash_algorithms", "sha512, sha", true);
        check("chttpd_auth/hash_algorithms", "sha512, md5", false);
        check("couch_httpd_auth/same_site", "strict", true);
        check("chttpd_auth/same_site", "strickt", false);
        check("chttpd_auth/password_regexp", r#"["[a-z]"]"#, true);
        check("chttpd_auth/password_regexp", "[a-z]", false);
        check("jwt_auth/required_claims", r#"exp, {iss, "x"}"#, true);
        check("jwt_auth/required_claims", "[]", true);
        check("jwt_auth/required_claims", "{iss}", false);
        check("jwt_auth/allowed_algorithms", r#"RS256, "ES256""#, true);
        check("jwt_auth/allowed_algorithms", "RS256, none", false);
        check("chttpd/trusted_proxies", "none", true);
        check("chttpd/trusted_proxies", "192.0.2.7, 2001:db8::/32", true);
        check("chttpd/trusted_proxies", "192.0.2.7/40", false);
        check("chttpd/trusted_proxies", "proxy.example.org", false);
        check("vendor/name", "{", true);
    }

    #[test]
    fn invalid_guards_deny_access() {
        use crate::tests::live::Values;
        let policy = |setting: &str| AuthPolicy::of(&Values::of(&[setting]));
        for value in ["true", "yes", "1", "on", "TRUE", "flase"] {
            let of = |path: &str| policy(&format!("{path}={value}"));
            assert_eq!(of("chttpd/require_valid_user").anonymous, Anonymous::Refused, "{value}");
            assert_eq!(of("chttpd_auth/require_valid_user").anonymous, Anonymous::Refused, "{value}");
            assert_eq!(of("chttpd/require_valid_user_except_for_up").anonymous, Anonymous::RefusedExceptUp, "{value}");
            assert!(of("chttpd_auth/proxy_use_secret").proxy.needs_token, "{value}");
            assert_eq!(of("chttpd_auth_lockout/mode").login.lockout.mode, LockoutMode::Enforce, "{value}");
        }
        for value in ["false", ""] {
            assert_eq!(policy(&format!("chttpd/require_valid_user={value}")).anonymous, Anonymous::Accepted);
            assert!(!policy(&format!("chttpd_auth/proxy_use_secret={value}")).proxy.needs_token);
        }
        assert_eq!(policy("chttpd_auth_lockout/mode=off").login.lockout.mode, LockoutMode::Off);
    }
}
