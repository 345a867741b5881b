//! Throughput of several nodes on one PostgreSQL, compared with a bare client of that PostgreSQL in the same run.
//! Every response is checked. A missed target is no failure.

mod bare;
mod client_pool;
mod load;
mod report;
mod stage;
mod views;

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use crate::build;
use crate::scratch::{MISSING, Scratch};
use crate::tally::Tally;
use crate::workspace::Workspace;

use load::{Kind, Measured, Spread};
use report::{Asked, Report, Row};
use stage::{Stage, Used};

/// The speed of the machine may change by a third within a few seconds, so single writes and the bare client alternate.
const ROUNDS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Bare,
    Writes,
    Bulk,
    Views,
}

const PARTS: [(&str, Part); 4] =
    [("bare", Part::Bare), ("writes", Part::Writes), ("bulk", Part::Bulk), ("views", Part::Views)];

#[derive(Debug, PartialEq)]
pub(crate) struct Options {
    parts: Vec<Part>,
    nodes: Vec<usize>,
    documents: u64,
    seconds: u64,
    delay: Duration,
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self> {
        let mut options = Self {
            parts: Vec::new(),
            nodes: vec![1, 2, 4],
            documents: 1_000_000,
            seconds: 8,
            delay: Duration::from_millis(1),
        };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("`{name}` is unknown or lacks its value"))?;
            let number = || value.parse::<u64>().with_context(|| format!("{name} takes a number"));
            match name.as_str() {
                "--part" => {
                    let part = PARTS.iter().find(|(name, _)| name == value).context("there is no such part")?;
                    options.parts.push(part.1);
                }
                "--nodes" => options.nodes = vec![usize::try_from(number()?)?],
                "--documents" => options.documents = number()?,
                "--seconds" => options.seconds = number()?,
                "--delay-us" => options.delay = Duration::from_micros(number()?),
                _ => bail!("there is no option `{name}`"),
            }
        }
        if options.parts.is_empty() {
            options.parts = PARTS.map(|(_, part)| part).to_vec();
        }
        ensure!(options.nodes.iter().all(|nodes| (1..=6).contains(nodes)), "1 to 6 nodes are measured");
        ensure!(options.documents >= 1000 && options.seconds > 0, "1,000 documents and a second are the least");
        Ok(options)
    }

    fn networks(&self) -> Vec<Duration> {
        let slow = Some(self.delay).filter(|delay| !delay.is_zero());
        [Duration::ZERO].into_iter().chain(slow).collect()
    }

    fn has(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

pub(crate) fn command(workspace: &Workspace, options: &Options) -> Result<Tally> {
    ensure!(Scratch::is_there(), "{MISSING}");
    let built = build::build(workspace)?;
    if !built.holds() {
        return Ok(built);
    }
    let stage = Stage::start(workspace)?;
    let mut report = Report::default();
    let measured = measure(&stage, options, &mut report);
    report.print();
    measured?;
    Ok(Tally::of(report.rows(), 0))
}

fn measure(stage: &Stage<'_>, options: &Options, report: &mut Report) -> Result<()> {
    for network in options.networks() {
        if options.has(Part::Bare) {
            bare::measure(stage, options, network, report)?;
        }
        for (part, kind) in [(Part::Writes, Kind::Single), (Part::Bulk, Kind::Bulk)] {
            for nodes in options.nodes.iter().filter(|_| options.has(part)) {
                loads(stage, options, (kind, *nodes, network), report)?;
            }
        }
    }
    if options.has(Part::Views) {
        views::measure(stage, options, report)?;
    }
    Ok(())
}

fn loads(
    stage: &Stage<'_>,
    options: &Options,
    (kind, count, network): (Kind, usize, Duration),
    report: &mut Report,
) -> Result<()> {
    let nodes = stage.nodes(count, network)?;
    let has_yardstick = kind == Kind::Single && options.has(Part::Bare);
    let turns = if has_yardstick { ROUNDS } else { 1 };
    let length = Duration::from_secs(options.seconds) / turns;
    for spread in Spread::ALL.into_iter().filter(|spread| count > 1 || matches!(spread, Spread::One | Spread::Many)) {
        let (mut measured, mut used, mut yardstick) = (Measured::default(), Used::default(), Vec::new());
        for turn in 0..turns {
            if has_yardstick {
                yardstick.push(bare::yardstick(stage, length, network)?);
            }
            stage.rest()?;
            let before = stage.used(&nodes)?;
            measured.add(load::run(&nodes, (kind, spread, turn), length)?);
            used.add(before, stage.used(&nodes)?);
        }
        if has_yardstick {
            yardstick.push(bare::yardstick(stage, length, network)?);
        }
        let name = format!("{}, {}", kind.name(), spread.name());
        let row = Row::new(name, count, network, measured.per_second(), "documents/s").times(&measured.latencies());
        report.add(row.asked(kind.asked(&yardstick)).note(notes(used, measured.written)));
    }
    Ok(())
}

fn notes(used: Used, documents: u64) -> String {
    let documents = documents.max(1) as f64;
    let each = |place: usize| used.processors[place] * 1e6 / documents;
    let [commits, conflicts, polls] = used.counts;
    let shared_by = |count: u64| documents / count.max(1) as f64;
    format!(
        "{:.1} documents a commit, {:.1} a poll, {conflicts} conflicts; processors: nodes {:.0}, PostgreSQL {:.0}, clients {:.0} us \
         a document; {} MB a node",
        shared_by(commits),
        shared_by(polls),
        each(0),
        each(1),
        each(2),
        used.memory >> 20
    )
}

impl Kind {
    fn asked(self, yardstick: &[f64]) -> Asked {
        match self {
            Self::Single if yardstick.is_empty() => Asked::Nothing,
            Self::Single => Asked::OfBare(0.6, yardstick.iter().sum::<f64>() / yardstick.len() as f64),
            Self::Bulk => Asked::Rate(15_000.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_document_is_reported() {
        let at = |processors, memory: u64, counts| Used { processors, memory: memory << 20, counts };
        let mut used = Used::default();
        used.add(at([1.0, 2.0, 0.0], 1, [10, 1, 0]), at([1.5, 3.0, 0.1], 3, [20, 2, 25]));
        used.add(at([2.0, 9.0, 0.1], 2, [90, 5, 50]), at([2.0, 10.0, 0.1], 2, [100, 7, 75]));
        let wanted = "5.0 documents a commit, 2.0 a poll, 3 conflicts; processors: nodes 5000, PostgreSQL 20000, clients 1000 us \
                      a document; 3 MB a node";
        assert_eq!(notes(used, 100), wanted);
    }

    #[test]
    fn options_choose_parts_and_sizes() {
        let parse = |text: &str| Options::parse(&text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()).ok();
        let all = parse("").expect("nothing need be said");
        assert_eq!((all.parts.len(), all.nodes.as_slice(), all.networks().len()), (4, &[1, 2, 4][..], 2));
        let some = parse("--part bulk --part views --nodes 3 --delay-us 0 --documents 5000").expect("right");
        assert_eq!((some.parts, some.nodes), (vec![Part::Bulk, Part::Views], vec![3]));
        assert_eq!((some.delay, some.documents), (Duration::ZERO, 5000));
        for wrong in ["--part", "--part x", "--nodes 0", "--nodes 9", "--documents 1", "--seconds x", "--else 1"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
