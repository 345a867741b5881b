//! [`Report`]: the table.

use std::time::Duration;

/// What a figure is held against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    Nothing,
    /// So many a second.
    Rate(f64),
    /// This share of what a bare client does over the same network.
    OfBare(f64),
}

/// A figure.
#[derive(Clone, Debug)]
pub(super) struct Row {
    name: String,
    /// 0 for a bare client.
    nodes: usize,
    network: Duration,
    rate: f64,
    unit: &'static str,
    times: Option<[f64; 2]>,
    asked: Asked,
    note: String,
}

impl Row {
    pub(super) fn new(name: String, nodes: usize, network: Duration, rate: f64, unit: &'static str) -> Self {
        Self { name, nodes, network, rate, unit, times: None, asked: Asked::Nothing, note: String::new() }
    }

    /// With the median and the 99th percentile of ascending times.
    pub(super) fn times(self, times: &[f64]) -> Self {
        let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
        Self { times: at(0.5).zip(at(0.99)).map(|(median, p99)| [median, p99]), ..self }
    }

    pub(super) fn asked(self, asked: Asked) -> Self {
        Self { asked, ..self }
    }

    pub(super) fn note(self, note: String) -> Self {
        Self { note, ..self }
    }
}

/// All figures of a run.
pub(super) struct Report {
    rows: Vec<Row>,
    /// What a bare client did, behind so many rows.
    bare: Vec<Bare>,
}

struct Bare {
    network: Duration,
    rows_before: usize,
    rate: f64,
}

impl Report {
    pub(super) fn new() -> Self {
        Self { rows: Vec::new(), bare: Vec::new() }
    }

    /// Notes what a bare client does now. What is measured just before and after it is held against it.
    pub(super) fn bare(&mut self, network: Duration, rate: f64) {
        self.bare.push(Bare { network, rows_before: self.rows.len(), rate });
    }

    /// What a bare client did around a row: the mean of what it did before and after it.
    fn bare_around(&self, place: usize, network: Duration) -> Option<f64> {
        let same = || self.bare.iter().filter(|bare| bare.network == network);
        let before = same().rfind(|bare| bare.rows_before <= place);
        let after = same().find(|bare| bare.rows_before > place);
        match (before, after) {
            (Some(before), Some(after)) => Some((before.rate + after.rate) / 2.0),
            (one, other) => one.or(other).map(|bare| bare.rate),
        }
    }

    /// Adds a figure, and says it at once.
    pub(super) fn add(&mut self, row: Row) {
        println!("{}", self.line(self.rows.len(), &row));
        self.rows.push(row);
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    pub(super) fn print(&self) {
        println!("\n| what | nodes | network | rate | median, p99 | held against | |");
        println!("|---|---:|---:|---:|---:|---|---|");
        self.rows.iter().enumerate().for_each(|(place, row)| println!("{}", self.line(place, row)));
    }

    fn line(&self, place: usize, row: &Row) -> String {
        let nodes = if row.nodes == 0 { "-".to_owned() } else { row.nodes.to_string() };
        let network =
            if row.network.is_zero() { "-".to_owned() } else { format!("+{} ms", row.network.as_secs_f64() * 1e3) };
        let times = row.times.map(|[median, p99]| format!("{median:.1}, {p99:.1} ms")).unwrap_or_default();
        let rate = format!("{:.0} {}", row.rate, row.unit);
        format!(
            "| {} | {nodes} | {network} | {rate} | {times} | {} | {} |",
            row.name,
            self.comparison(place, row),
            row.note
        )
    }

    /// With what is asked for; over a slower network also with the same over none.
    fn comparison(&self, place: usize, row: &Row) -> String {
        let bare = self.bare_around(place, row.network);
        let asked = match (row.asked, bare) {
            (Asked::Rate(rate), _) => format!("{:.2} of {rate:.0}", row.rate / rate),
            (Asked::OfBare(share), Some(bare)) => {
                format!("{:.2} of the bare client (asked {share})", row.rate / bare)
            }
            (Asked::Nothing, _) | (Asked::OfBare(_), None) => String::new(),
        };
        let same = |other: &&Row| other.name == row.name && other.nodes == row.nodes && other.network.is_zero();
        match self.rows.iter().find(same).filter(|_| !row.network.is_zero()) {
            Some(other) => {
                format!("{asked}; {:.2} of without", row.rate / other.rate).trim_start_matches("; ").to_owned()
            }
            None => asked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_held_against_what_is_asked() {
        let mut report = Report::new();
        let slow = Duration::from_millis(1);
        report.bare(Duration::ZERO, 1000.0);
        report.bare(slow, 1.0);
        let row = |rate, network| Row::new("w".into(), 2, network, rate, "documents/s");
        report.add(row(500.0, Duration::ZERO).asked(Asked::OfBare(0.6)).times(&[1.0, 2.0, 3.0]));
        report.bare(Duration::ZERO, 1500.0);
        report.add(row(500.0, Duration::ZERO).asked(Asked::OfBare(0.6)));
        report.bare(Duration::ZERO, 500.0);
        report.add(row(400.0, slow).asked(Asked::Rate(800.0)).note("n".into()));
        report.add(Row::new("b".into(), 0, slow, 9.0, "rows/s"));
        let lines = report.rows.iter().enumerate().map(|(place, row)| report.line(place, row));
        let lines: Vec<String> = lines.collect();
        let wanted = [
            "| w | 2 | - | 500 documents/s | 2.0, 3.0 ms | 0.40 of the bare client (asked 0.6) |  |",
            "| w | 2 | - | 500 documents/s |  | 0.50 of the bare client (asked 0.6) |  |",
            "| w | 2 | +1 ms | 400 documents/s |  | 0.50 of 800; 0.80 of without | n |",
            "| b | - | +1 ms | 9 rows/s |  |  |  |",
        ];
        assert_eq!(lines, wanted);
    }
}
