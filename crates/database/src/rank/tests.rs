//! Counts agree with a plain set of keys after additions, removals, divisions, joins, storage and replay.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeSet;

use super::*;
use crate::tests::Random;

type Keys = BTreeSet<Vec<u8>>;

fn rank_of(keys: &Keys, key: &[u8]) -> u64 {
    keys.iter().take_while(|other| other.as_slice() < key).count() as u64
}

fn counts_of(keys: &Keys) -> Counts {
    let mut counts = Counts::new();
    for key in keys {
        counts.add(key);
    }
    counts
}

fn check(counts: &Counts, keys: &Keys, probes: &[Vec<u8>]) {
    for probe in probes {
        let (start, before) = counts.before(probe);
        assert!(start <= probe.as_slice());
        assert_eq!(before, rank_of(keys, start));
    }
    let mut covered = 0;
    for (rank, key) in keys.iter().enumerate() {
        let bucket = counts.at(rank as u64).unwrap();
        assert!(bucket.start <= key.as_slice() && bucket.end.is_none_or(|end| key.as_slice() < end), "{bucket:?}");
        assert_eq!(bucket.before, rank_of(keys, bucket.start));
        let end = bucket.end.map_or(keys.len() as u64, |end| rank_of(keys, end));
        assert_eq!(bucket.before + bucket.count, end);
        covered += 1;
    }
    assert!(counts.at(covered).is_none());
    assert!(counts.at(u64::MAX).is_none());
}

fn divide_overfull(counts: &mut Counts, keys: &Keys) {
    while let Some(OversizedBucket { bucket, start, end }) = counts.overfull() {
        let in_bucket =
            |key: &&Vec<u8>| key.as_slice() >= &*start && end.as_ref().is_none_or(|end| key.as_slice() < &**end);
        let middle = keys.iter().filter(in_bucket).nth(BUCKET_ENTRIES as usize).unwrap();
        counts.divide(bucket, middle, BUCKET_ENTRIES, 0);
    }
}

fn same(a: &Counts, b: &Counts) {
    assert_eq!((&a.starts, &a.counts, &a.uncounted), (&b.starts, &b.counts, &b.uncounted));
    assert_eq!(a.greatest, b.greatest);
}

fn encoded(ranks: &RankIndex) -> Vec<u8> {
    let mut out = Vec::new();
    ranks.encode(&mut out);
    out
}

fn encoded_log(ranks: &RankIndex) -> Vec<u8> {
    let mut out = Vec::new();
    ranks.encode_log(&mut out);
    out
}

#[test]
fn random_changes_agree_with_a_set_and_replay() {
    let mut random = Random::new();
    for _ in 0..20 {
        let mut ranks = RankIndex::new();
        let mut replayed = RankIndex::new();
        let mut keys = Keys::new();
        for version in 1..40 {
            for _ in 0..random.below(30) {
                match random.below(3) {
                    0 => {
                        let mut key = keys.last().cloned().unwrap_or_default();
                        key.push(random.next() as u8);
                        key.truncate(20);
                        if keys.insert(key.clone()) {
                            ranks.ids.add(&key);
                        }
                    }
                    1 if !keys.is_empty() => {
                        let key = keys.iter().nth(random.below(keys.len())).cloned().unwrap();
                        keys.remove(&key);
                        ranks.ids.remove(&key);
                    }
                    _ => {
                        let key = random.bytes(3);
                        if !key.is_empty() && keys.insert(key.clone()) {
                            ranks.ids.add(&key);
                        }
                    }
                }
            }
            ranks.state.version = Version(version);
            if ranks.reshaped() {
                replayed = RankIndex::decode(&encoded(&ranks)).unwrap();
            } else {
                replayed.replay(version, &encoded_log(&ranks)).unwrap();
            }
            assert_eq!(replayed.state.version, Version(version));
            same(&replayed.ids, &ranks.ids);
            same(&replayed.seqs, &ranks.seqs);
            ranks.stored();
            divide_overfull(&mut ranks.ids, &keys);
            let probes: Vec<_> = (0..20).map(|_| random.bytes(3)).collect();
            check(&ranks.ids, &keys, &probes);
        }
    }
}

