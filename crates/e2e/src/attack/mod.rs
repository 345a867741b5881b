//! `cargo xtask attack`: runs hostile clients ([`catalogue`]) against servers in a control group of 1 GB, together with
//! a well-behaved client, which must not wait ten times as long.
//! The short form, a step of the gate, checks neither times nor memory.

mod catalogue;
pub(crate) mod client;
mod control_group;
mod entry;
mod probe;
mod target;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::server::{Access, Server};
use crate::tally::Tally;
use crate::workspace::Workspace;
use control_group::ControlGroup;
use entry::Attack;
use probe::{Figures, Probe};
use target::{Form, Target};

const MEMORY_BYTES: u64 = 1 << 30;

/// Minimum reference latency: for a client that hardly waits at all, a factor of ten is imperceptible.
const P99_MIN: Duration = Duration::from_millis(1);

/// Maximum factor of the memory after the attack, and an absolute allowance for the write buffers of the store and its
/// block cache.
const MEMORY_MAX: u64 = 2;
const MEMORY_MIN: u64 = 32 << 20;

/// Time after which memory and speed must have recovered. Half of the speed is a failure; small deviations are noise.
const RECOVERY: Duration = Duration::from_secs(5);
const SPEED_MIN: f64 = 0.5;

const UNFINISHED_MAX: Duration = Duration::from_secs(180);

#[derive(Debug, PartialEq, Eq)]
pub struct Options {
    form: Form,
    only: Vec<String>,
}

impl Options {
    pub fn short() -> Self {
        Self { form: Form::Short, only: Vec::new() }
    }

    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { form: Form::Long, only: Vec::new() };
        for argument in arguments {
            match argument.as_str() {
                "--short" => options.form = Form::Short,
                name if catalogue::all().any(|attack| attack.name == name) => options.only.push(name.to_owned()),
                unknown => {
                    let names: Vec<&str> = catalogue::all().map(|attack| attack.name).collect();
                    bail!("there is no attack `{unknown}`, only {}", names.join(", "))
                }
            }
        }
        Ok(options)
    }
}

pub fn run(workspace: &Workspace, options: &Options) -> Result<Tally> {
    let mut tally = Tally::default();
    println!(
        "{:<20} {:>9} {:>9} {:>6} {:>8} {:>7} {:>7} {:>7} {:>7} {:>7}  failed",
        "", "quiet p99", "attacked", "ratio", "longest", "idle", "peak", "after", "quiet/s", "after/s"
    );
    for attack in catalogue::all() {
        if options.only.is_empty() || options.only.iter().any(|name| name == attack.name) {
            let report = one(workspace, attack, options.form)?;
            report.print(attack.name);
            tally += Tally::one(report.complaints.is_empty());
        }
    }
    Ok(tally)
}

struct Report {
    quiet: Figures,
    attacked: Figures,
    after: Figures,
    speed: [f64; 2],
    memory: [u64; 3],
    longest: Duration,
    complaints: Vec<String>,
}

fn one(workspace: &Workspace, attack: &'static Attack, form: Form) -> Result<Report> {
    let seconds = Duration::from_secs;
    let (calm, burst, violent) = match form {
        Form::Short => (seconds(1), seconds(1), seconds(5)),
        Form::Long => (seconds(10), seconds(3), seconds(30)),
    };
    let control_group = ControlGroup::new(MEMORY_BYTES);
    let confine = |pid| control_group.put(pid);
    let settings: Vec<&str> = [&["chttpd/admin_only_all_dbs=false"][..], attack.settings].concat();
    let mut server = Server::start_within(workspace, "attack", Access::Admin, &settings, &confine)?;
    let target = Arc::new(Target::prepare(&server.url(), form, attack)?);
    let probe = Probe::begin(&server.url())?;
    target.warm_up()?;
    let quick = probe.speed(burst);
    thread::sleep(calm);
    probe.take();
    thread::sleep(calm);
    let quiet = probe.take();
    let before = control_group.bytes(server.pid());
    let (begun, mut peak) = (Instant::now(), before);
    let attackers = attack.start(&target);
    while begun.elapsed() < violent || (target.is_unfinished() && begun.elapsed() < UNFINISHED_MAX) {
        thread::sleep(Duration::from_millis(100));
        peak = peak.max(control_group.bytes(server.pid()));
    }
    let attacked = probe.take();
    target.stop();
    for attacker in attackers {
        let _ = attacker.join();
    }
    let over = Instant::now();
    let left = control_group.settled_bytes(server.pid(), before * MEMORY_MAX, RECOVERY);
    thread::sleep(RECOVERY.saturating_sub(over.elapsed()));
    probe.take();
    thread::sleep(calm);
    let after = probe.take();
    let again = probe.speed(burst);
    let ended = server.has_ended()?;
    let (speed, memory) = ([quick, again], [before, peak, left]);
    let (longest, complaints) = (target.longest(), target.complaints());
    let mut report = Report { quiet, attacked, after, speed, memory, longest, complaints };
    report.evaluate(form, attack, ended);
    if !ended {
        let _ = server.stop();
    }
    Ok(report)
}

impl Report {
    fn ratio(&self) -> f64 {
        self.attacked.p99.as_secs_f64() / self.quiet.p99.max(P99_MIN).as_secs_f64()
    }

    fn evaluate(&mut self, form: Form, attack: &Attack, ended: bool) {
        let [before, _, left] = self.memory;
        let [quick, again] = self.speed;
        let ratio = self.ratio();
        let is_late = self.longest > attack.longest;
        let mut complain = |is_wrong: bool, text: &str| {
            if is_wrong {
                self.complaints.push(text.to_owned());
            }
        };
        complain(ended, "the server ended");
        complain(self.attacked.answered == 0, "no other client was served");
        complain(self.attacked.failed + self.after.failed > 0, "requests of the other client failed");
        if form == Form::Long {
            complain(left > (before * MEMORY_MAX).max(MEMORY_MIN), "memory was not given back");
            complain(ratio > attack.slower_max, "the other client waited");
            complain(is_late, "a hostile request took too long");
            complain(again < quick * SPEED_MIN, "it is slow also afterwards");
        }
    }

    fn print(&self, name: &str) {
        let ms = |figures: &Figures| format!("{:.1} ms", figures.p99.as_secs_f64() * 1000.0);
        let [before, peak, left] = self.memory.map(|bytes| format!("{} MiB", bytes >> 20));
        let [quick, again] = self.speed;
        println!(
            "{name:<20} {:>9} {:>9} {:>6.1} {:>7}s {before:>7} {peak:>7} {left:>7} {quick:>7.0} {again:>7.0}  {}{}{}",
            ms(&self.quiet),
            ms(&self.attacked),
            self.ratio(),
            self.longest.as_secs(),
            self.attacked.failed + self.after.failed,
            if self.complaints.is_empty() { "" } else { "   FAILED: " },
            self.complaints.join(", ")
        );
    }
}
