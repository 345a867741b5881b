//! [`Progress`]: a progress line on a terminal's stderr. Without a terminal nothing is printed.

use std::io::{IsTerminal, Write};
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub(crate) struct Progress(Option<Mutex<Line>>);

struct Line {
    title: String,
    total: u64,
    done: u64,
    started: Instant,
    drawn: Option<Instant>,
}

const REDRAW: Duration = Duration::from_millis(100);
const WIDTH: usize = 30;

impl Progress {
    pub(crate) fn new(title: &str, total: u64) -> Progress {
        Progress(
            std::io::stderr().is_terminal().then(|| {
                Mutex::new(Line { title: title.into(), total, done: 0, started: Instant::now(), drawn: None })
            }),
        )
    }

    pub(crate) fn advance(&self, steps: u64) {
        self.change(|line| line.done += steps);
    }

    pub(crate) fn set(&self, done: u64, total: u64) {
        self.change(|line| (line.done, line.total) = (done, total));
    }

    fn change(&self, change: impl FnOnce(&mut Line)) {
        let Some(line) = &self.0 else { return };
        let mut line = line.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        change(&mut line);
        if line.drawn.is_none_or(|drawn| drawn.elapsed() > REDRAW) {
            line.drawn = Some(Instant::now());
            let _ = write!(std::io::stderr(), "\r\x1b[K{}", line.text());
        }
    }
}

impl Line {
    fn text(&self) -> String {
        let share = if self.total == 0 { 0.0 } else { (self.done as f64 / self.total as f64).min(1.0) };
        let full = (share * WIDTH as f64).round() as usize;
        let rate = self.done as f64 / self.started.elapsed().as_secs_f64().max(1e-6);
        format!(
            "{:<40} [{}{}] {:>3.0} %  {rate:.0}/s",
            self.title,
            "#".repeat(full),
            ".".repeat(WIDTH - full),
            share * 100.0
        )
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.0.is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_fills() {
        let mut line = Line { title: "load".into(), total: 10, done: 5, started: Instant::now(), drawn: None };
        assert!(line.text().contains(&format!("[{}{}]  50 %", "#".repeat(15), ".".repeat(15))));
        line.done = 20;
        assert!(line.text().contains("100 %"));
        line.total = 0;
        assert!(line.text().contains("  0 %"));
    }
}
