//! `settee verify`: verifies all stored data against its checksums, and its references and counters against the data.
//! [`databases`] reports lines of JSON, so that a running server can verify its databases for the command.

mod report;
mod server_files;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use settee_database::verify::{Place, Problem, Verified};
use settee_model::json::{Json, Value, write_string};
use settee_storage::{Engine, Shard};
use settee_views::Family;

use report::Report;
pub use server_files::damaged as own_files;

use crate::backends::{self, Depth, Fault};
use crate::control;
use crate::lock::DataLock;
use crate::output::print_text;
use crate::{regular, storage};

const PROGRESS_INTERVAL: Duration = Duration::from_millis(500);

pub const ENGINE: &str = "engine";

/// `rate` limits the read rate in megabytes per second.
pub fn run(data: &Path, rate: Option<u64>, files_only: bool) -> anyhow::Result<ExitCode> {
    let data = data.canonicalize().with_context(|| format!("{} cannot be found", data.display()))?;
    regular::check_data(&data)?;
    storage::refuse_elsewhere(&data)?;
    ensure!(data.join(ENGINE).is_dir(), "{} contains no data of a server", data.display());
    let mut report = Report::default();
    for (path, why) in server_files::damaged(&data) {
        report.damage(format!("{}: {why}", path.display()));
    }
    let begun = Instant::now();
    let mut progress = Progress::new(rate);
    let checked = backends::check(&data.join(ENGINE), Depth::Full, &mut |bytes, total| progress.read(bytes, total))?;
    progress.end();
    let seconds = begun.elapsed().as_secs_f64();
    print_text(&format!("{} files with {}, {}\n", checked.files, size(checked.bytes), speed(checked.bytes, seconds)));
    let mut places = BTreeMap::new();
    let mut lines = String::new();
    if !files_only {
        let result = verify_databases(&data, &mut |line| {
            take(line.value(), &mut report, &mut places, &mut lines, &mut progress);
        });
        progress.end();
        if let Err(error) = result {
            report.damage(format!("the databases cannot be read: {error:#}"));
        }
    }
    for fault in &checked.faults {
        match fault.is_torn_tail {
            true => {
                report.note(format!("{}; a crash leaves this; such a write was not acknowledged", in_words(fault)));
            }
            false => report.damage(format!("{}{}", in_words(fault), concerns(fault, &places))),
        }
    }
    print_text(&lines);
    print_text(&report.text(&data));
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The server that runs on the data verifies its databases. Without one this process does.
fn verify_databases(data: &Path, each: &mut dyn FnMut(Json)) -> anyhow::Result<()> {
    if control::listen(data, "verify", each)? {
        return Ok(());
    }
    let _lock = DataLock::take(data)?;
    let engine = backends::open_read_only(&data.join(ENGINE))?;
    databases(engine.as_ref(), &mut |line| {
        each(Json::trusted(line));
        ControlFlow::Continue(())
    });
    Ok(())
}

fn take(
    line: Value<'_>,
    report: &mut Report,
    places: &mut BTreeMap<u64, String>,
    lines: &mut String,
    progress: &mut Progress,
) {
    let text = |value: Value<'_>, name: &str| {
        value.get(name).and_then(|member| member.as_str().map(std::borrow::Cow::into_owned))
    };
    let number = |name: &str| line.get(name).and_then(Value::as_u64).unwrap_or_default();
    if let Some(error) = text(line, "error") {
        return report.damage(error);
    }
    let Some(name) = text(line, "database") else { return };
    if line.get("shards").is_none() {
        return progress.print_text(&format!("{name}: {} documents", number("documents")));
    }
    for shard in line.get("shards").into_iter().flat_map(Value::elements).filter_map(Value::as_u64) {
        places.insert(shard, name.clone());
    }
    for problem in line.get("problems").into_iter().flat_map(Value::elements) {
        let description = text(problem, "what").unwrap_or_default();
        match text(problem, "document") {
            Some(document) => report.damage(format!("database {name}, document {document}: {description}")),
            None => report.damage(format!("database {name}: {description}")),
        }
    }
    match number("more") {
        0 => {}
        more => report.damage(format!("database {name}: and {more} more")),
    }
    let (documents, attachments, indexes) = (number("documents"), number("attachments"), number("indexes"));
    let bytes = size(number("bytes"));
    lines.push_str(&format!("{name}: {documents} documents, {attachments} attachments, {indexes} indexes, {bytes}\n"));
}

