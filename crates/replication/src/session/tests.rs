//! Whole sessions against the model of a server.
#![expect(clippy::unwrap_used, reason = "tests")]

mod answers;
mod faults;
mod options;
mod peers;
mod random;

use std::sync::Arc;
use std::time::Duration;

use crate::session::{Control, Failure, Outcome, Statistics};
use crate::spec::Filter;
use crate::testing::{Database, Leaf, Sequences, Server, Sides, Unsupported, services, spec};
use crate::transport::{Body, BoxFuture, Transport, TransportError};

fn sides(server: &Arc<Server>) -> Sides {
    Sides { source: server.clone(), target: server.clone() }
}

fn answer(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Completed(answer) => String::from_utf8(answer.as_bytes().to_vec()).unwrap(),
        Outcome::Stopped | Outcome::Failed(_) => panic!("{outcome:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_replication_and_one_without_changes() {
    let server = Server::with(&["a", "b"]);
    for number in 0..3 {
        server.write("a", &format!("doc{number}"), Leaf::new(&["1-a"], "{\"x\":\"\\\"}\"}"));
    }
    server.write("a", "doc1", Leaf { deleted: true, ..Leaf::new(&["2-b", "1-a"], "{}") });
    server.write("a", "_design/d", Leaf::new(&["1-d"], "{\"views\":{}}"));
    let (spec, services) = (spec("a", "b", ""), services());
    let (outcome, statistics) = sides(&server).run(&spec, &services).await;
    let first = answer(&outcome);
    assert_eq!(server.database("a").state(), server.database("b").state());
    assert_eq!(
        first,
        "{\"session_id\":\"00000000000000000000000000000001\",\"source_last_seq\":\"5-g1AAAA\",\"replication_id_version\":4,\
         \"history\":[{\"session_id\":\"00000000000000000000000000000001\",\"start_time\":\"Fri, 20 Nov 2026 14:28:37 GMT\",\
         \"end_time\":\"Fri, 20 Nov 2026 14:28:37 GMT\",\"start_last_seq\":0,\"end_last_seq\":\"5-g1AAAA\",\
         \"recorded_seq\":\"5-g1AAAA\",\"missing_checked\":4,\"missing_found\":4,\"docs_read\":4,\"docs_written\":4,\
         \"doc_write_failures\":0,\"bulk_get_attempts\":4,\"bulk_get_docs\":4}]}"
    );
    assert_eq!((statistics.docs_written, statistics.changes_pending), (4, Some(0)));

    let (outcome, _) = sides(&server).run(&spec, &services).await;
    assert_eq!(answer(&outcome), format!("{{\"no_changes\":true,{}", &first[1..]));

    server.write("a", "doc0", Leaf::new(&["2-n", "1-a"], "{}"));
    let (outcome, statistics) = sides(&server).run(&spec, &services).await;
    assert_eq!((statistics.revisions_checked, statistics.docs_written), (5, 5), "one more");
    let third = answer(&outcome);
    assert!(third.contains("\"start_last_seq\":\"5-g1AAAA\"") && third.contains("\"start_last_seq\":0"), "{third}");
}

/// A server with a round trip of a second.
struct Distant(Arc<Server>);

impl Transport for Distant {
    fn call(&self, request: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
        Box::pin(async move {
            tokio::time::sleep(Duration::from_secs(1)).await;
            self.0.call(request).await
        })
    }
}

#[tokio::test(start_paused = true)]
async fn requests_to_both_sides_are_concurrent() {
    let server = Server::with(&["a", "b"]);
    let distant: Arc<dyn Transport> = Arc::new(Distant(Arc::clone(&server)));
    let (both, spec, services) =
        (Sides { source: Arc::clone(&distant), target: distant }, spec("a", "b", ""), services());
    // Information, checkpoints (three ids, if none exists), changes, missing revisions, documents, their write, commit,
    // checkpoints.
    for (id, round_trips) in [("first", 10), ("second", 8)] {
        server.write("a", id, Leaf::new(&["1-a"], "{}"));
        let begun = tokio::time::Instant::now();
        answer(&both.run(&spec, &services).await.0);
        assert_eq!(begun.elapsed().as_secs(), round_trips, "{id}");
    }
}

fn varied(sequences: Sequences, missing: Unsupported) -> Arc<Server> {
    let server = Server::new(sequences, missing);
    for name in ["a", "b"] {
        server.databases.lock().insert(name.to_owned(), Database::default());
    }
    server.write("a", "plain", Leaf::new(&["1-a"], "{\"x\":1}"));
    server.write("a", "gone", Leaf { deleted: true, ..Leaf::new(&["2-b", "1-a"], "{}") });
    server.write("a", "conflict", Leaf::new(&["3-c", "2-b", "1-a"], "{\"x\":[]}"));
    server.write("a", "conflict", Leaf::new(&["2-d", "1-a"], "{\"x\":[2]}"));
    server.write("a", "conflict", Leaf { deleted: true, ..Leaf::new(&["2-e", "1-a"], "{}") });
    server.write("a", "_design/d", Leaf::new(&["1-d"], "{\"views\":{}}"));
    server.write("a", "attached", Leaf::new(&["1-f"], "{\"y\":\"_attachments\"}").with("one", 1, b"first"));
    server.write("a", "both/ways?", Leaf::new(&["1-g"], "{}").with("n/1", 1, b"").with("two \u{e9}", 1, &[b'z'; 3000]));
    server.write("a", "\"quoted\"", Leaf::new(&["1-h"], "{\"z\":null}"));
    server
}

async fn check_kinds(sequences: Sequences, missing: Unsupported) {
    let server = varied(sequences, missing);
    let (spec, services) = (spec("a", "b", ""), services());
    let (outcome, statistics) = sides(&server).run(&spec, &services).await;
    answer(&outcome);
    assert_eq!(server.database("a").state(), server.database("b").state(), "{sequences:?} {missing:?}");
    assert_eq!((statistics.docs_read, statistics.docs_written, statistics.doc_write_failures), (9, 9, 0));
    assert_eq!((statistics.revisions_checked, statistics.missing_revisions_found), (9, 9));
    let newer = Leaf::new(&["2-n", "1-f"], "{}").with("one", 1, b"first").with("three", 2, b"3");
    server.write("a", "attached", newer);
    server.log.lock().clear();
    answer(&sides(&server).run(&spec, &services).await.0);
    assert_eq!(server.database("a").state(), server.database("b").state());
    let log = server.log.lock();
    let asked = log.iter().find(|line| line.contains("open_revs")).unwrap();
    assert!(asked.contains("&atts_since=%5B%221-f%22%5D"), "{asked}");
}

#[tokio::test(start_paused = true)]
async fn servers_of_all_kinds_as_peers() {
    for sequences in [Sequences::Numbers, Sequences::Strings, Sequences::Arrays] {
        for (bulk_get, multipart) in [(false, false), (true, false), (false, true), (true, true)] {
            check_kinds(sequences, Unsupported { bulk_get, multipart }).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn options_of_a_replication() {
    let cases: [(&str, &[&str]); 3] = [
        ("\"doc_ids\":[\"plain\",\"nosuch\",\"_design%2Fd\"]", &["_design/d", "plain"]),
        ("\"since_seq\":\"7-g1AAAA\"", &["\"quoted\"", "both/ways?"]),
        ("\"use_checkpoints\":false,\"doc_ids\":[\"plain\"]", &["plain"]),
    ];
    for (members, expected) in cases {
        let server = varied(Sequences::Strings, Unsupported::default());
        let spec = spec("a", "b", members);
        let outcome = answer(&sides(&server).run(&spec, &services()).await.0);
        assert_eq!(server.database("b").state().keys().collect::<Vec<_>>(), expected, "{members}");
        if !spec.tuning.use_checkpoints {
            assert_eq!(outcome, "{\"use_checkpoints\":false}");
            assert!(server.database("a").locals.is_empty() && server.database("b").locals.is_empty());
        }
    }
    let server = varied(Sequences::Strings, Unsupported::default());
    answer(&sides(&server).run(&spec("a", "b", "\"winning_revs_only\":true"), &services()).await.0);
    assert_eq!(server.database("b").leaves("conflict").len(), 1);
    answer(&sides(&server).run(&spec("a", "b", ""), &services()).await.0);
    assert_eq!(server.database("a").state(), server.database("b").state());
    answer(&sides(&server).run(&spec("a", "c", "\"create_target\":true"), &services()).await.0);
    assert_eq!(server.database("a").state(), server.database("c").state());
}

#[tokio::test(start_paused = true)]
async fn design_documents_can_come_later() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let mut others = spec("a", "b", "");
    others.filter = Filter::AllButDesign;
    let (_, statistics) = sides(&server).run(&others, &services()).await;
    assert_eq!((statistics.docs_written, statistics.docs_written_before), (8, 0));
    assert!(!server.database("b").state().contains_key("_design/d"));
    let (_, again) = sides(&server).run(&others, &services()).await;
    assert_eq!((again.docs_written, again.docs_written_before), (8, 8), "its checkpoint covers what was left out");
    answer(&sides(&server).run(&spec("a", "b", "\"doc_ids\":[\"_design/d\"]"), &services()).await.0);
    assert_eq!(server.database("a").state(), server.database("b").state());
}

#[tokio::test(start_paused = true)]
async fn the_counters_of_a_history_go_on_over_sessions() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let spec = spec("a", "b", "");
    let (_, first) = sides(&server).run(&spec, &services()).await;
    server.write("a", "later", Leaf::new(&["1-l"], "{}"));
    let (outcome, second) = sides(&server).run(&spec, &services()).await;
    let counts =
        |one: &Statistics| [one.revisions_checked, one.missing_revisions_found, one.docs_read, one.docs_written];
    assert_eq!(counts(&first), [9; 4]);
    assert_eq!(counts(&second), [10; 4]);
    let answer = answer(&outcome);
    assert!(answer.contains("\"docs_read\":10,") && answer.contains("\"docs_read\":9,"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn documents_that_are_named_and_not_there_are_no_changes() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let spec = spec("a", "b", "\"doc_ids\":[\"nosuch\"]");
    assert_eq!(answer(&sides(&server).run(&spec, &services()).await.0), "{\"no_changes\":true}");
    assert!(server.database("a").locals.is_empty() && server.database("b").locals.is_empty());
}

/// As in CouchDB's `couch_replicator_scheduler_job_tests`.
#[tokio::test(start_paused = true)]
async fn a_checkpoint_goes_before_since_seq() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let spec = spec("a", "b", "\"since_seq\":\"7-g1AAAA\"");
    let since = |server: &Server| {
        let log = server.log.lock();
        let feed = log.iter().find(|line| line.contains("_changes?")).unwrap();
        feed.split("since=").nth(1).unwrap().to_owned()
    };
    answer(&sides(&server).run(&spec, &services()).await.0);
    assert!(since(&server).starts_with("7-g1AAAA"));
    server.log.lock().clear();
    answer(&sides(&server).run(&spec, &services()).await.0);
    let second = since(&server);
    assert!(!second.starts_with("7-g1AAAA") && !second.starts_with('0'), "{second}");
}

#[tokio::test(start_paused = true)]
async fn places_of_silent_peers_do_not_hold_others_up_for_ever() {
    struct Silent;
    impl Transport for Silent {
        fn call(&self, _: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
            Box::pin(std::future::pending())
        }
    }
    let (server, services, spec) = (Server::with(&["a", "b"]), services(), spec("a", "b", ""));
    let silent = Sides { source: Arc::new(Silent), target: Arc::new(Silent) };
    let mut waiting = Vec::new();
    for _ in 0..super::context::CONCURRENT_STARTS_MAX {
        waiting.push(silent.begin(&spec, &services).await);
    }
    tokio::task::yield_now().await;
    let seconds = async || {
        let begun = tokio::time::Instant::now();
        answer(&sides(&server).run(&spec, &services).await.0);
        begun.elapsed().as_secs()
    };
    assert_eq!(seconds().await, super::context::START_PERMIT_TIMEOUT.as_secs());
    waiting.pop();
    assert_eq!(seconds().await, 0);
}

#[tokio::test(start_paused = true)]
async fn databases_that_are_not_there() {
    let server = Server::with(&["a"]);
    for (source, target) in [("nosuch", "a"), ("a", "nosuch")] {
        let (outcome, _) = sides(&server).run(&spec(source, target, ""), &services()).await;
        let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
        assert_eq!(failure.to_string(), "db_not_found: could not open nosuch");
    }
}

#[tokio::test(start_paused = true)]
async fn documents_that_a_target_refuses() {
    let server = varied(Sequences::Strings, Unsupported::default());
    *server.forbidden.lock() = ["plain", "_design/d", "attached"].map(str::to_owned).to_vec();
    let (outcome, statistics) = sides(&server).run(&spec("a", "b", ""), &services()).await;
    answer(&outcome);
    assert_eq!((statistics.docs_read, statistics.docs_written, statistics.doc_write_failures), (9, 6, 3));
    assert!(!server.database("b").documents.contains_key("plain"));
    let (outcome, statistics) = sides(&server).run(&spec("a", "b", ""), &services()).await;
    assert!(answer(&outcome).starts_with("{\"no_changes\":true"));
    assert_eq!(statistics.doc_write_failures, 3, "no more than before");
}

#[tokio::test(start_paused = true)]
async fn batches_that_are_too_long_are_divided() {
    let server = Arc::new(Server { max_body_bytes: 1000, ..Arc::into_inner(Server::with(&["a", "b"])).unwrap() });
    for number in 0..20 {
        server.write("a", &format!("doc{number}"), Leaf::new(&["1-a"], &format!("{{\"x\":\"{number:0120}\"}}")));
    }
    server.write("a", "long", Leaf::new(&["1-a"], &format!("{{\"x\":\"{:02000}\"}}", 1)));
    let spec = spec("a", "b", "\"worker_batch_size\":15");
    let (outcome, statistics) = sides(&server).run(&spec, &services()).await;
    answer(&outcome);
    assert_eq!((statistics.docs_written, statistics.doc_write_failures), (20, 1));
    assert_eq!(server.database("b").documents.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn later_changes_are_replicated_at_once_and_a_stop_is_recorded() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let (spec, services) = (spec("a", "b", "\"continuous\":true"), services());
    let both = sides(&server);
    let (control, outcome, progress) = both.begin(&spec, &services).await;
    let same = || {
        assert!(!outcome.is_finished());
        server.database("a").state() == server.database("b").state()
    };
    while !same() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    for round in 1..4 {
        let history: Vec<String> = (1..=round).rev().map(|generation| format!("{generation}-x")).collect();
        let history: Vec<&str> = history.iter().map(String::as_str).collect();
        server.write("a", "later", Leaf::new(&history, "{}"));
        while !same() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    tokio::time::sleep(Duration::from_secs(40)).await;
    let seq = |json: Option<settee_model::json::Json>| String::from_utf8(json.unwrap().into_bytes()).unwrap();
    assert_eq!(seq(progress.statistics().checkpointed_source_seq), "\"12-g1AAAA\"");
    server.write("a", "last", Leaf::new(&["1-l"], "{}"));
    while !same() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    control.send(Control::Stop).unwrap();
    assert!(matches!(outcome.await.unwrap(), Outcome::Stopped));
    assert_eq!(seq(progress.statistics().checkpointed_source_seq), "\"13-g1AAAA\"");
    let (control, outcome, progress) = both.begin(&spec, &services).await;
    tokio::time::sleep(Duration::from_secs(40)).await;
    assert_eq!(progress.statistics().revisions_checked, 13, "no more than before");
    drop(control);
    assert!(matches!(outcome.await.unwrap(), Outcome::Stopped));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_recreated() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let (spec, services) = (spec("a", "b", "\"continuous\":true"), services());
    let both = sides(&server);
    let (_control, outcome, _) = both.begin(&spec, &services).await;
    while server.database("b").documents.len() < 7 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let fresh = Database { instance: 77, ..Database::default() };
    server.databases.lock().insert("a".to_owned(), fresh);
    server.write("a", "new", Leaf::new(&["1-n"], "{}"));
    let outcome = outcome.await.unwrap();
    let Outcome::Failed(Failure::Checkpoint(text)) = &outcome else { panic!("{outcome:?}") };
    assert!(text.starts_with("Source database out of sync"), "{text}");
    let (_control, _outcome, _) = both.begin(&spec, &services).await;
    while !server.database("b").documents.contains_key("new") {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn revisions_that_are_purged_in_between() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let spec = spec("a", "b", "");
    server.databases.lock().get_mut("a").unwrap().phantoms.push(("ghost".to_owned(), "1-g".to_owned()));
    let (outcome, _) = sides(&server).run(&spec, &services()).await;
    let Outcome::Failed(failure) = outcome else { panic!("{outcome:?}") };
    assert_eq!(failure, Failure::Missing("ghost".to_owned(), "1-g".to_owned()));
    server.databases.lock().get_mut("a").unwrap().phantoms.clear();
    answer(&sides(&server).run(&spec, &services()).await.0);
    assert_eq!(server.database("a").state(), server.database("b").state());
}

#[tokio::test(start_paused = true)]
async fn checkpoints_under_older_ids_go_on_under_the_newest() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let (spec, services) = (spec("a", "b", ""), services());
    answer(&sides(&server).run(&spec, &services).await.0);
    let (source, _) = sides(&server).peers(&spec);
    let id = crate::id::ReplicationId::compute(&spec, &crate::testing::identity(), &source).await.unwrap();
    for (name, version) in [("a", 0), ("b", 1)] {
        let mut databases = server.databases.lock();
        let locals = &mut databases.get_mut(name).unwrap().locals;
        let log = locals.remove(&format!("_local/{}", id.base)).unwrap();
        locals.insert(format!("_local/{}", id.older[version]), log);
    }
    let (outcome, statistics) = sides(&server).run(&spec, &services).await;
    assert!(answer(&outcome).starts_with("{\"no_changes\":true,\"session_id\":"));
    assert_eq!(statistics.revisions_checked, 9, "no more than before");
    for name in ["a", "b"] {
        assert_eq!(server.database(name).locals.len(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_no_json_does_not_stop_the_others() {
    let server = Server::with(&["a", "b"]);
    for number in 0..10 {
        server.write("a", &format!("doc{number}"), Leaf::new(&["1-a"], "{\"x\":1}"));
    }
    server.write("a", "bad", Leaf::new(&["1-a"], "{\"x\":01,\"y\":\"\\q\"}"));
    let (outcome, statistics) = sides(&server).run(&spec("a", "b", ""), &services()).await;
    answer(&outcome);
    assert_eq!((statistics.docs_written, statistics.doc_write_failures), (10, 1));
}

#[tokio::test(start_paused = true)]
async fn clocks_that_jump_show_in_dates_only() {
    let server = varied(Sequences::Strings, Unsupported::default());
    let (mut services, spec) = (services(), spec("a", "b", "\"continuous\":true,\"checkpoint_interval\":1000"));
    let jumps = std::sync::atomic::AtomicU64::new(0);
    services.now_s = Arc::new(move || match jumps.fetch_add(1, std::sync::atomic::Ordering::Relaxed) % 3 {
        0 => 4_000_000_000,
        1 => 0,
        _ => 1_795_184_917,
    });
    let both = sides(&server);
    let (control, outcome, _) = both.begin(&spec, &services).await;
    for round in 0..5 {
        server.write("a", &format!("round{round}"), Leaf::new(&["1-r"], "{}"));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(server.database("a").state(), server.database("b").state());
    }
    control.send(Control::Stop).unwrap();
    assert!(matches!(outcome.await.unwrap(), Outcome::Stopped));
    let log = server.database("b").locals.into_values().next().unwrap();
    assert_eq!(log.0, 5, "a checkpoint for each round");
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_wait_for_a_silent_side() {
    use crate::testing::{Fault, Faulty};
    let server = varied(Sequences::Strings, Unsupported::default());
    let target = Faulty::new(server.clone(), Fault::Stall, 6, u64::MAX / 2);
    let both = Sides { source: server.clone(), target };
    let spec = spec("a", "b", "\"continuous\":true,\"worker_processes\":1,\"worker_batch_size\":2");
    let (control, outcome, _) = both.begin(&spec, &services()).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let begun = tokio::time::Instant::now();
    control.send(Control::Stop).unwrap();
    assert!(matches!(outcome.await.unwrap(), Outcome::Stopped));
    assert!(begun.elapsed() <= Duration::from_secs(11), "{:?}", begun.elapsed());
}
