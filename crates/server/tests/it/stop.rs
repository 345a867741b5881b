//! Tests of an orderly stop: feeds end, writes finish, and every acknowledged write exists afterwards.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use settee_model::json::Json;

use crate::server::{Directory, Server};
use crate::{design, load, number, rows, save, text, wait_for};

const STOP_TIMEOUT: Duration = Duration::from_secs(5);

#[test]
fn an_idle_server_stops_at_once() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut idle: Vec<_> = (0..20).map(|_| server.client()).collect();
    for client in &mut idle[..10] {
        client.get("/").expect(200);
    }
    let (status, took) = server.terminate();
    assert!(status.success(), "{status}");
    assert!(took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn an_incomplete_request_does_not_delay_the_shutdown() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut half = server.client();
    half.write(b"PUT /db HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{").unwrap();
    let mut begun = server.client();
    begun.write(b"GET / HT").unwrap();
    server.client().get("/").expect(200);
    let (status, took) = server.terminate();
    assert!(status.success() && took < STOP_TIMEOUT, "{status} after {took:?}");
}

#[test]
fn feeds_writes_and_a_build_at_the_end() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    load(&mut client, "/db", 20_000, 100);
    let slow = "function (doc) { for (var i = 0; i < 20000; i++) { doc.n + i; } emit(doc.g, doc.n); }";
    save(&mut client, "/db/_design/d", &design(slow, Some("_sum")));
    let written = AtomicUsize::new(0);
    let stopped = thread::scope(|scope| {
        let feed = |parameters: &str| {
            let mut feed = server.client();
            feed.send("GET", &format!("/db/_changes?since=now&heartbeat=600000&{parameters}"), &[], b"").unwrap();
            feed.reply_head().unwrap().expect(200);
            scope.spawn(move || {
                let mut all = Vec::new();
                while let Some(chunk) = feed.chunk()? {
                    all.extend_from_slice(&chunk);
                }
                Ok::<_, io::Error>(String::from_utf8(all).unwrap())
            })
        };
        let continuous = feed("feed=continuous");
        client.put("/quiet", "").expect(201);
        let mut quiet = server.client();
        quiet.send("GET", "/quiet/_changes?feed=longpoll&heartbeat=600000", &[], b"").unwrap();
        quiet.reply_head().unwrap().expect(200);
        let mut query = server.client();
        query.send("GET", "/db/_design/d/_view/v?group=true", &[], b"").unwrap();
        wait_for("the start of the build", || {
            let tasks = server.client().get("/_active_tasks").expect(200).json();
            tasks.value().elements().next().map(|task| number(task, "total_changes"))
        });
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let mut client = server.client();
                let written = &written;
                scope.spawn(move || {
                    let mut saved = Vec::new();
                    for n in 0.. {
                        let id = format!("w{writer}-{n}");
                        match client.request("PUT", &format!("/db/{id}"), &[], b"{}") {
                            Ok(reply) if reply.status == 201 => saved.push((id, text(reply.json().value(), "rev"))),
                            Ok(reply) => panic!("{}", reply.text()),
                            Err(_) => break,
                        }
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                    saved
                })
            })
            .collect();
        wait_for("writes to flow", || (written.load(Ordering::Relaxed) > 50).then_some(()));
        let begun = Instant::now();
        server.signal_termination();
        let continuous = continuous.join().unwrap().unwrap();
        assert!(continuous.trim_end().lines().last().unwrap().starts_with("{\"last_seq\":\""), "{continuous}");
        let mut longpoll = Vec::new();
        while let Some(chunk) = quiet.chunk().unwrap() {
            longpoll.extend_from_slice(&chunk);
        }
        assert_eq!(number(Json::parse(&longpoll).unwrap().value(), "pending"), 0);
        let saved: Vec<(String, String)> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        let status = server.wait();
        (status, begun.elapsed(), saved)
    });
    let (status, took, saved) = stopped;
    eprintln!("stopped after {took:?} with {} writes", saved.len());
    assert!(status.success(), "{status}");
    assert!(took < STOP_TIMEOUT, "{took:?}");

    let server = Server::start(&directory);
    let mut client = server.client();
    for (id, rev) in &saved {
        assert_eq!(text(client.get(&format!("/db/{id}")).expect(200).json().value(), "_rev"), *rev);
    }
    let fast = "function (doc) { emit(doc.g, doc.n); }";
    save(&mut client, "/db/_design/e", &design(fast, Some("_sum")));
    let view = client.get("/db/_design/e/_view/v?group=true&startkey=0").expect(200).json();
    let sums: Vec<i64> = rows(&view).iter().map(|row| number(*row, "value")).collect();
    let expected: Vec<i64> = (0..10).map(|g| (0..20_000).filter(|n| n % 10 == g).sum()).collect();
    assert_eq!(sums, expected);
}

#[test]
fn child_processes_end_with_the_server() {
    let directory = Directory::new();
    let run = || {
        let server = Server::start(&directory);
        let mut client = server.client();
        let _ = client.put("/db", "");
        load(&mut client, "/db", 10, 0);
        client.put("/db/_design/d", &design("function (doc) { var e = emit; e(doc.n); }", None));
        client.get("/db/_design/d/_view/v").expect(200);
        let children = server.children();
        assert!(!children.is_empty(), "functions run in processes of their own");
        (server, children)
    };
    let gone = |children: Vec<u32>| {
        for pid in children {
            wait_for("a worker to end", || (!is_running(pid)).then_some(()));
        }
    };
    let (server, children) = run();
    assert!(server.terminate().0.success());
    gone(children);
    let (server, children) = run();
    server.kill();
    gone(children);
}

fn is_running(pid: u32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = status.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}
