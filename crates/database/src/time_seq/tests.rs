//! The record compared with a list of all commits and with a second implementation of the schedule, with random clocks.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_model::testing::{Random, fuzz};

use super::*;

const HOUR_S: u64 = 3600;
const DAY_S: u64 = 24 * HOUR_S;
const YEAR_S: u64 = 365 * DAY_S;

const START_S: u64 = 32_503_680_000;

#[derive(Default)]
struct World {
    times: TimeSeq,
    update_seq: u64,
    latest: u64,
    commits: Vec<(u64, u64)>,
}

impl World {
    fn commit(&mut self, now_s: u64, changes: u64) {
        self.times.record(interval_of(now_s), self.update_seq);
        self.latest = self.times.newest().unwrap();
        self.commits.push((now_s, self.update_seq + 1));
        self.update_seq += changes;
    }

    fn before(&self, time_s: u64) -> u64 {
        self.times.before(time_s, self.latest).unwrap_or(self.update_seq)
    }

    fn first_since(&self, time_s: u64) -> Option<u64> {
        self.commits.iter().filter(|(now_s, _)| *now_s >= time_s).map(|(_, first)| *first).min()
    }
}

/// The schedule, implemented with explicit ranges: (start, end, sequence), oldest first.
#[derive(Default)]
struct Ranges(Vec<(u64, u64, u64)>);

impl Ranges {
    fn record(&mut self, now: u64, seq: u64) {
        if self.0.last().is_some_and(|range| range.0 >= now) {
            return;
        }
        if let Some(last) = self.0.last_mut() {
            last.1 = now;
        }
        if self.0.len() == 60 {
            let hours = |hours: u64| hours / 3;
            let mut widths: Vec<u64> = [3, 6, 12, 24, 240, 720, 4320].map(hours).to_vec();
            widths.extend([1, 2, 4, 8, 16].map(|years| hours(years * 8760)));
            let merged = widths.windows(2).map(|pair| self.merged(|range| now >= range.0 + pair[1], pair[0]));
            let shorter = merged.into_iter().find(|ranges| ranges.len() < 60);
            let middle = self.0[30].0;
            self.0 = shorter.unwrap_or_else(|| self.merged(|range| range.0 < middle, u64::MAX));
        }
        self.0.push((now, now, seq));
    }

    fn merged(&self, is_old: impl Fn(&(u64, u64, u64)) -> bool, width: u64) -> Vec<(u64, u64, u64)> {
        let mut left = self.0.clone();
        let mut done = Vec::new();
        while !left.is_empty() {
            let first = left.remove(0);
            let fits = |range: &(u64, u64, u64)| is_old(range) && range.1 - range.0 <= width;
            match left.first().copied().filter(|second| fits(&first) && fits(second)) {
                Some(second) => {
                    left.remove(0);
                    done.push((first.0, second.1, first.2));
                }
                None => done.push(first),
            }
        }
        done
    }
}

fn check_shape(times: &TimeSeq) {
    assert!(times.bins.len() <= BINS_MAX);
    assert!(times.bins.is_sorted_by(|one, next| one.interval < next.interval && one.seq < next.seq), "{times:?}");
}

fn again(times: &TimeSeq) -> TimeSeq {
    let mut bytes = Vec::new();
    times.encode(&mut bytes);
    TimeSeq::decode(&bytes).unwrap()
}

/// Several writers, whose clocks differ, advance irregularly and go back.
#[test]
fn no_change_since_a_date_is_left_out() {
    let mut random = Random::new();
    for _ in 0..60 {
        let mut world = World::default();
        let mut clocks = [START_S, START_S + random.below(DAY_S), START_S + random.below(60 * DAY_S)];
        let steps = [HOUR_S, DAY_S, 30 * DAY_S, 2 * YEAR_S];
        let step = random.pick(&steps);
        for _ in 0..400 {
            for clock in &mut clocks {
                *clock = match random.below(40) {
                    0 => clock.saturating_sub(random.below(100 * step)),
                    _ => *clock + random.below(step),
                };
            }
            world.commit(random.pick(&clocks), 1 + random.below(3));
            check_shape(&world.times);
        }
        assert_eq!(again(&world.times), world.times);
        let total: u64 = world.times.histogram(world.update_seq).iter().map(|(_, changes)| changes).sum();
        assert_eq!(total, world.update_seq);
        let known: Vec<u64> = world.commits.iter().map(|(now_s, _)| *now_s).collect();
        for now_s in known {
            for time_s in [
                now_s.saturating_sub(1),
                now_s,
                now_s + 1,
                now_s + random.below(INTERVAL_S),
                now_s + random.below(2 * step),
            ] {
                let (before, first) = (world.before(time_s), world.first_since(time_s));
                assert!(first.is_none_or(|first| before < first), "{before} {first:?} {time_s}");
            }
        }
        assert_eq!(world.before(u64::MAX), world.update_seq);
        assert_eq!(world.before(0), 0);
    }
}

#[test]
fn bins_are_merged_by_the_schedule() {
    let mut random = Random::new();
    for _ in 0..40 {
        let (mut times, mut ranges) = (TimeSeq::default(), Ranges::default());
        let mut now_s = START_S;
        let step = random.pick(&[HOUR_S, 5 * HOUR_S, DAY_S, 30 * DAY_S, YEAR_S]);
        for seq in 0..1000 {
            now_s += if random.below(50) == 0 { random.below(200 * step) } else { 1 + random.below(step) };
            times.record(interval_of(now_s), seq);
            ranges.record(interval_of(now_s), seq);
            let expected: Vec<Bin> =
                ranges.0.iter().map(|(interval, _, seq)| Bin { interval: *interval, seq: *seq }).collect();
            assert_eq!(times.bins, expected);
        }
    }
}

