//! [`Verified`]: which password of an account was verified before, so that a deliberately slow derivation happens once per
//! process and not once per request. It never holds a password, nor anything that could be tested offline without the
//! process's key. Another password of an account whose right one is known is wrong without a derivation.

use std::num::NonZeroUsize;

use lru::LruCache;
use subtle::ConstantTimeEq;

use crate::algorithm::Algorithm;

/// Keyed digest of something.
pub(crate) type Fingerprint = [u8; 32];

/// Computes the fingerprint of `parts` under the process's `key`.
pub(crate) fn fingerprint(key: &[u8; 32], parts: &[&[u8]]) -> Fingerprint {
    let lengths: Vec<[u8; 8]> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
    // Lengths keep ("ab", "c") and ("a", "bc") apart.
    let framed: Vec<&[u8]> = lengths.iter().zip(parts).flat_map(|(length, part)| [length.as_slice(), part]).collect();
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(&Algorithm::Sha256.mac(key, &framed));
    fingerprint
}

/// The memory of a verified password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Right,
    Wrong,
    Unknown,
}

/// From the account, with its stored hash, to its password, of those that were asked for last.
pub(crate) struct Verified(LruCache<Fingerprint, Fingerprint>);

impl Verified {
    /// Remembers at most `capacity`.
    pub(crate) fn new(capacity: NonZeroUsize) -> Verified {
        // `LruCache::new` would take the memory for all at once.
        let mut passwords = LruCache::unbounded();
        passwords.resize(capacity);
        Verified(passwords)
    }

    pub(crate) fn look_up(&mut self, account: &Fingerprint, password: &Fingerprint) -> Known {
        let Some(right) = self.0.get(account) else { return Known::Unknown };
        if bool::from(right.ct_eq(password)) { Known::Right } else { Known::Wrong }
    }

    pub(crate) fn insert(&mut self, account: Fingerprint, password: Fingerprint) {
        self.0.put(account, password);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn numbered(number: u32) -> Fingerprint {
        fingerprint(&[7; 32], &[&number.to_be_bytes()])
    }

    #[test]
    fn every_part_counts() {
        let base = fingerprint(&[7; 32], &[b"ab", b"c", b"d"]);
        for other in [
            fingerprint(&[8; 32], &[b"ab", b"c", b"d"]),
            fingerprint(&[7; 32], &[b"a", b"bc", b"d"]),
            fingerprint(&[7; 32], &[b"ab", b"cd", b""]),
            fingerprint(&[7; 32], &[b"ab", b"", b"cd"]),
            fingerprint(&[7; 32], &[b"ab", b"cd"]),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(base, fingerprint(&[7; 32], &[b"ab", b"c", b"d"]));
    }

    #[test]
    fn right_wrong_and_unknown() {
        let mut verified = Verified::new(NonZeroUsize::new(10).unwrap());
        assert_eq!(verified.look_up(&numbered(1), &numbered(2)), Known::Unknown);
        verified.insert(numbered(1), numbered(2));
        assert_eq!(verified.look_up(&numbered(1), &numbered(2)), Known::Right);
        assert_eq!(verified.look_up(&numbered(1), &numbered(3)), Known::Wrong);
        assert_eq!(verified.look_up(&numbered(2), &numbered(2)), Known::Unknown);
    }

    #[test]
    fn bounded_and_what_is_used_stays() {
        let mut verified = Verified::new(NonZeroUsize::new(10).unwrap());
        let hot = numbered(0);
        verified.insert(hot, hot);
        for number in 1..1000 {
            verified.insert(numbered(number), hot);
            assert_eq!(verified.look_up(&hot, &hot), Known::Right, "after {number}");
            assert!(verified.len() <= 10, "after {number}: {}", verified.len());
        }
        assert_eq!(verified.look_up(&numbered(1), &hot), Known::Unknown);
        assert_eq!(verified.look_up(&numbered(999), &hot), Known::Right);
    }
}
