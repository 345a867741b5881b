//! [`Bloom`]: a filter for the documents of a segment. A build of a large index checks each segment for each document,
//! mostly with a negative result.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};

/// Bits per id, for a false-positive rate of one percent.
const BITS_PER_ID: usize = 10;
const PROBES: u64 = 5;

pub(super) struct Bloom {
    bits: Vec<u64>,
}

impl Bloom {
    pub(super) fn of<'a>(ids: impl ExactSizeIterator<Item = &'a str>) -> Self {
        let mut bloom = Self { bits: vec![0; (ids.len() * BITS_PER_ID).div_ceil(64).max(1)] };
        for id in ids {
            for bit in bloom.places(id) {
                bloom.bits[bit / 64] |= 1 << (bit % 64);
            }
        }
        bloom
    }

    pub(super) fn may_have(&self, id: &str) -> bool {
        self.places(id).all(|bit| self.bits[bit / 64] >> (bit % 64) & 1 == 1)
    }

    fn places(&self, id: &str) -> impl Iterator<Item = usize> + use<> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(id);
        let (start, step) = (hash >> 32, (hash & 0xffff_ffff) | 1);
        let count = self.bits.len() as u64 * 64;
        #[expect(clippy::cast_possible_truncation, reason = "less than the number of bits in memory")]
        (0..PROBES).map(move |probe| ((start + probe * step) % count) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_finds_its_keys_and_few_others() {
        let ids: Vec<_> = (0..10_000).map(|number| format!("id{number}")).collect();
        let bloom = Bloom::of(ids.iter().map(String::as_str));
        assert!(ids.iter().all(|id| bloom.may_have(id)));
        let wrong = (0..10_000).filter(|number| bloom.may_have(&format!("other{number}"))).count();
        assert!(wrong < 300, "{wrong}");
        assert!(!Bloom::of([].into_iter()).may_have("x"));
    }
}
