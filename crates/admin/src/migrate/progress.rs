//! [`ProgressDisplay`]: progress of a migration, and [`Printer`]: progress lines on the standard error.
//! Remaining work is measured in update sequences.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use settee_model::json::{Json, Value};
use settee_replication::Progress;

use crate::environment;

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

const LINES: u32 = 10;

pub(super) struct ProgressDisplay {
    rows: Mutex<Vec<Row>>,
    printer: Printer,
}

pub(super) struct Printer {
    started_us: u64,
    is_terminal: bool,
}

impl Printer {
    pub(super) fn start() -> Self {
        Self { started_us: environment::monotonic_us(), is_terminal: std::io::stderr().is_terminal() }
    }

    pub(super) fn seconds(&self) -> f64 {
        environment::monotonic_us().saturating_sub(self.started_us) as f64 / 1e6
    }

    pub(super) async fn print(&self, line: impl Fn() -> String) {
        let mut timer = tokio::time::interval(PROGRESS_INTERVAL);
        timer.tick().await;
        for tick in 1.. {
            timer.tick().await;
            if self.is_terminal {
                eprint!("\r{}\x1b[K", line());
                let _ = std::io::stderr().flush();
            } else if tick % LINES == 0 {
                eprintln!("{}", line());
            }
        }
    }

    pub(super) fn end(&self, line: &str) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
        eprintln!("{line}");
    }
}

#[derive(Default)]
struct Row {
    is_done: bool,
    end: u64,
    since: Option<u64>,
    written: u64,
    passed: u64,
    progress: Option<Arc<Progress>>,
}

impl Row {
    fn figures(&mut self) -> (u64, u64, u64) {
        let ahead = if self.is_done { 0 } else { self.end };
        let Some(progress) = &self.progress else { return (self.written, self.passed, ahead) };
        let statistics = progress.statistics();
        let Some(through) = statistics.through_seq.as_ref().map(|seq| number(seq.value())) else {
            return (self.written, self.passed, ahead);
        };
        let since = *self.since.get_or_insert(through);
        let written = statistics.docs_written - statistics.docs_written_before;
        // The second replication, which only copies design documents, starts at the first change again.
        let passed = through.saturating_sub(since).max(self.passed);
        (self.written + written, passed, ahead.saturating_sub(since + passed))
    }
}

impl ProgressDisplay {
    pub(super) fn new(databases: usize) -> Arc<Self> {
        let rows = std::iter::repeat_with(Row::default).take(databases).collect();
        Arc::new(Self { rows: Mutex::new(rows), printer: Printer::start() })
    }

    pub(super) fn expect(&self, index: usize, update_seq: &Json) {
        self.rows.lock()[index].end = number(update_seq.value());
    }

    pub(super) fn watch(&self, index: usize, progress: &Arc<Progress>) {
        let row = &mut self.rows.lock()[index];
        (row.written, row.passed, _) = row.figures();
        row.progress = Some(Arc::clone(progress));
    }

    pub(super) fn done(&self, index: usize) {
        let row = &mut self.rows.lock()[index];
        (row.written, row.passed, _) = row.figures();
        row.progress = None;
        row.is_done = true;
    }

    pub(super) fn seconds(&self) -> f64 {
        self.printer.seconds()
    }

    pub(super) async fn print(self: Arc<Self>) {
        self.printer.print(|| self.line()).await;
    }

    pub(super) fn end(&self) {
        self.printer.end(&self.line());
    }

    fn line(&self) -> String {
        let mut rows = self.rows.lock();
        let (mut done, mut written, mut passed, mut ahead) = (0, 0, 0, 0);
        for row in rows.iter_mut() {
            let figures = row.figures();
            written += figures.0;
            passed += figures.1;
            ahead += figures.2;
            done += usize::from(row.is_done);
        }
        let (total, seconds) = (rows.len(), self.seconds().max(0.001));
        drop(rows);
        let eta = match passed {
            _ if done == total => String::new(),
            0 => ", the time left is not known yet".to_owned(),
            _ => format!(", about {} left", duration(ahead as f64 / (passed as f64 / seconds))),
        };
        format!("{done}/{total} databases, {written} revisions, {:.0}/s{eta}", written as f64 / seconds)
    }
}

fn number(seq: Value<'_>) -> u64 {
    let first = if seq.is_array() { seq.elements().next().unwrap_or(seq) } else { seq };
    let text = first.to_text();
    text.split('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

pub(super) fn duration(seconds: f64) -> String {
    let seconds = seconds.ceil() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn sequences_have_numbers() {
        for (text, expected) in
            [("5", 5), ("\"5\"", 5), ("\"12-g1AAA-x\"", 12), ("[7,\"g1\"]", 7), ("null", 0), ("\"\"", 0), ("\"x\"", 0)]
        {
            assert_eq!(number(Json::parse(text.as_bytes()).unwrap().value()), expected, "{text}");
        }
    }

    #[test]
    fn times_are_reported_in_two_units() {
        for (seconds, expected) in [(0.2, "1 s"), (59.5, "1 min 0 s"), (61.0, "1 min 1 s"), (7260.0, "2 h 1 min")] {
            assert_eq!(duration(seconds), expected);
        }
    }
}
