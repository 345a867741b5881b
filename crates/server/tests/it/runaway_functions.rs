//! Tests of malicious functions: the server stays responsive and attributes the error to the right function.

use std::process::Command;

use settee_model::json::Json;

use crate::server::{Directory, Server};
use crate::{Client, Reply, design, load, rows, save, text, wait_for};

const HONEST: &str =
    "function (doc) { var a = [doc.n]; emit([a, {}.polluted, isArray(a)], JSON.stringify({n: doc.n})); }";

fn start(directory: &Directory) -> Server {
    directory.configure("[ken]\nenabled = false\n");
    let server = Server::start(directory);
    for database in ["/db", "/other"] {
        server.client().put(database, "").expect(201);
        load(&mut server.client(), database, 20, 0);
    }
    server
}

fn engine(client: &mut Client, path: &str) -> String {
    let info = client.get(&format!("{path}/_info")).expect(200).json();
    text(info.value().get("engines").unwrap(), "v")
}

fn check_honest(client: &mut Client, path: &str) {
    let answer: Json = client.get(&format!("{path}/_view/v?key=[[7],null,true]")).expect(200).json();
    let rows = rows(&answer);
    assert_eq!((rows.len(), text(rows[0], "value")), (1, "{\"n\":7}".to_owned()));
}

#[test]
fn errors_name_the_function_and_the_document() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let attacks = [
        ("endless", "for (;;);", "os_process_error"),
        ("join", "var a = []; a.length = 4e9; a.join('');", "os_process_error"),
        ("pattern", "/^(\\w+\\s?)*$/.test('a'.repeat(60) + '!');", "os_process_error"),
        ("bomb", "var a = []; for (;;) a.push('x'.repeat(1e6) + a.length);", "InternalError"),
        ("recursion", "function f(n) { return f(n + 1) + 1; } f(0);", "InternalError"),
        ("flood", "var s = 'x'.repeat(1e6); for (;;) try { emit(s, s); } catch (e) {}", "os_process_error"),
    ];
    std::thread::scope(|scope| {
        let attackers: Vec<_> = attacks
            .map(|(name, body, error)| {
                let server = &server;
                scope.spawn(move || {
                    let mut client = server.client();
                    let map = format!("function (doc) {{ if (doc.n === 13) {{ {body} }} emit(doc.n, null); }}");
                    save(&mut client, &format!("/db/_design/{name}"), &design(&map, None));
                    let reply = client.get(&format!("/db/_design/{name}/_view/v")).expect(500).json();
                    let reason = text(reply.value(), "reason");
                    assert_eq!(text(reply.value(), "error"), error, "{name}: {reason}");
                    assert!(reason.contains("map function 1 (function (doc) { if (doc.n === 13)"), "{name}: {reason}");
                    assert!(reason.contains("document \"d000013\""), "{name}: {reason}");
                })
            })
            .into();
        let mut built = 0;
        while built == 0 || attackers.iter().any(|attacker| !attacker.is_finished()) {
            built += 1;
            save(&mut client, &format!("/other/_design/n{built}"), &design(&format!("{HONEST} // {built}"), None));
            check_honest(&mut client, &format!("/other/_design/n{built}"));
            let worker = format!("function (doc) {{ var e = emit; e(doc.n, {built}); }}");
            save(&mut client, &format!("/other/_design/w{built}"), &design(&worker, None));
            let answer = client.get(&format!("/other/_design/w{built}/_view/v")).expect(200).json();
            assert_eq!(rows(&answer).len(), 20);
        }
    });
    assert_eq!(engine(&mut client, "/other/_design/n1"), "native");
    assert_eq!(engine(&mut client, "/other/_design/w1"), "quickjs");
    assert_eq!(client.get("/_active_tasks").expect(200).text().trim(), "[]");
}

