//! Tests of requests by which installers and clients prepare a server, and that their settings survive a restart.

use crate::server::{Directory, Server, program, run, serve};
use crate::{Client, text};

/// `admin:password`
const ADMIN: &str = "Basic YWRtaW46cGFzc3dvcmQ=";

const LIVESYNC: [(&str, &str); 9] = [
    ("chttpd/require_valid_user", "true"),
    ("chttpd_auth/require_valid_user", "true"),
    ("httpd/WWW-Authenticate", "Basic realm=\"couchdb\""),
    ("httpd/enable_cors", "true"),
    ("chttpd/enable_cors", "true"),
    ("chttpd/max_http_request_size", "4294967296"),
    ("couchdb/max_document_size", "50000000"),
    ("cors/credentials", "true"),
    ("cors/origins", "app://obsidian.md,capacitor://localhost,http://localhost"),
];

fn quoted(value: &str) -> String {
    let mut out = Vec::new();
    settee_model::json::write_string(&mut out, value);
    String::from_utf8(out).unwrap()
}

fn set_up(client: &mut Client, body: &str) -> (u16, String) {
    let reply = client.post("/_cluster_setup", body);
    (reply.status, reply.text().trim_end().to_owned())
}

#[track_caller]
fn check_livesync(server: &Server) {
    let mut page = server.client();
    let origin = ("Origin", "app://obsidian.md");
    let preflight = page.request(
        "OPTIONS",
        "/vault/_bulk_docs",
        &[
            origin,
            ("Access-Control-Request-Method", "POST"),
            ("Access-Control-Request-Headers", "authorization,content-type"),
        ],
        b"",
    );
    let preflight = preflight.unwrap().expect(204);
    assert_eq!(preflight.header("access-control-allow-origin"), Some("app://obsidian.md"));
    assert_eq!(preflight.header("access-control-allow-credentials"), Some("true"));
    let refused = page.request("GET", "/vault", &[origin], b"").unwrap().expect(401);
    assert_eq!(refused.header("www-authenticate"), Some("Basic realm=\"couchdb\""));
    assert_eq!(refused.header("access-control-allow-origin"), Some("app://obsidian.md"));
    let mut admin = server.client().with(ADMIN);
    let seen = admin.request("GET", "/vault", &[origin], b"").unwrap().expect(200);
    assert!(seen.header("access-control-expose-headers").is_some_and(|names| names.contains("etag")));
    let foreign = admin.request("GET", "/vault", &[("Origin", "https://evil.example.com")], b"").unwrap().expect(200);
    assert_eq!(foreign.header("access-control-allow-origin"), None);
    let large = format!("{{\"t\":\"{}\"}}", "x".repeat(9_000_000));
    let rev = admin.get("/vault/large").header("etag").map(|tag| tag.trim_matches('"').to_owned());
    let path = rev.map_or("/vault/large".to_owned(), |rev| format!("/vault/large?rev={rev}"));
    admin.put(&path, &large).expect(201);
}

