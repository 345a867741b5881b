//! Tests of the format and the order of ids.

use super::*;
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const START_US: u64 = 1_700_000_000_000_000;

fn entropy(seed: u64) -> Arc<dyn Entropy> {
    let state = Mutex::new(seed);
    Arc::new(move |bytes: &mut [u8]| {
        let mut state = state.lock().unwrap_or_else(PoisonError::into_inner);
        for byte in bytes {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            *byte = state.to_be_bytes()[3];
        }
    })
}

fn uuids(algorithm: Algorithm, step_us: u64) -> Uuids {
    let clock = AtomicU64::new(START_US);
    Uuids::new(algorithm, entropy(0x5e77_ee00), move || clock.fetch_add(step_us, Relaxed))
}

fn suffixed() -> Algorithm {
    Algorithm::UtcId { suffix: "-node7".to_owned() }
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

#[test]
fn names() {
    for (name, expect) in [
        ("sequential", Some(Algorithm::Sequential)),
        ("random", Some(Algorithm::Random)),
        ("utc_random", Some(Algorithm::UtcRandom)),
        ("utc_id", Some(suffixed())),
        ("uuid_v7", Some(Algorithm::UuidV7)),
        ("Random", None),
        ("", None),
    ] {
        assert_eq!(Algorithm::named(name, "-node7"), expect, "{name}");
    }
}

#[test]
fn form_uniqueness_and_order() {
    let time = format!("{START_US:014x}");
    for (algorithm, step_us, ordered) in [
        (Algorithm::Sequential, 0, false),
        (Algorithm::Random, 0, false),
        (Algorithm::UtcRandom, 0, true),
        (Algorithm::UtcRandom, 1, true),
        (Algorithm::UtcRandom, 50, true),
        (suffixed(), 0, true),
        (Algorithm::UuidV7, 0, true),
        (Algorithm::UuidV7, 1, true),
        (Algorithm::UuidV7, 5000, true),
    ] {
        let case = format!("{algorithm:?}, clock step {step_us}");
        let uuids = uuids(algorithm.clone(), step_us);
        let first = uuids.take(1).remove(0);
        let mut ids = vec![first.clone()];
        ids.extend(uuids.take(20_000));
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 20_001, "{case}");
        for id in &ids {
            match &algorithm {
                Algorithm::UtcId { suffix } => {
                    assert!(id.len() == 20 && id.ends_with(suffix), "{case}: {id}");
                }
                Algorithm::UuidV7 => {
                    assert!(id.len() == 32 && is_hex(id), "{case}: {id}");
                    assert!(id.as_bytes()[12] == b'7' && b"89ab".contains(&id.as_bytes()[16]), "{case}: {id}");
                }
                _ => assert!(id.len() == 32 && is_hex(id), "{case}: {id}"),
            }
        }
        if ordered {
            assert!(ids.is_sorted(), "{case}");
        }
        match algorithm {
            Algorithm::UtcRandom | Algorithm::UtcId { .. } => {
                assert_eq!(first[..14], time, "{case}");
            }
            Algorithm::UuidV7 => {
                assert_eq!(first[..12], format!("{:012x}", START_US / 1000), "{case}");
            }
            Algorithm::Sequential | Algorithm::Random => {}
        }
    }
}

#[test]
fn a_sequence_counts_up_within_its_prefix_and_then_draws_another() {
    let ids = uuids(Algorithm::Sequential, 0).take(30_000);
    let mut prefixes: Vec<&str> = Vec::new();
    let mut last = 0;
    for id in &ids {
        let (prefix, digits) = id.split_at(26);
        let sequence = u32::from_str_radix(digits, 16).expect("six digits");
        if prefixes.last() == Some(&prefix) {
            assert!(sequence > last && sequence - last < 0xffe, "{id} after {last:06x}");
        } else {
            assert!(prefixes.is_empty() || last >= SEQUENCE_END, "left a prefix at {last:06x}");
            assert!((1..0xffe).contains(&sequence), "{id}");
            prefixes.push(prefix);
        }
        last = sequence;
    }
    assert!((3..=5).contains(&prefixes.len()), "{} prefixes", prefixes.len());
    assert_eq!(prefixes.iter().collect::<HashSet<_>>().len(), prefixes.len());
}

#[test]
fn a_clock_that_goes_back_does_not_reorder() {
    for algorithm in [Algorithm::UtcRandom, suffixed(), Algorithm::UuidV7] {
        let clock = AtomicU64::new(START_US);
        let uuids = Uuids::new(algorithm.clone(), entropy(7), move || clock.fetch_sub(10_000, Relaxed));
        let ids = uuids.take(10_000);
        assert!(ids.is_sorted_by(|a, b| a < b), "{algorithm:?}");
    }
}

#[test]
fn threads_never_share_an_id() {
    for algorithm in [Algorithm::Sequential, suffixed(), Algorithm::UuidV7] {
        let uuids = uuids(algorithm.clone(), 0);
        let ids: Vec<String> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..4).map(|_| scope.spawn(|| uuids.take(2_000))).collect();
            workers.into_iter().flat_map(|worker| worker.join().expect("no panic")).collect()
        });
        assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 8_000, "{algorithm:?}");
    }
}

#[test]
fn the_algorithm_changes_at_run_time() {
    let uuids = uuids(Algorithm::Sequential, 0);
    let before = uuids.take(1).remove(0);
    uuids.set_algorithm(Algorithm::UuidV7);
    assert_eq!(&uuids.take(1)[0][12..13], "7");
    uuids.set_algorithm(Algorithm::Sequential);
    assert_ne!(uuids.take(1)[0][..26], before[..26]);
}
