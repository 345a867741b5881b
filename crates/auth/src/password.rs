//! [`PasswordHash`]: passwords as CouchDB stores them in `[admins]`. Where they are stored is not this module's business.
//!
//! | text | since | meaning |
//! |---|---|---|
//! | `-pbkdf2:sha256-<hex>,<salt>,<iterations>` | 3.4 | PBKDF2 with HMAC-SHA-256; `sha`, `sha224`, `sha384`, `sha512` likewise |
//! | `-pbkdf2-<hex>,<salt>,<iterations>` | 1.3 | PBKDF2 with HMAC-SHA-1 |
//! | `-hashed-<hex>,<salt>` | 1.0 | SHA-1 of password and salt |
//!
//! The salt is used as the text it is, also when it looks like hexadecimal digits. Anything else is a password in plain text.

use crate::hex;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};
use std::num::NonZeroU32;
use subtle::ConstantTimeEq;

/// Why a text is not a password hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    /// It is a password in plain text: hash it with [`hash_password`].
    #[error("the password is not hashed")]
    Plain,
    /// It begins like a hash but is damaged: no password can match. Never to be taken for plain text.
    #[error("the password hash is damaged")]
    Damaged,
}

/// Pseudo-random functions of PBKDF2, by CouchDB's names (`[chttpd_auth] pbkdf2_prf`).
const PRFS: [(&str, Prf); 6] = [
    ("-pbkdf2-", Prf::Sha1),
    ("-pbkdf2:sha-", Prf::Sha1),
    ("-pbkdf2:sha224-", Prf::Sha224),
    ("-pbkdf2:sha256-", Prf::Sha256),
    ("-pbkdf2:sha384-", Prf::Sha384),
    ("-pbkdf2:sha512-", Prf::Sha512),
];

const SIMPLE_PREFIX: &str = "-hashed-";

/// A stored password hash that passwords can be verified against.
#[derive(Clone)]
pub struct PasswordHash {
    expected: Vec<u8>,
    salt: String,
    scheme: Scheme,
}

impl PasswordHash {
    /// Reads a hash in one of CouchDB's formats.
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

    /// Whether `password` is the one. Takes as long as its iterations do; the comparison itself takes the same time wherever the
    /// two differ.
    pub fn verify(&self, password: &[u8]) -> bool {
        let mut actual = vec![0; self.expected.len()];
        match self.scheme {
            Scheme::Simple => actual.copy_from_slice(&simple(password, &self.salt)),
            Scheme::Pbkdf2 { prf, iterations } => prf.derive(password, &self.salt, iterations, &mut actual),
        }
        actual.ct_eq(&self.expected).into()
    }
}

impl std::fmt::Debug for PasswordHash {
    /// Shows the scheme only: hashes are secrets too.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("PasswordHash").field("scheme", &self.scheme).finish_non_exhaustive()
    }
}

/// Whether `text` has one of the prefixes of a hash. CouchDB leaves such values of `[admins]` alone and hashes all others.
pub fn is_hashed(text: &str) -> bool {
    text.starts_with(SIMPLE_PREFIX) || PRFS.iter().any(|(prefix, _)| text.starts_with(prefix))
}

/// Hashes `password` as CouchDB 3.4 and later do: PBKDF2 with HMAC-SHA-256. `salt` should be 32 fresh random hexadecimal
/// digits; it must not contain a comma, which separates the parts.
pub fn hash_password(password: &str, salt: &str, iterations: NonZeroU32) -> String {
    debug_assert!(!salt.is_empty() && !salt.contains(','), "a salt that cannot be read back");
    let mut derived = [0; 32];
    Prf::Sha256.derive(password.as_bytes(), salt, iterations, &mut derived);
    format!("-pbkdf2:sha256-{},{salt},{iterations}", hex::encode(&derived))
}

#[derive(Clone, Copy, Debug)]
enum Scheme {
    Simple,
    Pbkdf2 { prf: Prf, iterations: NonZeroU32 },
}

#[derive(Clone, Copy, Debug)]
enum Prf {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

impl Prf {
    fn output_len(self) -> usize {
        match self {
            Prf::Sha1 => 20,
            Prf::Sha224 => 28,
            Prf::Sha256 => 32,
            Prf::Sha384 => 48,
            Prf::Sha512 => 64,
        }
    }

    fn derive(self, password: &[u8], salt: &str, iterations: NonZeroU32, out: &mut [u8]) {
        let (salt, rounds) = (salt.as_bytes(), iterations.get());
        match self {
            Prf::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, rounds, out),
            Prf::Sha224 => pbkdf2::pbkdf2_hmac::<Sha224>(password, salt, rounds, out),
            Prf::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, rounds, out),
            Prf::Sha384 => pbkdf2::pbkdf2_hmac::<Sha384>(password, salt, rounds, out),
            Prf::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, rounds, out),
        }
    }
}

fn simple(password: &[u8], salt: &str) -> [u8; 20] {
    Sha1::new().chain_update(password).chain_update(salt.as_bytes()).finalize().into()
}

fn parse_simple(rest: &str) -> Option<PasswordHash> {
    let (hash, salt) = rest.split_once(',')?;
    let expected = hex::decode(hash).filter(|bytes| bytes.len() == 20)?;
    Some(PasswordHash { expected, salt: salt.to_owned(), scheme: Scheme::Simple })
}

fn parse_pbkdf2(prf: Prf, rest: &str) -> Option<PasswordHash> {
    let mut parts = rest.split(',');
    let (hash, salt, iterations) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let expected = hex::decode(hash).filter(|bytes| bytes.len() == prf.output_len())?;
    let scheme = Scheme::Pbkdf2 { prf, iterations: iterations.parse().ok()? };
    Some(PasswordHash { expected, salt: salt.to_owned(), scheme })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
