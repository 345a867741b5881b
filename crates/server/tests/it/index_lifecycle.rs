//! Tests of the life cycle of view indexes: builds that are killed, paused or replaced, and the playground.

use std::process::Command;

use settee_model::json::Value;

use crate::server::{Directory, Server};
use crate::{Client, design, load, number, rows, save, text, wait_for};

const SLOW: &str = "function (doc) { var n = 0; for (var i = 0; i < 40000; i++) { n += i % 7; } emit(doc.g, doc.n); }";
const MAX: &str = "function (keys, values) { return Math.max.apply(null, values); }";
const DOCUMENTS: usize = 3000;

fn start(directory: &Directory) -> Server {
    directory.configure(
        "[ken]\nenabled = false\n[view_updater]\ncheckpoint_interval = 0\n\
                         [query_server_config]\nnative_evaluator = false\n",
    );
    let server = Server::start(directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    load(&mut client, "/db", DOCUMENTS, 10);
    server
}

fn build_state(client: &mut Client) -> (String, Option<i64>) {
    let reply = client.get("/db/_design/d/_build").expect(200);
    let json = reply.json();
    (text(json.value(), "status"), json.value().get("checkpoint_seq").and_then(Value::as_i64))
}

#[track_caller]
fn check_groups(client: &mut Client) {
    let reply = client.get("/db/_design/d/_view/v?group=true").expect(200);
    let json = reply.json();
    let found: Vec<(i64, i64)> = rows(&json).iter().map(|row| (number(*row, "key"), number(*row, "value"))).collect();
    let last = i64::try_from(DOCUMENTS).unwrap() - 10;
    assert_eq!(found, (0..10).map(|group| (group, last + group)).collect::<Vec<_>>());
}

fn ask_beside(server: &Server) -> std::thread::JoinHandle<()> {
    let mut client = server.client();
    std::thread::spawn(move || drop(client.request("GET", "/db/_design/d/_view/v", &[], b"")))
}

#[test]
fn a_killed_first_build_resumes_from_its_checkpoint() {
    let directory = Directory::new();
    let mut server = start(&directory);
    save(&mut server.client(), "/db/_design/d", &design(SLOW, Some(MAX)));
    let asking = ask_beside(&server);
    let mut client = server.client();
    let noted = wait_for("a checkpoint", || match build_state(&mut client) {
        (status, _) if status == "current" => panic!("the build was too fast"),
        (_, noted) => noted,
    });
    drop(client);
    server.kill();
    asking.join().unwrap();
    server = Server::start(&directory);
    let (status, checkpoint) = build_state(&mut server.client());
    assert_eq!(status, "lagging");
    assert!(checkpoint.unwrap() >= noted, "the checkpoint was lost");
    check_groups(&mut server.client());
    assert_eq!(build_state(&mut server.client()), ("current".to_owned(), None));
    assert!(server.terminate().0.success());
}

#[test]
fn an_index_is_correct_if_workers_of_its_build_crash() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    save(&mut client, "/db/_design/d", &design(SLOW, Some(MAX)));
    let mut killed = 0;
    while killed < 2 {
        let asking = ask_beside(&server);
        wait_for("a worker at work", || (build_state(&mut client).0 == "building").then_some(()));
        let found = wait_for("a worker", || server.children().into_iter().next());
        assert!(Command::new("kill").args(["-9", &found.to_string()]).status().unwrap().success());
        killed += 1;
        asking.join().unwrap();
    }
    check_groups(&mut client);
}

#[test]
fn builds_are_paused_resumed_and_cancelled() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    save(&mut client, "/db/_design/d", &design(SLOW, Some(MAX)));
    let order = |client: &mut Client, action: &str| {
        client.post("/db/_design/d/_build", &format!(r#"{{"action":"{action}"}}"#)).expect(202);
    };
    order(&mut client, "start");
    wait_for("a checkpoint", || build_state(&mut client).1);
    order(&mut client, "pause");
    client.get("/db/_design/d/_view/v").expect_error(
        503,
        "index_paused",
        "the index is paused; resume it, or query its current state with update=false",
    );
    assert_eq!(build_state(&mut client).0, "paused");
    wait_for("the end of the paused build", || {
        let tasks = client.get("/_active_tasks").expect(200);
        tasks.json().value().elements().next().is_none().then_some(())
    });
    order(&mut client, "resume");
    wait_for("the build", || (build_state(&mut client).0 == "building").then_some(()));
    order(&mut client, "cancel");
    wait_for("the end of the build", || (build_state(&mut client).0 == "resting").then_some(()));
    assert_eq!(client.post("/db/_design/d/_build", r#"{"action":"dance"}"#).status, 400);
    check_groups(&mut client);
}

#[test]
fn a_view_is_swapped_online() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let map = "function (doc) { emit(doc.g, doc.n); }";
    let rev = save(&mut client, "/db/_design/d", &design(map, Some(MAX)));
    check_groups(&mut client);
    let slow =
        design(SLOW, Some("_count")).replacen('{', &format!(r#"{{"_rev":"{rev}","options":{{"swap":"online"}},"#), 1);
    save(&mut client, "/db/_design/d", &slow);
    let first = client.get("/db/_design/d/_view/v?group=true").expect(200);
    assert!(first.header("settee-index").unwrap().starts_with("stale; building="));
    check_groups(&mut client);
    wait_for("the swap", || {
        client.get("/db/_design/d/_view/v").expect(200).header("settee-index").is_none().then_some(())
    });
    let reply = client.get("/db/_design/d/_view/v").expect(200);
    let json = reply.json();
    assert_eq!(number(rows(&json)[0], "value"), i64::try_from(DOCUMENTS).unwrap());
}

#[test]
fn the_playground_reports_the_results_of_some_documents() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let test = |client: &mut Client, body: &str| client.post("/db/_view_test", body);
    let body = r#"{"map":"function (doc) { if (doc.n % 300 === 0) { throw 'no'; } log('hi'); emit(doc.g, doc.n); }",
        "reduce":"_count", "sample":100}"#;
    let reply = test(&mut client, body).expect(200);
    let json = reply.json();
    assert_eq!(number(json.value(), "documents"), 100);
    let rows = number(json.value(), "total_rows");
    let errors = json.value().get("errors").unwrap();
    assert_eq!(rows + i64::try_from(errors.elements().count()).unwrap(), 100);
    assert_eq!(number(json.value(), "reduction"), rows);
    assert!(json.value().get("per_document").unwrap().get("map_us").is_some());
    let given = r#"{"map":"function (doc) { if (doc._id === 'bad') { for (;;) {} } emit(doc._id, doc.x); }",
        "documents":[{"_id":"good","x":1},{"_id":"bad"},{"_id":"later"}]}"#;
    let reply = test(&mut client, given).expect(200);
    let json = reply.json();
    assert_eq!(number(json.value(), "total_rows"), 1);
    let error = json.value().get("errors").unwrap().elements().next().unwrap();
    assert_eq!(text(error, "id"), "bad");
    for path in ["/db/_view_test", "/db/_temp_view"] {
        let refused = client.post(path, r#"{"map":"function (doc { }"}"#);
        assert_eq!(
            (refused.status, text(refused.json().value(), "error").as_str()),
            (400, "compilation_error"),
            "{path}"
        );
        assert_eq!(client.post(path, r#"{"map":"x","reduce":"_no"}"#).status, 400, "{path}");
    }
    assert_eq!(test(&mut client, r#"{"map":"function (doc) { }","sample":1001}"#).status, 400);
}
