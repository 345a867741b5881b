//! Several nodes on one store: [`Team`] connects them by a network in memory.

use std::collections::HashMap;
use std::sync::Arc;

use http_body_util::BodyExt;
use parking_lot::Mutex;
use settee_database::tasks::TaskKind;
use settee_edge::shutdown::Shutdown;
use settee_replication::{Body, BoxFuture, Connect, Endpoint, Transport, TransportError, Tuning, full_body};
use settee_storage::memory::MemoryEngine;

use super::late::LateEngine;
use super::live::TIMEOUT;
use super::node::{Ask, TestResponse, World};
use crate::failures::Failures;
use crate::{Replication, ReplicationDependencies};

#[derive(Clone, Default)]
struct Wire(Arc<Mutex<HashMap<String, Arc<World>>>>);

struct Line(Option<Arc<World>>);

impl Connect for Wire {
    fn connect(&self, endpoint: &Endpoint, _: &Tuning) -> Result<Arc<dyn Transport>, TransportError> {
        let Endpoint::Remote(remote) = endpoint else { unreachable!("nodes are asked over the network") };
        Ok(Arc::new(Line(self.0.lock().get(&remote.host).cloned())))
    }
}

impl Transport for Line {
    fn call(&self, request: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
        Box::pin(async move {
            let Some(world) = &self.0 else { return std::future::pending().await };
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            let reply = world.exchange(http::Request::from_parts(parts, body)).await;
            let mut response = http::Response::new(full_body(reply.body));
            (*response.status_mut(), *response.headers_mut()) = (reply.status, reply.headers);
            Ok(response)
        })
    }
}

struct Team {
    worlds: Vec<Arc<World>>,
    wire: Wire,
}

impl Team {
    fn of(names: &[&str]) -> Self {
        Self::with_groups(names, 0)
    }

    fn with_groups(names: &[&str], groups: u32) -> Self {
        let (store, wire) = (MemoryEngine::new(), Wire::default());
        let worlds = names.iter().map(|name| {
            let world = Arc::new(World::called(name, LateEngine::with_groups(&store, groups)));
            world.set("cluster", "secret", "of the cluster");
            world.node.engine().members().announce(name, &format!("http://{name}/")).unwrap();
            let _ = world.node.nodes.network.set(Arc::new(wire.clone()));
            wire.0.lock().insert((*name).to_owned(), Arc::clone(&world));
            world
        });
        let worlds: Vec<_> = worlds.collect();
        worlds[0].make_database("_users");
        Self { worlds, wire }
    }

    fn silence(&self, name: &str) {
        self.wire.0.lock().remove(name);
    }
}

