//! Optimistic validation of small writes, on a store with another writer.

use std::sync::Arc;

use data_encoding::BASE64;
use settee_auth::{Authenticator, hash_password};
use settee_design::CallError;
use settee_design::scripted::Scripted;
use settee_settings::{Persist, Settings};
use settee_storage::memory::MemoryEngine;

use super::late::LateEngine;
use super::live::{Live, Reply, Values};
use super::parts::parts;
use crate::NodeDependencies;

/// Two servers on one store with the database `db`, which only writers may use. They have no connection to
/// each other, so no write is forwarded.
struct Pair {
    here: Live,
    there: Live,
    /// The store of the first server.
    late: Arc<LateEngine>,
    settings: Arc<Values>,
}

async fn server(store: &MemoryEngine) -> (Live, Arc<LateEngine>, Arc<Values>) {
    let engine = LateEngine::on(store);
    let authenticator = Authenticator::new([7; 32]);
    let rounds = std::num::NonZeroU32::new(2).unwrap();
    authenticator.set_admins([("admin".to_owned(), hash_password("pw", "salt", rounds))]);
    let refuses = Scripted::new(|source, _, _| match &*source.id {
        "_design/d" => Err(CallError::Forbidden("no".into())),
        _ => Ok(b"1".to_vec()),
    });
    let settings = Arc::new(Values::of(&["chttpd_auth/iterations=2", "chttpd_auth_lockout/threshold=3"]));
    let parts = parts(Arc::clone(&engine) as Arc<dyn settee_database::Engine>, vec![Arc::new(refuses)]);
    let of_server = Arc::clone(&settings) as Arc<dyn Settings>;
    (Live::of(NodeDependencies { settings: of_server, authenticator, ..parts }).await, engine, settings)
}

/// Sends a request of a user, `name:password`.
async fn ask(server: &Live, user: &str, line: &str, body: &str) -> Reply {
    let authorization = format!("Basic {}", BASE64.encode(user.as_bytes()));
    let headers = [("Authorization", authorization.as_str()), ("Content-Type", "application/json")];
    server.client().await.request(line, &headers, body).await
}

