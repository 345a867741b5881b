//! Tests of requests.
#![expect(clippy::unwrap_used, reason = "tests")]

mod endpoints;

use settee_model::json::Json;

use super::{CancelTarget, Filter, Request, Spec};
use crate::endpoint::{Auth, Endpoint, User};
use crate::tuning::{SocketOptions, Tuning};

fn request(members: &str) -> Result<Request, String> {
    let json = Json::parse(members.as_bytes()).unwrap();
    Request::parse(json.value(), &User::default(), &Tuning::default()).map_err(|error| error.to_string())
}

fn spec(members: &str) -> Spec {
    match request(&format!("{{\"source\":\"a\",\"target\":\"b\"{members}}}")).unwrap() {
        Request::Replicate(spec) => *spec,
        Request::Cancel(_) => panic!("{members}"),
    }
}

#[test]
fn complaints() {
    let both = "\"source\":\"http://h/a\",\"target\":\"http://h/b\"";
    let cases = [
        ("[]", "Request body must be a JSON object"),
        ("{}", "Missing replicator database"),
        ("{\"source\":\"a\"}", "Missing replicator database"),
        ("{\"source\":1,\"target\":\"b\"}", "endpoint has an invalid url"),
        ("{\"source\":null,\"filter\":\"d\"}", "endpoint has an invalid url"),
        ("{\"source\":\"ftp://h/a\",\"target\":\"b\"}", "endpoint has an invalid url"),
        ("{\"source\":\"http://\",\"target\":\"b\"}", "endpoint has an invalid url"),
        ("{\"source\":\"http://h:x/a\",\"target\":\"b\"}", "endpoint has an invalid url"),
        (
            "{\"source\":{\"url\":\"http://h/a\",\"headers\":{\"x\":1}},\"target\":\"b\"}",
            "endpoint has invalid headers",
        ),
        (
            "{\"source\":{\"url\":\"http://h/a\",\"auth\":{\"basic\":{}}},\"target\":\"b\"}",
            "endpoint has an invalid auth object",
        ),
        (&format!("{{{both},\"continuous\":1}}"), "parameter `continuous` must be a boolean"),
        (&format!("{{{both},\"cancel\":\"true\"}}"), "parameter `cancel` must be a boolean"),
        (&format!("{{{both},\"doc_ids\":\"a\"}}"), "parameter `doc_ids` must be an array"),
        (&format!("{{{both},\"selector\":[]}}"), "parameter `selector` must be a JSON object"),
        (&format!("{{{both},\"query_params\":42}}"), "parameter `query_params` must be an object"),
        (
            &format!("{{{both},\"filter\":\"a/b\",\"doc_ids\":[]}}"),
            "`doc_ids`,`filter`,`selector` are mutually exclusive",
        ),
        (&format!("{{{both},\"filter\":\"ab\"}}"), "Invalid filter. Must match `ddocname/filtername`."),
        (&format!("{{{both},\"filter\":\"_view\"}}"), "Invalid `view` parameter."),
        (&format!("{{{both},\"worker_processes\":\"x\"}}"), "parameter `worker_processes` must be an integer"),
        (&format!("{{{both},\"proxy\":\"ftp://h\"}}"), "proxy has an invalid url"),
        (
            &format!("{{{both},\"proxy\":\"http://h\",\"source_proxy\":\"http://h\"}}"),
            "`proxy` is mutually exclusive with `source_proxy`",
        ),
    ];
    for (members, expected) in cases {
        assert_eq!(request(members), Err(expected.to_owned()), "{members}");
    }
}