#[tokio::test]
async fn nodes_list_each_other() {
    let team = Team::of(&["b", "a"]);
    for world in &team.worlds {
        let reply = world.admin("GET /_membership", "").await;
        assert_eq!(reply.line(), r#"200 {"all_nodes":["a","b"],"cluster_nodes":["a","b"]}"#);
        assert_eq!(world.ask(Ask::new("GET /_up")).await.line(), r#"200 {"status":"ok","seeds":{},"nodes":2}"#);
    }
    team.worlds[1].node.engine().members().leave().unwrap();
    let reply = team.worlds[0].admin("GET /_membership", "").await;
    assert_eq!(reply.line(), r#"200 {"all_nodes":["b"],"cluster_nodes":["b"]}"#);
}

#[tokio::test]
async fn owners_of_groups_are_listed() {
    let team = Team::with_groups(&["b", "a"], 4);
    let [b, a] = &team.worlds[..] else { unreachable!("two nodes") };
    let claim = |world: &World, key: &str| world.node.engine().members().claim(key).unwrap().unwrap();
    let first = claim(a, "writer/4/0");
    for (world, key) in [(a, "writer/4/3"), (a, "writer/4/2"), (b, "writer/4/1"), (b, "writer/8/5"), (b, "index")] {
        claim(world, key);
    }
    let nodes = r#"200 {"all_nodes":["a","b"],"cluster_nodes":["a","b"],"groups":{"a":["#;
    for world in [a, b] {
        let reply = world.admin("GET /_membership", "").await;
        assert_eq!(reply.line(), format!(r#"{nodes}0,2,3],"b":[1]}},"coordinator":"a"}}"#));
    }
    a.node.engine().members().release(&first).unwrap();
    let reply = b.admin("GET /_membership", "").await;
    assert_eq!(reply.line(), format!(r#"{nodes}2,3],"b":[1]}},"coordinator":null}}"#));
    b.node.engine().members().leave().unwrap();
    let reply = a.admin("GET /_membership", "").await;
    assert_eq!(
        reply.line(),
        r#"200 {"all_nodes":["a"],"cluster_nodes":["a"],"groups":{"a":[2,3]},"coordinator":null}"#
    );
}

#[tokio::test]
async fn the_state_of_groups_contains_no_names() {
    let team = Team::with_groups(&["a", "b"], 4);
    let world = &team.worlds[0];
    assert_eq!(
        world.ask(Ask::new("GET /_up")).await.line(),
        r#"200 {"status":"ok","seeds":{},"nodes":2,"groups":{"owned":3,"open":2},"log_stalled_ms":1500}"#
    );
    let metrics = world.admin("GET /_node/_local/_prometheus", "").await.body;
    for line in [
        "settee_engine_owned_groups 3",
        "settee_engine_open_groups 2",
        "# TYPE settee_engine_log_stalled_seconds gauge",
        "settee_engine_log_stalled_seconds 1.5",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing: {metrics}");
    }
}

#[tokio::test]
async fn a_node_that_is_named_answers() {
    let team = Team::of(&["a", "b"]);
    let (a, b) = (&team.worlds[0], &team.worlds[1]);
    b.set("vendor", "name", "of b");
    for (line, expected) in [
        ("GET /_node/b", r#"200 {"name":"b"}"#),
        ("GET /_node/a", r#"200 {"name":"a"}"#),
        ("GET /_node/_local", r#"200 {"name":"a"}"#),
        ("GET /_node/b/_config/vendor/name", r#"200 "of b""#),
        ("GET /_node/a/_config/vendor/name", r#"404 {"error":"not_found","reason":"unknown_config_value"}"#),
        ("GET /_node/c", r#"404 {"error":"not_found","reason":"no such node: c"}"#),
    ] {
        assert_eq!(a.ask(Ask::new(line).basic("admin", "pw")).await.line(), expected, "{line}");
    }
    let put = a.admin("PUT /_node/b/_config/log/level", "\"debug\"").await;
    assert_eq!((put.line().as_str(), put.header("x-settee-applies")), (r#"200 """#, "at-once"));
    assert_eq!(b.admin("GET /_node/_local/_config/log/level", "").await.line(), r#"200 "debug""#);
    assert!(a.admin("GET /_node/b/_stats/couchdb", "").await.body.contains("open_databases"));
    assert_eq!(a.ask(Ask::new("GET /_node/b/_system")).await.status, 401);
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_node_delays_requests_briefly() {
    let team = Team::of(&["a", "b", "c"]);
    let task = |world: &World, name: &str| {
        world.node.tasks.start(TaskKind::DatabaseCompaction { database: name.to_owned() }, 1)
    };
    let _running = [task(&team.worlds[0], "on a"), task(&team.worlds[1], "on b"), task(&team.worlds[2], "on c")];
    let count = |reply: &TestResponse| of_nodes(reply, ["a", "b", "c"]);
    let reply = team.worlds[0].admin("GET /_active_tasks", "").await;
    assert_eq!(count(&reply), [1, 1, 1], "{}", reply.body);
    settee_model::json::Json::parse(reply.body.as_bytes()).unwrap();
    team.silence("c");
    let begun = tokio::time::Instant::now();
    let reply = team.worlds[0].admin("GET /_active_tasks", "").await;
    assert_eq!(count(&reply), [1, 1, 0], "{}", reply.body);
    let reply = team.worlds[0].ask(Ask::new("GET /_node/c/_system").basic("admin", "pw")).await;
    let silent = r#"503 {"error":"service_unavailable","reason":"node c does not answer: not in time"}"#;
    assert_eq!(reply.line(), silent);
    assert!(begun.elapsed().as_secs() <= 4, "{:?}", begun.elapsed());
}

/// Attackers gain no additional attempts by using several nodes.
#[tokio::test]
async fn failed_logins_count_on_all_nodes() {
    let team = Team::of(&["a", "b"]);
    for world in &team.worlds {
        world.set("chttpd_auth_lockout", "threshold", "4");
        Failures::begin(&world.node);
    }
    let (a, b) = (&team.worlds[0], &team.worlds[1]);
    let login = async |world: &World, name: &str, password: &str| {
        world.ask(Ask::new("GET /_session").basic(name, password)).await.status
    };
    assert_eq!(login(b, "admin", "pw").await, 200);
    for _ in 0..4 {
        assert_eq!(login(a, "admin", "wrong").await, 401);
    }
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while login(b, "admin", "pw").await == 200 {
        assert!(tokio::time::Instant::now() < deadline, "the failures are reported to the other node");
    }
    for world in [a, b] {
        assert_eq!(login(world, "admin", "pw").await, 403);
    }
    let ask = Ask::new("POST /_node/_local/_failed_logins").basic("admin", "pw").json(r#"{"failed":[]}"#);
    let reply = Team::of(&["c"]).worlds[0].ask(ask).await;
    assert_eq!(reply.line(), r#"404 {"error":"not_found","reason":"missing"}"#);
}

impl Team {
    async fn replicate(&self) -> Vec<Replication> {
        let mut begun = Vec::new();
        for world in &self.worlds {
            world.set("replicator", "startup_jitter", "0");
            let (hostname, network) = ("here".to_owned(), Arc::new(self.wire.clone()));
            let parts = ReplicationDependencies { network, hostname, port: 5984 };
            begun.push(Replication::start(&world.node, parts, &Shutdown::new()).await.unwrap());
        }
        begun
    }
}

fn of_nodes<const N: usize>(reply: &TestResponse, names: [&str; N]) -> [usize; N] {
    names.map(|name| reply.body.matches(&format!(r#""node":"{name}""#)).count())
}

async fn until(world: &World, target: &str, holds: impl Fn(&TestResponse) -> bool) -> TestResponse {
    let line = format!("GET {target}");
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let reply = world.ask(Ask::new(&line).basic("admin", "pw")).await;
        if holds(&reply) {
            return reply;
        }
        assert!(tokio::time::Instant::now() < deadline, "{target}: {reply:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn each_replication_runs_on_one_node_and_goes_on_on_another() {
    const JOBS: usize = 24;
    let team = Team::of(&["a", "b"]);
    let (a, b) = (&team.worlds[0], &team.worlds[1]);
    let mut replications = team.replicate().await;
    a.make_database("source");
    for job in 0..JOBS {
        let asked = format!(
            r#"{{"source":"source","target":"target{job}","create_target":true,"continuous":true,"user_ctx":{{"roles":["_admin"]}}}}"#
        );
        [a, b][job % 2].admin(&format!("PUT /_replicator/r{job}"), &asked).await;
    }
    let is_divided = |reply: &TestResponse| {
        let [on_a, on_b] = of_nodes(reply, ["a", "b"]);
        reply.body.matches(r#""state":"running""#).count() == JOBS && on_a > 0 && on_b > 0 && on_a + on_b == JOBS
    };
    for world in [a, b] {
        until(world, "/_scheduler/docs", is_divided).await;
        let reply =
            until(world, "/_scheduler/jobs", |reply| reply.body.starts_with(&format!(r#"{{"total_rows":{JOBS},"#)))
                .await;
        assert_eq!(of_nodes(&reply, ["a", "b"]).iter().sum::<usize>(), JOBS);
        let page = world.admin("GET /_scheduler/jobs?skip=20&limit=100", "").await;
        assert_eq!(of_nodes(&page, ["a", "b"]).iter().sum::<usize>(), JOBS - 20, "{}", page.body);
        let tasks = world.admin("GET /_active_tasks", "").await;
        assert_eq!(tasks.body.matches(r#""type":"replication""#).count(), JOBS, "{}", tasks.body);
        for job in 0..JOBS {
            let reply = world.admin(&format!("GET /_scheduler/docs/_replicator/r{job}"), "").await;
            assert!(reply.body.contains(r#""state":"running""#), "{}", reply.body);
            let key = reply.body.split(r#""id":""#).nth(1).unwrap().split('"').next().unwrap();
            world.admin(&format!("GET /_scheduler/jobs/{key}"), "").await;
        }
    }
    b.admin("PUT /source/early", "{}").await;
    for job in 0..JOBS {
        until(a, &format!("/target{job}/early"), |reply| reply.status == 200).await;
    }
    replications.pop().unwrap().stop().await;
    b.node.engine().members().leave().unwrap();
    until(a, "/_scheduler/docs", |reply| {
        reply.body.matches(r#""state":"running""#).count() == JOBS && of_nodes(reply, ["a", "b"]) == [JOBS, 0]
    })
    .await;
    a.admin("PUT /source/late", "{}").await;
    for job in 0..JOBS {
        until(a, &format!("/target{job}/late"), |reply| reply.status == 200).await;
    }
    let rev = a.admin("GET /_replicator/r0", "").await.header("etag").trim_matches('"').to_owned();
    a.admin(&format!("DELETE /_replicator/r0?rev={rev}"), "").await;
    let left = format!(r#"{{"total_rows":{},"#, JOBS - 1);
    until(a, "/_scheduler/jobs", |reply| reply.body.starts_with(&left)).await;
    for replication in replications {
        replication.stop().await;
    }
}

#[tokio::test]
async fn replications_of_one_node_are_cancelled_through_another() {
    let team = Team::of(&["a", "b"]);
    let (a, b) = (&team.worlds[0], &team.worlds[1]);
    let replications = team.replicate().await;
    a.make_database("source");
    let body =
        |more: &str| format!(r#"{{"source":"source","target":"t","create_target":true,"continuous":true{more}}}"#);
    for by_id in [true, false] {
        let begun = a.admin("POST /_replicate", &body("")).await;
        let id = begun.body.split(r#""_local_id":""#).nth(1).unwrap().split('"').next().unwrap();
        let cancel =
            if by_id { format!(r#"{{"cancel":true,"replication_id":"{id}"}}"#) } else { body(r#","cancel":true"#) };
        assert_eq!(
            b.admin("POST /_replicate", &cancel).await.line(),
            format!(r#"200 {{"ok":true,"_local_id":"{id}"}}"#)
        );
        until(a, "/_scheduler/jobs", |reply| reply.body.starts_with(r#"{"total_rows":0,"#)).await;
        let again = b.ask(Ask::new("POST /_replicate").basic("admin", "pw").json(&cancel)).await;
        assert_eq!(again.status, 404, "{again:?}");
    }
    for replication in replications {
        replication.stop().await;
    }
}

#[tokio::test]
async fn a_replication_that_is_asked_of_two_nodes_runs_on_one() {
    let team = Team::of(&["a", "b"]);
    let (a, b) = (&team.worlds[0], &team.worlds[1]);
    let replications = team.replicate().await;
    a.make_database("source");
    a.admin("PUT /source/x", "{}").await;
    a.make_database("t");
    let one = |reply: &TestResponse| reply.body.starts_with(r#"{"total_rows":1,"#);
    let none = |reply: &TestResponse| reply.body.starts_with(r#"{"total_rows":0,"#);
    let continuous = r#"{"source":"source","target":"t","continuous":true}"#;
    let begun = a.admin("POST /_replicate", continuous).await;
    for world in [b, a, b] {
        assert_eq!(world.admin("POST /_replicate", continuous).await.line(), begun.line());
        assert_eq!(of_nodes(&until(world, "/_scheduler/jobs", one).await, ["a", "b"]), [1, 0]);
    }
    let cancel = continuous.replace('}', r#","cancel":true}"#);
    assert_eq!(b.admin("POST /_replicate", &cancel).await.status, 200);
    until(a, "/_scheduler/jobs", none).await;
    // The source of this replication is unresponsive, so all requests wait until it is cancelled.
    let silent = r#"{"source":"http://silent/x","target":"t"}"#;
    let ask = |world: &Arc<World>| {
        let world = Arc::clone(world);
        tokio::spawn(async move { world.ask(Ask::new("POST /_replicate").basic("admin", "pw").json(silent)).await })
    };
    let first = ask(b);
    until(a, "/_scheduler/jobs", one).await;
    let second = ask(a);
    until(b, "/_node/_local/_prometheus", |reply| reply.body.contains("replicator_jobs_duplicate_adds_total 1\n"))
        .await;
    assert_eq!(of_nodes(&until(a, "/_scheduler/jobs", one).await, ["a", "b"]), [0, 1]);
    let cancel = silent.replace('}', r#","cancel":true}"#);
    assert_eq!(a.admin("POST /_replicate", &cancel).await.status, 200);
    let (first, second) = (first.await.unwrap(), second.await.unwrap());
    assert_eq!(second.line(), first.line());
    assert_ne!(first.status, 200);
    for world in [a, b, a] {
        let reply = world.admin("POST /_replicate", r#"{"source":"source","target":"t"}"#).await;
        assert!(reply.line().starts_with(r#"200 {"ok":true,"#), "{reply:?}");
    }
    for replication in replications {
        replication.stop().await;
    }
}

/// Options that are not part of the id of a replication restart it on its node.
#[tokio::test]
async fn a_replication_is_its_owners_on_all_nodes() {
    let team = Team::of(&["a", "b"]);
    let (a, b) = (&team.worlds[0], &team.worlds[1]);
    let replications = team.replicate().await;
    for name in ["ann", "bob"] {
        let document = format!(r#"{{"name":"{name}","type":"user","roles":[],"password":"pw"}}"#);
        a.admin(&format!("PUT /_users/org.couchdb.user:{name}"), &document).await;
    }
    for name in ["source", "t"] {
        a.make_database(name);
        a.admin(&format!("PUT /{name}/_security"), "{}").await;
    }
    let asks = async |world: &World, name: &str, body: &str| {
        world.ask(Ask::new("POST /_replicate").basic(name, "pw").json(body)).await.line()
    };
    let continuous = r#"{"source":"source","target":"t","continuous":true}"#;
    let with = |more: &str| continuous.replace('}', &format!(",{more}}}"));
    let begun = asks(a, "ann", continuous).await;
    let id = begun.split(r#""_local_id":""#).nth(1).unwrap().split('"').next().unwrap();
    let not_yours = r#"401 {"error":"unauthorized","reason":"You are not a server admin."}"#;
    let cancel = [with(r#""cancel":true"#), format!(r#"{{"cancel":true,"replication_id":"{id}"}}"#)];
    for world in [b, a] {
        for body in cancel.each_ref().map(String::as_str).into_iter().chain([continuous]) {
            assert_eq!(asks(world, "bob", body).await, not_yours, "{body}");
        }
        for path in ["jobs", "docs", &format!("jobs/{id}")] {
            let reply = world.ask(Ask::new(&format!("GET /_scheduler/{path}")).basic("bob", "pw")).await;
            assert!(matches!(reply.status.as_u16(), 401 | 403) && !reply.body.contains(id), "{reply:?}");
        }
        for name in ["ann", "admin"] {
            assert_eq!(asks(world, name, continuous).await, begun);
        }
    }
    let counts = async |adds: u64, duplicates: u64| {
        let reply = a.admin("GET /_node/_local/_prometheus", "").await;
        for (label, count) in [("adds", adds), ("duplicate_adds", duplicates)] {
            let line = format!("replicator_jobs_{label}_total {count}\n");
            assert!(reply.body.contains(&line), "{line}{}", reply.body);
        }
    };
    counts(1, 4).await;
    for world in [b, a, b] {
        assert_eq!(asks(world, "ann", &with(r#""worker_processes":2"#)).await, begun);
    }
    counts(2, 6).await;
    let reply = until(b, "/_scheduler/jobs", |reply| reply.body.starts_with(r#"{"total_rows":1,"#)).await;
    assert_eq!(of_nodes(&reply, ["a", "b"]), [1, 0]);
    assert!(asks(b, "ann", &cancel[0]).await.starts_with("200 "));
    for world in [b, a] {
        for body in &cancel {
            assert!(asks(world, "bob", body).await.starts_with("404 "), "{body}");
        }
    }
    for replication in replications {
        replication.stop().await;
    }
}

#[tokio::test]
async fn databases_of_replications_that_others_make_are_followed() {
    let team = Team::of(&["a", "b"]);
    let (a, b) = (&team.worlds[0], &team.worlds[1]);
    let replications = team.replicate().await;
    for name in ["source", "mine/_replicator"] {
        a.admin(&format!("PUT /{}", name.replace('/', "%2F")), "").await;
    }
    a.admin("PUT /source/x", "{}").await;
    // Jobs for which b is preferred run there, although it received none of the requests.
    for job in 0..8 {
        let asked = format!(
            r#"{{"source":"source","target":"t{job}","create_target":true,"user_ctx":{{"roles":["_admin"]}}}}"#
        );
        a.admin(&format!("PUT /mine%2F_replicator/r{job}"), &asked).await;
    }
    for job in 0..8 {
        let done = |reply: &TestResponse| reply.body.contains(r#""_replication_state":"completed""#);
        until(b, &format!("/mine%2F_replicator/r{job}"), done).await;
    }
    for replication in replications {
        replication.stop().await;
    }
}

#[tokio::test]
async fn unauthenticated_clients_are_no_nodes() {
    let team = Team::of(&["a"]);
    let alone = World::new();
    alone.set("cluster", "secret", "of the cluster");
    let now_s = 1_700_000_000;
    let numbers = std::sync::atomic::AtomicU64::new(0);
    let signed = |secret: &str, receiver: &str, target: &str, body: &str| {
        let request = settee_auth::NodeRequest { receiver, method: "GET", target, headers: b"" };
        let number = numbers.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        settee_auth::NodeToken::sign(secret.as_bytes(), &request, body.as_bytes(), (9, number), now_s)
    };
    let token = |secret: &str, target: &str| signed(secret, "a", target, "");
    let used = token("of the cluster", "/_membership");
    let refused = r#"401 {"error":"unauthorized","reason":"This is no token of a node of this cluster."}"#;
    for (world, token, target, expected) in [
        (&*team.worlds[0], token("of the cluster", "/_membership"), "/_membership", None),
        (&team.worlds[0], used.clone(), "/_membership", None),
        (&team.worlds[0], used, "/_membership", Some(refused)),
        (&team.worlds[0], token("of the cluster", "/"), "/_membership", Some(refused)),
        (&team.worlds[0], token("of the cluster", "/_membership"), "/_membership?x", Some(refused)),
        (&team.worlds[0], signed("of the cluster", "b", "/_membership", ""), "/_membership", Some(refused)),
        (&team.worlds[0], signed("of the cluster", "a", "/_membership", "{}"), "/_membership", Some(refused)),
        (&team.worlds[0], token("another", "/_membership"), "/_membership", Some(refused)),
        (&team.worlds[0], String::new(), "/_membership", Some(refused)),
        // Without a cluster no client is a node, and credentials do not help a request with a node's token.
        (&alone, token("of the cluster", "/_membership"), "/_membership", Some(refused)),
    ] {
        let line = format!("GET {target}");
        let reply = world.ask(Ask::new(&line).header("x-settee-node", &token).basic("admin", "pw")).await;
        match expected {
            None => assert_eq!(reply.status, 200, "{reply:?}"),
            Some(expected) => assert_eq!(reply.line(), expected, "{token}"),
        }
    }
}
