//! Statistics: `/_node/{node}/_stats` in the format of CouchDB 2 and 3, `/_stats` in that of CouchDB 1, and
//! `/_node/{node}/_prometheus`.

use std::fmt::Write as _;

use hyper::StatusCode;
use settee_model::json::{self, append_object, object, write_array};

use super::server::require_node;
use crate::Error;
use crate::metrics::Totals;
use crate::metrics::histogram::Distribution;
use crate::metrics::history::{INTERVAL_MS, NAMES, Sample};
use crate::metrics::table::{Stat, stats};
use crate::node::Node;
use crate::params::Raw;
use crate::request::Request;
use crate::respond::{self, Answer};

/// Time range of distributions: that of CouchDB's samples.
const RECENT_US: u64 = 60_000_000;

/// CouchDB's percentiles; its 999 is 99.9.
const PERCENTILES: [(u32, f64); 6] = [(50, 0.5), (75, 0.75), (90, 0.9), (95, 0.95), (99, 0.99), (999, 0.999)];

/// `GET /_node/{node}/_stats[/{path…}]`. As in CouchDB the response to an unknown path is `null`.
pub(super) async fn stats_of_node(request: Request) -> Answer {
    require_node(&request)?;
    let node = &request.node;
    let path = request.captures.get("path");
    let wanted: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let found: Vec<Stat> =
        stats().into_iter().filter(|stat| stat.segments().take(wanted.len()).eq(wanted.iter().copied())).collect();
    if found.is_empty() {
        return Ok(respond::json(StatusCode::OK, b"null".to_vec()));
    }
    let (totals, (recent, _)) = (node.metrics.totals(), node.metrics.recent(now_us(node), RECENT_US));
    let mut out = Vec::new();
    write_tree(&mut out, &found, wanted.len(), &mut |out, stat| write_stat(out, stat, node, &totals, &recent));
    Ok(respond::json(StatusCode::OK, out))
}

/// Appends the members below `depth`; `stats` must be sorted by path and equal above.
fn write_tree(out: &mut Vec<u8>, stats: &[Stat], depth: usize, leaf: &mut impl FnMut(&mut Vec<u8>, &Stat)) {
    if let [stat] = stats
        && stat.segments().count() == depth
    {
        return leaf(out, stat);
    }
    append_object(out, |object| {
        let mut rest = stats;
        while let Some(name) = rest.first().and_then(|stat| stat.segments().nth(depth)) {
            let length = rest.iter().take_while(|stat| stat.segments().nth(depth) == Some(name)).count();
            write_tree(object.name(name), &rest[..length], depth + 1, leaf);
            rest = &rest[length..];
        }
    });
}

fn write_stat(out: &mut Vec<u8>, stat: &Stat, node: &Node, totals: &Totals, recent: &Totals) {
    append_object(out, |object| {
        let value = object.name("value");
        let kind = match stat.measure() {
            Some(measure) => {
                write_distribution(value, &recent.measure(measure));
                "histogram"
            }
            None => {
                json::write_u64(value, stat.number(&node.figures(), totals));
                stat.reported_kind()
            }
        };
        object.string("type", kind).string("desc", stat.desc);
    });
}

fn write_distribution(out: &mut Vec<u8>, reply: &Distribution) {
    let variance = reply.moment(2);
    let deviation = variance.sqrt();
    let scaled = |power: i32, normal: f64| {
        if deviation > 0.0 { reply.moment(power) / deviation.powi(power) - normal } else { 0.0 }
    };
    // Values below the resolution of the clock are raised to it, because logarithms and inverses are computed.
    let positive = |value: f64| value.max(0.001);
    let is_empty = reply.counts.is_empty();
    let geometric = if is_empty { 0.0 } else { reply.mean_of(|value| positive(value).ln()).exp() };
    let harmonic = if is_empty { 0.0 } else { 1.0 / reply.mean_of(|value| 1.0 / positive(value)) };
    let numbers = [
        ("min", reply.min()),
        ("max", reply.max()),
        ("arithmetic_mean", reply.mean()),
        ("geometric_mean", geometric),
        ("harmonic_mean", harmonic),
        ("median", reply.quantile(0.5)),
        ("variance", variance),
        ("standard_deviation", deviation),
        ("skewness", scaled(3, 0.0)),
        ("kurtosis", scaled(4, 3.0)),
    ];
    let percentiles = PERCENTILES.map(|(name, share)| format!("[{name},{:?}]", reply.quantile(share)));
    let bins: Vec<String> = reply.counts.iter().map(|(value, count)| format!("[{value:?},{count}]")).collect();
    let bins = if bins.is_empty() { "[0,0]".to_owned() } else { bins.join(",") };
    let (percentiles, count) = (percentiles.join(","), reply.count());
    append_object(out, |object| {
        for (name, number) in numbers {
            object.value(name, format_args!("{number:?}"));
        }
        object.value("percentile", format_args!("[{percentiles}]"));
        object.value("histogram", format_args!("[{bins}]")).value("n", count);
    });
}

