//! [`render`]: results as one HTML file with charts drawn as inline SVG, without scripts and external resources.

use super::chart::{self, Axes, Bar, COLOURS, Group, Line, Scale, escape, push};
use super::{LETTERS, direction, heading, number, share, table};
use crate::measure::{Better, Metric};
use crate::results::{Results, Table};
use crate::statistics::Spread;

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1b1b1b;--paper:#fff;--soft:#6b6b6b;--grid:#ddd;--c0:#1f6fb2;--c1:#d9730d;--c2:#2c8a4b;--c3:#9b3fb0}\
@media(prefers-color-scheme:dark){:root{--text:#e8e8e8;--paper:#161616;--soft:#9a9a9a;--grid:#333;--c0:#5aa9e6;--c1:#f0a050;--c2:#63c287;--c3:#cf86e0}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--paper);max-width:62rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2.5rem}h3{font-size:1rem;margin:1.2rem 0 .2rem;font-weight:600}\
pre{font-size:12px;overflow-x:auto;border:1px solid var(--grid);padding:.8rem}svg{width:100%;height:auto;display:block}\
svg text{fill:var(--text);font:12px system-ui,sans-serif}svg .soft{fill:var(--soft)}svg .grid{stroke:var(--grid)}\
.f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}\
.l0{stroke:var(--c0)}.l1{stroke:var(--c1)}.l2{stroke:var(--c2)}.l3{stroke:var(--c3)}polyline{fill:none;stroke-width:2}\
.whisker{stroke:var(--text);stroke-width:1}.failed{color:#c22}";

pub(crate) fn render(results: &Results) -> String {
    let mut out = String::new();
    push(&mut out, format_args!("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"));
    push(&mut out, format_args!("<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">"));
    push(
        &mut out,
        format_args!("<title>settee-bench</title><style>{STYLE}</style></head>\n<body><h1>settee-bench</h1>\n<ul>"),
    );
    for (place, server) in results.servers.iter().enumerate() {
        push(
            &mut out,
            format_args!("<li><b>{}</b> {} ({})</li>", LETTERS[place], escape(&server.url), escape(&server.product)),
        );
    }
    push(
        &mut out,
        format_args!(
            "</ul>\n<p>Seed {}. Bars show medians, whiskers the least and the greatest of several runs.</p>\n",
            results.seed
        ),
    );
    for failure in &results.failures {
        let text =
            format!("FAILED on {}: {}: {}: {}", LETTERS[failure.server], failure.workload, failure.cell, failure.text);
        push(&mut out, format_args!("<p class=\"failed\">{}</p>\n", escape(&text)));
    }
    for table in &results.tables {
        push(&mut out, format_args!("<h2>{}</h2>\n", escape(&table.title)));
        charts(&mut out, results, table);
    }
    push(
        &mut out,
        format_args!("<h2>All figures</h2>\n<pre>{}</pre>\n</body></html>\n", escape(&table::render(results))),
    );
    out
}

fn charts(out: &mut String, results: &Results, table: &Table) {
    for metric in table.metrics().into_iter().filter(|metric| metric.better != Better::Neither) {
        push(
            out,
            format_args!("<h3>{} <small>({})</small></h3>\n", escape(&heading(metric)), direction(metric.better)),
        );
        if table.rows.iter().all(|row| row.cell.point.is_some()) {
            let axes = Axes { x: "documents in a batch", y: metric.unit };
            chart::lines(out, &swept(results, table, metric), Scale::Logarithmic, axes);
        } else {
            bars(out, results, table, metric);
        }
    }
    let mut titles: Vec<(&str, &str)> =
        table.rows.iter().flat_map(|row| &row.series).map(|(_, series)| (series.x, series.y)).collect();
    titles.dedup();
    for (x, y) in titles {
        for group in table.rows.chunks(COLOURS / results.servers.len().max(1)) {
            let series =
                group.iter().flat_map(|row| row.series.iter().map(move |(server, series)| (row, server, series)));
            let drawn: Vec<Line> = series
                .filter(|(_, _, series)| series.points.len() > 1)
                .map(|(row, server, series)| Line {
                    name: named(results, &row.cell.label, *server),
                    points: series.points.clone(),
                })
                .collect();
            if !drawn.is_empty() {
                push(out, format_args!("<h3>{y} over {x}</h3>\n"));
                chart::lines(out, &drawn, Scale::Linear, Axes { x, y });
            }
        }
    }
}

fn named(results: &Results, name: &str, server: usize) -> String {
    if results.servers.len() > 1 { format!("{}: {name}", LETTERS[server]) } else { name.into() }
}

fn swept(results: &Results, table: &Table, metric: Metric) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in &table.rows {
        let (Some((name, x)), Some(record)) = (&row.cell.point, row.record(metric)) else {
            continue;
        };
        for (server, values) in record.values.iter().enumerate() {
            let Some(spread) = Spread::of(values) else { continue };
            let name = named(results, name, server);
            let line = match lines.iter().position(|line| line.name == name) {
                Some(line) => line,
                None => {
                    lines.push(Line { name, points: Vec::new() });
                    lines.len() - 1
                }
            };
            lines[line].points.push((*x, spread.median));
        }
    }
    lines
}

fn bars(out: &mut String, results: &Results, table: &Table, metric: Metric) {
    let mut groups = Vec::new();
    for (row, record) in table.rows.iter().filter_map(|row| Some((row, row.record(metric)?))) {
        let bars = record.values.iter().enumerate().map(|(server, values)| {
            let spread = Spread::of(values)?;
            let share =
                share(results, record, server).map_or_else(String::new, |share| format!(" ({:.0} %)", share * 100.0));
            let letter = if results.servers.len() > 1 { LETTERS[server] } else { "" };
            Some(Bar { spread, note: format!("{letter} {}{share}", number(spread.median)) })
        });
        groups.push(Group { label: row.cell.label.clone(), bars: bars.collect() });
    }
    chart::bars(out, &groups, &heading(metric));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::{Cell, Figure};
    use crate::results::{Failure, Series, ServerName};

    fn results() -> Results {
        let server = |port| ServerName { url: format!("http://h:{port}"), product: "<P> 1".into() };
        let mut results = Results { servers: vec![server(1), server(2)], seed: 3, ..Results::default() };
        let rate = Metric::higher("rate", "docs/s");
        let plain = results.table("index: small", &[Cell::new("_sum & more")]);
        for (server, value) in [(0, 100.0), (1, 50.0), (0, 200.0), (1, 75.0)] {
            let series = Series { x: "seconds", y: "changes/s", points: vec![(0.1, 10.0), (0.2, value)] };
            results.add(plain, 0, server, &[Figure::new(rate, value)], Some(series));
        }
        let point = |x| Cell { label: format!("batches of {x}"), point: Some(("random ids".into(), x)) };
        let sweep = results.table("load", &[point(1.0), point(1000.0)]);
        for row in 0..2 {
            results.add(sweep, row, 0, &[Figure::new(rate, 10.0 * (row + 1) as f64)], None);
        }
        results
    }

    #[test]
    fn the_page_is_self_contained_and_escaped() {
        let page = render(&results());
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        for part in ["prefers-color-scheme:dark", "&lt;P&gt; 1", "_sum &amp; more", "<h2>load</h2>", "A: random ids"] {
            assert!(page.contains(part), "{part}");
        }
        for foreign in ["<script", "<link", "src=", "href=", "NaN", "<P>"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        for tag in ["svg", "h3", "text", "pre", "ul", "style"] {
            assert_eq!(page.matches(&format!("<{tag}")).count(), page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        assert_eq!(page.matches("class=\"whisker\"").count(), 2);
        assert_eq!(page.matches("<polyline").count(), 3);
        assert!(page.contains("width=\"367.5\""), "the median of A, 150, on an axis of 490 that ends at 200");
    }

    #[test]
    fn failures_are_shown_and_empty_results_draw_nothing() {
        let mut results = Results { servers: results().servers, ..Results::default() };
        results.failures.push(Failure { workload: "w".into(), cell: "c".into(), server: 1, text: "1 < 2".into() });
        let page = render(&results);
        assert!(page.contains("FAILED on B: w: c: 1 &lt; 2"));
        assert!(!page.contains("<svg"));
    }
}