fn ann(password: &str) -> String {
    format!(r#"{{"name":"ann","type":"user","roles":["writers"],"password":"{password}"}}"#)
}

impl Pair {
    async fn new() -> Self {
        let store = MemoryEngine::new();
        let (here, late, settings) = server(&store).await;
        let (there, ..) = server(&store).await;
        let pair = Self { here, there, late, settings };
        for (line, body) in [
            ("PUT /_users", String::new()),
            ("PUT /db", String::new()),
            ("PUT /db/_security", r#"{"members":{"roles":["writers"]}}"#.to_owned()),
            ("PUT /_users/org.couchdb.user:ann", ann("first")),
            ("PUT /db/theirs", "{}".to_owned()),
        ] {
            pair.change(line, &body).await;
        }
        // The databases of the read set are open.
        assert_eq!(ask(&pair.here, "ann:first", "GET /db", "").await.status, 200);
        pair
    }

    /// Makes a change through the other server, as an administrator. Returns a document's revision.
    async fn change(&self, line: &str, body: &str) -> String {
        let reply = ask(&self.there, "admin:pw", line, body).await;
        assert!((200..300).contains(&reply.status), "{line}: {reply:?}");
        reply.header("etag").unwrap_or_default().trim_matches('"').to_owned()
    }

    /// Sends a request to this server. Returns the status and the number of catch-ups.
    async fn put(&self, user: &str, line: &str, body: &str) -> (u16, u64, String) {
        let round_trips = self.late.round_trips();
        let reply = ask(&self.here, user, line, body).await;
        (reply.status, self.late.round_trips() - round_trips, reply.body)
    }
}

#[tokio::test]
async fn small_writes_do_not_catch_up() {
    let pair = Pair::new().await;
    const EVE: &str = r#"{"name":"eve","type":"user","roles":[],"password":"p"}"#;
    let bulk = |docs: &str| format!("{{\"docs\":[{docs}]}}");
    let rev = "1-967a00dff5e02add41819138abb3284d";
    for (line, body, status, round_trips) in [
        // The commit of a write validates its read set.
        ("PUT /db/a", "{}", 201, 0),
        ("POST /db", "{}", 201, 0),
        ("PUT /db/_local/a", "{}", 201, 0),
        ("POST /db/_bulk_docs", &bulk(r#"{"_id":"b"},{"_id":"a"}"#), 201, 0),
        // Requests that write nothing catch up before they answer.
        ("PUT /db/a", "{}", 409, 1),
        ("POST /db/_bulk_docs", &bulk(r#"{"_id":"b"},{"_id":"a"}"#), 201, 1),
        ("POST /db/_bulk_docs", &bulk(""), 201, 1),
        ("PUT /db/c", "{", 400, 1),
        ("DELETE /db/none", "", 404, 1),
        (&format!("PUT /db/a?new_edits=false&rev={rev}"), "{}", 201, 1),
        (&format!("DELETE /db/a?rev={rev}"), "", 200, 0),
        // No client would receive the error of a failed validation.
        ("PUT /db/d?batch=ok", "{}", 202, 1),
        ("GET /db/b", "", 200, 1),
        ("PUT /db/large", &format!("{{\"a\":\"{}\"}}", "x".repeat(70_000)), 201, 1),
        // The server's own change is pending until its listener is notified.
        ("PUT /_users/org.couchdb.user:eve", EVE, 201, 1),
        ("PUT /db/e", "{}", 201, 1),
        ("PUT /db/f", "{}", 201, 0),
    ] {
        let found = pair.put("admin:pw", line, body).await;
        assert_eq!((found.0, found.1), (status, round_trips), "{line}: {}", found.2);
    }
    // Rate-limited requests are counted once.
    pair.settings.set("rate_limit", "requests_per_second", "1000", Persist::No).unwrap();
    let found = pair.put("admin:pw", "PUT /db/counted", "{}").await;
    assert_eq!((found.0, found.1), (201, 1));
    // Concurrent writes to the database are detected by the commit, whether the listener was notified or not.
    for number in 0..3 {
        pair.change(&format!("PUT /db/theirs{number}"), "{}").await;
        assert_eq!(pair.put("admin:pw", &format!("PUT /db/ours{number}"), "{}").await.0, 201);
        assert_eq!(pair.put("admin:pw", &format!("PUT /db/theirs{number}"), "{}").await.0, 409);
    }
}

/// A change through the other server, and the status of a write without it.
type Change = (&'static str, &'static str, u16);

#[tokio::test]
async fn changes_by_another_server_apply_to_the_next_small_write() {
    const VALIDATION: &str = r#"{"validate_doc_update":"function () { throw {forbidden: 'no'}; }"}"#;
    let changes: [Change; 6] = [
        ("PUT /db/_security", r#"{"members":{"roles":["others"]}}"#, 403),
        ("PUT /db/_design/d", VALIDATION, 403),
        ("DELETE /db", "", 404),
        ("PUT /_users/org.couchdb.user:ann", "second", 401),
        ("DELETE /_users", "", 401),
        ("PUT /another", "", 0),
    ];
    for write in ["PUT /db/a", "POST /db", "POST /db/_bulk_docs", "DELETE /db/theirs"] {
        for (change, body, refused) in changes {
            let pair = Pair::new().await;
            let found = pair.put("ann:first", "PUT /db/first", "{}").await;
            assert_eq!((found.0, found.1), (201, 0), "it is validated optimistically: {}", found.2);
            let rev_of = async |path: &str| {
                let reply = ask(&pair.there, "admin:pw", &format!("GET {path}"), "").await;
                reply.header("etag").unwrap_or_default().trim_matches('"').to_owned()
            };
            let (line, body) = match body {
                "second" => (format!("{change}?rev={}", rev_of("/_users/org.couchdb.user:ann").await), ann(body)),
                body => (change.to_owned(), body.to_owned()),
            };
            let (target, document) = match write {
                "DELETE /db/theirs" => (format!("{write}?rev={}", rev_of("/db/theirs").await), ""),
                "POST /db/_bulk_docs" => (write.to_owned(), r#"{"docs":[{"_id":"c"}]}"#),
                _ => (write.to_owned(), "{}"),
            };
            pair.change(&line, &body).await;
            let (status, _, text) = pair.put("ann:first", &target, document).await;
            let is_row = write.ends_with("_bulk_docs") && change.contains("_design");
            let expected = match (refused, write) {
                (0, "DELETE /db/theirs") => 200,
                (0, _) => 201,
                (403, _) if is_row => 201,
                (refused, _) => refused,
            };
            assert_eq!(status, expected, "{change}, {write}: {text}");
            assert_eq!(text.contains(r#""error":"forbidden""#), refused == 403, "{change}, {write}: {text}");
        }
    }
}

#[tokio::test]
async fn a_login_that_fails_with_a_small_write_counts_once() {
    let pair = Pair::new().await;
    for expected in [401, 401, 401, 403] {
        let (status, round_trips, text) = pair.put("admin:wrong", "PUT /db/a", "{}").await;
        assert_eq!((status, round_trips), (expected, 1), "{text}");
    }
}
