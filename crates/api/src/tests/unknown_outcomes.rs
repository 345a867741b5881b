//! Writes whose outcome is unknown. The client receives the result, or 503 with `Retry-After`; never 500.

use std::sync::Arc;

use hyper::StatusCode;
use parking_lot::Mutex;
use settee_database::{Catalog, Engine, StorageError, Work};
use settee_storage::faulty::{FaultyEngine, WriteFault};
use settee_storage::{Batch, CommitToken, Durability, Shard};

use super::node::{Ask, TestResponse, World};

/// Exceeds the number of commits whose tokens the engine stores.
const OVERTAKING: u64 = 20;

const SHARDS: u64 = 30;

/// A request that writes; `REV` is the revision of the document `d`.
const REQUESTS: [(&str, &str); 28] = [
    ("PUT /db/new", "{}"),
    ("PUT /db/d?rev=REV", "{}"),
    ("POST /db", r#"{"_id":"posted"}"#),
    ("DELETE /db/d?rev=REV", ""),
    ("COPY /db/d", ""),
    ("PUT /db/d?new_edits=false", r#"{"_rev":"3-00000000000000000000000000000003"}"#),
    ("POST /db/_bulk_docs", r#"{"docs":[{"_id":"f"},{"_id":"g"},{"_id":"_local/h"}]}"#),
    ("PUT /db/new/file", "text"),
    ("PUT /db/new", r#"{"_attachments":{"a":{"content_type":"image/png","data":"aaaa"}}}"#),
    ("DELETE /db/d/file?rev=REV", ""),
    ("PUT /db/_local/new", "{}"),
    ("DELETE /db/_local/l", ""),
    ("PUT /db/_security", r#"{"members":{"roles":["r"]}}"#),
    ("PUT /db/_revs_limit", "10"),
    ("PUT /db/_purged_infos_limit", "10"),
    ("POST /db/_purge", r#"{"d":["REV"]}"#),
    ("PUT /created", ""),
    ("PUT /created?partitioned=true", ""),
    ("PUT /_users", ""),
    ("DELETE /db", ""),
    ("PUT /db/_design/new", r#"{"views":{"v":{"map":"m"}}}"#),
    ("DELETE /db/_design/rules?rev=RULES", ""),
    ("POST /db/_index", r#"{"index":{"fields":["n"]},"ddoc":"j","name":"w"}"#),
    ("DELETE /db/_index/i/json/v", ""),
    ("POST /db/_design/rules/_update/u", ""),
    ("GET /db/_design/i/_view/v?reduce=false", ""),
    ("POST /db/_find", r#"{"selector":{"n":{"$gt":0}}}"#),
    ("PUT /_users/org.couchdb.user:u", r#"{"name":"u","type":"user","roles":[],"password":"p"}"#),
];

#[derive(Clone, Copy, Debug)]
enum Then {
    Nothing,
    ReadsFail,
    WritesFail,
    /// Other processes commit to all shards, until the engine has forgotten the tokens.
    Overtaken,
}

fn broken() -> StorageError {
    StorageError::Io("the disk is gone".to_owned())
}

struct Other {
    catalog: Catalog,
    next: Mutex<Option<(u64, Then)>>,
}

impl Other {
    fn act(&self, engine: &FaultyEngine) {
        let due = self.next.lock().take_if(|(at, _)| *at <= engine.writes());
        match due.map(|(_, then)| then) {
            Some(Then::ReadsFail) => engine.fail_reads(1, broken()),
            Some(Then::WritesFail) => (1..200).for_each(|nth| engine.inject_write(nth, WriteFault::Fail(broken()))),
            Some(Then::Overtaken) => self.overtake(engine),
            Some(Then::Nothing) | None => {}
        }
    }

    fn overtake(&self, engine: &FaultyEngine) {
        let databases: Vec<_> =
            self.catalog.names().unwrap().iter().filter_map(|name| self.catalog.database(name).ok()).collect();
        for limit in 1..=OVERTAKING {
            self.catalog.allocate_shard(settee_database::CATALOG).unwrap();
            for database in &databases {
                // The database may be deleted.
                let _ = database.update(Work::SetRevsLimit(100 + limit));
            }
        }
        let owned = |shard: &Shard| databases.iter().any(|database| database.shard() == *shard);
        for shard in (2..SHARDS).map(Shard).filter(|shard| !owned(shard)) {
            for number in 0..OVERTAKING {
                let Ok(state) = engine.snapshot(shard).and_then(|snapshot| snapshot.state()) else { break };
                let mut batch = Batch::new();
                batch.put(settee_storage::Keyspace::Local, b"other", b"");
                let _ = engine
                    .commit(shard, state.version, CommitToken(u128::from(number)), batch, Durability::Synced)
                    .unwrap();
            }
        }
    }
}

async fn response((line, body): (&str, &str), nth: u64, fault: WriteFault, then: Then) -> Option<TestResponse> {
    let engine = Arc::new(FaultyEngine::new());
    let world = World::on(Arc::clone(&engine) as Arc<dyn Engine>);
    world.make_database("db");
    world.make_database("_replicator");
    if !line.starts_with("PUT /_users") || line.contains("org.") {
        world.node.make_users_database().await.unwrap();
    }
    let attached = r#"{"n":1,"_attachments":{"file":{"content_type":"image/png","data":"aaaa"}}}"#;
    let rev = revision(&world.admin("PUT /db/d", attached).await);
    world.admin("PUT /db/_local/l", "{}").await;
    let rules = r#"{"validate_doc_update":"anything","updates":{"u":"[\"up\",{\"_id\":\"up\"},{\"body\":\"\"}]"}}"#;
    let rules = revision(&world.admin("PUT /db/_design/rules", rules).await);
    world.admin("POST /db/_index", r#"{"index":{"fields":["n"]},"ddoc":"i","name":"v"}"#).await;
    let [line, body] = [line, body].map(|text| text.replace("REV", &rev).replace("RULES", &rules));
    let other = Other {
        catalog: Catalog::open(Arc::clone(&engine) as Arc<dyn Engine>, 1 << 60).unwrap(),
        next: Mutex::default(),
    };
    let at = engine.writes() + nth;
    *other.next.lock() = Some((at, then));
    engine.watch(move |engine| other.act(engine));
    engine.inject_write(nth, fault);
    let ask = Ask::new(&line).basic("admin", "pw").header("destination", "copied").json(&body);
    let response = world.ask(ask).await;
    let is_reached = engine.writes() >= at;
    assert!(nth > 1 || is_reached, "{line} makes no write: {response:?}");
    is_reached.then_some(response)
}

fn revision(response: &TestResponse) -> String {
    let (_, rest) = response.body.split_once(r#""rev":""#).unwrap();
    rest.split_once('"').unwrap().0.to_owned()
}

fn cases() -> Vec<(WriteFault, Then)> {
    let thens = [Then::Nothing, Then::ReadsFail, Then::WritesFail, Then::Overtaken];
    let lost = thens.into_iter().flat_map(|then| [(WriteFault::LoseRequest, then), (WriteFault::LoseAnswer, then)]);
    let errors = [
        StorageError::Unreached("no answer".to_owned()),
        StorageError::InDoubt("no answer".to_owned()),
        StorageError::Interrupted("it was opened again".to_owned()),
    ];
    lost.chain(errors.map(|error| (WriteFault::Fail(error), Then::Nothing))).collect()
}

#[tokio::test]
async fn a_write_with_an_unknown_outcome_is_a_temporary_error() {
    let mut wrong = Vec::new();
    for request in REQUESTS {
        for (fault, then) in cases() {
            for nth in 1.. {
                let Some(response) = response(request, nth, fault.clone(), then).await else { break };
                assert!(nth < 50, "{request:?} does not stop to write");
                let is_temporary = response.status == StatusCode::SERVICE_UNAVAILABLE
                    && response.header("retry-after").parse::<u32>().is_ok();
                // The commit of an index whose acknowledgement was lost is found, and the failure of the next one is certain.
                let is_certain = request.0.contains("_view/") || request.0.contains("_find");
                let is_certain = is_certain && matches!((&fault, then), (WriteFault::LoseAnswer, Then::WritesFail));
                if !is_temporary && !response.status.is_success() && !is_certain {
                    wrong.push(format!("{request:?}, write {nth}, {fault:?}, {then:?}: {}", response.line()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
