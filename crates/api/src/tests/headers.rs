//! The common headers of responses, over sockets.

use super::live::Live;

#[tokio::test]
async fn clients_learn_from_the_header_server_which_couchdb_they_can_count_on() {
    let server = Live::start(&[]).await;
    let version = |reply: &super::live::Reply| reply.header("server").unwrap().to_owned();
    let response = version(&server.request("GET /nosuch", "").await);
    let (couchdb, own) = response.split_once(' ').unwrap();
    assert_eq!(couchdb, format!("CouchDB/{}", server.node.identity.couchdb_version));
    assert!(own.starts_with("(Settee/"), "{response}");
    server.node.settings.set("chttpd", "server_header_versions", "false", settee_settings::Persist::No).unwrap();
    assert_eq!(version(&server.request("GET /", "").await), "CouchDB");
    server.stop().await;
}

#[tokio::test]
async fn a_short_answer_has_the_headers_that_are_wanted_and_no_others() {
    let server = Live::start(&[]).await;
    let names = |reply: &super::live::Reply| {
        let mut names: Vec<&str> = reply.headers.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.join(" ")
    };
    let long = server.client().await.request("GET /_up", &[("Prefer", "return=representation")], "").await;
    let expected = "cache-control content-length content-type date server x-couch-request-id x-couchdb-body-time";
    assert_eq!(names(&long), expected);
    let minimal = [("Prefer", "return=minimal")];
    let short = server.client().await.request("GET /_up", &minimal, "").await;
    assert_eq!(names(&short), "cache-control content-length content-type date server");
    server
        .node
        .settings
        .set("chttpd", "prefer_minimal", "X-Couch-Request-ID, not a name", settee_settings::Persist::No)
        .unwrap();
    let short = server.client().await.request("GET /_up", &minimal, "").await;
    assert_eq!(names(&short), "content-length date x-couch-request-id");
    server.stop().await;
}

#[tokio::test]
async fn an_answer_without_changes_is_marked_empty() {
    let server = Live::start(&[]).await;
    server.request("PUT /db", "").await;
    server.request("PUT /db/a", "{}").await;
    let tag = server.request("GET /db/a", "").await.header("etag").unwrap().to_owned();
    let weak = format!("W/{tag}");
    for known in [tag.as_str(), weak.as_str()] {
        let reply = server.client().await.request("GET /db/a", &[("If-None-Match", known)], "").await;
        assert_eq!((reply.status, reply.body.as_str(), reply.header("content-length")), (304, "", Some("0")));
        assert_eq!(reply.header("etag"), Some(tag.as_str()));
    }
    server.stop().await;
}

/// As CouchDB, before the path, the query and the credentials are read.
#[tokio::test]
async fn escapes_of_the_target_are_validated() {
    let server = Live::start(&[]).await;
    server.request("PUT /db", "").await;
    for target in ["/db/100%", "/db/%zz", "/db/a%2", "/%", "/db/a/b%", "/db?x=%", "/_up?%=1", "/db/%u0041", "/db/%%41"]
    {
        for method in ["GET", "PUT", "DELETE", "COPY"] {
            let reply =
                server.client().await.request(&format!("{method} {target}"), &[("Authorization", "x")], "{}").await;
            let expected = r#"{"error":"bad_request","reason":"invalid_url_encoding"}"#;
            assert_eq!((reply.status, reply.body.trim_end()), (400, expected), "{method} {target}");
        }
    }
    assert_eq!(server.request("PUT /db/100%25", "{}").await.status, 201);
    assert_eq!(server.request("GET /db/_all_docs?key=%22100%25%22", "").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn post_stands_for_methods_in_capitals() {
    let server = Live::start(&[]).await;
    server.request("PUT /db", "").await;
    let mut client = server.client().await;
    for (method, expected) in
        [("PUT", 201), ("GET", 200), ("GET; x=1", 200), ("TRACE", 405), ("get", 400), ("PATCH", 400), ("DELETE", 409)]
    {
        let reply = client.request("POST /db/a", &[("X-HTTP-Method-Override", method)], "{}").await;
        assert_eq!(reply.status, expected, "{method}: {}", reply.body);
    }
    let ignored = client.request("GET /db", &[("X-HTTP-Method-Override", "DELETE")], "").await;
    assert_eq!(ignored.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn jsonp_is_disabled_by_default() {
    let server = Live::start(&[]).await;
    server.request("PUT /db", "").await;
    server.request("PUT /db/a", "{}").await;
    assert!(server.request("GET /db/a?callback=f", "").await.body.starts_with(r#"{"_id":"a""#));
    server.node.settings.set("chttpd", "allow_jsonp", "true", settee_settings::Persist::No).unwrap();
    for path in ["/db/a", "/db/_all_docs", "/db/_changes", "/db/nosuch", "/db"] {
        let reply = server.request(&format!("GET {path}?callback=f.g"), "").await;
        assert_eq!(reply.header("content-type"), Some("application/javascript"), "{path}");
        let body = reply.body;
        let end = if path == "/db/_changes" { "}\n);\n" } else { "});\n" };
        assert!(body.starts_with("/* CouchDB */f.g({") && body.ends_with(end), "{path}: {body}");
    }
    let refused = server.request("GET /db/a?callback=alert(1)", "").await;
    assert_eq!(refused.body, "{\"error\":\"bad_request\",\"reason\":\"invalid_callback\"}\n");
    server.stop().await;
}

/// Regression: responses of the replicator lacked some of them.
#[tokio::test]
async fn the_scheduler_answers_with_the_headers_of_all_answers() {
    let server = Live::start(&[]).await;
    for path in
        ["/_scheduler/jobs", "/_scheduler/docs", "/_scheduler/jobs/nosuch", "/_scheduler/docs/_replicator/nosuch"]
    {
        let reply = server.request(&format!("GET {path}"), "").await;
        for name in ["cache-control", "content-type", "server", "x-couch-request-id", "x-couchdb-body-time"] {
            assert!(reply.header(name).is_some(), "{path}: {name} of {:?}", reply.headers);
        }
    }
    server.stop().await;
}
