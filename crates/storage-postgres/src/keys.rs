//! Stored form of keys. An entry of a B-tree of PostgreSQL has a limit of about 2,700 bytes, but keys may be longer. A
//! long key is stored as its prefix and a hash of the rest; the rest is stored before the value. Keys with the same
//! long prefix, a *run*, are adjacent in the order of their hashes, so readers must sort them.

use std::borrow::Cow;

use settee_storage::{KeyRange, StorageError};
use sha2::{Digest as _, Sha256};

/// Longest key that is stored unchanged.
pub(crate) const PREFIX_BYTES: usize = 2_400;
const HASH_BYTES: usize = 32;
const LENGTH_BYTES: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl Bounds {
    /// With long keys, the bounds may include other keys.
    pub(crate) fn of(range: KeyRange<'_>) -> Self {
        let start = range.start.unwrap_or_default();
        let end = range.end.map(|end| match end.split_at_checked(PREFIX_BYTES) {
            Some((prefix, [_, ..])) => after_run(prefix),
            _ => end.to_vec(),
        });
        Self { start: start[..start.len().min(PREFIX_BYTES)].to_vec(), end }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }

    pub(crate) fn after(&self, stored: &[u8]) -> Self {
        Self { start: [stored, &[0]].concat(), end: self.end.clone() }
    }

    pub(crate) fn before(&self, stored: &[u8]) -> Self {
        Self { start: self.start.clone(), end: Some(stored.to_vec()) }
    }

    pub(crate) fn within_run(&self, stored: &[u8]) -> Self {
        let prefix = &stored[..PREFIX_BYTES];
        let end = after_run(prefix);
        let start = [prefix, &[0]].concat().max(self.start.clone());
        Self { start, end: Some(self.end.clone().map_or(end.clone(), |own| own.min(end))) }
    }
}

/// Returns a bound that is greater than all stored keys of a run, and not greater than any other greater key.
fn after_run(prefix: &[u8]) -> Vec<u8> {
    [prefix, &[0xff; HASH_BYTES + 1]].concat()
}

pub(crate) fn stored(key: &[u8]) -> Cow<'_, [u8]> {
    match key.split_at_checked(PREFIX_BYTES) {
        Some((prefix, rest)) if !rest.is_empty() => Cow::Owned([prefix, Sha256::digest(rest).as_slice()].concat()),
        _ => Cow::Borrowed(key),
    }
}

pub(crate) fn is_long(stored: &[u8]) -> bool {
    stored.len() > PREFIX_BYTES
}

pub(crate) fn stored_value<'a>(key: &[u8], value: &'a [u8]) -> Cow<'a, [u8]> {
    match key.split_at_checked(PREFIX_BYTES) {
        Some((_, rest)) if !rest.is_empty() => {
            let length = u32::try_from(rest.len()).unwrap_or(u32::MAX).to_be_bytes();
            Cow::Owned([&length, rest, value].concat())
        }
        _ => Cow::Borrowed(value),
    }
}

/// Splits a stored value into the rest of a long key and the value.
pub(crate) fn split_long_value(value: &[u8]) -> Result<(&[u8], &[u8]), StorageError> {
    let parts = value.split_first_chunk::<LENGTH_BYTES>().and_then(|(length, after)| {
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        after.split_at_checked(length)
    });
    parts.ok_or_else(|| StorageError::Corrupt("the value of a long key has no rest of the key".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Vec<Vec<u8>> {
        let mut keys: Vec<Vec<u8>> = vec![vec![], b"a".to_vec(), vec![0xff; PREFIX_BYTES + 40], vec![0xff; 9_000]];
        for byte in [b'a', b'b', 0xff] {
            for length in [
                PREFIX_BYTES - 1,
                PREFIX_BYTES,
                PREFIX_BYTES + 1,
                PREFIX_BYTES + HASH_BYTES,
                PREFIX_BYTES + HASH_BYTES + 1,
            ] {
                for last in [0, b'a', 0xff] {
                    let mut key = vec![byte; length];
                    key[length - 1] = last;
                    keys.push(key);
                }
            }
        }
        keys.sort();
        keys.dedup();
        keys
    }

    #[test]
    fn stored_keys_are_bounded_and_sorted_except_within_runs() {
        let keys = keys();
        for one in &keys {
            for other in &keys {
                let (a, b) = (stored(one), stored(other));
                assert!(a.len() <= PREFIX_BYTES + HASH_BYTES);
                assert_eq!(one == other, a == b, "{} and {} bytes", one.len(), other.len());
                let is_run = is_long(&a) && is_long(&b) && a[..PREFIX_BYTES] == b[..PREFIX_BYTES];
                assert!(is_run || one.cmp(other) == a.cmp(&b), "{} and {} bytes", one.len(), other.len());
            }
        }
    }

    #[test]
    fn values_of_long_keys_contain_the_rest_of_the_key() {
        for key in keys() {
            let (stored, value) = (stored(&key), stored_value(&key, b"value"));
            let found = if is_long(&stored) {
                let (rest, value) = split_long_value(&value).expect("it was stored");
                ([&stored[..PREFIX_BYTES], rest].concat(), value.to_vec())
            } else {
                (stored.to_vec(), value.to_vec())
            };
            assert_eq!(found, (key, b"value".to_vec()));
        }
        for broken in [&b""[..], b"\0\0", b"\0\0\0\x05abcd"] {
            split_long_value(broken).expect_err("it is not a stored key");
        }
    }

    #[test]
    fn bounds_include_all_keys_of_their_range() {
        let keys = keys();
        let sides = || std::iter::once(None).chain(keys.iter().map(|key| Some(key.as_slice())));
        for start in sides() {
            for end in sides() {
                let bounds = Bounds::of(KeyRange { start, end });
                for key in &keys {
                    let is_in_range =
                        start.is_none_or(|start| start <= key.as_slice()) && end.is_none_or(|end| key.as_slice() < end);
                    let stored = stored(key);
                    let is_within =
                        bounds.start.as_slice() <= &*stored && bounds.end.as_ref().is_none_or(|end| *stored < **end);
                    assert!(is_within || !is_in_range, "{} bytes", key.len());
                    let is_on_bound = [start, end].into_iter().flatten().any(|bound| bound.len() > PREFIX_BYTES);
                    assert!(is_in_range || !is_within || is_on_bound, "{} bytes", key.len());
                }
            }
        }
    }

    #[test]
    fn a_run_can_be_continued_at_any_key() {
        let all = Bounds::of(KeyRange::default());
        let run: Vec<Vec<u8>> =
            (0..20_u8).map(|at| stored(&[&[7; PREFIX_BYTES][..], &[at]].concat()).into_owned()).collect();
        for key in &run {
            let bounds = all.within_run(key);
            assert!(run.iter().all(|other| bounds.start <= *other && bounds.end.as_ref() > Some(other)));
            for outside in [vec![7; PREFIX_BYTES], vec![7; PREFIX_BYTES - 1], vec![8], vec![6; 3_000]] {
                assert!(outside < bounds.start || Some(&outside) >= bounds.end.as_ref(), "{} bytes", outside.len());
            }
            assert!(bounds.after(key).start > *key && bounds.before(key).end.as_ref() == Some(key));
        }
        assert!(Bounds::of(KeyRange { start: Some(b"b"), end: Some(b"a") }).is_empty());
        assert!(!all.is_empty());
    }
}
