//! `cargo xtask attack`: what clients that mean harm do to a server in a control group of 1 GB, and to a well-behaved client
//! beside them. Each attack ([`attacks::ALL`]) has a server of its own. It may not end the server, nor let the other client
//! wait ten times as long, and what it took is given back.
//!
//! The short form is a step of the gate. There many programs share the machine, so it judges neither times nor memory.

mod attacks;
mod cage;
mod client;
mod probe;

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use crate::server::{Access, Server};
use crate::tally::Tally;
use crate::workspace::Workspace;
use attacks::{Attack, Target};
use cage::Cage;
use probe::{Figures, Probe};

/// What the server and its workers may have.
const MEMORY_BYTES: u64 = 1 << 30;

/// How much longer than without an attack the other client may wait, and how long at most where that is next to nothing.
const SLOWER_MAX: u32 = 10;

/// How much more than before the attack the server may have afterwards.
const MEMORY_MAX: u64 = 2;

/// What a server that has worked for a while needs, whatever it did when it began.
const WARM_BYTES: u64 = 96 << 20;

/// After so long everything is as before.
const RECOVERY: Duration = Duration::from_secs(5);

/// How thorough a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A few seconds each; neither times nor memory are judged.
    Short,
    /// As an adversary has an afternoon.
    Long,
}

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    form: Form,
    only: Vec<String>,
}

impl Options {
    /// The step of the gate.
    pub(crate) fn short() -> Self {
        Self { form: Form::Short, only: Vec::new() }
    }

    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self { form: Form::Long, only: Vec::new() };
        for argument in arguments {
            match argument.as_str() {
                "--short" => options.form = Form::Short,
                name if attacks::ALL.iter().any(|attack| attack.name == name) => options.only.push(name.to_owned()),
                unknown => {
                    let names: Vec<&str> = attacks::ALL.iter().map(|attack| attack.name).collect();
                    bail!("there is no attack `{unknown}`, only {}", names.join(", "))
                }
            }
        }
        Ok(options)
    }
}

/// Runs attacks and says what became of the server.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<Tally> {
    let mut tally = Tally::default();
    println!("{:<22} quiet p99  attacked p99  after p99  failed  memory before/peak/after", "");
    for attack in attacks::ALL {
        if options.only.is_empty() || options.only.iter().any(|name| name == attack.name) {
            let report = one(workspace, attack, options.form)?;
            report.print(attack.name);
            tally += Tally::one(report.complaints.is_empty());
        }
    }
    Ok(tally)
}

/// What an attack has done.
struct Report {
    quiet: Figures,
    attacked: Figures,
    after: Figures,
    /// In bytes: before, at most, and afterwards.
    memory: [u64; 3],
    complaints: Vec<String>,
}

fn one(workspace: &Workspace, attack: &'static Attack, form: Form) -> Result<Report> {
    let (calm, violent) = match form {
        Form::Short => (Duration::from_secs(2), Duration::from_secs(5)),
        Form::Long => (Duration::from_secs(10), Duration::from_secs(30)),
    };
    let cage = Cage::new(MEMORY_BYTES);
    let settings = ["chttpd/admin_only_all_dbs=false"];
    let mut server = Server::start_within(workspace, "attack", Access::Admin, &settings, &|pid| cage.put(pid))?;
    let target = Arc::new(Target::prepare(&server.url(), form, attack)?);
    let probe = Probe::begin(&server.url())?;
    // Caches and connections of the other client are there.
    thread::sleep(calm);
    probe.take();
    let before = cage.settled_bytes(server.pid());
    thread::sleep(calm);
    let quiet = probe.take();
    let (begun, mut peak) = (Instant::now(), before);
    let attackers = attack.begin(&target);
    while begun.elapsed() < violent {
        thread::sleep(Duration::from_millis(100));
        peak = peak.max(cage.bytes(server.pid()));
    }
    let attacked = probe.take();
    target.stop();
    for attacker in attackers {
        // It may have lost its server.
        let _ = attacker.join();
    }
    thread::sleep(RECOVERY);
    probe.take();
    thread::sleep(calm);
    let after = probe.take();
    let left = cage.settled_bytes(server.pid());
    let ended = server.has_ended()?;
    let mut report = Report { quiet, attacked, after, memory: [before, peak, left], complaints: Vec::new() };
    report.judge(form, ended);
    if !ended {
        let _ = server.stop();
    }
    Ok(report)
}

impl Report {
    fn judge(&mut self, form: Form, ended: bool) {
        let [before, _, left] = self.memory;
        let mut complain = |is_wrong: bool, text: &str| {
            if is_wrong {
                self.complaints.push(text.to_owned());
            }
        };
        complain(ended, "the server ended");
        complain(self.attacked.answered == 0, "nobody else was served");
        complain(self.attacked.failed + self.after.failed > 0, "requests of the other client failed");
        if form == Form::Long {
            complain(left > before.max(WARM_BYTES) * MEMORY_MAX, "memory was not given back");
            complain(self.attacked.p99 > self.quiet.p99 * SLOWER_MAX, "the other client waited");
            complain(self.after.p99 > self.quiet.p99 * 2, "it is slow also afterwards");
        }
    }

    fn print(&self, name: &str) {
        let ms = |figures: &Figures| format!("{:.1} ms", figures.p99.as_secs_f64() * 1000.0);
        let memory = self.memory.map(|bytes| (bytes >> 20).to_string()).join("/");
        println!(
            "{name:<22} {:>9}  {:>12}  {:>9}  {:>6}  {memory} MiB{}{}",
            ms(&self.quiet),
            ms(&self.attacked),
            ms(&self.after),
            self.attacked.failed + self.after.failed,
            if self.complaints.is_empty() { "" } else { "   FAILED: " },
            self.complaints.join(", ")
        );
    }
}
