//! [`Algorithm`]: hash functions of passwords and cookies, by CouchDB's names.

use std::num::NonZeroU32;

use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Sha1,
    Sha224,
    Sha256,
    Sha384,
    Sha512,
}

const NAMES: [(&str, Algorithm); 5] = [
    ("sha", Algorithm::Sha1),
    ("sha224", Algorithm::Sha224),
    ("sha256", Algorithm::Sha256),
    ("sha384", Algorithm::Sha384),
    ("sha512", Algorithm::Sha512),
];

impl Algorithm {
    #[must_use]
    pub fn named(name: &str) -> Option<Algorithm> {
        NAMES.into_iter().find(|(known, _)| *known == name).map(|(_, algorithm)| algorithm)
    }

    #[must_use]
    pub fn name(self) -> &'static str {
        NAMES.into_iter().find(|(_, algorithm)| *algorithm == self).map_or("", |(name, _)| name)
    }

    /// Parses `[chttpd_auth] hash_algorithms`: names separated by commas. The first one signs, all are accepted.
    /// Unknown names are ignored; without a valid name the result is `sha256, sha`.
    #[must_use]
    pub fn list(text: &str) -> Vec<Algorithm> {
        let known: Vec<Algorithm> = text.split(',').filter_map(|name| Algorithm::named(name.trim())).collect();
        if known.is_empty() { vec![Algorithm::Sha256, Algorithm::Sha1] } else { known }
    }

    #[must_use]
    pub fn output_len(self) -> usize {
        match self {
            Algorithm::Sha1 => 20,
            Algorithm::Sha224 => 28,
            Algorithm::Sha256 => 32,
            Algorithm::Sha384 => 48,
            Algorithm::Sha512 => 64,
        }
    }

    /// Fills `out` with a key derived by PBKDF2, which is deliberately slow.
    pub(crate) fn derive(self, password: &[u8], salt: &str, iterations: NonZeroU32, out: &mut [u8]) {
        let (salt, rounds) = (salt.as_bytes(), iterations.get());
        match self {
            Algorithm::Sha1 => pbkdf2::pbkdf2_hmac::<Sha1>(password, salt, rounds, out),
            Algorithm::Sha224 => pbkdf2::pbkdf2_hmac::<Sha224>(password, salt, rounds, out),
            Algorithm::Sha256 => pbkdf2::pbkdf2_hmac::<Sha256>(password, salt, rounds, out),
            Algorithm::Sha384 => pbkdf2::pbkdf2_hmac::<Sha384>(password, salt, rounds, out),
            Algorithm::Sha512 => pbkdf2::pbkdf2_hmac::<Sha512>(password, salt, rounds, out),
        }
    }

    pub(crate) fn mac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            Algorithm::Sha1 => mac::<Hmac<Sha1>>(key, parts),
            Algorithm::Sha224 => mac::<Hmac<Sha224>>(key, parts),
            Algorithm::Sha256 => mac::<Hmac<Sha256>>(key, parts),
            Algorithm::Sha384 => mac::<Hmac<Sha384>>(key, parts),
            Algorithm::Sha512 => mac::<Hmac<Sha512>>(key, parts),
        }
    }
}

fn mac<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = <M as KeyInit>::new_from_slice(key).expect("an HMAC key may have any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use data_encoding::HEXLOWER;

    #[test]
    fn names_and_lists() {
        for (name, algorithm) in NAMES {
            assert_eq!(Algorithm::named(name), Some(algorithm));
            assert_eq!(algorithm.name(), name);
            assert_eq!(algorithm.mac(b"k", &[b"m"]).len(), algorithm.output_len());
        }
        use Algorithm::{Sha1, Sha256, Sha512};
        for (text, expected) in [
            ("", vec![Sha256, Sha1]),
            ("md4, nonsense", vec![Sha256, Sha1]),
            ("sha", vec![Sha1]),
            (" sha512 ,sha,md4", vec![Sha512, Sha1]),
        ] {
            assert_eq!(Algorithm::list(text), expected, "{text}");
        }
    }

    #[test]
    fn codes_of_the_rfc() {
        let of =
            |algorithm: Algorithm| HEXLOWER.encode(&algorithm.mac(b"Jefe", &[b"what do ya want ", b"for nothing?"]));
        assert_eq!(of(Algorithm::Sha1), "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
        assert_eq!(of(Algorithm::Sha256), "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
