//! Tests of text search on a real server: crash, backup and a switch.

use crate::server::{Directory, Server, program, run};
use crate::{Client, number, save, wait_for};

fn design(mark: &str) -> String {
    let function = "function(doc) { if (doc.t) index('text', 'default', doc.t, {store: true}); \
                    if (typeof doc.n == 'number') index('double', 'n', doc.n); }";
    format!(r#"{{"nouveau":{{"i":{{"index":"{function} // {mark}"}}}}}}"#)
}

fn write(client: &mut Client, from: usize, count: usize) {
    const WORDS: [&str; 7] = ["fox", "dog", "cat", "owl", "hare", "toad", "swan"];
    let documents = (from..from + count).map(|number| {
        let word = |step: usize| WORDS[(number * step + number / 7) % WORDS.len()];
        format!(r#"{{"_id":"d{number:06}","t":"{} {} {}","n":{number}}}"#, word(1), word(3), word(5))
    });
    let body = format!(r#"{{"docs":[{}]}}"#, documents.collect::<Vec<_>>().join(","));
    client.post("/db/_bulk_docs", &body).expect(201);
}

fn answers(client: &mut Client, design: &str) -> Vec<String> {
    let queries = ["*:*", "fox", "fox+AND+NOT+dog", "%22cat+owl%22", "n:[100+TO+200]", "sw*", "hare~1"];
    let ask = |client: &mut Client, query: &str| {
        let path = format!("/db/_design/{design}/_nouveau/i?q={query}&sort=[%22_id%22]&limit=300");
        let text = client.get(&path).expect(200).text();
        let (kept, _) = text.split_once("\"bookmark\"").expect("answers have bookmarks");
        kept.to_owned()
    };
    queries.iter().map(|query| ask(client, query)).collect()
}

#[test]
fn after_a_crash_an_index_equals_a_rebuilt_one() {
    let directory = Directory::new();
    directory.configure("[ken]\nenabled = false\n[view_updater]\ncheckpoint_interval = 0\n");
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    save(&mut client, "/db/_design/known", &design("known"));
    for round in 0..8 {
        write(&mut client, round * 1_000, 1_000);
    }
    let mut asking = server.client();
    let asked = std::thread::spawn(move || {
        let _ = asking.send("GET", "/db/_design/known/_nouveau/i?q=fox", &[], b"");
        let _ = asking.reply("GET");
    });
    wait_for("the index to be built", || {
        let tasks = client.get("/_active_tasks").expect(200).text();
        let is_started = tasks.contains("search_indexer") && !tasks.contains(r#""changes_done":0"#);
        (is_started || asked.is_finished()).then_some(())
    });
    server.kill();
    asked.join().unwrap();
    for round in 0..3 {
        let server = Server::start(&directory);
        let mut client = server.client();
        save(&mut client, &format!("/db/_design/anew{round}"), &design(&format!("rebuild {round}")));
        let known = answers(&mut client, "known");
        assert_eq!(known, answers(&mut client, &format!("anew{round}")), "after crash {round}");
        assert!(known[0].contains("\"total_hits\":8000") || round > 0, "{}", known[0]);
        write(&mut client, 10_000 + round * 100, 50);
        answers(&mut client, "known");
        write(&mut client, 10_050 + round * 100, 50);
        server.kill();
    }
}

#[test]
fn a_backup_has_its_search_indexes() {
    let (directory, backups, restored) = (Directory::new(), Directory::new(), Directory::new());
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    save(&mut client, "/db/_design/known", &design("known"));
    write(&mut client, 0, 500);
    let known = answers(&mut client, "known");
    let made = run(program(&["backup", "--data"]).arg(directory.path()).arg("--to").arg(backups.path()));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let backup = String::from_utf8_lossy(&made.stdout).lines().next().unwrap().to_owned();
    drop(server);
    let made = run(program(&["restore", "--from", &backup, "--data"]).arg(restored.path().join("data")));
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let verified = run(program(&["verify", "--data"]).arg(restored.path().join("data")));
    assert!(verified.status.success(), "{}", String::from_utf8_lossy(&verified.stdout));
    let mut command = program(&["serve", "--port", "0", "--data"]);
    let server = Server::start_as(&restored, command.arg(restored.path().join("data")));
    let mut client = server.client();
    let info = client.get("/db/_design/known/_nouveau_info/i").expect(200).json();
    let index = info.value().get("search_index").unwrap();
    assert_eq!((number(index, "num_docs"), number(index, "update_seq")), (500, 501), "it need not be built again");
    assert_eq!(answers(&mut client, "known"), known);
}

#[test]
fn disabled_features_are_absent() {
    let directory = Directory::new();
    directory.configure("[nouveau]\nenable = false\n[dreyfus]\nenable = false\n");
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    save(&mut client, "/db/_design/known", &design("known"));
    for path in ["_design/known/_nouveau/i?q=fox", "_design/known/_nouveau_info/i"] {
        client.get(&format!("/db/{path}")).expect_error(404, "not_found", "missing");
    }
    client.post("/_nouveau_analyze", r#"{"analyzer":"standard","text":"x"}"#).expect_error(404, "not_found", "missing");
    client.post("/db/_nouveau_cleanup", "{}").expect_error(404, "not_found", "missing");
    for path in ["_design/known/_search/i?q=fox", "_design/known/_search_info/i"] {
        client.get(&format!("/db/{path}")).expect_error(503, "service unavailable", "Search is not available");
    }
    client.post("/db/_search_cleanup", "{}").expect(202);
    let welcome = client.get("/").expect(200).text();
    assert!(!welcome.contains("nouveau") && !welcome.contains("\"search\""), "{welcome}");
    client.put("/_node/_local/_config/nouveau/enable", "\"true\"").expect(200);
    client.get("/db/_design/known/_nouveau/i?q=fox").expect(200);
}
