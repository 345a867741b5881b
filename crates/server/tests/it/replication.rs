//! Tests of replication between programs: crashes, an orderly end, and secrecy of credentials.

use std::fs;
use std::time::Duration;

use settee_model::json::Value;

use crate::client::Client;
use crate::server::{Directory, Server};
use crate::{number, save, text, wait_for};

fn document(source: &str, target: &str, members: &str) -> String {
    format!("{{\"source\":{source},\"target\":{target}{members}}}")
}

fn quoted(text: &str) -> String {
    format!("\"{text}\"")
}

#[track_caller]
fn wait_for_document(client: &mut Client, path: &str) {
    wait_for(path, || (client.get(path).status == 200).then_some(()));
}

#[track_caller]
fn wait_for_state(client: &mut Client, id: &str, state: &str) {
    let path = format!("/_scheduler/docs/_replicator/{id}");
    wait_for(&format!("{id} to be {state}"), || {
        let reply = client.get(&path);
        let json = reply.json();
        json.value().get("state").is_some_and(|found| found.is_string(state)).then_some(())
    });
}

#[test]
fn replications_resume_after_a_crash_and_after_a_shutdown() {
    let (here, there) = (Directory::new(), Directory::new());
    let peer = Server::start(&there);
    let mut far = peer.client();
    far.put("/far", "").expect(201);
    let mut server = Server::start(&here);
    let mut client = server.client();
    client.put("/near", "").expect(201);
    let far_url = quoted(&format!("http://{}/far", peer.address));
    let near = quoted("near");
    save(&mut client, "/_replicator/push", &document(&near, &far_url, ",\"continuous\":true"));
    save(&mut client, "/_replicator/pull", &document(&far_url, &near, ",\"continuous\":true"));
    for round in 0..4 {
        save(&mut client, &format!("/near/here{round}"), "{}");
        save(&mut far, &format!("/far/there{round}"), "{}");
        wait_for_document(&mut far, &format!("/far/here{round}"));
        wait_for_document(&mut client, &format!("/near/there{round}"));
        if round % 2 == 0 {
            server.kill();
        } else {
            let (status, took) = server.terminate();
            assert!(status.success() && took < Duration::from_secs(5), "{status} after {took:?}");
        }
        server = Server::start(&here);
        client = server.client();
    }
    for id in ["push", "pull"] {
        wait_for_state(&mut client, id, "running");
    }
    wait_for_document(&mut client, "/near/there3");
    let job = client.get("/_scheduler/docs/_replicator/pull").expect(200).json();
    let read = number(job.value().get("info").expect("info"), "docs_read");
    assert!(read <= 4, "{read} documents were read, and there are 4");
    let found = number(client.get("/near").expect(200).json().value(), "doc_count");
    assert_eq!(found, 8);
}

const SECRET: &str = "PLANTED";

#[track_caller]
fn assert_hidden(label: &str, text: &str) {
    if let Some(at) = text.find(SECRET) {
        let around = &text[at.saturating_sub(200)..text.len().min(at + 100)];
        panic!("{label} shows a secret: …{around}…");
    }
}

#[test]
fn credentials_are_neither_shown_nor_logged() {
    let directory = Directory::new();
    directory.configure("[admins]\nann = secret\n[log]\nlevel = debug\n[replicator]\nretries_per_request = 0\nconnection_timeout = 500\n");
    let server = Server::start(&directory);
    let mut client = server.client().with("Basic YW5uOnNlY3JldA==");
    for database in ["/a", "/b"] {
        client.put(database, "").expect(201);
    }
    save(&mut client, "/a/x", "{}");
    let here = server.address;
    let local = quoted("a");
    let url = |number: u32| quoted(&format!("http://user{number}:{SECRET}{number}@127.0.0.1:1/db{number}"));
    let object =
        |number: u32, members: &str| format!("{{\"url\":\"http://127.0.0.1:1/db{number}\",{members}{number}\"}}}}}}");
    let documents = [
        document(&url(1), &local, ""),
        document(&local, &url(2), ",\"continuous\":true"),
        document(
            &object(3, &format!("\"headers\":{{\"Authorization\":\"Bearer {SECRET}")).replacen("}}}", "}}", 1),
            &local,
            "",
        ),
        document(&object(4, &format!("\"auth\":{{\"basic\":{{\"username\":\"u\",\"password\":\"{SECRET}")), &local, ""),
        document(&quoted("http://127.0.0.1:1/db5"), &local, &format!(",\"proxy\":\"http://p:{SECRET}5@127.0.0.1:1\"")),
        document(
            &quoted("https://127.0.0.1:1/db6"),
            &local,
            &format!(",\"proxy\":\"socks5://p:{SECRET}6@127.0.0.1:1\""),
        ),
        document(&quoted(&format!("http://user:{SECRET}7@{here}/a")), &quoted("b"), ""),
        document(&quoted("a"), &quoted(&format!("http://user:{SECRET}8@{here}/b")), ""),
        document(&quoted(&format!("http://user:{SECRET}/9@{here}/b")), &quoted("b"), ""),
    ];
    for (number, document) in documents.iter().enumerate() {
        if !document.contains("continuous") {
            let reply = client.post("/_replicate", document);
            assert!(reply.status >= 400, "{document}: {}", reply.text());
            assert_hidden(&format!("the answer to {number}"), &reply.text());
        }
        let reply = client.put(&format!("/_replicator/r{number}"), document);
        assert!(reply.status == 201 || reply.status == 403, "{document}: {}", reply.text());
        if reply.status == 403 {
            assert_hidden(&format!("the refusal of {number}"), &reply.text());
        } else {
            let is_refused = document.contains("http://user:");
            wait_for_state(&mut client, &format!("r{number}"), if is_refused { "failed" } else { "crashing" });
        }
    }
    let shown = [
        "/_scheduler/jobs",
        "/_scheduler/docs",
        "/_scheduler/docs/_replicator",
        "/_scheduler/docs/_replicator/r3",
        "/_active_tasks",
        "/a/_local_docs?include_docs=true",
        "/b/_local_docs?include_docs=true",
    ];
    for path in shown {
        assert_hidden(path, &client.get(path).expect(200).text());
    }
    let jobs = client.get("/_scheduler/jobs").expect(200).json();
    let first = jobs.value().get("jobs").and_then(|jobs| jobs.elements().next()).expect("a job");
    assert!(!text(first, "source").is_empty());
    let crashed =
        first.get("history").map(|history| history.elements().filter_map(|event| event.get("reason")).count());
    assert!(crashed > Some(0), "the reasons were checked too: {}", String::from_utf8_lossy(Value::raw(first)));
    let (status, _) = server.terminate();
    assert!(status.success());
    let log = fs::read_to_string(directory.path().join("log")).unwrap();
    assert!(log.contains("a replication failed"), "the log was checked: {log}");
    assert_hidden("the log", &log);
}
