//! [`SessionCookie`]: the value of the cookie `AuthSession` in CouchDB's format, `base64url(name ":" HEXTIME ":"
//! hmac(secret salt, name ":" HEXTIME))`. All servers with the same secret accept each other's cookies. The HTTP layer
//! adds the attributes.

use subtle::ConstantTimeEq;

use crate::algorithm::Algorithm;
use settee_model::base64;

pub const SESSION_COOKIE: &str = "AuthSession";

/// No server issued this value (`bad_request`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Malformed AuthSession cookie. Please clear your cookies.")]
pub struct MalformedCookie;

/// An unverified cookie. Its claims must not be trusted before [`SessionCookie::verify`].
#[derive(Clone, PartialEq, Eq)]
pub struct SessionCookie {
    name: String,
    time: String,
    mac: Vec<u8>,
}

impl SessionCookie {
    /// Fails if the value is not base64 of three parts.
    pub fn parse(value: &str) -> Result<SessionCookie, MalformedCookie> {
        let bytes = base64::decode_url(value).ok_or(MalformedCookie)?;
        let mut parts = bytes.splitn(3, |byte| *byte == b':');
        let mut part = || parts.next().ok_or(MalformedCookie);
        let (name, time, mac) = (part()?, part()?, part()?);
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| MalformedCookie);
        Ok(SessionCookie { name: text(name)?, time: text(time)?, mac: mac.to_vec() })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the remaining seconds of the session; `None` if it has expired or was signed with another secret or
    /// salt. `salt` is that of the user's password.
    #[must_use]
    pub fn verify(
        &self,
        secret: &[u8],
        salt: &str,
        algorithms: &[Algorithm],
        now_s: u64,
        timeout_s: u64,
    ) -> Option<u64> {
        let begun_s = u64::from_str_radix(&self.time, 16).ok()?;
        let left_s = begun_s.checked_add(timeout_s)?.checked_sub(now_s).filter(|left| *left > 0)?;
        let key = [secret, salt.as_bytes()].concat();
        let signed = |algorithm: &Algorithm| {
            let mac = algorithm.mac(&key, &[self.name.as_bytes(), b":", self.time.as_bytes()]);
            bool::from(mac.ct_eq(&self.mac))
        };
        algorithms.iter().any(signed).then_some(left_s)
    }

    #[must_use]
    pub fn issue(name: &str, secret: &[u8], salt: &str, algorithm: Algorithm, now_s: u64) -> String {
        let key = [secret, salt.as_bytes()].concat();
        let mut bytes = format!("{name}:{now_s:X}").into_bytes();
        let mac = algorithm.mac(&key, &[&bytes]);
        bytes.push(b':');
        bytes.extend_from_slice(&mac);
        base64::encode_url(&bytes)
    }
}

impl std::fmt::Debug for SessionCookie {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("SessionCookie").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    const ALL: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Sha1];

    #[test]
    fn as_couchdb_makes_them() {
        // Computed with Python: hmac.new(b"secret" + b"salt", b"ann:6553F100", …).
        for (algorithm, expected) in [
            (Algorithm::Sha256, "YW5uOjY1NTNGMTAwOnAkvulUNANMprUb54GrIRFZFPPzHeaD5Q-4DW7dMdNu"),
            (Algorithm::Sha1, "YW5uOjY1NTNGMTAwOg5aQIqdeB0rb8l64TnUoX95xCYd"),
        ] {
            let value = SessionCookie::issue("ann", b"secret", "salt", algorithm, 0x6553_f100);
            assert_eq!(value, expected);
            let cookie = SessionCookie::parse(&value).unwrap();
            assert_eq!(cookie.name(), "ann");
            assert_eq!(cookie.verify(b"secret", "salt", &ALL, 0x6553_f100, 600), Some(600));
        }
    }

    #[test]
    fn claims_that_do_not_hold() {
        let value = SessionCookie::issue("zoë", b"secret", "salt", Algorithm::Sha256, 1000);
        let cookie = SessionCookie::parse(&value).unwrap();
        assert_eq!(cookie.verify(b"secret", "salt", &ALL, 1599, 600), Some(1));
        assert_eq!(cookie.verify(b"secret", "salt", &ALL, 1600, 600), None, "over");
        assert_eq!(cookie.verify(b"secret", "other", &ALL, 1000, 600), None, "another password");
        assert_eq!(cookie.verify(b"other", "salt", &ALL, 1000, 600), None, "another server");
        assert_eq!(cookie.verify(b"secret", "salt", &ALL[1..], 1000, 600), None, "another algorithm");
        for (name, time) in [("zoe", "3E8"), ("zoë", "3E9"), ("zoë", "+3E8"), ("zoë", "x")] {
            let forged = SessionCookie { name: name.to_owned(), time: time.to_owned(), mac: cookie.mac.clone() };
            assert_eq!(forged.verify(b"secret", "salt", &ALL, 1000, 600), None, "{name} {time}");
        }
        for malformed in ["nonsense", "", "YTpi", "é", "/zo6"] {
            assert_eq!(SessionCookie::parse(malformed), Err(MalformedCookie), "{malformed}");
        }
    }
}
