//! Tests of configured query servers, and of requests when they fail.

use crate::server::{Directory, Server, serve};
use crate::{Client, load, save, wait_for};

fn command() -> String {
    format!("python3 -S -E {}/../process/tests/it/server.py", env!("CARGO_MANIFEST_DIR"))
}

const DESIGN: &str = r#"{"language":"test","views":{"v":{"map":"act"}}}"#;

fn start(directory: &Directory) -> (Server, Client) {
    let mut serve = serve(directory);
    serve.env("COUCHDB_QUERY_SERVER_TEST", command()).env("COUCHDB_SECRET", "secret");
    let server = Server::start_as(directory, &mut serve);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    (server, client)
}

#[test]
fn query_servers_are_configured_by_the_environment_and_inherit_little_of_it() {
    let directory = Directory::new();
    let (_server, mut client) = start(&directory);
    save(&mut client, "/db/_design/d", DESIGN);
    save(&mut client, "/db/a", r#"{"do":"environment"}"#);
    let rows = client.get("/db/_design/d/_view/v").expect(200).text();
    assert!(rows.contains("\"PATH\"") && !rows.contains("COUCHDB"), "{rows}");
}

#[test]
fn the_configuration_wins_and_a_change_applies_at_once() {
    let directory = Directory::new();
    directory.configure("[query_servers]\ntest = /does/not/exist\nother = /does/not/exist\n");
    directory.configure("[query_server_config]\nconfigure_over_http = true\n");
    let (_server, mut client) = start(&directory);
    let refused = client.put("/db/_design/d", DESIGN).expect(500).text();
    assert!(refused.contains("/does/not/exist: not found"), "{refused}");
    client.put("/_config/query_servers/test", &format!("\"{}\"", command())).expect(200);
    save(&mut client, "/db/_design/d", DESIGN);
    save(&mut client, "/db/a", r#"{"value":7}"#);
    assert!(client.get("/db/_design/d/_view/v").expect(200).text().contains(r#""value":7"#));
    client.delete("/_config/query_servers/other").expect(200);
    save(&mut client, "/db/_design/other", r#"{"language":"other","views":{"v":{"map":"act"}}}"#);
    client.get("/db/_design/other/_view/v").expect_error(500, "unknown_query_language", "other");
}

#[test]
fn python_functions_are_sent_the_members_they_read_unless_disabled() {
    let directory = Directory::new();
    directory.configure(&format!("[query_servers]\npython = {}\n", command()));
    let (server, mut client) = start(&directory);
    let function = r"def f(doc):\n    yield doc['_id'], sent()\n";
    save(&mut client, "/db/_design/d", &format!(r#"{{"language":"python","views":{{"v":{{"map":"{function}"}}}}}}"#));
    let mut check = |id: &str, engine: &str, sent: &str| {
        save(&mut client, &format!("/db/{id}"), r#"{"a":1,"b":2}"#);
        let rows = client.get(&format!("/db/_design/d/_view/v?key=\"{id}\"")).expect(200).text();
        assert!(rows.contains(&format!(r#""value":{sent}"#)), "{rows}");
        let info = client.get("/db/_design/d/_info").expect(200).text();
        assert!(info.contains(&format!(r#""engines":{{"v":"{engine}"}}"#)), "{info}");
    };
    check("one", "projected", r#"["_id","_rev"]"#);
    let setting = "/_node/_local/_config/query_server_config/project_documents";
    server.client().put(setting, "\"false\"").expect(200);
    check("two", "whole", r#"["_id","_rev","a","b"]"#);
}

#[test]
fn functions_that_do_not_compile_are_rejected() {
    let directory = Directory::new();
    let (_server, mut client) = start(&directory);
    let refused = |client: &mut Client, view: &str, kind: &str| {
        let reason = format!(
            "Compilation of the {kind} function in the 'v' view failed: Expression does not eval to a function. (42)"
        );
        let design = format!(r#"{{"language":"test","views":{{"v":{view}}}}}"#);
        client.put("/db/_design/d", &design).expect_error(400, "compilation_error", &reason);
    };
    refused(&mut client, r#"{"map":"42"}"#, "map");
    refused(&mut client, r#"{"map":"act","reduce":"42"}"#, "reduce");
}

#[test]
fn a_document_that_hangs_or_crashes_is_reported_and_other_indexes_are_built() {
    let directory = Directory::new();
    directory.configure("[couchdb]\nos_process_timeout = 700\n");
    let (_server, mut client) = start(&directory);
    save(&mut client, "/db/_design/d", DESIGN);
    save(&mut client, "/db/_design/js", r#"{"views":{"v":{"map":"function(doc) { emit(doc._id); }"}}}"#);
    // Regression: a query that waited for a build received its error, although the document had been deleted before.
    for (number, action) in ["hang", "die", "die", "die", "die", "die", "die"].iter().enumerate() {
        let path = format!("/db/bad{number}");
        let rev = save(&mut client, &path, &format!(r#"{{"do":"{action}"}}"#));
        let failed = client.get("/db/_design/d/_view/v").expect(500).text();
        let place = format!(r#"map function (act) on document \"bad{number}\""#);
        assert!(failed.contains("os_process_error") && failed.contains(&place), "{failed}");
        assert!(client.get("/db/_design/js/_view/v").expect(200).text().contains("bad"));
        client.delete(&format!("{path}?rev={rev}")).expect(200);
        client.get("/db/_design/d/_view/v").expect(200);
    }
}

#[test]
fn an_index_is_complete_after_all_processes_of_its_build_were_killed() {
    const DOCUMENTS: usize = 40_000;
    let directory = Directory::new();
    let (server, mut client) = start(&directory);
    load(&mut client, "/db", DOCUMENTS, 0);
    let design = r#"{"language":"test","views":{"v":{"map":"act","reduce":"_count"}}}"#;
    save(&mut client, "/db/_design/d", design);
    let before = server.children();
    let mut other = server.client();
    let query = std::thread::spawn(move || other.get("/db/_design/d/_view/v").expect(200).text());
    let processors = std::thread::available_parallelism().unwrap().get();
    wait_for("the processes of the build", || {
        let tasks = client.get("/_active_tasks").expect(200).text();
        let count = server.children().len();
        (tasks.contains("indexer") && count >= processors.min(2).max(before.len())).then_some(())
    });
    let victims: Vec<String> = server.children().iter().map(ToString::to_string).collect();
    assert!(std::process::Command::new("kill").arg("-9").args(&victims).status().unwrap().success());
    let answer = query.join().unwrap();
    assert!(answer.contains(&format!("\"value\":{DOCUMENTS}")), "{answer}");
}
