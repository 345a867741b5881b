//! Builds, waiting for them, and their failures.

use std::ops::ControlFlow;

use settee_design::{Limits, LimitsSource, RunError};
use settee_storage::{Shard, StorageError};
use settee_storage_testing::engine;

use super::host::TestHost;
use super::random::{VIEWS, change};
use super::{ask, core, core_with_log, ddoc, kept_log, model, settings};
use crate::ViewError;
use crate::pace::Urgency;
use crate::query::{Header, MapRow, Reduce, ReduceRow, RowSink, Update, ViewQuery};
use settee_model::testing::Random;

fn host(documents: u64) -> TestHost {
    let host = TestHost::new(engine());
    change(&host, &mut Random::of(9), documents, 500);
    host
}

#[test]
fn identical_map_functions_share_an_index_and_a_pass_takes_all() {
    let host = host(100);
    let core = core(settings(1, 1 << 20));
    ask(&core, &host, &ddoc(VIEWS), "plain", &ViewQuery::default()).unwrap();
    assert_eq!(host.index_count(), 4, "value, raw, none, each");
    let same = ddoc(r#""x": {"map": "each list", "reduce": "_count"}, "y": {"map": "value k v"}"#);
    let stale = ViewQuery { update: Update::False, ..ViewQuery::default() };
    for view in ["x", "y"] {
        let expected = model::answer(&host.documents.lock().clone(), &same, view, &stale);
        assert_eq!(ask(&core, &host, &same, view, &stale).unwrap(), expected);
    }
    assert_eq!(host.index_count(), 4);
}

#[test]
fn a_new_reduce_function_needs_no_map() {
    let host = host(3_000);
    let core = core(settings(2, 1 << 20));
    let query = ViewQuery { reduce: Reduce::Level(1), ..ViewQuery::default() };
    for reduce in ["_count", "_sum", "count", "_stats"] {
        let ddoc = ddoc(&format!(r#""v": {{"map": "value k v", "reduce": "{reduce}"}}"#));
        let expected = model::answer(&host.documents.lock().clone(), &ddoc, "v", &query);
        // Without an update only reductions can be computed.
        let update = if reduce == "_count" { Update::True } else { Update::False };
        assert_eq!(ask(&core, &host, &ddoc, "v", &ViewQuery { update, ..query.clone() }).unwrap(), expected);
    }
    assert_eq!(host.index_count(), 1);
    change(&host, &mut Random::of(4), 300, 500);
    let ddoc = ddoc(r#""v": {"map": "value k v", "reduce": "_sum"}"#);
    let expected = model::answer(&host.documents.lock().clone(), &ddoc, "v", &query);
    assert_eq!(ask(&core, &host, &ddoc, "v", &query).unwrap(), expected);
}

#[test]
fn exceptions_are_logged_and_leave_out_the_document() {
    let host = TestHost::new(engine());
    host.put("a", Some("\"t\":1"));
    host.put("b", Some(""));
    let (log, lines) = kept_log();
    let core = core_with_log(settings(1, 1 << 20), log);
    let ddoc = ddoc(r#""v": {"map": "throw"}"#);
    let rows = ask(&core, &host, &ddoc, "v", &ViewQuery::default()).unwrap();
    assert_eq!(rows.map, [("\"b\"".to_owned(), "b".to_owned(), "1".to_owned())]);
    assert_eq!(*lines.lock(), ["_design/d Some(\"a\") thrown"]);
}

#[test]
fn failures_reach_the_client_and_the_next_try_succeeds() {
    let host = host(50);
    let core = core(settings(2, 1 << 20));
    let all = ViewQuery::default();
    host.put("bad", Some("\"f\":1"));
    match ask(&core, &host, &ddoc(r#""v": {"map": "fatal"}"#), "v", &all) {
        Err(ViewError::Run(RunError::Fatal { name, reason })) => {
            assert_eq!((name.as_str(), reason.as_str()), ("map_runtime_error", "the end"));
        }
        other => panic!("{other:?}"),
    }
    host.put("bad", None);
    ask(&core, &host, &ddoc(r#""v": {"map": "fatal"}"#), "v", &all).unwrap();
    assert!(matches!(ask(&core, &host, &ddoc(r#""v": {"map": "wrong"}"#), "v", &all), Err(ViewError::Compile(_))));
    let unknown = ask(&core, &host, &ddoc(r#""v": {"map": "value k v", "reduce": "_nosuch"}"#), "v", &all);
    assert!(matches!(unknown, Err(ViewError::Compile(_))));
    let mut other = ddoc(VIEWS);
    other.language = "cobol".into();
    assert!(
        matches!(ask(&core, &host, &other, "plain", &all), Err(ViewError::UnknownLanguage(name)) if name == "cobol")
    );
}

#[test]
fn clients_share_a_build() {
    let host = host(2_000);
    let core = core(settings(2, 10_000));
    let ddoc = ddoc(VIEWS);
    let all = ViewQuery::default();
    let expected = model::answer(&host.documents.lock().clone(), &ddoc, "plain", &all);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert_eq!(ask(&core, &host, &ddoc, "plain", &all).unwrap(), expected));
        }
    });
    let info = core.info(&host, &ddoc).unwrap();
    assert_eq!((info.updater_running, info.waiting_clients, info.updates_pending), (false, 0, 0));
    assert_eq!(info.update_seq, host.documents.lock().update_seq);
    assert!(info.external_bytes > 0 && info.file_bytes > 0 && info.signature.len() == 32);
    host.put("new", Some(""));
    assert_eq!(core.info(&host, &ddoc).unwrap().updates_pending, 1);
}

#[test]
fn cleanup_keeps_referenced_indexes() {
    let host = host(100);
    let core = core(settings(1, 1 << 20));
    let (one, two) = (ddoc(VIEWS), ddoc(r#""v": {"map": "each list"}, "w": {"map": "value v k"}"#));
    core.update(&host, &one, Urgency::Client).unwrap();
    core.update(&host, &two, Urgency::Client).unwrap();
    assert_eq!(host.index_count(), 5);
    assert_eq!(core.collect(&host, &[one.clone(), two.clone()], 0).unwrap(), 0);
    assert_eq!(core.collect(&host, std::slice::from_ref(&two), 0).unwrap(), 3);
    assert_eq!(host.index_count(), 2);
    let all = ViewQuery::default();
    for (ddoc, view) in [(&one, "sum"), (&two, "v")] {
        let expected = model::answer(&host.documents.lock().clone(), ddoc, view, &all);
        assert_eq!(ask(&core, &host, ddoc, view, &all).unwrap(), expected);
    }
}

#[test]
fn cleanup_beside_queries_changes_no_answer() {
    let engine = engine();
    let host = TestHost::new(engine.clone());
    change(&host, &mut Random::of(8), 300, 500);
    let core = core(settings(2, 1 << 20));
    let ddoc = ddoc(VIEWS);
    let all = ViewQuery::default();
    let expected = model::answer(&host.documents.lock().clone(), &ddoc, "sum", &all);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..60).for_each(|_| assert_eq!(ask(&core, &host, &ddoc, "sum", &all).unwrap(), expected)));
        }
        for _ in 0..60 {
            core.collect(&host, &[], 0).unwrap();
        }
    });
    core.collect(&host, &[], 0).unwrap();
    assert_eq!(host.index_count(), 0);
    let shards = host.shards_given_out();
    let is_dropped = |shard| matches!(engine.snapshot(shard).unwrap().state(), Err(StorageError::Dropped));
    let left: Vec<Shard> = shards.filter(|shard| !is_dropped(*shard)).collect();
    assert_eq!(left, [], "no index was built that no query finds");
}

#[test]
fn a_stopped_database_is_not_indexed() {
    let host = host(100);
    let core = core(settings(1, 1 << 20));
    core.indexes_of(crate::host::IndexHost::shard(&host)).stop_and_wait();
    let ddoc = ddoc(VIEWS);
    assert!(matches!(ask(&core, &host, &ddoc, "plain", &ViewQuery::default()), Err(ViewError::Stopped)));
    core.stop();
    assert!(matches!(core.update(&host, &ddoc, Urgency::Client), Err(ViewError::Stopped)));
}

struct StoppingSink(usize);

impl RowSink for StoppingSink {
    fn header(&mut self, _: Header) -> ControlFlow<()> {
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn map_row(&mut self, _: MapRow<'_>) -> ControlFlow<()> {
        self.0 -= 1;
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn reduce_row(&mut self, _: ReduceRow<'_>) -> ControlFlow<()> {
        self.0 -= 1;
        if self.0 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

#[test]
fn a_receiver_may_hang_up_at_any_row() {
    let host = host(900);
    let core = core(settings(1, 1 << 20));
    let ddoc = ddoc(VIEWS);
    for rows in [0, 1, 2, 10, 100] {
        for reduce in [Reduce::Off, Reduce::Exact, Reduce::Level(1)] {
            let query = ViewQuery { reduce, ..ViewQuery::default() };
            let _ = core.query((&host, None), &ddoc, "each", &query, &mut StoppingSink(rows)).unwrap();
        }
    }
}

/// Each index records independently whether its documents arrived in the order of their ids.
#[test]
fn indexes_of_one_pass_see_different_documents() {
    let host = TestHost::new(engine());
    for (id, member) in [("9", "a"), ("1", "b"), ("3", "a"), ("2", "b"), ("4", "a")] {
        host.put(id, Some(&format!("\"{member}\":7")));
    }
    let core = core(settings(1, 1 << 20));
    let ddoc = ddoc(r#""a": {"map": "value a _id"}, "b": {"map": "value b _id"}"#);
    let check = |name: &str| {
        let expected = model::answer(&host.documents.lock().clone(), &ddoc, name, &ViewQuery::default());
        assert_eq!(ask(&core, &host, &ddoc, name, &ViewQuery::default()).unwrap(), expected, "{name}");
    };
    check("a");
    check("b");
    for id in ["9", "3", "4", "1", "2"] {
        host.put(id, None);
        check("a");
        check("b");
    }
}

#[test]
fn long_rows_are_sorted_and_applied_bit_by_bit() {
    let host = TestHost::new(engine());
    let put = |round: usize| {
        for number in 0..40 {
            let long = |n: usize| format!("\"{}{n}\"", "x".repeat(700 + (n * 37 + round * 11) % 500));
            let list: Vec<String> = (0..6).map(|n| long((number * 7 + n * round) % 19)).collect();
            host.put(&format!("d{:02}", number * 17 % 40), Some(&format!("\"list\":[{}]", list.join(","))));
        }
    };
    let mut settings = settings(2, 3_000);
    settings.limits = LimitsSource::new(|| Limits { bytes_per_part: 2_000, ..Limits::default() });
    let core = core(settings);
    let ddoc =
        ddoc(r#""v": {"map": "each list", "reduce": "_count"}, "sum": {"map": "each list", "reduce": "summary"}"#);
    for round in 0..4 {
        put(round);
        for (view, reduce) in [("v", Reduce::Off), ("v", Reduce::Whole), ("sum", Reduce::Whole)] {
            let query = ViewQuery { reduce, ..ViewQuery::default() };
            let expected = model::answer(&host.documents.lock().clone(), &ddoc, view, &query);
            assert_eq!(ask(&core, &host, &ddoc, view, &query).unwrap(), expected, "{view} in round {round}");
        }
    }
}