/// `emit` receives lines of JSON and may stop the verification.
pub fn databases(engine: &dyn Engine, emit: &mut dyn FnMut(Vec<u8>) -> ControlFlow<()>) {
    let (places, error) = settee_database::verify::places(engine);
    if let Some(error) = error {
        let mut line = b"{\"error\":".to_vec();
        write_string(&mut line, &format!("the list of databases cannot be read to its end: {error}"));
        line.push(b'}');
        if emit(line).is_break() {
            return;
        }
    }
    for place in places {
        let (mut documents, mut printed) = (0, Instant::now());
        let found = settee_database::verify::verify(engine, place.shard, &mut |_| {
            documents += 1;
            if printed.elapsed() < PROGRESS_INTERVAL {
                return ControlFlow::Continue(());
            }
            printed = Instant::now();
            let mut line = b"{\"database\":".to_vec();
            write_string(&mut line, &place.name);
            line.extend_from_slice(format!(",\"documents\":{documents}}}").as_bytes());
            emit(line)
        });
        let broken = place.indexes.iter().filter_map(|(index, family)| {
            let error = match Family::Views.is_record_tail(family) {
                true => settee_views::verify_index(engine, *index).err()?.to_string(),
                false => settee_search::verify(engine, *index).err()?.to_string(),
            };
            Some(Problem {
                document: None,
                description: format!("an index cannot be read: {error}; it can be built again"),
            })
        });
        let broken: Vec<Problem> = broken.collect();
        if emit(line(&place, found, &broken)).is_break() {
            return;
        }
    }
}

fn line(place: &Place, found: Verified, broken: &[Problem]) -> Vec<u8> {
    let Verified { documents, attachments, bytes, problems, more } = found;
    let mut line = b"{\"database\":".to_vec();
    write_string(&mut line, &place.name);
    let shards = std::iter::once(&place.shard)
        .chain(place.indexes.iter().map(|(shard, _)| shard))
        .map(|Shard(number)| number.to_string());
    line.extend_from_slice(format!(",\"shards\":[{}]", shards.collect::<Vec<_>>().join(",")).as_bytes());
    for (name, value) in [
        ("documents", documents),
        ("attachments", attachments),
        ("bytes", bytes),
        ("indexes", place.indexes.len() as u64),
        ("more", more),
    ] {
        line.extend_from_slice(format!(",\"{name}\":{value}").as_bytes());
    }
    line.extend_from_slice(b",\"problems\":[");
    for (index, Problem { document, description }) in problems.iter().chain(broken).enumerate() {
        line.extend_from_slice(if index > 0 { b",{\"what\":" } else { b"{\"what\":" });
        write_string(&mut line, description);
        if let Some(document) = document {
            line.extend_from_slice(b",\"document\":");
            write_string(&mut line, document);
        }
        line.push(b'}');
    }
    line.extend_from_slice(b"]}");
    line
}

pub fn in_words(fault: &Fault) -> String {
    let place =
        if fault.length == 0 { String::new() } else { format!(" ({} bytes at {})", fault.length, fault.offset) };
    format!("{} {}: {}{place}", fault.kind, fault.file.display(), fault.description)
}

fn concerns(fault: &Fault, places: &BTreeMap<u64, String>) -> String {
    let mut names: Vec<&str> = fault
        .shards
        .iter()
        .flat_map(|range: &RangeInclusive<u64>| places.range(range.clone()).map(|(_, name)| name.as_str()))
        .collect();
    names.sort_unstable();
    names.dedup();
    match names.as_slice() {
        [] => String::new(),
        names => format!("; may concern {}", names.join(", ")),
    }
}

pub fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        1_048_576..1_073_741_824 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

fn speed(bytes: u64, seconds: f64) -> String {
    format!("{}/s", size((bytes as f64 / seconds.max(0.001)) as u64))
}

pub struct Progress {
    begun: Instant,
    printed: Instant,
    bytes: u64,
    bytes_per_s: Option<u64>,
    is_shown: bool,
}

impl Progress {
    pub fn new(megabytes_per_s: Option<u64>) -> Self {
        let now = Instant::now();
        let bytes_per_s = megabytes_per_s.map(|rate| rate.max(1).saturating_mul(1_000_000));
        Self { begun: now, printed: now, bytes: 0, bytes_per_s, is_shown: std::io::stderr().is_terminal() }
    }

    pub fn read(&mut self, bytes: u64, total: u64) {
        self.bytes += bytes;
        if let Some(rate) = self.bytes_per_s {
            let due = Duration::from_secs_f64(self.bytes as f64 / rate as f64);
            std::thread::sleep(due.saturating_sub(self.begun.elapsed()));
        }
        let part = if total == 0 {
            String::new()
        } else {
            format!("{:3} % of {}, ", 100 * self.bytes / total.max(1), size(total))
        };
        let speed = speed(self.bytes, self.begun.elapsed().as_secs_f64());
        self.print_text(&format!("{part}{}, {speed}", size(self.bytes)));
    }

    fn print_text(&mut self, text: &str) {
        if self.is_shown && self.printed.elapsed() >= PROGRESS_INTERVAL {
            self.printed = Instant::now();
            eprint!("\r\x1b[K{text}");
        }
    }

    pub fn end(&mut self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}
