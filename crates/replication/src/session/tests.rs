//! Whole sessions against the model of a server.

use std::sync::Arc;

use crate::session::{Control, Failure, Outcome};
use crate::testing::{Leaf, Missing, Sequences, Server, Sides, services, spec};

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
async fn a_replication_and_one_without_news() {
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
    assert_eq!((statistics.revisions_checked, statistics.docs_written), (1, 1));
    let third = answer(&outcome);
    assert!(third.contains("\"start_last_seq\":\"5-g1AAAA\"") && third.contains("\"start_last_seq\":0"), "{third}");
}
