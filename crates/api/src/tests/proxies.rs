//! Clients behind a proxy, over sockets: lockout and rate limit apply to the client and not to the proxy.

use std::num::NonZeroU32;
use std::sync::Arc;

use settee_auth::hash_password;
use settee_storage::memory::MemoryEngine;

use super::live::{Live, Reply, Values};
use super::node::{Ask, World};
use super::parts::parts;
use crate::NodeDependencies;

async fn server(settings: &[&str]) -> Live {
    let dependencies = parts(Arc::new(MemoryEngine::new()), Vec::new());
    let rounds = NonZeroU32::new(2).expect("not zero");
    dependencies.authenticator.set_admins([("admin".to_owned(), hash_password("pw", "salt", rounds))]);
    Live::of(NodeDependencies { settings: Arc::new(Values::of(settings)), ..dependencies }).await
}

async fn ask(server: &Live, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    server.client().await.request(line, headers, body).await
}

/// Sends a login through a local proxy that names its client in `header`.
async fn login(server: &Live, header: (&str, &str), password: &str) -> Reply {
    let body = format!(r#"{{"name":"admin","password":"{password}"}}"#);
    ask(server, "POST /_session", &[header], &body).await
}

#[tokio::test]
async fn failed_logins_lock_out_the_client_and_not_its_proxy() {
    for (settings, bad, good) in [
        (&[][..], ("X-Forwarded-For", "203.0.113.9"), ("X-Forwarded-For", "203.0.113.10")),
        (&[], ("X-Forwarded-For", "198.51.100.1, 203.0.113.9"), ("X-Forwarded-For", "203.0.113.9, 198.51.100.1")),
        (&[], ("Forwarded", "for=\"[2001:db8::9]:1\""), ("Forwarded", "for=\"[2001:db8::a]:1\"")),
        (&["chttpd/trusted_proxies=127.0.0.1"], ("X-Forwarded-For", "10.0.0.9"), ("X-Forwarded-For", "10.0.0.8")),
    ] {
        let server = server(settings).await;
        let begun = login(&server, bad, "pw").await;
        assert_eq!(begun.status, 200, "{}", begun.body);
        let cookie = begun.header("set-cookie").unwrap_or_default().split(';').next().unwrap_or_default().to_owned();
        for _ in 0..5 {
            assert_eq!(login(&server, bad, "no").await.status, 401);
        }
        let locked = login(&server, bad, "pw").await;
        assert_eq!(locked.status, 403, "{bad:?} {}", locked.body);
        assert_eq!(login(&server, good, "pw").await.status, 200, "{good:?}");
        assert_eq!(login(&server, ("Accept", "*/*"), "pw").await.status, 200, "the proxy itself is not locked out");
        // Failed logins from the same address do not affect existing sessions.
        let session = ask(&server, "GET /_all_dbs", &[bad, ("Cookie", &cookie)], "").await;
        assert_eq!(session.status, 200, "{}", session.body);
        let written = ask(&server, "PUT /db", &[bad, ("Cookie", &cookie)], "").await;
        assert_eq!(written.status, 201, "{}", written.body);
        server.stop().await;
    }
}

#[tokio::test]
async fn a_client_that_is_no_proxy_cannot_choose_its_address() {
    let server = server(&["chttpd/trusted_proxies=192.0.2.1"]).await;
    for number in 0..5 {
        let address = format!("203.0.113.{number}");
        assert_eq!(login(&server, ("X-Forwarded-For", &address), "no").await.status, 401);
    }
    assert_eq!(login(&server, ("X-Forwarded-For", "203.0.113.200"), "pw").await.status, 403);
    server.stop().await;
}

#[tokio::test]
async fn the_rate_is_limited_for_each_client_of_a_proxy() {
    let server = server(&["rate_limit/requests_per_second=1", "rate_limit/burst=2"]).await;
    let status = async |address: &str| ask(&server, "GET /_up", &[("X-Forwarded-For", address)], "").await.status;
    let of_one = [status("203.0.113.9").await, status("203.0.113.9").await, status("203.0.113.9").await];
    assert_eq!(of_one, [200, 200, 429]);
    assert_eq!(status("203.0.113.10").await, 200);
    server.stop().await;
}

#[tokio::test]
async fn addresses_in_answers_are_those_of_the_proxy() {
    let world = World::new();
    let ask = |line| {
        let ask = Ask::new(line).header("host", "inner:5984").header("x-forwarded-host", "db.example.org");
        ask.header("x-forwarded-proto", "https")
    };
    let made = world.ask(ask("PUT /db").basic("admin", "pw").json("")).await;
    assert_eq!(made.header("location"), "https://db.example.org/db");
    let saved = world.ask(ask("PUT /db/a").basic("admin", "pw").json("{}")).await;
    assert_eq!(saved.header("location"), "https://db.example.org/db/a");
    let page = world.ask(ask("GET /db/a%20b/c?x=1").header("accept", "text/html")).await;
    let expected = "https://db.example.org/_utils/session.html?return=%2Fdb%2Fa%20b%2Fc\
                    &reason=You%20are%20not%20authorized%20to%20access%20this%20db.";
    assert_eq!((page.status.as_u16(), page.header("location")), (302, expected));
    let form = ask("POST /_session?next=/x").text("application/x-www-form-urlencoded", "name=admin&password=pw");
    assert_eq!(world.ask(form).await.header("location"), "https://db.example.org/x");
}
