//! Endpoints as a table: a `source` as written, and the parsed result. Credentials are never shown.

use settee_model::json::Json;

use crate::endpoint::{Auth, Endpoint, User};
use crate::testing::check_file;

const SECRET: &str = "SECRET";

const SOURCES: [&str; 79] = [
    r#""db""#,
    r#""a/b+c d""#,
    r#""é""#,
    r#""_users""#,
    r#""""#,
    r#"" ""#,
    r#""HTTP://host/db""#,
    r#""//host/db""#,
    r#""host:5984/db""#,
    r#""ftp://host/db""#,
    r#""x://""#,
    r#"{"url":"db"}"#,
    r#"{"url":"db","headers":{"a":"b"},"auth":5}"#,
    "null",
    "5",
    "[]",
    "true",
    "{}",
    r#"{"url":null}"#,
    r#"{"url":5}"#,
    r#""http://host""#,
    r#""https://host""#,
    r#""http://host/""#,
    r#""http://host:1""#,
    r#""http://host:0/db""#,
    r#""http://host:65535/db""#,
    r#""http://host:65536/db""#,
    r#""http://host:/db""#,
    r#""http://host:-1/db""#,
    r#""http://host:80x/db""#,
    r#""http://:80/db""#,
    r#""http:///db""#,
    r#""http://?x""#,
    r#""http://HOST.Example/DB""#,
    r#""http://127.0.0.1:5984/db""#,
    r#""http://[::1]/db""#,
    r#""http://[::1]:5984/db""#,
    r#""http://[2001:db8::1]:5984""#,
    r#""https://a.b-c.d_e/db/""#,
    r#""http://host/db""#,
    r#""http://host/db/""#,
    r#""http://host/db//""#,
    r#""http://host/a%2Fb""#,
    r#""http://host/below/a/path/db""#,
    r#""http://host/db?x=1""#,
    r#""http://host/db?""#,
    r#""http://host?x=/y""#,
    r#""http://host/db#part""#,
    r#""http://host#part/db""#,
    r#""http://host/a b""#,
    r#""http://host/a\tb""#,
    r#""http://host/é""#,
    r#""http://u:SECRET@host/db""#,
    r#""http://u@host/db""#,
    r#""http://:SECRET@host/db""#,
    r#""http://u:@host/db""#,
    r#""http://@host/db""#,
    r#""http://u:SECRET@@host/db""#,
    r#""http://u:SEC@RET@host/db""#,
    r#""http://u:SECRET:x@host:1/db""#,
    r#""http://u%40x:SECRET%2F%C3%A9@host/db""#,
    r#""http://u:SECRET%ff@host/db""#,
    r#""http://u:SECRET%2@host/db""#,
    r#""http://u:SECRET@[::1]:5/db""#,
    r#"{"url":"http://host/db","headers":null}"#,
    r#"{"url":"http://host/db","headers":[]}"#,
    r#"{"url":"http://host/db","headers":{"x":1}}"#,
    r#"{"url":"http://host/db","headers":{"b":"2","A":"1","a":"0"}}"#,
    r#"{"url":"http://host/db","headers":{"a b":"1"}}"#,
    r#"{"url":"http://host/db","headers":{"a":"1\r\nb: 2"}}"#,
    r#"{"url":"http://host/db","headers":{"":"1"}}"#,
    r#"{"url":"http://host/db","headers":{"Authorization":"Bearer SECRET","b":"1","A":"2"}}"#,
    r#"{"url":"http://host/db","headers":{"authorization":"basic dTpTRUNSRVQ="}}"#,
    r#"{"url":"http://host/db","headers":{"Authorization":"Basic SECRET"}}"#,
    r#"{"url":"http://v:SECRET@host/db","headers":{"Authorization":"Basic dTpTRUNSRVQ="}}"#,
    r#"{"url":"http://v:SECRET@host/db","auth":{"basic":{"username":"w","password":"SECRET2"}}}"#,
    r#"{"url":"http://host/db","auth":{"basic":{"username":"w"}}}"#,
    r#"{"url":"http://host/db","auth":{"basic":{"username":"w","password":5}}}"#,
    r#"{"url":"http://v:SECRET@host/db","auth":{"other":{"x":"y"}}}"#,
];

fn parsed(source: &str) -> String {
    let json = Json::parse(source.as_bytes()).unwrap();
    let endpoint = match Endpoint::parse(Some(json.value()), None, &User::default()) {
        Ok(endpoint) => endpoint,
        Err(error) => return format!("{error}"),
    };
    for shown in [endpoint.to_string(), format!("{endpoint:?}"), endpoint.database_uri(), endpoint.server_uri()] {
        assert!(!shown.contains(SECRET) && !shown.contains("SEC@"), "{source}: {shown}");
    }
    let uris = format!("{} at {:?}", endpoint.database_uri(), endpoint.server_uri());
    match endpoint {
        Endpoint::Local(local) => format!("local {:?}, {uris}", local.name),
        Endpoint::Remote(remote) => {
            let auth = match &remote.auth {
                Auth::None => String::new(),
                Auth::Basic { username, password } => format!(", as {username:?} with {password:?}"),
            };
            let headers: String = remote.headers.iter().map(|(name, value)| format!(", {name}: {value}")).collect();
            let (scheme, host, port, path) = (remote.scheme, &remote.host, remote.port, &remote.path);
            format!("{scheme} {host} {port} {path}, {uris}{auth}{headers}")
        }
    }
}

