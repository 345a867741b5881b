//! [`Report`]: the table.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Asked {
    Nothing,
    Rate(f64),
    OfBare(f64, f64),
}

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

    /// `times` must be in ascending order.
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

#[derive(Default)]
pub(super) struct Report {
    rows: Vec<Row>,
}

impl Report {
    pub(super) fn add(&mut self, row: Row) {
        println!("{}", self.line(&row));
        self.rows.push(row);
    }

    pub(super) fn rows(&self) -> u64 {
        self.rows.len() as u64
    }

    pub(super) fn print(&self) {
        println!("\n| what | nodes | network | rate | median, p99 | held against | |");
        println!("|---|---:|---:|---:|---:|---|---|");
        self.rows.iter().for_each(|row| println!("{}", self.line(row)));
    }

    fn line(&self, row: &Row) -> String {
        let nodes = if row.nodes == 0 { "-".to_owned() } else { row.nodes.to_string() };
        let network =
            if row.network.is_zero() { "-".to_owned() } else { format!("+{} ms", row.network.as_secs_f64() * 1e3) };
        let times = row.times.map(|[median, p99]| format!("{median:.1}, {p99:.1} ms")).unwrap_or_default();
        let rate = format!("{:.0} {}", row.rate, row.unit);
        format!("| {} | {nodes} | {network} | {rate} | {times} | {} | {} |", row.name, self.comparison(row), row.note)
    }

    /// Compares with the target; over a slower network also with the same figure over the direct one.
    fn comparison(&self, row: &Row) -> String {
        let asked = match row.asked {
            Asked::Rate(rate) => format!("{:.2} of {rate:.0}", row.rate / rate),
            Asked::OfBare(share, bare) => {
                format!("{:.2} of {bare:.0} of the bare client in turn with it (asked {share})", row.rate / bare)
            }
            Asked::Nothing => String::new(),
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
    fn figures_are_compared_with_the_requirement() {
        let mut report = Report::default();
        let slow = Duration::from_millis(1);
        let row = |rate, network| Row::new("w".into(), 2, network, rate, "documents/s");
        report.add(row(500.0, Duration::ZERO).asked(Asked::OfBare(0.6, 1250.0)).times(&[1.0, 2.0, 3.0]));
        report.add(row(400.0, slow).asked(Asked::Rate(800.0)).note("n".into()));
        report.add(Row::new("b".into(), 0, slow, 9.0, "rows/s"));
        let lines: Vec<String> = report.rows.iter().map(|row| report.line(row)).collect();
        let wanted = [
            "| w | 2 | - | 500 documents/s | 2.0, 3.0 ms | 0.40 of 1250 of the bare client in turn with it (asked 0.6) |  |",
            "| w | 2 | +1 ms | 400 documents/s |  | 0.50 of 800; 0.80 of without | n |",
            "| b | - | +1 ms | 9 rows/s |  |  |  |",
        ];
        assert_eq!(lines, wanted);
    }
}