#[test]
fn the_first_fault_of_several_is_that_of_couchdb() {
    let types = "parameter `doc_ids` must be an array";
    for (members, expected) in [
        (r#"{"doc_ids":1,"continuous":1,"proxy":1}"#, types),
        (r#"{"continuous":1,"doc_ids":1,"source":1}"#, "parameter `continuous` must be a boolean"),
        (r#"{"continuous":1,"cancel":1}"#, "parameter `continuous` must be a boolean"),
        (r#"{"cancel":true,"id":"x","doc_ids":1}"#, types),
        (r#"{"selector":1,"worker_processes":"x"}"#, "parameter `selector` must be a JSON object"),
        (r#"{"doc_ids":[],"selector":{},"source":1}"#, "`doc_ids`,`filter`,`selector` are mutually exclusive"),
        (r#"{"source":1,"target":"b","proxy":1,"filter":"x"}"#, "endpoint has an invalid url"),
        (r#"{"source":"a","target":1,"proxy":1}"#, "proxy has an invalid url"),
        (r#"{"source":"a","target":"","filter":"x","use_checkpoints":1}"#, "endpoint has an invalid url"),
        (r#"{"source":"a","target":"b","use_checkpoints":1}"#, "parameter `use_checkpoints` must be a boolean"),
    ] {
        assert_eq!(request(members), Err(expected.to_owned()), "{members}");
    }
}

#[test]
fn members() {
    let spec = spec(
        ",\"continuous\":true,\"create_target\":true,\"create_target_params\":{\"q\":1,\"n\":\"2\"},\
         \"doc_ids\":[\"b%2Fc\",\"a\",\"a\"],\"since_seq\":[5,\"x\"],\"worker_batch_size\":\"7\",\"worker_processes\":0,\
         \"checkpoint_interval\":5000,\"use_checkpoints\":false,\"socket_options\":\"[{keepalive, false}]\",\"target_proxy\":\"socks5://p:1\",\"unknown\":{}",
    );
    assert!(spec.continuous && spec.create_target && !spec.winning_revs_only);
    assert_eq!(spec.create_target_params, [("q".to_owned(), "1".to_owned()), ("n".to_owned(), "2".to_owned())]);
    assert_eq!(spec.filter, Filter::DocIds(vec!["a".to_owned(), "b/c".to_owned()]));
    assert_eq!(spec.since_seq.unwrap().as_bytes(), b"[5,\"x\"]");
    let expected = Tuning {
        worker_batch_size: 7,
        worker_processes: 1,
        checkpoint_interval_ms: 5000,
        use_checkpoints: false,
        socket_options: Some(SocketOptions { keepalive: false, ..SocketOptions::default() }),
        ..Tuning::default()
    };
    assert_eq!(spec.tuning, expected);
}

#[test]
fn cancelling() {
    let by_id = |members: &str| match request(members).unwrap() {
        Request::Cancel(CancelTarget::Id(id)) => id,
        other => panic!("{other:?}"),
    };
    for name in ["_local_id", "replication_id", "id"] {
        assert_eq!(by_id(&format!("{{\"cancel\":true,\"{name}\":\"abc continuous\"}}")), "abc+continuous");
    }
    let like = request("{\"cancel\":true,\"source\":\"a\",\"target\":\"b\"}").unwrap();
    assert!(matches!(like, Request::Cancel(CancelTarget::Like(_))));
    assert_eq!(request("{\"cancel\":true}"), Err("Missing replicator database".to_owned()));
}

#[test]
fn endpoints() {
    let endpoint = |text: &str| match spec(&format!(",\"x\":1,\"source\":{text}")).source {
        Endpoint::Remote(remote) => remote,
        Endpoint::Local(local) => panic!("{}", local.name),
    };
    let remote = endpoint("\"https://u:p%40ss:w@host/a/b%2Fc\"");
    assert_eq!((remote.host.as_str(), remote.port, remote.path.as_str()), ("host", 443, "/a/b%2Fc/"));
    assert_eq!(remote.auth, Auth::Basic { username: "u".to_owned(), password: "p@ss:w".to_owned() });
    let endpoint = Endpoint::Remote(remote);
    assert_eq!(endpoint.database_uri(), "https://host/a/b%2Fc");
    assert_eq!(endpoint.server_uri(), "https://host/a");
    let local = spec("").source;
    assert_eq!((local.database_uri().as_str(), local.server_uri().as_str()), ("/a", ""));
    let server = spec(",\"source\":\"https://ann:x@host:1/couch\"").source;
    let Endpoint::Remote(remote) = server else { panic!("{server}") };
    let database = Endpoint::Remote(remote.database("a/b é"));
    assert_eq!(database.database_uri(), "https://host:1/couch/a%2Fb%20%C3%A9");
    assert_eq!(database.server_uri(), "https://host:1/couch");
    assert_eq!(spec(",\"source\":\"http://host:1\"").source.server_uri(), "http://host:1");
    let named = |name: &str| spec(&format!(",\"source\":\"{name}\"")).source.database_uri();
    assert_eq!(named("a/b+c"), "/a%2Fb%2Bc");
    assert_eq!(named("_replicator"), "/_replicator");
}
