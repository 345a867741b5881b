//! [`Verified`]: cache of verified passwords, so that the slow derivation runs once per process and not once per
//! request. It stores keyed digests only, which cannot be attacked offline without the key of the process. If the
//! correct password of an account is cached, any other password is wrong without a derivation.

use std::num::NonZeroUsize;

use lru::LruCache;
use subtle::ConstantTimeEq;

use crate::algorithm::Algorithm;

pub(crate) type Fingerprint = [u8; 32];

pub(crate) fn fingerprint(key: &[u8; 32], parts: &[&[u8]]) -> Fingerprint {
    let lengths: Vec<[u8; 8]> = parts.iter().map(|part| (part.len() as u64).to_be_bytes()).collect();
    // Lengths distinguish ("ab", "c") from ("a", "bc").
    let framed: Vec<&[u8]> = lengths.iter().zip(parts).flat_map(|(length, part)| [length.as_slice(), part]).collect();
    let mut fingerprint = [0; 32];
    fingerprint.copy_from_slice(&Algorithm::Sha256.mac(key, &framed));
    fingerprint
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CachedResult {
    Right,
    Wrong,
    Unknown,
}

/// Maps accounts, with their stored hashes, to passwords. Evicts the least recently used entries.
pub(crate) struct Verified(LruCache<Fingerprint, Fingerprint>);

impl Verified {
    pub(crate) fn new(capacity: NonZeroUsize) -> Verified {
        // `LruCache::new` would allocate the memory of all entries at once.
        let mut passwords = LruCache::unbounded();
        passwords.resize(capacity);
        Verified(passwords)
    }

    pub(crate) fn look_up(&mut self, account: &Fingerprint, password: &Fingerprint) -> CachedResult {
        let Some(right) = self.0.get(account) else { return CachedResult::Unknown };
        if bool::from(right.ct_eq(password)) { CachedResult::Right } else { CachedResult::Wrong }
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
        assert_eq!(verified.look_up(&numbered(1), &numbered(2)), CachedResult::Unknown);
        verified.insert(numbered(1), numbered(2));
        assert_eq!(verified.look_up(&numbered(1), &numbered(2)), CachedResult::Right);
        assert_eq!(verified.look_up(&numbered(1), &numbered(3)), CachedResult::Wrong);
        assert_eq!(verified.look_up(&numbered(2), &numbered(2)), CachedResult::Unknown);
    }

    #[test]
    fn the_cache_is_bounded_and_keeps_used_entries() {
        let mut verified = Verified::new(NonZeroUsize::new(10).unwrap());
        let hot = numbered(0);
        verified.insert(hot, hot);
        for number in 1..1000 {
            verified.insert(numbered(number), hot);
            assert_eq!(verified.look_up(&hot, &hot), CachedResult::Right, "after {number}");
            assert!(verified.len() <= 10, "after {number}: {}", verified.len());
        }
        assert_eq!(verified.look_up(&numbered(1), &hot), CachedResult::Unknown);
        assert_eq!(verified.look_up(&numbered(999), &hot), CachedResult::Right);
    }
}