#[test]
fn a_function_without_end_is_an_error_of_every_endpoint() {
    const ENDLESS: &str = r#"{"views":{"v":{"map":"function(d){for(;;);}"}},
        "filters":{"f":"function(){for(;;);}"},"shows":{"s":"function(){for(;;);}"},
        "updates":{"u":"function(){for(;;);}"},
        "rewrites":"function(){for(;;);}",
        "indexes":{"i":{"index":"function(d){for(;;);}"}},"nouveau":{"i":{"index":"function(d){for(;;);}"}}}"#;
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    save(&mut client, "/db/_design/d", ENDLESS);
    save(
        &mut client,
        "/db/_design/e",
        r#"{"views":{"v":{"map":"function(d){emit(d.n,1)}"}},"lists":{"l":"function(){for(;;);}"}}"#,
    );
    save(
        &mut client,
        "/db/_design/r",
        r#"{"views":{"r":{"map":"function(d){emit(d.n,1)}","reduce":"function(){for(;;);}"}}}"#,
    );
    fails(client.get("/db/_changes?filter=d/f"));
    client.put("/_node/_local/_config/couchdb/os_process_timeout", "\"300\"").expect(200);
    for path in [
        "_changes?filter=d/f",
        "_changes?filter=d/f&feed=longpoll",
        "_changes?filter=d/f&feed=continuous&timeout=10000",
        "_changes?filter=_view&view=d/v",
        "_design/d/_view/v",
        "_design/r/_view/r",
        "_design/d/_show/s",
        "_design/e/_list/l/v",
        "_design/d/_rewrite/x",
        "_design/d/_search/i?q=a",
        "_design/d/_nouveau/i?q=a",
    ] {
        fails(client.get(&format!("/db/{path}")));
    }
    fails(client.post("/db/_design/d/_update/u", ""));
    for path in ["_info", "_search_info/i", "_nouveau_info/i"] {
        let info = client.get(&format!("/db/_design/d/{path}")).expect(200).json();
        assert_eq!(text(info.value().get("build_error").unwrap(), "error"), "os_process_error", "{path}");
    }
}

#[track_caller]
fn fails(reply: Reply) {
    let error = reply.expect(500).json();
    let (error, reason) = (text(error.value(), "error"), text(error.value(), "reason"));
    assert!(error == "os_process_error" && reason.contains("timed out"), "{error}: {reason}");
}

#[test]
fn a_modified_environment_affects_only_its_function() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let spoil = "function (doc) { Object.prototype.polluted = 1; Array.isArray = isArray = null; JSON.stringify = null; \
                 Object.prototype.toJSON = function () { return 'owned'; }; emit(doc.n, {}); }";
    client.put("/_node/_local/_config/query_server_config/native_evaluator", "\"false\"").expect(200);
    for round in 0..3 {
        save(&mut client, &format!("/db/_design/s{round}"), &design(&format!("{spoil} // {round}"), None));
        let answer = client.get(&format!("/db/_design/s{round}/_view/v?key=7")).expect(200).json();
        assert_eq!(text(rows(&answer)[0], "value"), "owned");
        save(&mut client, &format!("/other/_design/h{round}"), &design(&format!("{HONEST} // {round}"), None));
        check_honest(&mut client, &format!("/other/_design/h{round}"));
        assert_eq!(engine(&mut client, &format!("/other/_design/h{round}")), "quickjs");
    }
    client.put("/_node/_local/_config/query_server_config/native_evaluator", "\"true\"").expect(200);
    assert_eq!(engine(&mut client, "/other/_design/h0"), "native");
    save(&mut client, "/other/_design/native", &design(&format!("{HONEST} // native"), None));
    check_honest(&mut client, "/other/_design/native");
}

#[cfg(target_os = "linux")]
#[test]
fn a_crashed_worker_affects_only_its_view() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    save(
        &mut client,
        "/db/_design/d",
        &design("function (doc) { if (doc.n === 13) for (;;); emit(doc.n, null); }", None),
    );
    let reply = std::thread::scope(|scope| {
        let query = scope.spawn(|| server.client().get("/db/_design/d/_view/v"));
        let busy = |child: &u32| ticks(*child).is_some_and(|ticks| ticks > 40);
        let worker = wait_for("a busy worker", || server.children().into_iter().find(busy));
        assert!(Command::new("kill").args(["-6", &worker.to_string()]).status().unwrap().success());
        query.join().unwrap()
    });
    let reply = reply.expect(500).json();
    assert_eq!(text(reply.value(), "error"), "os_process_error");
    let reason = text(reply.value(), "reason");
    assert!(reason.contains("document \"d000013\"") && reason.contains("signal 6"), "{reason}");
    save(&mut client, "/other/_design/d", &design(HONEST, None));
    check_honest(&mut client, "/other/_design/d");
}

fn ticks(process: u32) -> Option<u64> {
    let line = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    line.rsplit(')').next()?.split_whitespace().nth(11)?.parse().ok()
}
