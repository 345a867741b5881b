//! Formats of results: a table for people, JSON for programs, HTML with charts.

mod chart;
pub(crate) mod html;
pub(crate) mod json;
pub(crate) mod table;

use crate::measure::{Better, Limit, Metric};
use crate::results::{Record, Results, Table};
use crate::statistics::median;

pub(crate) const LETTERS: [&str; 2] = ["A", "B"];

pub(crate) fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".into();
    }
    match value.abs() {
        size if size >= 1_000.0 => thousands(value),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        size if size >= 0.001 || size == 0.0 => format!("{value:.3}"),
        _ => format!("{value:.1e}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut out = String::from(if value < 0.0 { "-" } else { "" });
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn share(results: &Results, record: &Record, server: usize) -> Option<f64> {
    let limit = results.limits.get(&record.limit?)?;
    let value = median(&record.values[server]);
    value.is_finite().then_some(value / limit)
}

pub(crate) fn limit_name(limit: Limit) -> String {
    match limit {
        Limit::RawLoad(load, documents) => {
            format!("the key-value store alone, {}, {} ids", load.name(), documents.order.name())
        }
        Limit::RustMap(_) => "a map by hand in Rust, all cores".into(),
        Limit::SharedSync { clients } => format!("{clients} clients that share each fsync"),
    }
}

pub(crate) fn heading(metric: Metric) -> String {
    format!("{} {}", metric.name, metric.unit)
}

pub(crate) fn limits(results: &Results, table: &Table) -> Vec<(Limit, f64)> {
    let mut limits: Vec<(Limit, f64)> = Vec::new();
    for limit in table.rows.iter().flat_map(|row| &row.records).filter_map(|record| record.limit) {
        if let Some(value) = results.limits.get(&limit)
            && !limits.iter().any(|(other, _)| *other == limit)
        {
            limits.push((limit, *value));
        }
    }
    limits
}

pub(crate) fn direction(better: Better) -> &'static str {
    match better {
        Better::Higher => "more is better",
        Better::Lower => "less is better",
        Better::Neither => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_significant_digits() {
        for (value, text) in [
            (1_234_567.8, "1,234,568"),
            (1_000.0, "1,000"),
            (123.4, "123"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.01234, "0.012"),
            (0.0, "0.000"),
            (0.00001, "1.0e-5"),
            (f64::NAN, "-"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
