//! Vectors for histories, sequences of calls with their decisions, and random calls with invariants.
#![expect(clippy::unwrap_used, reason = "tests")]

mod model;

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const LIMITS: Limits = Limits { events: 20, healthy_ms: 120_000 };

fn settings(max_jobs: usize, max_churn: usize) -> Settings {
    Settings { max_jobs, max_churn, ..Settings::default() }
}

fn job(group: &str, job_kind: JobKind) -> Job {
    Job { group: group.into(), lifetime: Lifetime::Persistent, job_kind }
}

fn history(events: &str) -> History {
    let mut history: Option<History> = None;
    for event in events.split(' ') {
        let (kind, second) = event.split_at(1);
        let at_ms = second.parse::<u64>().unwrap() * 1000;
        let event_kind = match kind {
            "s" => EventKind::Started,
            "x" => EventKind::Stopped,
            "c" => EventKind::Crashed("error".into()),
            _ => EventKind::Added,
        };
        match &mut history {
            None => history = Some(History::new(at_ms)),
            Some(history) => history.push(at_ms, event_kind, LIMITS),
        }
    }
    history.unwrap()
}

#[test]
fn crashes_in_a_row() {
    let cases = [
        ("a0", 0, 0),
        ("a0 s0", 0, 0),
        ("a0 s0 c1", 1, 31),
        ("a0 c1 c2 c3", 3, 123),
        ("a0 s0 c1 s2 c3", 2, 63),
        ("a0 s0 c1 s2 x3", 0, 0),
        ("a0 s0 x1 s2 c3", 1, 33),
        ("a0 s0 c999", 0, 1029),
        ("a0 s0 c997 s998 c999", 1, 1029),
        ("a0 s0 c120", 1, 150),
        ("a0 s0 c121", 0, 151),
        ("a0 s0 c1 s2 c3 s4 c5 s6 c7 s8 c9 s10 c11", 6, 11 + 32 * 30),
    ];
    for (events, crashes, due_s) in cases {
        let history = history(events);
        assert_eq!(history.crashes(LIMITS), crashes, "{events}");
        assert_eq!(history.due_ms(LIMITS), due_s * 1000, "{events}");
    }
}

#[test]
fn waiting_does_not_grow_for_ever_and_histories_are_short() {
    let limits = Limits { events: 40, ..LIMITS };
    let mut history = History::new(0);
    for second in 1..100 {
        history.push(second * 1000, EventKind::Crashed("error".into()), limits);
    }
    assert_eq!(history.due_ms(limits), 99_000 + 1024 * 30_000);
    assert_eq!(history.events().count(), 40);
    history.push(0, EventKind::Started, Limits { events: 0, ..limits });
    assert_eq!(history.events().count(), 1, "one is always kept");
}

/// Decisions are `+id` and `-id`. A call is `seconds verb id group`.
fn play(settings: Settings, calls: &[(&str, &str)]) {
    let mut scheduler = Scheduler::new(settings, 0);
    for (call, expected) in calls {
        let words: Vec<&str> = call.split(' ').collect();
        let now_ms = words[0].parse::<u64>().unwrap() * 1000;
        let id: Arc<str> = words.get(2).copied().unwrap_or_default().into();
        let group = words.get(3).copied().unwrap_or("g");
        let decisions = match words[1] {
            "continuous" => scheduler.add(&id, job(group, JobKind::Continuous), now_ms),
            "once" => scheduler.add(&id, job(group, JobKind::OneShot), now_ms),
            "transient" => {
                let job = Job { lifetime: Lifetime::Transient, ..job(group, JobKind::OneShot) };
                scheduler.add(&id, job, now_ms)
            }
            "crashed" => scheduler.crashed(&id, "error", now_ms),
            "completed" => scheduler.completed(&id, now_ms),
            "tick" => scheduler.reschedule(now_ms),
            "fill" => scheduler.fill(now_ms),
            other => panic!("{other} is no call"),
        };
        let shown = decisions.iter().map(|decision| match decision {
            Decision::Start(id) => format!("+{id}"),
            Decision::Stop(id) => format!("-{id}"),
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), *expected, "{call}");
    }
}

#[test]
fn jobs_start_at_once_while_there_is_room_and_change_places_later() {
    play(
        settings(2, 1),
        &[
            ("0 continuous a", "+a"),
            ("1 continuous b", "+b"),
            ("2 continuous c", ""),
            ("3 continuous d", ""),
            ("60 tick", "-a +c"),
            ("120 tick", "-b +d"),
            ("180 tick", "-c +a"),
            ("190 completed a", "+b"),
            ("240 tick", "-b +c"),
        ],
    );
}

#[test]
fn one_shot_jobs_are_not_interrupted() {
    play(
        settings(1, 5),
        &[("0 once a", "+a"), ("1 once b", ""), ("60 tick", ""), ("70 completed a", "+b"), ("120 tick", "")],
    );
}

#[test]
fn crashed_jobs_wait_without_a_slot() {
    play(
        settings(1, 5),
        &[
            ("0 continuous a", "+a"),
            ("0 continuous b", ""),
            ("5 crashed a", "+b"),
            ("10 tick", ""),
            ("34 tick", ""),
            ("35 tick", "-b +a"),
            ("36 crashed a", "+b"),
            ("70 tick", ""),
            ("96 tick", "-b +a"),
            ("97 crashed b", ""),
        ],
    );
}

