//! Two servers on one store, as on one that a network carries.

use std::sync::Arc;

use settee_storage::memory::MemoryEngine;

use super::node::{Ask, World};

#[tokio::test]
async fn feeds_that_wait_hear_of_writes_through_another_server() {
    let engine = MemoryEngine::new();
    let writing = World::on(Arc::new(engine.user()));
    let reading = World::on(Arc::new(engine));
    writing.make_database("_users");
    writing.make_database("db");
    for number in 0..20 {
        let feed = format!("GET /db/_changes?feed=longpoll&timeout=60000&since={number}");
        let feed = reading.ask(Ask::new(&feed).basic("admin", "pw"));
        let put = format!("PUT /db/d{number}");
        // The feed comes first, so most of the time it waits when the document is written.
        let (told, _) = tokio::join!(feed, writing.admin(&put, "{}"));
        assert!(told.body.contains(&format!(r#""id":"d{number}""#)), "{told:?}");
    }
}
