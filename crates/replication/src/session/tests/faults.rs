//! Exchanges that fail, individually or all from one on: no revision is lost or written twice.

use std::sync::Arc;

use super::varied;
use crate::session::{Outcome, Statistics};
use crate::spec::Spec;
use crate::testing::{Fault, Faulty, Leaf, Sequences, Server, Sides, Unsupported, services, spec};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}

const FAULTS: [Fault; 7] = [
    Fault::Before,
    Fault::After,
    Fault::Cut,
    Fault::Status(500),
    Fault::Status(429),
    Fault::Status(503),
    Fault::Status(401),
];

fn spec_of_batches() -> Spec {
    spec("a", "b", "\"worker_batch_size\":3,\"worker_processes\":2,\"checkpoint_interval\":1")
}

async fn faulty(server: &Arc<Server>, side: Side, fault: Fault, first: u64, count: u64) -> (Outcome, Statistics, u64) {
    let broken = Faulty::new(server.clone(), fault, first, count);
    let sides = match side {
        Side::Source => Sides { source: broken.clone(), target: server.clone() },
        Side::Target => Sides { source: server.clone(), target: broken.clone() },
    };
    let (outcome, statistics) = sides.run(&spec_of_batches(), &services()).await;
    (outcome, statistics, broken.exchanges())
}

fn assert_copied(server: &Server, context: &str) {
    let (source, target) = (server.database("a"), server.database("b"));
    assert_eq!(source.state(), target.state(), "{context}");
    let twice: Vec<_> = target.writes.iter().filter(|(_, count)| **count != 1).collect();
    assert!(twice.is_empty(), "{context}: {twice:?}");
}

async fn check_every_exchange(missing: Unsupported) {
    for side in [Side::Source, Side::Target] {
        for fault in FAULTS {
            let mut first = 0;
            loop {
                let context = format!("{side:?} {fault:?} at exchange {first}, {missing:?}");
                let server = varied(Sequences::Strings, missing);
                let (outcome, statistics, exchanges) = faulty(&server, side, fault, first, 1).await;
                let passing = fault != Fault::Status(401);
                assert!(matches!(outcome, Outcome::Completed(_)) || !passing, "{context}: {outcome:?}");
                if passing {
                    assert_copied(&server, &context);
                    assert_eq!(statistics.docs_written, 9, "{context}");
                }
                let whole = Sides { source: server.clone(), target: server.clone() };
                let (outcome, _) = whole.run(&spec_of_batches(), &services()).await;
                assert!(matches!(outcome, Outcome::Completed(_)), "{context}: {outcome:?}");
                if passing || first < 4 {
                    assert_copied(&server, &context);
                }
                if first >= exchanges {
                    break;
                }
                first += 1;
            }
            assert!(first > 10, "{side:?} {fault:?}: only {first} exchanges");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_exchange_fails() {
    check_every_exchange(Unsupported::default()).await;
}

#[tokio::test(start_paused = true)]
async fn one_exchange_with_an_old_server_fails() {
    check_every_exchange(Unsupported { bulk_get: true, multipart: true }).await;
}

#[tokio::test(start_paused = true)]
async fn a_side_dies_at_any_exchange_and_comes_back() {
    for side in [Side::Source, Side::Target] {
        for fault in [Fault::Before, Fault::After, Fault::Cut] {
            let mut first = 0;
            loop {
                let context = format!("{side:?} {fault:?} from exchange {first} on");
                let server = varied(Sequences::Strings, Unsupported::default());
                let (outcome, _, exchanges) = faulty(&server, side, fault, first, u64::MAX / 2).await;
                if first >= exchanges {
                    assert!(matches!(outcome, Outcome::Completed(_)), "{context}: {outcome:?}");
                    assert_copied(&server, &context);
                    break;
                }
                assert!(matches!(outcome, Outcome::Failed(_)) || fault == Fault::Cut, "{context}: {outcome:?}");
                server.write("a", "meanwhile", Leaf::new(&["1-m"], "{}"));
                let whole = Sides { source: server.clone(), target: server.clone() };
                let (outcome, _) = whole.run(&spec_of_batches(), &services()).await;
                assert!(matches!(outcome, Outcome::Completed(_)), "{context}: {outcome:?}");
                assert_copied(&server, &context);
                first += 1;
            }
            assert!(first > 10, "{side:?} {fault:?}: only {first} exchanges");
        }
    }
}

/// The process that replicates is killed: its tasks end at any point.
#[tokio::test(start_paused = true)]
async fn a_session_is_killed_at_any_exchange() {
    for side in [Side::Source, Side::Target] {
        let mut first = 0;
        loop {
            let server = varied(Sequences::Strings, Unsupported::default());
            let stalled = Faulty::new(server.clone(), Fault::Stall, first, u64::MAX / 2);
            let sides = match side {
                Side::Source => Sides { source: stalled.clone(), target: server.clone() },
                Side::Target => Sides { source: server.clone(), target: stalled.clone() },
            };
            let (_control, session, _) = sides.begin(&spec_of_batches(), &services()).await;
            let mut session = session;
            // The clock advances only if no task can run: the session then waits for a response that never arrives.
            let ended = tokio::time::timeout(std::time::Duration::from_secs(60), &mut session).await;
            session.abort();
            let context = format!("{side:?} at exchange {first}");
            let whole = Sides { source: server.clone(), target: server.clone() };
            let (outcome, _) = whole.run(&spec_of_batches(), &services()).await;
            assert!(matches!(outcome, Outcome::Completed(_)), "{context}: {outcome:?}");
            assert_copied(&server, &context);
            if ended.is_ok() {
                break;
            }
            first += 1;
        }
        assert!(first > 10, "{side:?}: only {first} exchanges");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_are_split_where_a_peer_takes_less() {
    let mut server = Server::with(&["a", "b"]);
    Arc::get_mut(&mut server).unwrap().max_body_bytes = 2_000;
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(300));
    for number in 0..60 {
        server.write("a", &format!("a-document-with-a-long-name-{number:04}"), Leaf::new(&["1-a"], &body));
    }
    server.write("a", "too-long", Leaf::new(&["1-b"], &format!("{{\"text\":\"{}\"}}", "x".repeat(3_000))));
    let sides = Sides { source: server.clone(), target: server.clone() };
    let (outcome, statistics) = sides.run(&spec("a", "b", "\"worker_batch_size\":500"), &services()).await;
    assert!(matches!(outcome, Outcome::Completed(_)), "{outcome:?}");
    let asked = |path: &str| server.log.lock().iter().filter(|line| line.contains(path)).count();
    let counts = ["_revs_diff", "_bulk_get", "_bulk_docs"].map(asked);
    assert!(counts.iter().all(|count| *count > 2), "{counts:?}");
    assert_eq!((statistics.docs_written, statistics.doc_write_failures), (60, 1));
    assert_eq!(server.database("b").writes.len(), 60);
}