#[test]
fn old_log_records_are_not_counted_twice() {
    let mut ranks = RankIndex::new();
    ranks.ids.add(b"a");
    let first = encoded_log(&ranks);
    ranks.stored();
    ranks.ids.add(b"b");
    let second = encoded_log(&ranks);
    ranks.state.version = Version(2);
    let mut read = RankIndex::decode(&encoded(&ranks)).unwrap();
    read.replay(1, &first).unwrap();
    read.replay(2, &second).unwrap();
    same(&read.ids, &ranks.ids);
}

#[test]
fn appends_open_buckets_and_never_overfill_one() {
    let mut counts = Counts::new();
    for number in 0..10 * u64::from(BUCKET_ENTRIES) {
        counts.add(&number.to_be_bytes());
        assert!(counts.overfull().is_none());
    }
    assert_eq!(counts.counts, [BUCKET_ENTRIES; 10]);
}

fn uncounted(live: &Keys, deleted: &Keys) -> RankIndex {
    let mut ranks = RankIndex::new();
    for key in live.union(deleted) {
        ranks.ids.change(key, 1, 0);
    }
    deleted.iter().for_each(|key| ranks.ids.change(key, -1, 1));
    ranks
}

#[test]
fn a_scan_skips_buckets_of_deleted_documents_in_both_directions() {
    let key = |number: u64| number.to_be_bytes().to_vec();
    let entries = 40 * u64::from(BUCKET_ENTRIES);
    let live: Keys = [0, 1, entries / 2, entries - 1].map(key).into();
    let deleted: Keys = (0..entries).map(key).filter(|key| !live.contains(key)).collect();
    let ranks = uncounted(&live, &deleted);
    let stored = RankIndex::decode(&encoded(&ranks)).unwrap();
    same(&ranks.ids, &stored.ids);
    for at in deleted {
        for direction in [Direction::Forward, Direction::Backward] {
            // The next live document is in the bucket of the key, or at the key where the scan continues.
            let next = match direction {
                Direction::Forward => live.range(at.clone()..).next(),
                Direction::Backward => live.range(..at.clone()).next_back(),
            };
            let skip = stored.ids.next_counted(&at, direction);
            match (skip, next) {
                (Some(Skip::All), next) => assert!(next.is_none()),
                (Some(Skip::To(key)), Some(next)) => {
                    let target = if direction == Direction::Forward { key } else { &stored.ids.edges(next).0.to_vec() };
                    assert!(target <= next.as_slice() && stored.ids.bucket(next) == stored.ids.bucket(target));
                }
                (Some(skip), None) => panic!("{skip:?} leads nowhere"),
                (None, _) => assert!(stored.ids.counts[stored.ids.bucket(&at)] > 0),
            }
        }
    }
}

#[test]
fn deleted_documents_divide_a_bucket_and_keep_it_apart() {
    let mut random = Random::new();
    let mut ranks = RankIndex::new();
    let mut keys = Keys::new();
    for _ in 0..100 * BUCKET_ENTRIES {
        let key = random.bytes(8);
        if keys.insert(key.clone()) {
            ranks.ids.change(&key, 1, 0);
            ranks.ids.change(&key, -1, 1);
        }
        while let Some(OversizedBucket { bucket, start, end }) = ranks.ids.overfull() {
            let end = end.map_or(std::ops::Bound::Unbounded, |end| std::ops::Bound::Excluded(end.to_vec()));
            let in_bucket = keys.range((std::ops::Bound::Included(start.to_vec()), end));
            let middle = in_bucket.into_iter().nth(BUCKET_ENTRIES as usize).unwrap().clone();
            ranks.ids.divide(bucket, &middle, 0, BUCKET_ENTRIES);
        }
    }
    ranks.ids.merge_small_buckets();
    assert!(ranks.ids.counts.len() >= 40, "{}", ranks.ids.counts.len());
    assert_eq!(ranks.ids.uncounted.iter().map(|count| *count as usize).sum::<usize>(), keys.len());
}

