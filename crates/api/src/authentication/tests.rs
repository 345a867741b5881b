//! Authentication of requests, from their headers to their responses.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::tests::json;
use crate::tests::node::{Ask, TestResponse, World};

/// A server with the user `ann`, whose password is `secret` and whose role is `r`.
async fn world() -> World {
    let world = World::new();
    world.node.make_users_database().await.unwrap();
    world
        .admin("PUT /_users/org.couchdb.user:ann", r#"{"name":"ann","type":"user","roles":["r"],"password":"secret"}"#)
        .await;
    world
}

async fn session(world: &World, ask: Ask<'_>) -> String {
    let reply = world.ask(ask).await;
    let reply = reply.line().replace(r#""info":{"authentication_handlers":["cookie","default"]}"#, "");
    reply.replace(r#""authentication_handlers":["cookie","default"],"#, "")
}

async fn log_in(world: &World, name: &str, password: &str) -> TestResponse {
    let form = format!(r#"{{"name":"{name}","password":"{password}"}}"#);
    world.ask(Ask::new("POST /_session").json(&form)).await
}

fn cookie(reply: &TestResponse) -> String {
    reply.header("set-cookie").split(';').next().unwrap().to_owned()
}

#[tokio::test]
async fn users_of_nodes() {
    let world = world().await;
    const ANONYMOUS: &str = r#"200 {"ok":true,"userCtx":{"name":null,"roles":[]},}"#;
    const ANN: &str = r#"200 {"ok":true,"userCtx":{"name":"ann","roles":["r"]},"info":{"authenticated":"default"}}"#;
    let get = || Ask::new("GET /_session");
    assert_eq!(session(&world, get()).await, ANONYMOUS);
    assert_eq!(session(&world, get().basic("ann", "secret")).await, ANN);
    let refused = r#"401 {"error":"unauthorized","reason":"Name or password is incorrect."}"#;
    assert_eq!(session(&world, get().basic("ann", "wrong")).await, refused);
    assert_eq!(session(&world, get().basic("bob", "secret")).await, refused);
    assert_eq!(session(&world, get().header("authorization", "Digest x")).await, ANONYMOUS);
    let bad = r#"400 {"error":"bad_request","reason":"Authorization header has invalid base64 value"}"#;
    assert_eq!(session(&world, get().header("authorization", "Basic !")).await, bad);
    let login = r#"401 {"error":"unauthorized","reason":"Please login."}"#;
    assert_eq!(session(&world, Ask::new("GET /_session?basic=true")).await, login);
    world.admin("PUT /_users/org.couchdb.user:admin", r#"{"name":"admin","type":"user","roles":["x"]}"#).await;
    let both =
        r#"200 {"ok":true,"userCtx":{"name":"admin","roles":["_admin","x"]},"info":{"authenticated":"default"}}"#;
    assert_eq!(session(&world, get().basic("admin", "pw")).await, both);
}

#[tokio::test]
async fn a_session_from_login_to_logout() {
    let world = world().await;
    let reply = log_in(&world, "ann", "secret").await;
    assert_eq!(reply.line(), r#"200 {"ok":true,"name":"ann","roles":["r"]}"#);
    let begun = cookie(&reply);
    let attributes = reply.header("set-cookie").split_once("; ").unwrap().1;
    assert_eq!(attributes, "Version=1; Expires=Tue, 14 Nov 2023 22:23:20 GMT; Max-Age=600; Path=/; HttpOnly");
    let get = |cookie: &str| Ask::new("GET /_session").header("cookie", &format!("a=b; {cookie}; c=d"));
    let ann = r#"200 {"ok":true,"userCtx":{"name":"ann","roles":["r"]},"info":{"authenticated":"cookie"}}"#;
    assert_eq!(session(&world, get(&begun)).await, ann);
    assert_eq!(world.ask(get(&begun)).await.header("set-cookie"), "", "it is young");
    world.wait_s(61);
    let renewed = cookie(&world.ask(get(&begun)).await);
    assert!(renewed != begun && renewed.starts_with("AuthSession="), "{renewed}");
    world.wait_s(540);
    let anonymous = r#"200 {"ok":true,"userCtx":{"name":null,"roles":[]},}"#;
    assert_eq!(session(&world, get(&begun)).await, anonymous);
    assert_eq!(session(&world, get(&renewed)).await, ann);
    let reply = world.ask(Ask::new("DELETE /_session").header("cookie", &renewed)).await;
    assert_eq!((reply.line().as_str(), cookie(&reply).as_str()), (r#"200 {"ok":true}"#, "AuthSession="));
    let malformed =
        r#"400 {"error":"bad_request","reason":"Malformed AuthSession cookie. Please clear your cookies."}"#;
    assert_eq!(session(&world, get("AuthSession=nonsense")).await, malformed);
    assert_eq!(session(&world, get("AuthSession=")).await, anonymous);
    let again = cookie(&log_in(&world, "ann", "secret").await);
    world.wait_s(100);
    let reply = world.ask(Ask::new("GET /nothing").header("cookie", &again)).await;
    assert!(reply.status == 404 && cookie(&reply).len() > 20, "{reply:?}");
}

#[tokio::test]
async fn a_new_secret_ends_no_session() {
    let world = world().await;
    let ann = r#"200 {"ok":true,"userCtx":{"name":"ann","roles":["r"]},"info":{"authenticated":"cookie"}}"#;
    let anonymous = r#"200 {"ok":true,"userCtx":{"name":null,"roles":[]},}"#;
    let get = |cookie: &str| Ask::new("GET /_session").header("cookie", cookie);
    world.set("chttpd_auth", "secret", "one");
    let begun = cookie(&log_in(&world, "ann", "secret").await);
    world.wait_s(10);
    for secret in ["two", "three"] {
        world.set("chttpd_auth", "secret", secret);
        assert_eq!(session(&world, get(&begun)).await, ann, "{secret}");
    }
    world.wait_s(60);
    let renewed = cookie(&world.ask(get(&begun)).await);
    assert!(renewed != begun && renewed.starts_with("AuthSession="), "{renewed}");
    world.wait_s(540);
    assert_eq!(session(&world, get(&begun)).await, anonymous);
    assert_eq!(session(&world, get(&renewed)).await, ann);
    let signed = |secret: &str| {
        let now_s = (world.node.authentication.clock_ms)() / 1000;
        let account =
            settee_auth::SessionCookie::issue("admin", secret.as_bytes(), "", settee_auth::Algorithm::Sha256, now_s);
        format!("AuthSession={account}")
    };
    assert_eq!(session(&world, get(&signed("two"))).await, anonymous);
    world.set("chttpd_auth", "secret", "");
    assert_eq!(session(&world, get(&renewed)).await, anonymous);
}

#[tokio::test]
async fn proxies_learn_a_new_secret_in_time() {
    let world = world().await;
    world.set("chttpd", "authentication_handlers", "{chttpd_auth, proxy_authentication_handler}");
    world.set("chttpd_auth", "proxy_use_secret", "true");
    world.set("chttpd_auth", "secret", "the_secret");
    // The token for this name and secret in CouchDB's documentation.
    let token = "22047ebd7c4ec67dfbcbad7213a693249dbfbf86";
    world.set("chttpd_auth", "hash_algorithms", "sha256, sha");
    let name = async || {
        let ask =
            Ask::new("GET /_session").header("x-auth-couchdb-username", "foo").header("x-auth-couchdb-token", token);
        world.ask(ask).await.body.contains(r#""name":"foo""#)
    };
    assert!(name().await);
    world.set("chttpd_auth", "secret", "another");
    assert!(name().await);
    world.wait_s(599);
    assert!(name().await);
    world.wait_s(1);
    assert!(!name().await);
}

#[tokio::test]
async fn cookie_attributes_are_configured() {
    let world = world().await;
    world.set("chttpd_auth", "same_site", "strict");
    world.set("chttpd_auth", "cookie_domain", "example.com");
    world.set("chttpd_auth", "allow_persistent_cookies", "false");
    let form = r#"{"username":"ann","password":"secret"}"#;
    let reply = world.ask(Ask::new("POST /_session").json(form).encrypted()).await;
    let attributes = reply.header("set-cookie").split_once("; ").unwrap().1;
    assert_eq!(attributes, "Version=1; Domain=example.com; Path=/; Secure; HttpOnly; SameSite=Strict");
    // Cookies that another server signed with the secret are valid, as long as the algorithm is accepted.
    world.set("chttpd_auth", "hash_algorithms", "sha");
    let second = log_in(&world, "ann", "secret").await;
    let get = |cookie: &str| Ask::new("GET /db").header("cookie", cookie);
    assert_eq!(world.ask(get(&cookie(&reply))).await.status, 404, "the cookie is not accepted, which is no error");
    assert!(session(&world, Ask::new("GET /_session").header("cookie", &cookie(&reply))).await.contains("null"));
    assert!(session(&world, Ask::new("GET /_session").header("cookie", &cookie(&second))).await.contains("ann"));
}

#[tokio::test]
async fn forms_and_redirections() {
    let world = world().await;
    let post = |target: &'static str, body: &str| Ask::new(target).text("application/x-www-form-urlencoded", body);
    let reply = world.ask(post("POST /_session?next=/x", "name=ann&password=sec%72et")).await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (302, "http://localhost/x"));
    let reply = world.ask(post("POST /_session?fail=/y", "name=ann&password=no")).await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (302, "http://localhost/y"));
    let reply = world.ask(post("POST /_session?next=//evil.example.com", "name=ann&password=secret")).await;
    assert_eq!(reply.header("location"), "http://localhost//evil.example.com", "a path of this server");
    for (ask, expected) in [
        (post("POST /_session?next=@evil.example.com", "name=ann&password=secret"), "400 path must begin with a /."),
        (post("POST /_session", ""), "400 request body must contain a username"),
        (post("POST /_session", "name=a&username=b"), "400 request body contains different usernames"),
        (post("POST /_session", "name=ann&username=ann"), "401 Name or password is incorrect."),
        (Ask::new("POST /_session").json("[]"), "400 Request body must be a JSON object"),
        (Ask::new("POST /_session").json(r#"{"name":1}"#), "400 `name` must be a string."),
        (
            Ask::new("POST /_session").text("text/plain", "name=ann"),
            "415 Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'",
        ),
    ] {
        let reply = world.ask(ask).await;
        let reason = crate::tests::json(&reply.body).value().get("reason").unwrap().as_str().unwrap().into_owned();
        assert_eq!(format!("{} {reason}", reply.status.as_u16()), expected);
    }
}

#[tokio::test]
async fn changes_of_users_and_admins_count_at_once() {
    let world = world().await;
    let begun = cookie(&log_in(&world, "ann", "secret").await);
    let reply = world.admin("GET /_users/org.couchdb.user:ann", "").await;
    let rev = crate::tests::json(&reply.body).value().get("_rev").unwrap().as_str().unwrap().into_owned();
    let body = format!(r#"{{"_rev":"{rev}","name":"ann","type":"user","roles":["s"],"password":"new"}}"#);
    let reply = world.admin("PUT /_users/org.couchdb.user:ann", &body).await;
    let get = || Ask::new("GET /_session");
    assert!(session(&world, get().basic("ann", "secret")).await.starts_with("401"));
    assert!(session(&world, get().basic("ann", "new")).await.contains(r#""roles":["s"]"#));
    assert!(session(&world, get().header("cookie", &begun)).await.contains("null"), "a new password ends sessions");
    let rev = crate::tests::json(&reply.body).value().get("rev").unwrap().as_str().unwrap().into_owned();
    world.admin(&format!("DELETE /_users/org.couchdb.user:ann?rev={rev}"), "").await;
    assert!(session(&world, get().basic("ann", "new")).await.starts_with("401"));
    assert!(session(&world, get().basic("admin", "pw")).await.contains("_admin"));
    world.set_admins(&["other"]);
    assert!(session(&world, get().basic("admin", "pw")).await.starts_with("401"));
    assert!(session(&world, get().basic("other", "pw")).await.contains("_admin"));
    world.set_admins(&["admin"]);
    world.admin("DELETE /_users", "").await;
    assert!(session(&world, get().basic("ann", "new")).await.starts_with("401"));
}

#[tokio::test]
async fn too_many_failures_lock_a_user_out_from_one_address() {
    let world = world().await;
    let get = |password: &str| Ask::new("GET /_session").basic("ann", password);
    for _ in 0..5 {
        assert!(session(&world, get("wrong").from(1)).await.starts_with("401"));
    }
    let locked =
        r#"403 {"error":"forbidden","reason":"Account is temporarily locked due to multiple authentication failures"}"#;
    assert_eq!(session(&world, get("secret").from(1)).await, locked);
    assert!(session(&world, get("secret").from(2)).await.starts_with("200"));
    world.wait_s(300);
    assert!(session(&world, get("secret").from(1)).await.starts_with("200"));
    world.set("chttpd_auth_lockout", "mode", "off");
    for _ in 0..9 {
        assert!(session(&world, get("wrong").from(1)).await.starts_with("401"));
    }
}

#[tokio::test]
async fn old_hashes_become_new_ones_at_a_login() {
    let world = world().await;
    let old = r#"{"name":"bob","type":"user","roles":[],"password_scheme":"simple","salt":"pepper",
        "password_sha":"0f8912baf3c8178ad9ce5f9d5bd2a6ff5efcf1f0","mine":1}"#;
    world.admin("PUT /_users/org.couchdb.user:bob", old).await;
    let begun = cookie(&log_in(&world, "bob", "secret").await);
    let document = loop {
        let reply = world.admin("GET /_users/org.couchdb.user:bob", "").await;
        if reply.body.contains("\"_rev\":\"2-") {
            break reply.body;
        }
        tokio::task::yield_now().await;
    };
    for part in [r#""password_scheme":"pbkdf2","pbkdf2_prf":"sha256","salt":"pepper","iterations":2"#, r#""mine":1"#] {
        assert!(document.contains(part), "{document}");
    }
    assert!(!document.contains("password_sha") && !document.contains("secret"), "{document}");
    let session_of = |ask| session(&world, ask);
    assert!(session_of(Ask::new("GET /_session").header("cookie", &begun)).await.contains("bob"), "sessions continue");
    assert!(session_of(Ask::new("GET /_session").basic("bob", "secret")).await.starts_with("200"));
    assert!(session_of(Ask::new("GET /_session").basic("bob", "pepper")).await.starts_with("401"));
}

#[tokio::test]
async fn proxies_name_users_if_they_may() {
    let world = world().await;
    let get = || {
        let get = Ask::new("GET /_session").header("x-auth-couchdb-username", "zoë");
        get.header("x-auth-couchdb-roles", "a, b,")
    };
    assert!(session(&world, get()).await.contains("null"), "not unless it is configured");
    world.set("chttpd", "authentication_handlers", "{chttpd_auth, proxy_authentication_handler}");
    let zoe = r#"200 {"ok":true,"userCtx":{"name":"zoë","roles":["a","b"]},"info":{"authentication_handlers":["proxy"],"authenticated":"proxy"}}"#;
    assert_eq!(session(&world, get()).await, zoe);
    assert!(
        session(&world, Ask::new("GET /_session").basic("ann", "secret")).await.contains("null"),
        "not the only one"
    );
    world.set("chttpd_auth", "proxy_use_secret", "true");
    assert!(session(&world, get()).await.contains("null"), "there is no secret");
    world.set("chttpd_auth", "secret", "the_secret");
    assert!(session(&world, get()).await.contains("null"));
    world.set("chttpd_auth", "x_auth_username", "X-Me");
    let foo = || Ask::new("GET /_session").header("x-me", "foo");
    let token = "22047ebd7c4ec67dfbcbad7213a693249dbfbf86";
    assert!(session(&world, foo().header("x-auth-couchdb-token", token)).await.contains("foo"));
    assert!(session(&world, foo().header("x-auth-couchdb-token", "22")).await.contains("null"));
}

fn token(key: &str, expires_s: u64) -> String {
    let part = |text: &str| {
        let mut out = Vec::new();
        let mut encoder = settee_model::base64::Encoder::default();
        encoder.push(text.as_bytes(), &mut out);
        encoder.finish(&mut out);
        String::from_utf8(out).unwrap().trim_end_matches('=').replace('+', "-").replace('/', "_")
    };
    let header = format!(r#"{{"alg":"HS256"{key}}}"#);
    let claims = format!(r#"{{"sub":"ann","exp":{expires_s},"_couchdb.roles":["x"]}}"#);
    format!("Bearer {}.{}.{}", part(&header), part(&claims), "c2ln")
}

#[tokio::test]
async fn tokens_need_keys() {
    let world = world().await;
    let get = |token: &str| Ask::new("GET /_session").header("authorization", token);
    let late = token("", 1_800_000_000);
    assert!(session(&world, get(&late)).await.contains("null"), "not unless it is configured");
    world.set("chttpd", "authentication_handlers", "{chttpd_auth, jwt_authentication_handler}");
    let refused = |name: &str, reason: &str| format!(r#"{{"error":"{name}","reason":"{reason}"}}"#);
    let check = async |token: &str, expected: String| {
        let reply = world.ask(get(token)).await;
        assert_eq!(reply.body.trim_end(), expected, "{token}");
    };
    check(&late, refused("bad_request", "Unknown kid")).await;
    world.set("jwt_keys", "hmac:_default", "c2VjcmV0");
    check(&late, refused("bad_request", "Bad HMAC")).await;
    check(&token("", 1), refused("unauthorized", "exp not in future")).await;
    check("Bearer x", refused("bad_request", "Malformed token")).await;
    world.set("jwt_keys", "hmac:_default", "!");
    check(&late, refused("bad_request", "Not a valid key")).await;
    world.set("jwt_auth", "required_claims", "{x");
    check(&late, refused("misconfigured_server", "JWT is not configured correctly")).await;
    assert!(session(&world, Ask::new("GET /_session").basic("ann", "secret")).await.contains("null"));
}

fn vector(name: &str) -> String {
    let vectors = include_str!("../../../auth/src/jwt/vectors.txt");
    let mut lines = vectors.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(known, _)| *known == name).unwrap().1.to_owned()
}

#[tokio::test]
async fn published_keys_are_read_when_they_are_needed_and_again_when_they_are_old() {
    let published = Arc::new(Mutex::new(Err("no answer".to_owned())));
    let (reads, answers) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&published));
    let noted = Arc::clone(&reads);
    let world = World::with_keys(Arc::new(move |address: String| {
        noted.lock().push(address);
        let answer: Result<String, String> = answers.lock().clone();
        Box::pin(async move { answer.map(String::into_bytes) })
    }));
    world.set("chttpd", "authentication_handlers", "{chttpd_auth, jwt_authentication_handler}");
    world.set("jwt_auth", "jwks_url", "https://example.com/keys");
    // The token expired in 1970: expiry is checked last.
    world.back_to_s(1000);
    let bearer = format!("Bearer {}", vector("RS256"));
    let status = async || world.ask(Ask::new("GET /_session").header("authorization", &bearer)).await.line();
    let reads = || std::mem::take(&mut *reads.lock()).len();
    assert!(status().await.contains("Unknown kid"));
    assert_eq!(reads(), 1);
    assert!(status().await.contains("Unknown kid"));
    assert_eq!(reads(), 0, "not more often than every half minute");
    *published.lock() = Ok(vector("jwks"));
    world.wait_s(30);
    assert!(status().await.contains("\"ann\""));
    assert!(status().await.contains("\"ann\""));
    assert_eq!(reads(), 1);
    *published.lock() = Err("no answer".to_owned());
    world.set("jwt_auth", "jwks_refresh", "60");
    world.wait_s(60);
    assert!(status().await.contains("\"ann\""));
    assert_eq!(reads(), 1);
    *published.lock() = Ok(r#"{"keys":[]}"#.to_owned());
    world.wait_s(60);
    assert!(status().await.contains("Unknown kid"), "the key was withdrawn");
    assert_eq!(reads(), 1);
}

#[tokio::test]
async fn how_clients_are_asked_for_credentials() {
    let world = world().await;
    let get = || Ask::new("GET /_all_dbs");
    let asked = async |ask| world.ask(ask).await.header("www-authenticate").to_owned();
    assert_eq!(asked(get()).await, "");
    assert_eq!(asked(get().header("x-couchdb-www-authenticate", "Cookie")).await, "Cookie");
    let reply = world.ask(get().header("accept", "text/html").header("host", "h:1")).await;
    assert_eq!(reply.status, 302);
    let location = "http://h:1/_utils/session.html?return=%2F_all_dbs&reason=You%20are%20not%20a%20server%20admin.";
    assert_eq!(reply.header("location"), location);
    let empty_segments = Ask::new("GET //_all_dbs///x//").header("accept", "text/html").header("host", "h:1");
    let location = world.ask(empty_segments).await.header("location").to_owned();
    assert!(location.contains("?return=%2F_all_dbs%2Fx%2F&"), "{location}");
    assert_eq!(world.ask(get().header("accept", "text/html, */*")).await.status, 401);
    world.set("chttpd", "require_valid_user", "true");
    assert_eq!(asked(get()).await, "Basic realm=\"server\"");
    world.set("chttpd", "WWW-Authenticate", "Basic realm=\"mine\"");
    assert_eq!(asked(get()).await, "Basic realm=\"mine\"");
    assert_eq!(asked(get().header("x-couchdb-www-authenticate", "Cookie")).await, "Cookie");
    assert_eq!(world.ask(get().header("accept", "text/html")).await.status, 401);
}

#[tokio::test]
async fn accounts_that_are_remembered_and_those_that_are_read_are_counted() {
    let world = World::new();
    world.node.make_users_database().await.unwrap();
    world.admin("PUT /_users/org.couchdb.user:joe", r#"{"name":"joe","type":"user","roles":[],"password":"pw"}"#).await;
    let count = async |label: &str| {
        let reply = world.admin(&format!("GET /_node/_local/_stats/couchdb/auth_cache_{label}"), "").await;
        let value =
            json(&reply.body).value().get("value").map(|value| String::from_utf8_lossy(value.raw()).into_owned());
        value.unwrap_or_default()
    };
    assert_eq!((count("hits").await, count("misses").await), ("0".to_owned(), "0".to_owned()), "admins do not count");
    for expected in ["0", "1", "2"] {
        world.ask(Ask::new("GET /_session").basic("joe", "pw")).await;
        assert_eq!((count("hits").await, count("misses").await), (expected.to_owned(), "1".to_owned()));
    }
    // As in CouchDB an account of a cookie stays valid while it is cached, even if its document is deleted.
    let rev = world.admin("GET /_users/org.couchdb.user:joe", "").await.header("etag").trim_matches('"').to_owned();
    world.admin(&format!("DELETE /_users/org.couchdb.user:joe?rev={rev}"), "").await;
    assert_eq!(world.ask(Ask::new("GET /_session").basic("joe", "pw")).await.status, 401);
    assert_eq!((count("hits").await, count("misses").await), ("3".to_owned(), "1".to_owned()));
}

#[tokio::test]
async fn administrators_act_as_other_users() {
    let world = world().await;
    world.admin("PUT /_users/org.couchdb.user:b%C3%A9a", r#"{"name":"béa","type":"user","roles":[]}"#).await;
    world.admin("PUT /db", "").await;
    let ask = |line: &'static str, name: &'static str| Ask::new(line).header("x-settee-user", name);
    let ann = r#"200 {"ok":true,"userCtx":{"name":"ann","roles":["r"]},"info":{"authenticated":"default"}}"#;
    assert_eq!(session(&world, ask("GET /_session", "ann").basic("admin", "pw")).await, ann);
    let reply = world.ask(ask("GET /_session", "b%C3%A9a").basic("admin", "pw")).await.line();
    assert!(reply.contains(r#""name":"béa""#), "{reply}");
    assert_eq!(world.ask(ask("GET /db", "ann").basic("admin", "pw")).await.line()[..3], *"403");
    assert_eq!(world.ask(ask("PUT /new", "ann").basic("admin", "pw")).await.line()[..3], *"401");
    let unknown = r#"404 {"error":"not_found","reason":"The user does not exist."}"#;
    assert_eq!(session(&world, ask("GET /_session", "bob").basic("admin", "pw")).await, unknown);
    let refused = r#"403 {"error":"forbidden","reason":"Only administrators may act as another user."}"#;
    for other in [ask("GET /_session", "admin").basic("ann", "secret"), ask("GET /_session", "admin")] {
        assert_eq!(session(&world, other).await, refused);
    }
}
