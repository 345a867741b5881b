//! [`PasswordHash`]: a password as CouchDB stores it in `[admins]`.
//!
//! | text | since | meaning |
//! |---|---|---|
//! | `-pbkdf2:sha256-<hex>,<salt>,<iterations>` | 3.4 | PBKDF2 with HMAC-SHA-256; `sha`, `sha224`, `sha384`, `sha512` likewise |
//! | `-pbkdf2-<hex>,<salt>,<iterations>` | 1.3 | PBKDF2 with HMAC-SHA-1 |
//! | `-hashed-<hex>,<salt>` | 1.0 | SHA-1 of password and salt |
//!
//! The salt is used as text, even if it consists of hexadecimal digits. All other texts are plain-text passwords.

use crate::algorithm::Algorithm;
use data_encoding::{HEXLOWER, HEXLOWER_PERMISSIVE};
use sha1::{Digest, Sha1};
use std::num::NonZeroU32;
use subtle::ConstantTimeEq;

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// A plain-text password, which [`hash_password`] can hash.
    #[error("the password is not hashed")]
    Plain,
    /// The text has the prefix of a hash but is damaged: no password can match. It must not be treated as plain text.
    #[error("the password hash is damaged")]
    Damaged,
}

/// Prefixes of PBKDF2 hashes by pseudo-random function (`[chttpd_auth] pbkdf2_prf`).
const PRFS: [(&str, Algorithm); 6] = [
    ("-pbkdf2-", Algorithm::Sha1),
    ("-pbkdf2:sha-", Algorithm::Sha1),
    ("-pbkdf2:sha224-", Algorithm::Sha224),
    ("-pbkdf2:sha256-", Algorithm::Sha256),
    ("-pbkdf2:sha384-", Algorithm::Sha384),
    ("-pbkdf2:sha512-", Algorithm::Sha512),
];

const SIMPLE_PREFIX: &str = "-hashed-";

#[derive(Clone)]
pub struct PasswordHash {
    expected: Vec<u8>,
    salt: String,
    scheme: Scheme,
}

impl PasswordHash {
    pub fn parse(text: &str) -> Result<PasswordHash, HashError> {
        if let Some(rest) = text.strip_prefix(SIMPLE_PREFIX) {
            return parse_simple(rest).ok_or(HashError::Damaged);
        }
        for (prefix, prf) in PRFS {
            if let Some(rest) = text.strip_prefix(prefix) {
                return parse_pbkdf2(prf, rest).ok_or(HashError::Damaged);
            }
        }
        Err(HashError::Plain)
    }

    pub fn verify(&self, password: &[u8]) -> bool {
        let mut actual = vec![0; self.expected.len()];
        match self.scheme {
            Scheme::Simple => actual.copy_from_slice(&simple(password, &self.salt)),
            Scheme::Pbkdf2 { prf, iterations } => prf.derive(password, &self.salt, iterations, &mut actual),
            Scheme::SimplePbkdf2 { prf, iterations } => {
                let simple = HEXLOWER.encode(&simple(password, &self.salt));
                prf.derive(simple.as_bytes(), &self.salt, iterations, &mut actual);
            }
        }
        actual.ct_eq(&self.expected).into()
    }

    pub(crate) fn of_simple(password_sha: &str, salt: &str) -> Option<PasswordHash> {
        let expected = HEXLOWER_PERMISSIVE
            .decode(password_sha.as_bytes())
            .ok()
            .filter(|bytes| bytes.len() == Algorithm::Sha1.output_len())?;
        Some(PasswordHash { expected, salt: salt.to_owned(), scheme: Scheme::Simple })
    }

    /// Creates a hash of the schemes `pbkdf2` and `simple+pbkdf2` from members of a user document.
    pub(crate) fn of_derived(
        derived_key: &str,
        salt: &str,
        prf: Algorithm,
        iterations: NonZeroU32,
        over: HashInput,
    ) -> Option<PasswordHash> {
        let expected =
            HEXLOWER_PERMISSIVE.decode(derived_key.as_bytes()).ok().filter(|bytes| bytes.len() == prf.output_len())?;
        let scheme = match over {
            HashInput::Password => Scheme::Pbkdf2 { prf, iterations },
            HashInput::SimpleHash => Scheme::SimplePbkdf2 { prf, iterations },
        };
        Some(PasswordHash { expected, salt: salt.to_owned(), scheme })
    }