/// `GET /_stats[/{group}/{name}]`, as in CouchDB 1: since the start, or of the last `range` seconds. The
/// distribution of counters over seconds is not recorded, so `stddev`, `min` and `max` are `null`.
pub(super) async fn stats_of_version_1(request: Request) -> Answer {
    let node = &request.node;
    let range_s = match request.query.get("range") {
        None | Some("0") => None,
        Some(text) => Some(Raw::Text(text.to_owned()).natural()?),
    };
    let path = request.captures.get("path");
    let wanted: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let (totals, span_us) = match range_s {
        None => (node.metrics.totals(), now_us(node).max(1)),
        Some(range_s) => node.metrics.recent(now_us(node), range_s.saturating_mul(1_000_000)),
    };
    let mut old: Vec<Stat> = stats().iter().filter_map(old_name).collect();
    old.retain(|stat| stat.segments().take(wanted.len()).eq(wanted.iter().copied()));
    old.sort_by_key(|stat| stat.path);
    if old.is_empty() && !wanted.is_empty() {
        return Err(Error::not_found("missing"));
    }
    let mut out = Vec::new();
    write_tree(&mut out, &old, 0, &mut |out, stat| write_old(out, stat, node, &totals, span_us as f64 / 1e6));
    Ok(respond::json(StatusCode::OK, out))
}

fn old_name(stat: &Stat) -> Option<Stat> {
    let path = match stat.path {
        ["couchdb", name, ""] => ["couchdb", name, ""],
        ["couchdb", group @ ("httpd" | "httpd_request_methods" | "httpd_status_codes"), name] => [group, name, ""],
        _ => return None,
    };
    Some(Stat { path, ..*stat })
}

fn write_old(out: &mut Vec<u8>, stat: &Stat, node: &Node, totals: &Totals, span_s: f64) {
    let numbers = match stat.measure() {
        Some(measure) => {
            let reply = totals.measure(measure);
            let deviation = reply.moment(2).sqrt();
            let [sum, mean, min, max] = [reply.sum, reply.mean(), reply.min(), reply.max()];
            if reply.counts.is_empty() {
                [const { None }; 6]
            } else {
                [sum, sum, mean, deviation, min, max].map(|number| Some(format!("{number:?}")))
            }
        }
        None => match stat.number(&node.figures(), totals) {
            0 => [const { None }; 6],
            number => {
                let mean = if stat.is_gauge() { number as f64 } else { number as f64 / span_s };
                [Some(number.to_string()), Some(number.to_string()), Some(format!("{mean:?}")), None, None, None]
            }
        },
    };
    append_object(out, |object| {
        object.string("description", stat.desc);
        for (name, number) in ["current", "sum", "mean", "stddev", "min", "max"].into_iter().zip(numbers) {
            object.value_or_null(name, number);
        }
    });
}

pub(super) async fn prometheus(request: Request) -> Answer {
    require_node(&request)?;
    let text = exposition(&request.node);
    Ok(respond::whole(StatusCode::OK, "text/plain; version=2.0", text.into_bytes()))
}

/// Returns samples of the last day. `since` is in ms since the Unix epoch; counters start with the process.
pub(super) async fn history(request: Request) -> Answer {
    require_node(&request)?;
    let since_ms = request.query.get("since").map_or(Ok(0), |text| Raw::Text(text.to_owned()).natural())?;
    let out = object(|object| {
        object.value("interval_ms", INTERVAL_MS).strings("names", NAMES);
        let samples = request.node.history.since(since_ms);
        write_array(object.name("samples"), &samples, |out, Sample { at_ms, numbers }| {
            let numbers = std::iter::once(*at_ms as f64).chain(*numbers);
            write_array(out, numbers, |out, number| out.extend_from_slice(number.to_string().as_bytes()));
        });
    });
    Ok(respond::json(StatusCode::OK, out))
}

