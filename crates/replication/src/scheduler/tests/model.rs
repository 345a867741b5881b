//! Comparison with a naive scheduler, which keeps all events in one list and computes each value from the whole list.

use std::collections::BTreeMap;

use settee_model::testing::Random;

use super::super::*;
use super::LIMITS;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Added,
    Started,
    Stopped,
    Crashed,
}

struct Known {
    id: String,
    group: String,
    job_kind: JobKind,
    lifetime: Lifetime,
    past: Vec<(u64, Change)>,
    burden: u64,
}

impl Known {
    fn remembered(&self) -> &[(u64, Change)] {
        &self.past[self.past.len().saturating_sub(LIMITS.events)..]
    }

    fn runs(&self) -> bool {
        self.past.last().is_some_and(|(_, label)| *label == Change::Started)
    }

    fn started(&self) -> u64 {
        self.remembered().iter().rev().find(|(_, label)| *label == Change::Started).map_or(0, |(at, _)| *at)
    }

    fn crashes(&self) -> u32 {
        let mut crashes = 0;
        for pair in self.remembered().windows(2) {
            let ((before, earlier), (at, label)) = (pair[0], pair[1]);
            let was_well = label == Change::Crashed && at - before > LIMITS.healthy_ms;
            let was_stopped = label == Change::Stopped && earlier == Change::Started;
            if was_well || was_stopped {
                crashes = 0;
            } else if label == Change::Crashed {
                crashes += 1;
            }
        }
        crashes
    }

    fn due(&self) -> u64 {
        match self.past.last() {
            Some((at, Change::Crashed)) => at + 30_000 * 2_u64.pow(self.crashes().saturating_sub(1).min(10)),
            _ => 0,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "as the rule has it"
)]
fn faded(burden: u64) -> u64 {
    (burden as f64 * 0.98) as u64
}

struct Naive {
    jobs: Vec<Known>,
    max_jobs: usize,
    max_churn: usize,
    shares: BTreeMap<String, u64>,
    groups: BTreeMap<String, (u64, u64)>,
    settled: u64,
    decisions: Vec<Decision>,
}

impl Naive {
    fn job(&mut self, id: &str) -> Option<&mut Known> {
        self.jobs.iter_mut().find(|job| job.id == id)
    }

    fn running(&self) -> usize {
        self.jobs.iter().filter(|job| job.runs()).count()
    }

    fn charge(&mut self, id: &str, now: u64) {
        let settled = self.settled;
        let Some(job) = self.job(id).filter(|job| job.runs()) else { return };
        let (group, ran) = (job.group.clone(), now - job.started().max(settled));
        self.groups.entry(group).or_default().1 += ran * 1000;
    }

    fn burden(&mut self, id: &str) {
        let Some(group) = self.job(id).map(|job| job.group.clone()) else { return };
        let siblings = self.jobs.iter().filter(|job| job.group == group).count() as u64;
        let usage = self.groups.get(&group).map_or(0, |(usage, _)| *usage);
        let shares = self.shares.get(&group).copied().unwrap_or(100);
        if let Some(job) = self.job(id) {
            job.burden += usage * siblings / (shares * shares);
        }
    }

    fn start(&mut self, id: &str, now: u64) {
        if let Some(job) = self.job(id) {
            job.past.push((now, Change::Started));
            self.decisions.push(Decision::Start(id.into()));
        }
    }

    fn waiting(&self, now: u64) -> Vec<String> {
        let mut waiting: Vec<&Known> = self.jobs.iter().filter(|job| !job.runs() && job.due() <= now).collect();
        waiting.sort_by_key(|job| (job.burden, job.started(), job.id.clone()));
        waiting.into_iter().map(|job| job.id.clone()).collect()
    }

    fn fill(&mut self, now: u64) -> usize {
        let free = self.max_jobs.saturating_sub(self.running());
        let next: Vec<String> = self.waiting(now).into_iter().take(free).collect();
        next.iter().for_each(|id| self.start(id, now));
        next.len()
    }

    fn stop(&mut self, count: usize, job_kind: JobKind, now: u64) {
        let mut running: Vec<&Known> = self.jobs.iter().filter(|job| job.runs() && job.job_kind == job_kind).collect();
        running.sort_by_key(|job| (std::cmp::Reverse(job.burden), job.started(), job.id.clone()));
        let ids: Vec<String> = running.into_iter().take(count).map(|job| job.id.clone()).collect();
        for id in ids {
            self.charge(&id, now);
            self.job(&id).into_iter().for_each(|job| job.past.push((now, Change::Stopped)));
            self.decisions.push(Decision::Stop(id.as_str().into()));
        }
    }

    fn remove(&mut self, id: &str, now: u64) {
        self.charge(id, now);
        self.jobs.retain(|job| job.id != id);
    }

    fn add(&mut self, id: &str, job: &Job, now: u64) {
        self.remove(id, now);
        let (group, job_kind, lifetime) = (job.group.to_string(), job.job_kind, job.lifetime);
        let known = Known { id: id.to_owned(), group, job_kind, lifetime, past: vec![(now, Change::Added)], burden: 0 };
        self.jobs.push(known);
        self.burden(id);
        if self.running() < self.max_jobs {
            self.start(id, now);
        }
    }

