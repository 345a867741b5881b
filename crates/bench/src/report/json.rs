//! [`render`]: results as JSON, for programs that compare runs.

use super::{limit_name, share};
use crate::results::{Record, Results, Row};
use crate::statistics::{Spread, median};
use serde_json::{Value, json};

pub(crate) fn render(results: &Results) -> Value {
    json!({
        "program": concat!("settee-bench ", env!("CARGO_PKG_VERSION")),
        "seed": results.seed,
        "servers": results.servers.iter().map(|server| json!({"url": server.url, "product": server.product})).collect::<Vec<_>>(),
        "machine": results.machine.iter().map(|(label, figure)| {
            json!({"label": label, "value": figure.value, "unit": figure.metric.unit})
        }).collect::<Vec<_>>(),
        "tables": results.tables.iter().map(|table| json!({
            "title": table.title,
            "cells": table.rows.iter().map(|row| cell(results, row)).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "failures": results.failures.iter().map(|failure| json!({
            "workload": failure.workload, "cell": failure.cell, "server": failure.server, "text": failure.text,
        })).collect::<Vec<_>>(),
    })
}

fn cell(results: &Results, row: &Row) -> Value {
    json!({
        "cell": row.cell.label,
        "figures": row.records.iter().map(|record| figure(results, record)).collect::<Vec<_>>(),
        "skipped": row.skipped.iter().map(|(server, reason)| json!({"server": server, "reason": reason})).collect::<Vec<_>>(),
        "series": row.series.iter().map(|(server, series)| {
            json!({"server": server, "x": series.x, "y": series.y, "points": series.points})
        }).collect::<Vec<_>>(),
    })
}

fn figure(results: &Results, record: &Record) -> Value {
    let mut out = json!({
        "metric": record.metric.name,
        "unit": record.metric.unit,
        "values": record.values,
        "medians": record.values.iter().map(|values| median(values)).collect::<Vec<_>>(),
    });
    let ratios = record.ratios();
    if let Some(spread) = Spread::of(&ratios) {
        out["ratios"] = json!({"pairs": ratios, "min": spread.least, "median": spread.median, "max": spread.greatest});
    }
    if let Some(limit) = record.limit
        && let Some(value) = results.limits.get(&limit)
    {
        let shares: Vec<Option<f64>> = (0..record.values.len()).map(|server| share(results, record, server)).collect();
        out["limit"] = json!({"of": limit_name(limit), "value": value, "shares": shares});
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Cell, Figure, Limit, Metric};
    use crate::results::ServerName;

    #[test]
    fn every_run_is_there() {
        let server = ServerName { url: "http://h".into(), product: "P".into() };
        let mut results = Results { servers: vec![server.clone(), server], seed: 9, ..Results::default() };
        let limit = Limit::SharedSync { clients: 2 };
        results.limits.insert(limit, 20.0);
        let table = results.table("t", &[Cell::new("c")]);
        for (server, value) in [(0, 10.0), (1, 5.0), (0, 12.0), (1, 4.0)] {
            results.add(table, 0, server, &[Figure::with_limit(Metric::higher("rate", "/s"), value, limit)], None);
        }
        let text = render(&results);
        assert_eq!(text["seed"], 9);
        let figure = &text["tables"][0]["cells"][0]["figures"][0];
        assert_eq!(figure["values"], json!([[10.0, 12.0], [5.0, 4.0]]));
        assert_eq!(figure["ratios"], json!({"pairs": [2.0, 3.0], "min": 2.0, "median": 2.5, "max": 3.0}));
        assert_eq!(figure["limit"]["shares"], json!([0.55, 0.225]));
    }
}