#[test]
fn a_transient_job_is_not_tried_again() {
    play(settings(1, 5), &[("0 transient a", "+a"), ("1 crashed a", ""), ("9999 tick", ""), ("9999 once a", "+a")]);
}

#[test]
fn fewer_jobs_may_run_after_a_change_of_settings() {
    let mut scheduler = Scheduler::new(settings(3, 5), 0);
    for (index, id) in ["a", "b", "c"].into_iter().enumerate() {
        let job_kind = if id == "a" { JobKind::OneShot } else { JobKind::Continuous };
        scheduler.add(&id.into(), job("g", job_kind), index as u64);
    }
    scheduler.configure(settings(1, 0));
    let stopped = scheduler.reschedule(10);
    assert_eq!(stopped, [Decision::Stop("b".into()), Decision::Stop("c".into())], "continuous ones first");
    scheduler.configure(settings(0, 5));
    assert_eq!(scheduler.reschedule(20), [Decision::Stop("a".into())]);
    assert_eq!(scheduler.due_ms(), None);
    scheduler.configure(settings(9, 5));
    assert_eq!(scheduler.reschedule(30).len(), 3);
}

fn share(jobs: &[(&str, usize)], shares: &[(&str, u32)]) -> BTreeMap<String, u64> {
    let shares = shares.iter().map(|(group, shares)| ((*group).to_owned(), *shares)).collect();
    let mut scheduler = Scheduler::new(Settings { shares, ..settings(10, 10) }, 0);
    let mut groups = BTreeMap::new();
    for (group, count) in jobs {
        for number in 0..*count {
            let id: Arc<str> = format!("{group}{number}").into();
            scheduler.add(&id, job(group, JobKind::Continuous), 0);
            groups.insert(id, (*group).to_owned());
        }
    }
    let mut ran = BTreeMap::new();
    for interval in 1..=600 {
        scheduler.reschedule(interval * 60_000);
        for (id, group) in &groups {
            *ran.entry(group.clone()).or_default() += u64::from(scheduler.find(id).unwrap().1);
        }
    }
    ran
}

#[test]
fn groups_share_the_available_permits() {
    let even = share(&[("a", 30), ("b", 30)], &[]);
    assert!(even["a"].abs_diff(even["b"]) < 300, "{even:?}");
    let crowded = share(&[("a", 100), ("b", 10)], &[]);
    assert!(crowded["b"] * 2 > crowded["a"], "{crowded:?}");
    let weighed = share(&[("a", 30), ("b", 30)], &[("a", 1000)]);
    assert!(weighed["a"] > weighed["b"] * 2, "{weighed:?}");
    assert!(weighed["b"] > 0, "no job starves: {weighed:?}");
}

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[test]
fn rules_hold_after_any_calls() {
    for seed in 0..200 {
        let mut numbers = Numbers(seed);
        let mut max_jobs = numbers.below(5) as usize;
        let mut scheduler = Scheduler::new(settings(max_jobs, numbers.below(4) as usize), 0);
        let mut running: BTreeSet<String> = BTreeSet::new();
        let mut all: BTreeSet<String> = BTreeSet::new();
        let mut now_ms = 0;
        for step in 0..300 {
            now_ms += numbers.below(40_000);
            let id = numbers.below(12).to_string();
            let mut ticked = false;
            let decisions = match numbers.below(6) {
                0 | 1 => {
                    running.remove(&id);
                    all.insert(id.clone());
                    let job_kind = if numbers.below(3) == 0 { JobKind::OneShot } else { JobKind::Continuous };
                    scheduler.add(&id.as_str().into(), job(&numbers.below(3).to_string(), job_kind), now_ms)
                }
                2 => {
                    all.remove(&id);
                    let ran = running.remove(&id);
                    assert_eq!(scheduler.remove(&id, now_ms), ran, "seed {seed}, step {step}");
                    Vec::new()
                }
                3 => {
                    running.remove(&id);
                    scheduler.crashed(&id, "error", now_ms)
                }
                4 if running.contains(&id) => {
                    running.remove(&id);
                    all.remove(&id);
                    scheduler.completed(&id, now_ms)
                }
                _ => {
                    if numbers.below(8) == 0 {
                        max_jobs = numbers.below(5) as usize;
                        scheduler.configure(settings(max_jobs, numbers.below(4) as usize));
                    }
                    ticked = true;
                    scheduler.reschedule(now_ms)
                }
            };
            for decision in decisions {
                match decision {
                    Decision::Start(id) => {
                        assert!(all.contains(&*id), "seed {seed}, step {step}: {id} is not there");
                        assert!(running.insert(id.to_string()), "seed {seed}, step {step}: {id} runs twice");
                    }
                    Decision::Stop(id) => assert!(running.remove(&*id), "seed {seed}, step {step}: {id} does not run"),
                }
            }
            assert_eq!(scheduler.running(), running.len(), "seed {seed}, step {step}");
            assert_eq!(scheduler.len(), all.len(), "seed {seed}, step {step}");
            if ticked {
                assert!(running.len() <= max_jobs, "seed {seed}, step {step}");
                let due = all.difference(&running).filter(|id| scheduler.find(id).unwrap().0.due_ms(LIMITS) <= now_ms);
                assert!(running.len() == max_jobs || due.count() == 0, "seed {seed}, step {step}: a place is empty");
            }
        }
    }
}
