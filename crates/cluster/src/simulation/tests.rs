//! Tests that run the simulation. `SETTEE_SEED=…` repeats a seed, with `SETTEE_TRACE=1` also its events are printed.

use super::{InjectedDefect, RunResult, run};

/// Seeds of a quick run; `SETTEE_TEST_SCALE` multiplies them.
const SEEDS: u64 = 300;

fn seeds() -> std::ops::Range<u64> {
    if let Some(seed) = std::env::var("SETTEE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return seed..seed + 1;
    }
    let scale = std::env::var("SETTEE_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1);
    0..SEEDS * scale
}

#[test]
fn invariants_hold() {
    let started = std::time::Instant::now();
    let mut total = RunResult::default();
    for seed in seeds() {
        match run(seed, None, false) {
            Ok(summary) => {
                total.events += summary.events;
                total.acknowledged += summary.acknowledged;
                total.elections += summary.elections;
            }
            Err(violation) => panic!("SETTEE_SEED={seed}\n{violation}"),
        }
    }
    eprintln!("{total:?} in {:?}", started.elapsed());
    assert!(total.acknowledged > 0 && total.elections > 0);
}

#[test]
fn a_seed_replays_exactly() {
    let events = || run(7, None, false).map(|summary| (summary.events, summary.acknowledged, summary.elections));
    assert_eq!(events(), events());
}

#[test]
fn a_failed_writer_is_replaced_within_two_seconds() {
    let outage =
        |seed| run(seed, None, true).unwrap_or_else(|violation| panic!("SETTEE_SEED={seed}\n{violation}")).outage;
    let longest = (0..200).map(outage).max();
    assert!(longest.is_some_and(|longest| (1000..2000).contains(&longest)), "{longest:?}");
}

#[test]
fn seeded_bugs_are_found() {
    const SEEDS_MAX: u64 = 200;
    for defect in [
        InjectedDefect::EpochUnchecked,
        InjectedDefect::LeaseKept,
        InjectedDefect::TokenIgnored,
        InjectedDefect::ConnectionTrusted,
        InjectedDefect::FenceOfMembers,
    ] {
        let find = |seed| run(seed, Some(defect), false).err().map(|violation| (seed, violation));
        let (seed, violation) = (0..SEEDS_MAX).find_map(find).unwrap_or_else(|| panic!("{defect:?} is not found"));
        eprintln!("{defect:?} is found by seed {seed}: {violation}");
    }
}
