//! [`render`]: results as aligned text. Two servers: a row per cell and metric, with the ratios of all pairs.

use super::{LETTERS, heading, limit_name, number, share};
use crate::measure::{Better, Metric};
use crate::results::{Record, Results, Row, Table};
use crate::statistics::Spread;
use std::fmt::Write;

pub(crate) fn render(results: &Results) -> String {
    let mut out = String::new();
    let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string cannot fail");
    for (number, server) in results.servers.iter().enumerate() {
        line(format!("{}: {} ({})", LETTERS[number], server.url, server.product));
    }
    if !results.machine.is_empty() {
        line("\nyardstick: this machine".into());
        let rows = results
            .machine
            .iter()
            .map(|(label, figure)| vec![label.clone(), number(figure.value), figure.metric.unit.into()]);
        line(align(&rows.collect::<Vec<_>>()));
    }
    for table in &results.tables {
        line(format!("\n{}", table.title));
        let lines = if results.servers.len() == 2 { compared(results, table) } else { alone(results, table) };
        line(align(&lines));
        for (limit, value) in super::limits(results, table) {
            line(format!("  100 % is {}: {}/s", limit_name(limit), number(value)));
        }
        skipped(table).into_iter().for_each(&mut line);
    }
    for failure in &results.failures {
        let server = LETTERS[failure.server];
        line(format!("\nFAILED on {server}: {}: {}: {}", failure.workload, failure.cell, failure.text));
    }
    out
}

fn skipped(table: &Table) -> Vec<String> {
    let mut reasons: Vec<(usize, &str, Vec<&str>)> = Vec::new();
    for (row, (server, reason)) in
        table.rows.iter().flat_map(|row| row.skipped.iter().map(move |skipped| (row, skipped)))
    {
        match reasons.iter_mut().find(|(other, text, _)| other == server && text == reason) {
            Some((_, _, cells)) => cells.push(&row.cell.label),
            None => reasons.push((*server, reason, vec![&row.cell.label])),
        }
    }
    let sentence = |(server, reason, cells): (usize, &str, Vec<&str>)| {
        format!("  skipped on {}: {}: {reason}", LETTERS[server], cells.join("; "))
    };
    reasons.into_iter().map(sentence).collect()
}

fn alone(results: &Results, table: &Table) -> Vec<Vec<String>> {
    let metrics = table.metrics();
    let limited = |metric: Metric| {
        let mut records = table.rows.iter().filter_map(|row| row.record(metric));
        records.any(|record| share(results, record, 0).is_some())
    };
    let mut head = vec![String::new()];
    for metric in &metrics {
        head.push(heading(*metric));
        if limited(*metric) {
            head.push("of limit".into());
        }
    }
    let mut lines = vec![head];
    for row in table.rows.iter().filter(|row| !row.records.is_empty()) {
        let mut line = vec![row.cell.label.clone()];
        for metric in &metrics {
            let record = row.record(*metric);
            line.push(record.map_or_else(|| "-".into(), |record| spread(&record.values[0])));
            if limited(*metric) {
                line.push(record.map_or_else(String::new, |record| percent(results, record, 0)));
            }
        }
        lines.push(line);
    }
    lines
}

fn compared(results: &Results, table: &Table) -> Vec<Vec<String>> {
    let with_limits = !super::limits(results, table).is_empty();
    let mut head: Vec<String> = ["", "", "A", "B", "A/B better", "min..max", "pairs"].map(String::from).to_vec();
    if with_limits {
        head.extend(["A of limit", "B of limit"].map(String::from));
    }
    let mut lines = vec![head];
    for row in &table.rows {
        for (place, record) in row.records.iter().enumerate() {
            lines.push(comparison(results, row, record, place, with_limits));
        }
    }
    lines
}

fn comparison(results: &Results, row: &Row, record: &Record, place: usize, with_limits: bool) -> Vec<String> {
    let label = if place == 0 { row.cell.label.clone() } else { String::new() };
    let ratios = record.ratios();
    let mut line = vec![label, heading(record.metric), spread(&record.values[0]), spread(&record.values[1])];
    match Spread::of(&ratios) {
        Some(spread) if record.metric.better != Better::Neither => {
            line.push(format!("{}x", number(spread.median)));
            line.push(format!("{}..{}", number(spread.least), number(spread.greatest)));
            line.push(ratios.iter().map(|ratio| number(*ratio)).collect::<Vec<_>>().join(" "));
        }
        _ => line.extend([String::new(), String::new(), String::new()]),
    }
    if with_limits {
        line.extend([percent(results, record, 0), percent(results, record, 1)]);
    }
    line
}

fn spread(values: &[f64]) -> String {
    match Spread::of(values) {
        None => "-".into(),
        Some(spread) if values.len() == 1 => number(spread.median),
        Some(spread) => format!("{} [{}..{}]", number(spread.median), number(spread.least), number(spread.greatest)),
    }
}

fn percent(results: &Results, record: &Record, server: usize) -> String {
    share(results, record, server).map_or_else(String::new, |share| format!("{:.0} %", share * 100.0))
}

fn align(lines: &[Vec<String>]) -> String {
    let columns = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| lines.iter().filter_map(|line| line.get(column)).map(|text| text.chars().count()).max();
    let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
    let lines = lines.iter().map(|line| {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (text, width))| {
            if column == 0 { format!("  {text:<width$}") } else { format!("  {text:>width$}") }
        });
        cells.collect::<String>().trim_end().to_string()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Cell, Figure, Limit};
    use crate::results::{Failure, ServerName};

    const RATE: Metric = Metric::higher("rate", "docs/s");

    fn results(servers: usize) -> Results {
        let server = |n| ServerName { url: format!("http://h:{n}"), product: "P 1".into() };
        let mut results = Results { servers: (1..=servers).map(server).collect(), ..Results::default() };
        let limit = Limit::SharedSync { clients: 10 };
        results.limits.insert(limit, 40_000.0);
        let table = results.table("load", &[Cell::new("one"), Cell::new("two")]);
        for server in 0..servers {
            for run in [1.0, 2.0] {
                let rate = Figure::with_limit(RATE, 10_000.0 * run / (server + 1) as f64, limit);
                results.add(table, 0, server, &[rate, Figure::new(Metric::lower("p99", "ms"), 2.5)], None);
            }
        }
        results.skip(table, 1, 0, "not offered".into());
        results
    }

    #[test]
    fn one_server() {
        let expected = "\
A: http://h:1 (P 1)

load
                       rate docs/s  of limit            p99 ms
  one  15,000 [10,000..20,000]      38 %  2.50 [2.50..2.50]
  100 % is 10 clients that share each fsync: 40,000/s
  skipped on A: two: not offered
";
        let text = render(&results(1));
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(squeeze(&text), squeeze(expected), "{text}");
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("rate") || line.contains("one")).collect();
        assert_eq!(lines[0].find("of limit").map(|at| at + 8), lines[1].find(" %").map(|at| at + 2), "{text}");
    }

    #[test]
    fn two_servers_and_a_failure() {
        let mut results = results(2);
        let failure =
            Failure { workload: "load".into(), cell: "two".into(), server: 1, text: "wrong answer: x".into() };
        results.failures.push(failure);
        let text = render(&results);
        for part in ["2.00x", "2.00..2.00", "2.00 2.00", "38 %", "19 %", "FAILED on B: load: two: wrong answer: x"] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
    }
}
