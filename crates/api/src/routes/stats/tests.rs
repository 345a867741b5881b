//! Names in Prometheus and in CouchDB 1.

use super::*;
use crate::tests::node::Ask;

#[test]
fn names_for_prometheus_are_those_of_couchdb() {
    let names: Vec<String> =
        stats().iter().map(|stat| format!("{}{}", prometheus_name(stat).0, prometheus_name(stat).1)).collect();
    for expected in [
        "couchdb_httpd_request_methods{method=\"GET\"}",
        "couchdb_httpd_status_codes{code=\"200\"}",
        "couchdb_request_time_seconds",
        "couchdb_dbinfo_seconds",
        "couchdb_httpd_requests_total",
        "couchdb_httpd_view_reads_total",
        "couchdb_database_writes_total",
        "couchdb_document_purges_total",
        "couchdb_document_purges_success_total",
        "couchdb_open_databases",
        "couchdb_open_os_files",
        "couchdb_httpd_clients_requesting_changes",
        "couchdb_mango_query_time_seconds",
        "couchdb_couch_log_requests_total{level=\"error\"}",
        "settee_view_time_seconds",
    ] {
        assert!(names.iter().any(|name| name == expected), "{expected} is not among {names:#?}");
    }
    let unique: std::collections::BTreeSet<&String> = names.iter().collect();
    assert_eq!(unique.len(), names.len());
    // Prometheus requires that the numbers of a family are adjacent.
    let families: Vec<&str> = names.iter().map(|name| name.split('{').next().unwrap_or_default()).collect();
    let mut runs = families.clone();
    runs.dedup();
    assert_eq!(runs.len(), runs.iter().collect::<std::collections::BTreeSet<_>>().len());
}

/// Returns the objection of `promtool check metrics` to a name and type.
fn lint(name: &str, kind: &str) -> Option<&'static str> {
    let abbreviations = ["s", "ms", "us", "ns", "sec", "b", "kb", "mb", "gb", "tb", "pb", "m", "h", "d"];
    let has = |unit: &&str| name.ends_with(&format!("_{unit}")) || name.contains(&format!("_{unit}_"));
    let is_distribution = kind == "summary" || kind == "histogram";
    if kind == "counter" && !name.ends_with("_total") {
        Some("counters end in _total")
    } else if !matches!(kind, "counter" | "untyped") && name.ends_with("_total") {
        Some("only counters end in _total")
    } else if abbreviations.iter().any(has) {
        Some("units are not abbreviated")
    } else if ["milliseconds", "microseconds", "minutes", "kilobytes", "megabytes"].iter().any(has) {
        Some("units are basic ones")
    } else if !is_distribution && ["_count", "_sum", "_bucket"].iter().any(|end| name.ends_with(end)) {
        Some("only distributions have such an end")
    } else if ["counter", "gauge", "summary", "histogram"].iter().any(has) {
        Some("a name does not name its kind")
    } else if name.contains(':') || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Some("names are in small letters")
    } else {
        None
    }
}

#[tokio::test]
async fn promtool_has_nothing_to_object() {
    let world = crate::tests::node::World::new();
    let text = world.admin("GET /_node/_local/_prometheus", "").await.body;
    let mut families = 0;
    for line in text.lines() {
        let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|line| line.split_once(' ')) else { continue };
        families += 1;
        assert_eq!(lint(name, kind), None, "{name} {kind}");
        assert!(text.contains(&format!("# HELP {name} ")), "{name} has no text");
    }
    assert!(families > 50, "{text}");
}

#[test]
fn an_empty_distribution_is_zeros() {
    let mut out = Vec::new();
    write_distribution(&mut out, &Distribution::default());
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("{\"min\":0.0,\"max\":0.0,\"arithmetic_mean\":0.0,\"geometric_mean\":0.0,"), "{text}");
    assert!(
        text.ends_with(
            "\"percentile\":[[50,0.0],[75,0.0],[90,0.0],[95,0.0],[99,0.0],[999,0.0]],\"histogram\":[[0,0]],\"n\":0}"
        ),
        "{text}"
    );
    settee_model::json::Json::parse(text.as_bytes()).unwrap();
}

#[test]
fn a_distribution_returns_its_moments() {
    let mut counts = vec![0; crate::metrics::histogram::BUCKETS];
    (counts[1], counts[3]) = (2, 2);
    let reply = Distribution::new(counts.into_iter(), 8, 1.0);
    let mut out = Vec::new();
    write_distribution(&mut out, &reply);
    let text = String::from_utf8(out).unwrap();
    for expected in [
        "\"arithmetic_mean\":2.0",
        "\"variance\":1.0",
        "\"harmonic_mean\":1.5",
        "\"skewness\":0.0",
        "\"kurtosis\":-2.0",
        "[[1.0,2],[3.0,2]]",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[tokio::test]
async fn the_history_has_the_samples_after_a_time() {
    let world = crate::tests::node::World::new();
    world.admin("PUT /db", "").await;
    world.admin("PUT /db/a", "{}").await;
    let history = async |since: &str| world.admin(&format!("GET /_node/_local/_history?since={since}"), "").await;
    assert!(history("0").await.body.ends_with("\"samples\":[]}\n"));
    world.node.record_history();
    let answer = history("0").await;
    let json = settee_model::json::Json::parse(answer.body.as_bytes()).unwrap();
    let samples: Vec<_> = json.value().get("samples").unwrap().elements().collect();
    let numbers: Vec<f64> = samples[0].elements().map(|number| number.as_f64().unwrap()).collect();
    assert_eq!((samples.len(), numbers.len()), (1, NAMES.len() + 1));
    assert!(numbers[2] >= 1.0, "{}", answer.body);
    assert!(history(&numbers[0].to_string()).await.body.ends_with("\"samples\":[]}\n"));
    let invalid = Ask::new("GET /_node/_local/_history?since=x").basic("admin", "pw");
    assert_eq!(world.ask(invalid).await.status, 400);
    assert_eq!(world.ask(Ask::new("GET /_node/_local/_history")).await.status, 401);
}