/// Returns all numbers in Prometheus' text format, under CouchDB's names where a number has the same meaning.
fn exposition(node: &Node) -> String {
    let (mut text, totals) = (String::new(), node.metrics.totals());
    let (recent, _) = node.metrics.recent(now_us(node), RECENT_US);
    let mut family = String::new();
    let mut head = |text: &mut String, name: &str, kind: &str, desc: &str| {
        if family != name {
            let _ = write!(text, "# HELP {name} {desc}\n# TYPE {name} {kind}\n");
            name.clone_into(&mut family);
        }
    };
    for stat in stats() {
        let (name, label, desc) = prometheus_name(&stat);
        if let Some(measure) = stat.measure() {
            // Sum and count are monotonic, as Prometheus requires; quantiles are of the last minute.
            let (whole, recent) = (totals.measure(measure), recent.measure(measure));
            let scale = if name.ends_with("_seconds") { 1000.0 } else { 1.0 };
            head(&mut text, &name, "summary", desc);
            for (_, share) in PERCENTILES {
                let _ = writeln!(text, "{name}{{quantile=\"{share}\"}} {}", recent.quantile(share) / scale);
            }
            let _ = write!(text, "{name}_sum {}\n{name}_count {}\n", whole.sum / scale, whole.count());
            continue;
        }
        let kind = prometheus_kind(&name, if stat.is_gauge() { "gauge" } else { "counter" });
        head(&mut text, &name, kind, desc);
        let _ = writeln!(text, "{name}{label} {}", stat.number(&node.figures(), &totals));
    }
    for (name, kind, desc, value) in own(node) {
        head(&mut text, &name, prometheus_kind(&name, kind), desc);
        let _ = writeln!(text, "{name} {value}");
    }
    text
}

/// Names of CouchDB that violate the rules of their type are kept for existing dashboards and declared untyped.
fn prometheus_kind(name: &str, kind: &'static str) -> &'static str {
    if (kind == "counter") == name.ends_with("_total") { kind } else { "untyped" }
}

fn prometheus_name(stat: &Stat) -> (String, String, &'static str) {
    let path: Vec<&str> = stat.segments().collect();
    match path[..] {
        ["couchdb", "httpd_request_methods", method] => (
            "couchdb_httpd_request_methods".to_owned(),
            format!("{{method=\"{method}\"}}"),
            "number of HTTP requests by method",
        ),
        ["couchdb", "httpd_status_codes", code] => (
            "couchdb_httpd_status_codes".to_owned(),
            format!("{{code=\"{code}\"}}"),
            "number of HTTP responses by status code",
        ),
        ["couch_log", "level", level] => (
            "couchdb_couch_log_requests_total".to_owned(),
            format!("{{level=\"{level}\"}}"),
            "number of logged messages",
        ),
        _ => {
            let prefix = if path[0] == "settee" { "settee" } else { "couchdb" };
            let rest: Vec<&str> = path.into_iter().skip_while(|part| matches!(*part, "couchdb" | "settee")).collect();
            let mut name = format!("{prefix}_{}", rest.join("_"));
            match stat.measure() {
                Some(crate::metrics::Measure::BulkDocs) => {}
                Some(_) => name.push_str("_seconds"),
                None if !stat.is_gauge() && !name.ends_with("_total") => name.push_str("_total"),
                None => {}
            }
            (name, String::new(), stat.desc)
        }
    }
}

fn own(node: &Node) -> Vec<(String, &'static str, &'static str, String)> {
    let figures = (node.operation.process)();
    let uptime_s = (node.clock_ms)().saturating_sub(node.started_ms) / 1000;
    let cpu_s = figures.cpu_ms as f64 / 1000.0;
    let mut rows = vec![
        ("couchdb_uptime_seconds".to_owned(), "gauge", "couchdb uptime", uptime_s.to_string()),
        ("settee_process_resident_bytes".to_owned(), "gauge", "memory in use", figures.resident_bytes.to_string()),
        ("settee_process_threads".to_owned(), "gauge", "threads", figures.threads.to_string()),
        ("settee_process_cpu_seconds_total".to_owned(), "counter", "processor time", cpu_s.to_string()),
        ("settee_worker_processes".to_owned(), "gauge", "processes that run user code", figures.children.to_string()),
        ("settee_active_tasks".to_owned(), "gauge", "tasks in _active_tasks", node.tasks.list().len().to_string()),
    ];
    for (name, value) in node.catalog.engine_statistics() {
        // Prometheus requires basic, unabbreviated units.
        let (name, value) = match name.strip_suffix("_ms") {
            Some(stem) => (format!("{stem}_seconds"), (value as f64 / 1000.0).to_string()),
            None => (name.replace("_per_s", "_per_second"), value.to_string()),
        };
        let (name, kind) = match name.as_str() {
            "background_errors"
            | "commits"
            | "commits_heard_of"
            | "commits_shared"
            | "conflicts"
            | "connections_made"
            | "polls"
            | "snapshots_interrupted"
            | "synced_commits"
            | "written_bytes"
            | "log_flushes" => (format!("settee_engine_{name}_total"), "counter"),
            // Requests to object storage.
            _ if name.starts_with("store_") => (format!("settee_engine_{name}_total"), "counter"),
            _ => (format!("settee_engine_{name}"), "gauge"),
        };
        rows.push((name, kind, "a number of the storage engine", value));
    }
    rows
}

fn now_us(node: &Node) -> u64 {
    (node.operation.monotonic_us)()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
