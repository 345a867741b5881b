//! Tests of two servers on one PostgreSQL, one of which no longer gets any response from it.

use std::time::{Duration, Instant};

use super::cluster::{ADMIN, node};
use crate::proxy::Proxy;
use crate::scratch::Scratch;
use crate::server::{Directory, Server};
use crate::{Client, Reply, save, wait_for};

/// A write waits for at most 2 s for a writer.
const LIMIT: Duration = Duration::from_millis(2_500);

fn ask(client: &mut Client, method: &str, path: &str) -> Reply {
    let begun = Instant::now();
    let reply = client.request(method, path, &[], b"{}").unwrap();
    println!("{method} {path}: {} after {:?}", reply.status, begun.elapsed());
    assert!(begun.elapsed() < LIMIT, "{method} {path}: {:?}", begun.elapsed());
    reply
}

#[test]
fn a_server_without_a_connection_to_its_store_fails_at_once() {
    let Some(postgres) = Scratch::start("") else { return };
    let proxy = Proxy::start(postgres.socket());
    let (url, directories) = (postgres.url(), [Directory::new(), Directory::new()]);
    let schema = url.rsplit('=').next().unwrap();
    let far = proxy.url(schema);
    let [far, near] = [(&far, "far@here", 0), (&url, "near@here", 1)].map(|(url, name, number): (_, _, usize)| {
        Server::start_as(&directories[number], &mut node(&directories[number], url, name))
    });
    let client = |server: &Server| server.client().with(ADMIN);
    let (mut far_client, mut near_client) = (client(&far), client(&near));
    far_client.put("/db", "").expect(201);
    for number in 0..20 {
        save(&mut far_client, &format!("/db/{number}"), "{}");
    }
    let map = r#"{"views":{"all":{"map":"function (doc) { emit(doc._id, 1); }"}}}"#;
    save(&mut far_client, "/db/_design/d", map);
    let requests = [
        ("GET", "/db/7"),
        ("PUT", "/db/new"),
        ("GET", "/db/_all_docs"),
        ("GET", "/db/_design/d/_view/all"),
        ("GET", "/db/_changes"),
        ("GET", "/_all_dbs"),
    ];
    for round in 0..2 {
        far_client.get("/db/7").expect(200);
        proxy.stall_requests(true);
        proxy.stall_responses(true);
        for _ in 0..2 {
            std::thread::scope(|scope| {
                for (method, path) in requests {
                    let mut far = client(&far);
                    scope.spawn(move || {
                        let reply = ask(&mut far, method, path);
                        // The other server may have become the writer, to which writes are forwarded.
                        let is_forwarded = method == "PUT" && matches!(reply.status, 201 | 409);
                        let refusal = (reply.status, reply.header("retry-after"));
                        assert!(is_forwarded || refusal == (503, Some("1")), "{refusal:?}: {}", reply.text());
                    });
                }
                ask(&mut near_client, "GET", "/db/_design/d/_view/all").expect(200);
                ask(&mut near_client, "PUT", &format!("/db/near{round}"));
                ask(&mut near_client, "GET", "/db/7").expect(200);
            });
        }
        assert_ne!(far_client.get("/_up").status, 200);
        proxy.stall_requests(false);
        proxy.stall_responses(false);
        wait_for("the server responds again", || (far_client.get("/db/7").status == 200).then_some(()));
    }
    let decided = || Some(far_client.put("/db/new", "{}").status).filter(|status| *status != 503);
    let status = wait_for("a decided write", decided);
    assert!([201, 409].contains(&status), "{status}");
    let revs = near_client.get("/db/new?revs_info=true").expect(200).text();
    assert_eq!(revs.matches("\"rev\":\"1-").count(), 1, "{revs}");
}
