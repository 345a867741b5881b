//! Read faults of the store: each request fails with a descriptive error, and succeeds after the fault.

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{Engine, StorageError};
use settee_storage::faulty::FaultyEngine;

use super::node::{Ask, World};

const REQUESTS: [(&str, &str); 17] = [
    ("GET /db", ""),
    ("GET /db/d", ""),
    ("GET /db/d?conflicts=true&revs_info=true", ""),
    ("GET /db/d?open_revs=all", ""),
    ("GET /db/_all_docs?include_docs=true", ""),
    ("POST /db/_all_docs?include_docs=true", r#"{"keys":["d","e","x"]}"#),
    ("GET /db/_changes?include_docs=true", ""),
    ("GET /db/_changes?style=all_docs&descending=true", ""),
    ("POST /db/_bulk_get", r#"{"docs":[{"id":"d"},{"id":"e"}]}"#),
    ("POST /db/_revs_diff", r#"{"d":["9-0"],"e":["9-0"]}"#),
    ("GET /db/_revs_limit", ""),
    ("GET /db/_local/l", ""),
    ("POST /db/_find", r#"{"selector":{"n":{"$gt":0}}}"#),
    ("GET /db/_design/i/_view/v?reduce=false&include_docs=true", ""),
    ("GET /db/_design/i/_info", ""),
    ("PUT /db/new", "{}"),
    ("POST /db/_bulk_docs", r#"{"docs":[{"_id":"f"},{"_id":"g"}]}"#),
];

#[tokio::test]
async fn every_read_of_a_request_can_fail() {
    let engine = Arc::new(FaultyEngine::new());
    let world = World::on(Arc::clone(&engine) as Arc<dyn Engine>);
    world.make_database("db");
    world.admin("PUT /db/d", r#"{"n":1}"#).await;
    world.admin("PUT /db/e", r#"{"n":2}"#).await;
    world.admin("PUT /db/_local/l", "{}").await;
    world.admin("PUT /db/_design/rules", r#"{"validate_doc_update":"anything"}"#).await;
    world.admin("POST /db/_index", r#"{"index":{"fields":["n"]},"ddoc":"i","name":"v"}"#).await;
    for (line, body) in REQUESTS {
        let ask = || world.ask(Ask::new(line).basic("admin", "pw").json(body));
        let mut failed = 0;
        for nth in 1.. {
            assert!(nth < 200, "{line} reads without end");
            let before = engine.reads();
            engine.inject_read(nth, StorageError::Io("the disk is gone".to_owned()));
            let reply = ask().await;
            let met = engine.reads() >= before + nth;
            engine.clear_read_faults();
            if !met {
                // An earlier attempt may have failed in an optional step and created the document.
                let is_well = reply.status.is_success() || reply.status == StatusCode::CONFLICT;
                assert!(is_well, "{line} without a fault: {reply:?}");
                break;
            }
            if reply.status == StatusCode::CONFLICT {
                continue;
            }
            // Optional steps may be skipped, but failures have an error message.
            if !reply.status.is_success() {
                assert!(reply.status.is_server_error(), "{line} at read {nth}: {reply:?}");
                assert!(reply.body.contains("the disk is gone"), "{line} at read {nth}: {reply:?}");
                failed += 1;
            }
        }
        assert!(failed > 0, "{line} reads nothing");
    }
}
