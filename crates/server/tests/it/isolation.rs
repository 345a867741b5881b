//! Tests of isolation between databases: memory of index builds, and shares of processes.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::server::{Directory, Server};
use crate::{Client, design, load, number, save};

#[cfg(target_os = "linux")]
fn peak_bytes(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

#[cfg(target_os = "linux")]
#[test]
fn indexes_are_built_within_their_memory() {
    let directory = Directory::new();
    directory.configure("[view_updater]\nsort_memory_bytes = 16777216\n");
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    load(&mut client, "/db", 24, 10);
    let before = peak_bytes(&server);
    let check = |client: &mut Client, name: &str, body: &str, total: i64| {
        let map = format!("function (doc) {{ var e = emit; {body} }}");
        save(client, &format!("/db/_design/{name}"), &design(&map, None));
        let answer = client.get(&format!("/db/_design/{name}/_view/v?limit=0")).expect(200).json();
        assert_eq!(number(answer.value(), "total_rows"), total, "{name}");
        let grown = peak_bytes(&server) - before;
        println!("{name}: {} MiB more than before", grown >> 20);
        assert!(grown < 420 << 20, "{name}: {} MiB more than before", grown >> 20);
    };
    check(&mut client, "huge", "if (doc.n > 1) e('x'.repeat(60e6), 1); e(doc.n, 1);", 2);
    check(&mut client, "much", "for (var i = 0; i < 12; i++) e(i + doc._id + 'x'.repeat(1e6), 1);", 24 * 12);
    check(&mut client, "values", "for (var i = 0; i < 3; i++) e(doc._id, 'x'.repeat(4e6));", 24 * 3);
    let map = "function (doc) { var e = emit; e(doc.n, 'x'.repeat(2e5)); }";
    let reduce = "function (keys, values) { return values.join(''); }";
    save(&mut client, "/db/_design/joined", &design(map, Some(reduce)));
    let answer = client.get("/db/_design/joined/_view/v").expect(200).text();
    assert!(answer.contains("reduce_overflow_error"), "{answer:.200}");
    assert!(peak_bytes(&server) - before < 420 << 20);
    let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
    assert!(log.contains("limit_exceeded: emitted a key of more than 1048576 bytes"), "{log}");
    assert!(log.contains("d000013"), "{log}");
}

/// Most clients of database `a` must still be waiting when the client of database `b` is answered.
fn check_shares(attackers: usize, method: &str, hangs: &str, fine: &str, body: &str) {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    let functions = r#"{"validate_doc_update":"function (doc) { if (doc.hang) for (;;); }",
        "lists":{"l":"function (head, req) { if (req.query.hang) for (;;); send('done'); }"},
        "views":{"v":{"map":"function (doc) { emit(doc.n, 1); }"}}}"#;
    for database in ["a", "b"] {
        client.put(&format!("/{database}"), "").expect(201);
        save(&mut client, &format!("/{database}/_design/f"), functions);
        client.get(&format!("/{database}/_design/f/_view/v")).expect(200);
    }
    let (sent, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for number in 0..attackers {
            let (server, sent, done) = (&server, &sent, &done);
            let (path, body) = (hangs.replace('#', &number.to_string()), body.replace("fine", "hang"));
            let mut client = Client::connect(server.address);
            scope.spawn(move || {
                client.send(method, &path, &[("Content-Type", "application/json")], body.as_bytes()).unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
                let _ = client.reply(method);
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        crate::wait_for("the attack", || (sent.load(Ordering::Relaxed) == attackers).then_some(()));
        let answer = client.request(method, fine, &[("Content-Type", "application/json")], body.as_bytes()).unwrap();
        assert!(matches!(answer.status, 200 | 201), "{}", answer.text());
        let done = done.load(Ordering::Relaxed);
        println!("{done} of {attackers} attackers were done before");
        assert!(done < attackers / 2, "{done} of {attackers} attackers were done before");
        server.kill();
    });
}

#[test]
fn hanging_validations_leave_processes_to_others() {
    check_shares(60, "PUT", "/a/doc#", "/b/doc", r#"{"fine":true}"#);
}

#[test]
fn hanging_lists_leave_processes_to_others() {
    check_shares(100, "GET", "/a/_design/f/_list/l/v?hang=1", "/b/_design/f/_list/l/v", "");
}