    pub(crate) fn salt(&self) -> &str {
        &self.salt
    }

    pub(crate) fn iterations(&self) -> Option<NonZeroU32> {
        match self.scheme {
            Scheme::Simple => None,
            Scheme::Pbkdf2 { iterations, .. } | Scheme::SimplePbkdf2 { iterations, .. } => Some(iterations),
        }
    }

    pub(crate) fn is_made_by(&self, hashing: &Hashing) -> bool {
        match (self.scheme, hashing.scheme) {
            (Scheme::Simple, NewScheme::Simple) => true,
            (Scheme::Pbkdf2 { prf, iterations }, NewScheme::Pbkdf2) => {
                (prf, iterations) == (hashing.prf, hashing.iterations)
            }
            _ => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HashInput {
    Password,
    SimpleHash,
}

/// Scheme of new passwords (`[chttpd_auth] password_scheme`, `pbkdf2_prf` and `iterations`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hashing {
    pub scheme: NewScheme,
    pub prf: Algorithm,
    pub iterations: NonZeroU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewScheme {
    /// SHA-1 of password and salt, for compatibility with old peers only.
    Simple,
    Pbkdf2,
}

impl Hashing {
    /// Returns hexadecimal text. Deliberately slow.
    #[must_use]
    pub fn hash(&self, password: &[u8], salt: &str) -> String {
        match self.scheme {
            NewScheme::Simple => HEXLOWER.encode(&simple(password, salt)),
            NewScheme::Pbkdf2 => {
                let mut derived = vec![0; self.prf.output_len()];
                self.prf.derive(password, salt, self.iterations, &mut derived);
                HEXLOWER.encode(&derived)
            }
        }
    }
}

impl std::fmt::Debug for PasswordHash {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PasswordHash").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// Returns true if `text` has the prefix of a hash. CouchDB keeps such values of `[admins]` and hashes all others.
pub fn is_hashed(text: &str) -> bool {
    text.starts_with(SIMPLE_PREFIX) || PRFS.iter().any(|(prefix, _)| text.starts_with(prefix))
}

/// Hashes as CouchDB 3.4 and later: PBKDF2 with HMAC-SHA-256. `salt` should be 32 random hexadecimal digits. Panics if
/// `salt` is empty or contains a comma, which separates the parts.
pub fn hash_password(password: &str, salt: &str, iterations: NonZeroU32) -> String {
    assert!(!salt.is_empty() && !salt.contains(','), "a salt that cannot be read back");
    let mut derived = [0; 32];
    Algorithm::Sha256.derive(password.as_bytes(), salt, iterations, &mut derived);
    format!("-pbkdf2:sha256-{},{salt},{iterations}", HEXLOWER.encode(&derived))
}

#[derive(Clone, Copy, Debug)]
enum Scheme {
    Simple,
    Pbkdf2 {
        prf: Algorithm,
        iterations: NonZeroU32,
    },
    /// PBKDF2 over the hexadecimal text of the `Simple` hash: strengthens old hashes without the password.
    SimplePbkdf2 {
        prf: Algorithm,
        iterations: NonZeroU32,
    },
}

fn simple(password: &[u8], salt: &str) -> [u8; 20] {
    Sha1::new().chain_update(password).chain_update(salt.as_bytes()).finalize().into()
}

fn parse_simple(rest: &str) -> Option<PasswordHash> {
    let (hash, salt) = rest.split_once(',')?;
    let expected = HEXLOWER_PERMISSIVE.decode(hash.as_bytes()).ok().filter(|bytes| bytes.len() == 20)?;
    Some(PasswordHash { expected, salt: salt.to_owned(), scheme: Scheme::Simple })
}

fn parse_pbkdf2(prf: Algorithm, rest: &str) -> Option<PasswordHash> {
    let mut parts = rest.split(',');
    let (hash, salt, iterations) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let expected = HEXLOWER_PERMISSIVE.decode(hash.as_bytes()).ok().filter(|bytes| bytes.len() == prf.output_len())?;
    let scheme = Scheme::Pbkdf2 { prf, iterations: iterations.parse().ok()? };
    Some(PasswordHash { expected, salt: salt.to_owned(), scheme })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
