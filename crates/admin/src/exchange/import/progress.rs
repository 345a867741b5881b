//! Progress of an import on the standard error.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tally::Tally;

const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

const LINES: u32 = 10;

pub(super) async fn report_progress(tally: Arc<Tally>, read: Arc<AtomicU64>, length: Option<u64>) {
    let is_terminal = std::io::stderr().is_terminal();
    let mut timer = tokio::time::interval(PROGRESS_INTERVAL);
    timer.tick().await;
    for tick in 1.. {
        timer.tick().await;
        let line = line(&tally, read.load(Ordering::Relaxed), length);
        if is_terminal {
            eprint!("\r{line}\x1b[K");
            let _ = std::io::stderr().flush();
        } else if tick % LINES == 0 {
            eprintln!("{line}");
        }
    }
}

pub(super) fn end() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}

fn line(tally: &Tally, read: u64, length: Option<u64>) -> String {
    let (written, refused, seconds) = (tally.written(), tally.refused(), tally.seconds());
    let mut line =
        format!("{written} documents, {:.0}/s, {refused} refused, {} MB read", written as f64 / seconds, read >> 20);
    if let Some(length) = length.filter(|length| *length > 0 && read > 0) {
        let share = read as f64 / length as f64;
        let left = (seconds / share - seconds).max(0.0);
        line.push_str(&format!(", {:.0} %, about {left:.0} s left", 100.0 * share));
    }
    line
}