    fn crashed(&mut self, id: &str, now: u64) {
        match self.job(id).filter(|job| job.runs()).map(|job| job.lifetime) {
            None => return,
            Some(Lifetime::Transient) => self.remove(id, now),
            Some(Lifetime::Persistent) => {
                self.charge(id, now);
                self.job(id).into_iter().for_each(|job| job.past.push((now, Change::Crashed)));
            }
        }
        self.fill(now);
    }

    fn reschedule(&mut self, now: u64) {
        let running: Vec<String> = self.jobs.iter().filter(|job| job.runs()).map(|job| job.id.clone()).collect();
        running.iter().for_each(|id| self.charge(id, now));
        self.groups.values_mut().for_each(|(usage, charges)| (*usage, *charges) = (*usage / 2 + *charges, 0));
        self.jobs.iter_mut().for_each(|job| job.burden = faded(job.burden));
        running.iter().for_each(|id| self.burden(id));
        self.settled = now;
        for job_kind in [JobKind::Continuous, JobKind::OneShot] {
            let excess = self.running().saturating_sub(self.max_jobs);
            self.stop(excess, job_kind, now);
        }
        let started = self.fill(now);
        let waiting = self.waiting(now);
        let churn = self.max_churn.saturating_sub(started).min(waiting.len());
        if churn > 0 && self.running() >= self.max_jobs {
            self.stop(churn, JobKind::Continuous, now);
            let free = self.max_jobs.saturating_sub(self.running());
            waiting.iter().take(churn.min(free)).for_each(|id| self.start(id, now));
        }
    }
}

fn check(seed: u64) -> usize {
    let mut random = Random::of(seed);
    let (max_jobs, max_churn) = (random.below(5_usize), random.below(4_usize));
    let shares = vec![("0".to_owned(), 1000), ("1".to_owned(), 1)];
    let settings = |max_jobs, max_churn| Settings { shares: shares.clone(), ..super::settings(max_jobs, max_churn) };
    let mut scheduler = Scheduler::new(settings(max_jobs, max_churn), 0);
    let mut naive = Naive {
        jobs: Vec::new(),
        max_jobs,
        max_churn,
        shares: shares.iter().map(|(group, shares)| (group.clone(), u64::from(*shares))).collect(),
        groups: BTreeMap::new(),
        settled: 0,
        decisions: Vec::new(),
    };
    let (mut now, mut count) = (0, 0);
    for step in 0..400 {
        let longest = if random.one_in(10) { 400_000 } else { 40_000_u64 };
        now += random.below(longest);
        let id = random.below(10_u64).to_string();
        let decisions = match random.below(7) {
            0 | 1 => {
                let job = Job {
                    group: random.below(3_u64).to_string().as_str().into(),
                    lifetime: if random.one_in(4) { Lifetime::Transient } else { Lifetime::Persistent },
                    job_kind: if random.one_in(3) { JobKind::OneShot } else { JobKind::Continuous },
                };
                naive.add(&id, &job, now);
                scheduler.add(&id.as_str().into(), job, now)
            }
            2 => {
                naive.remove(&id, now);
                scheduler.remove(&id, now);
                Vec::new()
            }
            3 => {
                naive.crashed(&id, now);
                scheduler.crashed(&id, "error", now)
            }
            4 if naive.job(&id).is_some_and(|job| job.runs()) => {
                naive.remove(&id, now);
                naive.fill(now);
                scheduler.completed(&id, now)
            }
            5 => {
                naive.fill(now);
                scheduler.fill(now)
            }
            _ => {
                if random.one_in(8) {
                    (naive.max_jobs, naive.max_churn) = (random.below(5_usize), random.below(4_usize));
                    scheduler.configure(settings(naive.max_jobs, naive.max_churn));
                }
                naive.reschedule(now);
                scheduler.reschedule(now)
            }
        };
        let expected = std::mem::take(&mut naive.decisions);
        assert_eq!(decisions, expected, "seed {seed}, step {step}");
        count += decisions.len();
        assert_eq!((scheduler.len(), scheduler.running()), (naive.jobs.len(), naive.running()), "seed {seed}");
        let waits = naive.jobs.iter().filter(|job| !job.runs()).map(Known::due).min();
        assert_eq!(scheduler.due_ms(), waits.filter(|_| naive.running() < naive.max_jobs), "seed {seed}, step {step}");
        for job in &naive.jobs {
            let (history, runs) = scheduler.find(&job.id).expect("both have the same jobs");
            let known = (job.runs(), job.started(), job.crashes(), job.due());
            assert_eq!((runs, history.started_ms(), history.crashes(LIMITS), history.due_ms(LIMITS)), known);
        }
    }
    count
}

#[test]
fn decisions_are_those_of_a_naive_scheduler() {
    let decisions: usize = (0..300).map(check).sum();
    assert!(decisions > 20_000, "only {decisions} decisions");
}