#[test]
fn recent_dates_are_exact_to_the_interval() {
    let mut world = World::default();
    for hour in 0..150 {
        world.commit(START_S + hour * HOUR_S, 2);
    }
    for hour in 0..150 {
        let interval = hour / 3 * 3;
        assert_eq!(world.before(START_S + hour * HOUR_S), 2 * interval);
        assert_eq!(world.before(START_S + hour * HOUR_S + 3599), 2 * interval);
    }
    let end_s = START_S + 150 * HOUR_S;
    assert_eq!([world.before(end_s), world.before(end_s + 1)], [294, 300]);
    assert_eq!(world.before(START_S - 1), 0);
}

/// The selected start precedes the date by at most its age, beyond one commit and one interval.
#[test]
fn precision_decreases_with_age() {
    for (step_s, commits) in [(HOUR_S, 20_000), (7 * HOUR_S, 10_000), (DAY_S, 5_000), (17 * DAY_S, 1_000)] {
        let mut world = World::default();
        for number in 0..commits {
            world.commit(START_S + number * step_s, 1);
        }
        let now_s = START_S + (commits - 1) * step_s;
        let mut age_s = HOUR_S;
        while START_S + age_s < now_s {
            let selected_s = START_S + world.before(now_s - age_s) * step_s;
            let early_s = (now_s - age_s).saturating_sub(selected_s);
            assert!(early_s <= 2 * age_s + step_s + INTERVAL_S, "{step_s} {age_s} {early_s}");
            age_s += age_s / 7 + 60;
        }
    }
}

/// Results of CouchDB for the same updates.
#[test]
fn regular_updates_fill_the_bins_as_in_couchdb() {
    for (updates, step_s, bins, last_s) in [
        (8, 3 * HOUR_S, 8, 21 * HOUR_S),
        (48, HOUR_S / 2, 8, 21 * HOUR_S),
        (180, HOUR_S, 60, 177 * HOUR_S),
        (183, HOUR_S, 32, 180 * HOUR_S),
    ] {
        let mut world = World::default();
        (0..updates).for_each(|number| world.commit(START_S + number * step_s, 1));
        let histogram = world.times.histogram(world.update_seq);
        assert_eq!(histogram.len(), bins, "{updates}");
        assert_eq!((histogram[0].0, histogram[bins - 1].0), (START_S, START_S + last_s));
        let counts: Vec<u64> = histogram.iter().map(|(_, changes)| *changes).collect();
        match updates {
            183 => assert!(counts.iter().all(|count| (3..=6).contains(count)) && counts[0] == 6 && counts[31] == 3),
            _ => assert!(counts.iter().all(|count| *count == updates / bins as u64)),
        }
    }
}

#[test]
fn changes_without_a_time_are_counted_in_1970() {
    let mut times = TimeSeq::default();
    assert_eq!(times.histogram(7), []);
    assert_eq!(times.before(u64::MAX, 0), Some(0));
    let first = interval_of(START_S);
    times.record(first, 42);
    assert_eq!(times.histogram(43), [(0, 42), (START_S, 1)]);
    times.record(first + 1, 43);
    assert_eq!(times.histogram(46), [(0, 42), (START_S, 1), (START_S + INTERVAL_S, 3)]);
    assert_eq!(times.before(START_S, first + 1), Some(42));
    assert_eq!(times.before(START_S + DAY_S, first + 1), None);
    assert_eq!(times.before(START_S + DAY_S, 0), Some(43));
    // Only commits in later intervals with later sequences add bins.
    let before = times.clone();
    for (interval, seq) in [(first, 46), (first + 1, 46), (first + 2, 43)] {
        times.record(interval, seq);
        assert_eq!(times, before);
    }
    times.record(first, 20);
    assert_eq!(times.histogram(21), [(0, 20), (START_S, 1)]);
}

#[test]
fn bytes_that_are_no_record_are_rejected() {
    let mut world = World::default();
    (0..59).for_each(|number| world.commit(START_S + number * DAY_S, 1 << number));
    let mut bytes = Vec::new();
    world.times.encode(&mut bytes);
    assert_eq!(TimeSeq::decode(&bytes), Ok(world.times.clone()));
    let ends = (0..=bytes.len()).filter(|end| TimeSeq::decode(&bytes[..*end]).is_ok());
    assert_eq!(ends.count(), 60, "whole bins only");
    for tail in [[0, 1].as_slice(), &[1, 0], &[1, 1, 1, 1], &[0x80], &[0xff; 20]] {
        assert_eq!(TimeSeq::decode(&[&bytes, tail].concat()), Err(CORRUPT), "{tail:?}");
    }
    assert_eq!(TimeSeq::decode(&[2]), Err(CORRUPT));
    assert_eq!(TimeSeq::decode(&[]), Err(CORRUPT));
    let mut extreme = vec![FORMAT];
    [u64::MAX, u64::MAX].iter().for_each(|number| put_varint(&mut extreme, *number));
    let times = TimeSeq::decode(&extreme).unwrap();
    assert_eq!(times.before(u64::MAX, u64::MAX), Some(u64::MAX));
    assert_eq!(times.histogram(0), [(0, u64::MAX), (u64::MAX, 0)]);
    assert_eq!(TimeSeq::decode(&[&extreme[..], &[1, 1]].concat()), Err(CORRUPT));
    fuzz(&[&bytes, &extreme], &[], |bytes| {
        if let Ok(mut times) = TimeSeq::decode(bytes) {
            check_shape(&times);
            assert_eq!(again(&times), times);
            times.record(u64::MAX, u64::MAX);
            check_shape(&times);
        }
    });
}
