//! Two servers on one store, as in a cluster.

use std::sync::Arc;

use settee_storage::memory::MemoryEngine;

use super::late::LateEngine;
use super::node::{Ask, World};

struct Pair {
    writing: World,
    reading: World,
    late: Arc<LateEngine>,
}

impl Pair {
    fn new() -> Self {
        let store = MemoryEngine::new();
        let [own, late] = [0, 1].map(|_| LateEngine::on(&store));
        let writing = World::on(own);
        let reading = World::on(Arc::clone(&late) as Arc<dyn settee_database::Engine>);
        writing.make_database("_users");
        writing.make_database("db");
        Self { writing, reading, late }
    }
}

#[tokio::test]
async fn waiting_feeds_observe_writes_through_another_server() {
    let engine = MemoryEngine::new();
    let writing = World::on(Arc::new(engine.user()));
    let reading = World::on(Arc::new(engine));
    writing.make_database("_users");
    writing.make_database("db");
    for number in 0..20 {
        let since = crate::sequence::text(&reading.node.database("db").unwrap(), number);
        let feed = format!("GET /db/_changes?feed=longpoll&timeout=60000&since={since}");
        let feed = reading.ask(Ask::new(&feed).basic("admin", "pw"));
        let put = format!("PUT /db/d{number}");
        // The feed starts first, so it usually waits when the document is written.
        let (reply, _) = tokio::join!(feed, writing.admin(&put, "{}"));
        assert!(reply.body.contains(&format!(r#""id":"d{number}""#)), "{reply:?}");
    }
}

#[tokio::test]
async fn each_request_catches_up_with_commits_of_others() {
    let Pair { writing, reading, late } = Pair::new();
    for number in 0..3 {
        let round_trips = late.round_trips();
        writing.admin(&format!("PUT /db/d{number}"), "{}").await;
        let reply = reading.ask(Ask::new("GET /db").basic("admin", "pw")).await;
        assert!(reply.body.contains(&format!(r#""doc_count":{},"#, number + 1)), "{reply:?}");
        assert_eq!(late.round_trips(), round_trips + 1, "one for a request");
    }
    // Requests that arrive during a round trip share the next one.
    let before = late.round_trips();
    late.hold_round_trips(true);
    let gets = (0..64).map(|_| async { assert!(reading.ask(Ask::new("GET /")).await.status.is_success()) });
    let all_come = async { late.hold_round_trips(false) };
    tokio::join!(futures(gets), all_come);
    let round_trips = late.round_trips() - before;
    assert!((1..=2).contains(&round_trips), "{round_trips}");
}

async fn futures<F: Future<Output = ()>>(all: impl Iterator<Item = F>) {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    std::future::poll_fn(|context| {
        all.retain_mut(|future| future.as_mut().poll(context).is_pending());
        if all.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
}

#[tokio::test]
async fn an_unreachable_store_is_reported_at_once() {
    let late = LateEngine::on(&MemoryEngine::new());
    let world = World::on(Arc::clone(&late) as Arc<dyn settee_database::Engine>);
    late.cut(true);
    let refused = r#"503 {"error":"service_unavailable","reason":"the store cannot be reached: storage failed: cut"}"#;
    assert_eq!(world.ask(Ask::new("GET /_up")).await.line(), refused);
    late.cut(false);
    assert_eq!(world.ask(Ask::new("GET /_up")).await.line(), r#"200 {"status":"ok","seeds":{}}"#);
}

/// All work that does not block runs on one thread, which a blocking request would stop.
#[tokio::test]
async fn a_request_that_waits_for_the_store_delays_no_other() {
    let Pair { writing, reading, late } = Pair::new();
    reading.admin("GET /db", "").await;
    // A database with writes of other nodes, and one that is not open yet.
    writing.admin("PUT /db/a", "{}").await;
    writing.make_database("other");
    for name in ["db", "other"] {
        late.hold(true);
        let others = async {
            let reply = reading.ask(Ask::new("GET /")).await;
            late.hold(false);
            reply
        };
        let asked = format!("GET /{name}");
        let (reply, other) = tokio::join!(reading.ask(Ask::new(&asked).basic("admin", "pw")), others);
        assert_eq!((reply.status.as_u16(), other.status.as_u16()), (200, 200), "{name}: {}", reply.line());
    }
}

#[test]
fn a_single_node_sends_no_requests() {
    let engine: Arc<dyn settee_database::Engine> = Arc::new(settee_storage::faulty::FaultyEngine::new());
    let settings: Arc<dyn settee_settings::Settings> = Arc::new(super::live::Values::default());
    assert!(crate::catch_up::CatchUp::new(&engine, &settings).is_sole());
}

#[tokio::test]
async fn accounts_are_right_with_the_next_request_on_another_server() {
    let store = MemoryEngine::new();
    let [one, two] = [0, 1].map(|_| World::on(LateEngine::on(&store)));
    one.make_database("_users");
    for (password, other) in [("first", "x"), ("second", "first"), ("third", "second")] {
        let rev = match two.ask(Ask::new("GET /_users/org.couchdb.user:ann").basic("admin", "pw")).await {
            reply if reply.status == 200 => format!(r#""_rev":{},"#, reply.header("etag")),
            _ => String::new(),
        };
        let user = format!(r#"{{{rev}"name":"ann","type":"user","roles":["{password}"],"password":"{password}"}}"#);
        one.admin("PUT /_users/org.couchdb.user:ann", &user).await;
        for world in [&two, &one] {
            let reply = world.ask(Ask::new("GET /_session").basic("ann", password)).await;
            assert!(reply.body.contains(&format!(r#""roles":["{password}"]"#)), "{reply:?}");
            assert_eq!(world.ask(Ask::new("GET /_session").basic("ann", other)).await.status, 401, "{other}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_begin_at_the_same_time_make_one_database_of_users() {
    for _ in 0..50 {
        let store = MemoryEngine::new();
        let [one, two] = [0, 1].map(|_| World::on(LateEngine::on(&store)));
        let making = [&one, &two].map(|world| {
            let node = Arc::clone(&world.node);
            tokio::spawn(async move { node.make_users_database().await })
        });
        for made in making {
            made.await.unwrap().unwrap();
        }
        for world in [&one, &two] {
            world.admin("GET /_users/_design/_auth", "").await;
        }
    }
}
