//! Tests of metrics since the start and of a recent range.

use super::*;

const SECOND_US: u64 = 1_000_000;

#[test]
fn threads_add_up() {
    let metrics = Metrics::new(0);
    std::thread::scope(|scope| {
        for _ in 0..9 {
            scope.spawn(|| {
                for n in 0..1000 {
                    metrics.count(Count::ViewReads);
                    metrics.measure(Measure::BulkDocs, n % 10);
                    metrics.answered(&Method::GET, StatusCode::OK, 0);
                }
            });
        }
    });
    let totals = metrics.totals();
    assert_eq!((totals.count(Count::ViewReads), totals.status(200), totals.requests()), (9000, 9000, 9000));
    let bulk = totals.measure(Measure::BulkDocs);
    assert_eq!((bulk.count(), bulk.sum, bulk.max()), (9000, 9.0 * 4500.0, 9.0));
}

#[test]
fn unknown_methods_and_codes_are_counted() {
    let metrics = Metrics::new(0);
    for (method, status) in [("COPY", 100), ("PUT", 599), ("PROPFIND", 999), ("X", 418)] {
        metrics.answered(&Method::from_bytes(method.as_bytes()).unwrap(), StatusCode::from_u16(status).unwrap(), 0);
    }
    let totals = metrics.totals();
    assert_eq!((totals.method(0), totals.method(6), totals.method(7)), (1, 1, 2));
    assert_eq!((totals.status(100), totals.status(599), totals.status(418)), (1, 2, 1));
}

#[test]
fn recent_numbers_forget_older_ones() {
    let metrics = Metrics::new(0);
    for second in 1..=2400 {
        metrics.answered(&Method::GET, StatusCode::OK, second * SECOND_US);
    }
    let now = 2400 * SECOND_US;
    for (range_s, expected) in [(60, 60..=71), (300, 300..=311), (900, 890..=911)] {
        let (totals, span_us) = metrics.recent(now, range_s * SECOND_US);
        assert!(expected.contains(&totals.requests()), "{range_s}: {}", totals.requests());
        assert!(totals.requests().abs_diff(span_us / SECOND_US) <= 1, "{range_s}: {span_us}");
    }
    let (totals, _) = metrics.recent(now + 500 * SECOND_US, 60 * SECOND_US);
    assert!(totals.requests() <= 10, "{}", totals.requests());
    assert_eq!(metrics.totals().requests(), 2400);
}

#[test]
fn every_name_stands_once() {
    let stats = table::stats();
    let paths: std::collections::BTreeSet<Vec<&str>> = stats.iter().map(|stat| stat.segments().collect()).collect();
    assert_eq!(paths.len(), stats.len());
    for path in &paths {
        let inside = |other: &&Vec<&str>| other.len() > path.len() && other.starts_with(path);
        assert_eq!(paths.iter().find(inside), None, "a number cannot hold others");
    }
}
