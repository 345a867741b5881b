//! [`Verified`]: which credentials were verified before, so that a deliberately slow derivation happens once per process and
//! not once per request. It never holds a password, nor anything that could be tested offline without the process's key, and
//! never a refusal.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::collections::HashSet;

/// Keyed digest of one verified combination of name, password and stored hash.
pub(crate) type Fingerprint = [u8; 32];

/// Computes the fingerprint under the process's `key`. The stored hash is part of it, so that a changed password needs no
/// invalidation: its old fingerprint is simply never asked for again.
pub(crate) fn fingerprint(key: &[u8; 32], name: &str, password: &[u8], stored: &str) -> Fingerprint {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("an HMAC key may have any length");
    for part in [name.as_bytes(), password, stored.as_bytes()] {
        // Lengths keep ("ab", "c") and ("a", "bc") apart.
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// A bounded set with two generations: what was not asked for during a whole generation is forgotten. That is within a factor of
/// two of LRU and needs no list.
#[derive(Default)]
pub(crate) struct Verified {
    young: HashSet<Fingerprint>,
    old: HashSet<Fingerprint>,
    generation_size: usize,
}

impl Verified {
    /// Holds at most `capacity` fingerprints (at least two).
    pub(crate) fn new(capacity: usize) -> Verified {
        Verified { generation_size: (capacity / 2).max(1), ..Verified::default() }
    }

    pub(crate) fn contains(&mut self, fingerprint: &Fingerprint) -> bool {
        if self.young.contains(fingerprint) {
            return true;
        }
        let known = self.old.remove(fingerprint);
        if known {
            self.insert(*fingerprint);
        }
        known
    }

    pub(crate) fn insert(&mut self, fingerprint: Fingerprint) {
        if self.young.len() >= self.generation_size {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(fingerprint);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(number: u32) -> Fingerprint {
        fingerprint(&[7; 32], &number.to_string(), b"", "")
    }

    #[test]
    fn every_part_counts() {
        let base = fingerprint(&[7; 32], "ab", b"c", "d");
        for other in [
            fingerprint(&[8; 32], "ab", b"c", "d"),
            fingerprint(&[7; 32], "a", b"bc", "d"),
            fingerprint(&[7; 32], "ab", b"cd", ""),
            fingerprint(&[7; 32], "ab", b"", "cd"),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(base, fingerprint(&[7; 32], "ab", b"c", "d"));
    }

    #[test]
    fn bounded_and_what_is_used_stays() {
        let mut verified = Verified::new(10);
        let hot = numbered(0);
        verified.insert(hot);
        for number in 1..1000 {
            verified.insert(numbered(number));
            assert!(verified.contains(&hot), "after {number}");
            assert!(verified.len() <= 10, "after {number}: {}", verified.len());
        }
        assert!(!verified.contains(&numbered(1)));
        assert!(verified.contains(&numbered(999)));
    }
}