#[test]
fn obsidian_livesync_sets_a_server_up() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    let enable = format!(
        r#"{{"action":"enable_single_node","username":"admin","password":"password","bind_address":"0.0.0.0","port":{},"singlenode":true}}"#,
        server.address.port()
    );
    assert_eq!(set_up(&mut client, &enable), (201, r#"{"ok":true}"#.to_owned()));
    client.get("/_node/_local/_config").expect(401);
    let mut admin = server.client().with(ADMIN);
    for (key, value) in LIVESYNC {
        admin.put(&format!("/_node/nonode@nohost/_config/{key}"), &quoted(value)).expect(200);
    }
    for database in ["/_users", "/_replicator", "/_global_changes"] {
        admin.get(database).expect(200);
    }
    admin.put("/vault", "").expect(201);
    check_livesync(&server);
    assert_eq!(set_up(&mut admin, &enable).0, 201);
    server.terminate();

    let mut command = serve(&directory);
    command.args(["--bind", "127.0.0.1"]);
    let server = Server::start_as(&directory, &mut command);
    check_livesync(&server);
    let mut admin = server.client().with(ADMIN);
    let configuration = admin.get("/_node/_local/_config").expect(200);
    let configuration = configuration.json();
    for (key, value) in LIVESYNC {
        let (section, key) = key.split_once('/').unwrap();
        assert_eq!(
            configuration.value().get(section).map(|section| text(section, key)).as_deref(),
            Some(value),
            "{key}"
        );
    }
    let set = |section: &str, key: &str| {
        let value = configuration.value().get(section).and_then(|section| section.get(key));
        value.and_then(|value| value.as_str().map(std::borrow::Cow::into_owned))
    };
    assert_eq!(set("cluster", "n").as_deref(), Some("1"));
    assert!(set("admins", "admin").is_some_and(|hash| hash.starts_with("-pbkdf2")));
    assert!(!directory.configuration().contains("= password"), "passwords are stored hashed only");
    assert!(directory.configuration().contains("bind_address = 0.0.0.0"));
}

#[test]
fn a_preset_sets_a_server_up_for_livesync() {
    let directory = Directory::new();
    let mut command = serve(&directory);
    command.args(["--preset", "obsidian-livesync"]).env("COUCHDB_USER", "admin").env("COUCHDB_PASSWORD", "password");
    let server = Server::start_as(&directory, &mut command);
    let mut admin = server.client().with(ADMIN);
    admin.put("/vault", "").expect(201);
    check_livesync(&server);
    for (key, value) in LIVESYNC {
        let found = admin.get(&format!("/_node/_local/_config/{key}")).expect(200);
        assert_eq!(found.json().value().to_text(), value, "{key}");
    }
    assert!(!directory.configuration().contains("origins"), "a preset is written to no file");
    let up = run(&mut program(&["doctor", "--up", "--data", directory.path().to_str().unwrap()]));
    assert!(up.status.success(), "{up:?}");
}

#[test]
fn files_and_flags_override_a_preset() {
    let directory = Directory::new();
    directory.configure("[cors]\norigins = https://a.example\n");
    let show = |further: &[&str]| {
        let data = directory.path().to_str().unwrap();
        let output = run(program(&["config", "show", "--data", data]).args(further).env("SETTEE_PRESET", "pouchdb"));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = show(&["--set", "cors/headers=accept"]);
    for line in [
        "\nenable_cors = true ; preset pouchdb\n",
        "\ncredentials = true ; preset pouchdb\n",
        "\nheaders = accept ; --set cors/headers\n",
        "\nmax_age = 600 ; default\n",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    assert!(shown.contains("\norigins = https://a.example ; ") && shown.contains("local.ini:"), "{shown}");
    assert!(show(&["--preset", "fabric"]).contains("\nmax_dbs_open = 8000 ; preset fabric\n"));
    let listed = run(&mut program(&["config", "presets"]));
    let listed = String::from_utf8(listed.stdout).unwrap();
    for preset in ["obsidian-livesync", "pouchdb", "cht", "fabric"] {
        assert!(listed.contains(&format!("; settee serve --preset {preset}\n")), "{listed}");
    }
    let unknown =
        run(program(&["serve", "--port", "0"]).env("SETTEE_PRESET", "couchapp").env("SETTEE_DATA", "/nosuch"));
    assert!(!unknown.status.success(), "{unknown:?}");
    assert_eq!(run(&mut program(&["serve", "--preset", "couchapp"])).status.code(), Some(2));
}

/// The script sends the name and the password even if the server does not have the administrator yet.
#[test]
fn the_script_of_livesync_finds_or_creates_its_administrator() {
    for is_known in [false, true] {
        let directory = Directory::new();
        let mut command = serve(&directory);
        if is_known {
            command.env("COUCHDB_USER", "admin").env("COUCHDB_PASSWORD", "password");
        }
        let server = Server::start_as(&directory, &mut command);
        let mut script = server.client().with(ADMIN);
        let enable = r#"{"action":"enable_single_node","username":"admin","password":"password","bind_address":"0.0.0.0","port":5984,"singlenode":true}"#;
        assert_eq!(set_up(&mut script, enable), (201, r#"{"ok":true}"#.to_owned()), "known: {is_known}");
        for (key, value) in LIVESYNC {
            script.put(&format!("/_node/nonode@nohost/_config/{key}"), &quoted(value)).expect(200);
        }
        script.put("/vault", "").expect(201);
        check_livesync(&server);
        server.client().get("/_all_dbs").expect(401);
    }
}

#[test]
fn a_form_behind_a_proxy_uploads_a_file() {
    let directory = Directory::new();
    directory.configure("[admins]\nadmin = password\n");
    let server = Server::start(&directory);
    let mut client = server.client().with(ADMIN);
    client.put("/db", "").expect(201);
    let rev = text(client.put("/db/page", "{}").expect(201).json().value(), "rev");
    let body = format!(
        "------x\r\nContent-Disposition: form-data; name=\"_rev\"\r\n\r\n{rev}\r\n------x\r\nContent-Disposition: form-data; \
         name=\"_attachments\"; filename=\"a b.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n------x--\r\n"
    );
    let proxied = [("X-Forwarded-Host", "couch.example.com"), ("X-Forwarded-Proto", "https")];
    let form = [
        ("Content-Type", "multipart/form-data; boundary=----x"),
        ("Referer", "https://couch.example.com/db/page"),
        ("Host", "couch.example.com"),
    ];
    let sent = client.request("POST", "/db/page", &[&form[..], &proxied[..]].concat(), body.as_bytes()).unwrap();
    assert!(sent.expect(201).header("etag").is_some_and(|tag| tag.starts_with("\"2-")));
    let put = client.request("PUT", "/db/other", &proxied, b"{}").unwrap().expect(201);
    assert_eq!(put.header("location"), Some("https://couch.example.com/db/other"));
    let file = client.get("/db/page/a%20b.txt").expect(200);
    assert_eq!((file.header("content-type"), file.text().as_str()), (Some("text/plain"), "hello"));
}

#[test]
fn setup_reports_unsupported_actions() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    let refused = |reason: &str| (400, format!(r#"{{"error":"bad_request","reason":"{reason}"}}"#));
    assert_eq!(set_up(&mut client, "[]"), refused("Missing JSON body'"));
    assert_eq!(set_up(&mut client, "{}"), refused("Invalid Action'"));
    assert_eq!(set_up(&mut client, r#"{"action":"dance"}"#), refused("Invalid Action'"));
    assert_eq!(
        set_up(&mut client, r#"{"action":"enable_single_node"}"#),
        refused("Cluster setup requires admin account to be configured")
    );
    let with = |more: &str| format!(r#"{{"action":"enable_single_node","username":"a","password":"b",{more}}}"#);
    assert_eq!(
        set_up(&mut client, &with(r#""bind_address":"here""#)),
        refused("Setup requires a valid IP bind_address. here is invalid.")
    );
    assert_eq!(set_up(&mut client, &with(r#""port":"x""#)), refused("port must be a number from 1 to 65535"));
    assert_eq!(
        set_up(&mut client, r#"{"action":"enable_single_node","username":"a"}"#),
        refused("username and password belong together")
    );
    assert_eq!(set_up(&mut client, r#"{"action":"add_node"}"#), refused("Cluster is not enabled."));
    assert_eq!(set_up(&mut client, r#"{"action":"enable_cluster"}"#).0, 501);
    assert!(!directory.configuration().contains("[admins]"), "nothing was set");
    client.request("POST", "/_cluster_setup", &[], b"{}").unwrap().expect(415);
    let finish = r#"{"action":"finish_cluster","ensure_dbs_exist":["_users","one"]}"#;
    assert_eq!(set_up(&mut client, finish).0, 201);
    client.get("/one").expect(200);
    assert_eq!(set_up(&mut client, finish), refused("Cluster is already finished"));
}

/// A page under a foreign name that resolves to this machine must not get permissions (DNS rebinding).
#[test]
fn foreign_names_do_not_reach_a_server_without_administrators() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    let by_name = |client: &mut Client, host: &str| {
        client.write(format!("GET /_all_dbs HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).unwrap();
        client.reply("GET").unwrap().status
    };
    assert_eq!(by_name(&mut client, "evil.example.com:5984"), 403);
    assert_eq!(by_name(&mut client, "localhost:5984"), 200);
    client.put("/_node/_local/_config/admins/admin", "\"password\"").expect(200);
    assert_eq!(by_name(&mut client, "evil.example.com:5984"), 401);
}