#[test]
fn endpoints_as_a_table() {
    let lines: Vec<String> = SOURCES.iter().map(|source| format!("{source}\n    {}\n", parsed(source))).collect();
    check_file("endpoints.txt", &lines.concat());
}

#[test]
fn proxies() {
    let proxy = |members: &str| {
        let text = format!("{{\"source\":\"http://h/a\",\"target\":\"https://h/b\"{members}}}");
        super::request(&text).map(|request| match request {
            super::Request::Replicate(spec) => [spec.source, spec.target].map(|endpoint| match endpoint {
                Endpoint::Remote(remote) => remote.proxy.unwrap_or_default(),
                Endpoint::Local(_) => "local".to_owned(),
            }),
            super::Request::Cancel(_) => Default::default(),
        })
    };
    let both = |one: &str, other: &str| Ok([one.to_owned(), other.to_owned()]);
    let invalid = || Err("proxy has an invalid url".to_owned());
    assert_eq!(proxy(""), both("", ""));
    assert_eq!(proxy(",\"proxy\":\"http://p\""), both("http://p", "http://p"));
    assert_eq!(proxy(",\"proxy\":\"\""), both("", ""));
    assert_eq!(proxy(",\"proxy\":null,\"source_proxy\":\"https://p\""), both("https://p", ""));
    assert_eq!(proxy(",\"target_proxy\":\"socks5://u:p@p:1\""), both("", "socks5://u:p@p:1"));
    assert_eq!(proxy(",\"source_proxy\":\"http://p\",\"target_proxy\":\"socks5://q\""), both("http://p", "socks5://q"));
    for wrong in ["5", "[]", "{}", "\"p\"", "\"socks4://p\"", "\"ftp://p\""] {
        for name in ["proxy", "source_proxy", "target_proxy"] {
            assert_eq!(proxy(&format!(",\"{name}\":{wrong}")), invalid(), "{name} {wrong}");
        }
    }
    let error = Err("`proxy` is mutually exclusive with `target_proxy`".to_owned());
    assert_eq!(proxy(",\"proxy\":\"http://p\",\"target_proxy\":\"http://p\""), error);
}

#[test]
fn numbers_and_flags() {
    let names = [
        "worker_processes",
        "worker_batch_size",
        "http_connections",
        "connection_timeout",
        "retries_per_request",
        "checkpoint_interval",
        "use_checkpoints",
        "use_bulk_get",
        "continuous",
        "create_target",
        "winning_revs_only",
        "socket_options",
        "since_seq",
        "create_target_params",
    ];
    let values = [
        "0",
        "1",
        "70",
        "20000",
        "4294967296",
        "-1",
        "1.5",
        "\"7\"",
        "\"x\"",
        "true",
        "false",
        "null",
        "[]",
        "{\"q\":2}",
    ];
    let mut table = String::new();
    for name in names {
        for value in values {
            let found = super::request(&format!("{{\"source\":\"a\",\"target\":\"b\",\"{name}\":{value}}}"));
            let shown = match found {
                Err(error) => format!("! {error}"),
                Ok(super::Request::Replicate(spec)) => match name {
                    "continuous" => spec.continuous.to_string(),
                    "create_target" => spec.create_target.to_string(),
                    "winning_revs_only" => spec.winning_revs_only.to_string(),
                    "since_seq" => format!("{:?}", spec.since_seq.map(|seq| String::from_utf8(seq.into_bytes()))),
                    "create_target_params" => format!("{:?}", spec.create_target_params),
                    "worker_processes" => spec.tuning.worker_processes.to_string(),
                    "worker_batch_size" => spec.tuning.worker_batch_size.to_string(),
                    "http_connections" => spec.tuning.http_connections.to_string(),
                    "connection_timeout" => spec.tuning.connection_timeout_ms.to_string(),
                    "retries_per_request" => spec.tuning.retries_per_request.to_string(),
                    "checkpoint_interval" => spec.tuning.checkpoint_interval_ms.to_string(),
                    "use_checkpoints" => spec.tuning.use_checkpoints.to_string(),
                    "use_bulk_get" => spec.tuning.use_bulk_get.to_string(),
                    _ => format!("{:?}", spec.tuning.socket_options),
                },
                Ok(other) => panic!("{name} {value}: {other:?}"),
            };
            table.push_str(&format!("{name} {value}: {shown}\n"));
        }
    }
    check_file("members.txt", &table);
}