#[test]
fn a_merge_of_small_buckets_keeps_the_counts() {
    let mut random = Random::new();
    for _ in 0..100 {
        let mut keys: Keys = (0..200_u64).map(|number| number.to_be_bytes().to_vec()).collect();
        let mut counts = counts_of(&keys);
        let buckets = counts.counts.len();
        for key in keys.clone() {
            if !random.one_in(6) {
                keys.remove(&key);
                counts.remove(&key);
            }
        }
        counts.merge_small_buckets();
        assert!(counts.counts.len() < buckets);
        assert_eq!(counts.starts.len(), counts.counts.len());
        assert!(counts.starts[0].is_empty());
        let nearly_empty = counts.counts.windows(2).filter(|pair| pair[0] + pair[1] <= BUCKET_ENTRIES / 2).count();
        assert_eq!(nearly_empty, 0, "{:?}", counts.counts);
        check(&counts, &keys, &[random.next().to_be_bytes().to_vec(), Vec::new()]);
    }
}

#[test]
fn edits_of_few_documents_do_not_grow_the_table() {
    let mut counts = Counts::new();
    let mut seqs: Vec<u64> = (0..3 * u64::from(BUCKET_ENTRIES)).collect();
    for seq in &seqs {
        counts.add(&seq.to_be_bytes());
    }
    for seq in 1_000..5_000_u64 {
        let at = seq as usize % seqs.len();
        counts.add(&seq.to_be_bytes());
        counts.remove(&seqs[at].to_be_bytes());
        seqs[at] = seq;
    }
    assert!(counts.counts.len() < 12, "{:?}", counts.counts);
}

#[test]
fn truncated_and_damaged_records_are_corrupt() {
    let mut random = Random::new();
    for _ in 0..50 {
        let mut ranks = RankIndex::new();
        ranks.state.version = Version(random.number());
        for _ in 0..random.below(60) {
            ranks.ids.add(&random.bytes(6));
            ranks.seqs.add(&random.next().to_be_bytes());
        }
        let (table, log) = (encoded(&ranks), encoded_log(&ranks));
        // The tables of an earlier version end before the uncounted entries.
        let (old_table, old_log) = (table.len() - ranks.ids.counts.len(), log.len() - 1);
        for len in (0..table.len()).filter(|len| *len != old_table) {
            assert!(matches!(RankIndex::decode(&table[..len]), Err(DatabaseError::Corrupt(_))));
        }
        same(&RankIndex::decode(&table[..old_table]).unwrap().ids, &ranks.ids);
        let empty_version = 1;
        for len in (0..log.len()).filter(|len| *len != old_log) {
            let mut target = RankIndex::decode(&table).unwrap();
            target.state.version = Version(0);
            assert!(matches!(target.replay(empty_version, &log[..len]), Err(DatabaseError::Corrupt(_))));
        }
        for mut bytes in [table, log] {
            for _ in 0..20 {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
                // Decoding may succeed by chance; the test requires only that it returns.
                let _ = RankIndex::decode(&bytes);
                let mut target = ranks.clone();
                target.state.version = Version(0);
                let _ = target.replay(1, &bytes);
            }
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut random = Random::new();
    for _ in 0..20_000 {
        let bytes = random.bytes(40);
        let _ = RankIndex::decode(&bytes);
        let _ = RankIndex::new().replay(1, &bytes);
    }
}

#[test]
fn a_change_beyond_all_numbers_is_corrupt() {
    let mut ranks = RankIndex::new();
    ranks.ids.counts = vec![7];
    let mut record = vec![0, 1, 0];
    put_varint(&mut record, u64::MAX - 1);
    record.extend_from_slice(&[0, 0]);
    assert!(matches!(ranks.replay(1, &record), Err(DatabaseError::Corrupt("rank log"))));
}

#[test]
fn unordered_buckets_are_corrupt() {
    let mut table = vec![0, 0, 3];
    for start in [&b""[..], b"b", b"a"] {
        put_bytes(&mut table, start);
        put_varint(&mut table, 1);
    }
    table.extend_from_slice(&[0, 1, 0, 0]);
    assert!(matches!(RankIndex::decode(&table), Err(DatabaseError::Corrupt("rank table"))));
}
