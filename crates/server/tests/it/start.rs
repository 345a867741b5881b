//! Tests of the command line, the first start, administrators, and state that survives a restart.

use std::fs;
use std::process::Command;

use crate::server::{Directory, Server, program, run, serve};
use crate::{Client, save, text};

/// `ann:secret`
const ANN: &str = "Basic YW5uOnNlY3JldA==";
/// `ann:wrong`
const WRONG: &str = "Basic YW5uOndyb25n";

#[test]
fn help_shows_commands_and_options() {
    let check = |arguments: &[&str], expected: &[&str]| {
        let output = run(&mut program(arguments));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{arguments:?}");
        for expected in expected {
            assert!(text.contains(expected), "{arguments:?} does not say {expected:?}:\n{text}");
        }
    };
    check(&["--help"], &["settee serve", "curl -X PUT", "serve", "backup", "config"]);
    check(&["serve", "--help"], &["--data", "--bind", "--port", "--config", "COUCHDB_USER", "`admins`", "loopback"]);
    check(&["-V"], &[concat!("settee ", env!("CARGO_PKG_VERSION"), "\n")]);
    check(
        &["--version"],
        &[concat!("settee ", env!("CARGO_PKG_VERSION"), "\ncommit: "), "\nfeatures: ", "\nbuilt for: "],
    );
    check(
        &["config", "--defaults"],
        &["[chttpd]", "port = 5984", "bind_address = 127.0.0.1", ";max_http_request_size"],
    );
}

#[test]
fn completions_are_scripts() {
    for (shell, arguments) in
        [("bash", &["-n"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"]), ("elvish", &["-compileonly"])]
    {
        let printed = run(&mut program(&["completions", shell]));
        assert!(printed.status.success() && printed.stdout.len() > 5000, "{shell}: {printed:?}");
        let directory = Directory::new();
        let script = directory.path().join("script");
        fs::write(&script, &printed.stdout).unwrap();
        match Command::new(shell).args(arguments).arg(&script).output() {
            Ok(result) => assert!(result.status.success(), "{shell}: {result:?}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{shell}"),
        }
    }
    assert_eq!(run(&mut program(&["completions", "tcl"])).status.code(), Some(2));
}

#[test]
fn manual_pages_are_written() {
    let directory = Directory::new();
    let man1 = directory.path().join("share/man/man1");
    let output = run(program(&["man"]).arg(&man1));
    assert!(output.status.success(), "{output:?}");
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let text = fs::read_to_string(line).unwrap();
        assert!(text.contains(".SH NAME\nsettee"), "{line}:\n{text}");
    }
    assert!(man1.join("settee.1").is_file() && man1.join("settee-import.1").is_file());
    let output = run(program(&["man"]).arg(man1.join("settee.1")));
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("cannot be written"));
}

#[test]
fn unknown_commands_are_rejected() {
    for arguments in
        [&["serv"][..], &[], &["serve", "--port", "x"], &["serve", "--bind", "here"], &["serve", "--dat", "x"]]
    {
        let output = run(&mut program(arguments));
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("--help") || text.contains("Usage"), "{arguments:?}: {text}");
    }
}

#[test]
fn the_first_start_prints_the_locations() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let version = env!("CARGO_PKG_VERSION");
    let data = directory.path().canonicalize().unwrap();
    let expected = format!(
        "Settee {version} listens at http://{0}/\nThe data is in {1}\n\
         There is no administrator: every user of this machine has all permissions. To create one:\n  \
         curl -X PUT http://{0}/_node/_local/_config/admins/NAME -d '\"PASSWORD\"'\n\
         or start with COUCHDB_USER and COUCHDB_PASSWORD in the environment\n\
         Requests may take N MiB of memory\nStop with Ctrl-C.\n",
        server.address,
        data.display()
    );
    let printed_text: String =
        server.greeting.split_inclusive('\n').filter(|line| !line.starts_with("Accepts ")).collect();
    let memory = server.greeting.split_once("may take ").and_then(|(_, rest)| rest.split(' ').next()).unwrap();
    assert!(memory.parse::<u64>().unwrap() >= 32, "{memory}");
    assert_eq!(printed_text.replace(&format!("{memory} MiB"), "N MiB"), expected);
    assert!(server.address.ip().is_loopback());
    let reply = server.client().get("/").expect(200);
    let welcome = reply.json();
    assert_eq!(text(welcome.value(), "couchdb"), "Welcome");
    assert_eq!(text(welcome.value(), "version"), "3.5.2");
    assert_eq!(text(welcome.value(), "uuid").len(), 32);
    assert_eq!(reply.header("server"), Some(format!("CouchDB/3.5.2 (Settee/{version})").as_str()));
    server.client().get("/_up").expect(200);
}

#[test]
fn a_server_without_administrators_listens_on_loopback_only() {
    let directory = Directory::new();
    for bind in ["0.0.0.0", "::", "192.0.2.1"] {
        let output = run(serve(&directory).args(["--bind", bind]));
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains("without an administrator, because every client would have all permissions"), "{text}");
        assert!(text.contains("COUCHDB_USER and COUCHDB_PASSWORD") && text.contains("[admins]"), "{text}");
        assert!(output.stdout.is_empty());
    }
    directory.configure("[chttpd]\nbind_address = any\n");
    assert_eq!(run(&mut serve(&directory)).status.code(), Some(1));
    for bind in ["127.0.0.1", "127.0.0.2"] {
        let server = Server::start_as(&directory, serve(&directory).args(["--bind", bind]));
        assert_eq!(server.address.ip().to_string(), bind);
    }
    directory.configure("[admins]\nann = secret\n");
    let server = Server::start(&directory);
    assert!(server.address.ip().is_unspecified(), "with an administrator it may listen everywhere");
}

#[test]
fn the_environment_creates_an_administrator_once() {
    let directory = Directory::new();
    let mut command = serve(&directory);
    command.env("COUCHDB_USER", "ann").env("COUCHDB_PASSWORD", "secret");
    let server = Server::start_as(&directory, &mut command);
    let refused = |client: Client| {
        let mut client = client;
        client.put("/db", "").expect(401);
    };
    refused(server.client());
    refused(server.client().with(WRONG));
    server.client().get("/_all_dbs").expect_error(401, "unauthorized", "You are not a server admin.");
    let wrong = server.client().with(WRONG).get("/_all_dbs");
    wrong.expect_error(401, "unauthorized", "Name or password is incorrect.");
    server.client().with("Basic %%%").get("/").expect(400);
    server.client().get("/").expect(200);
    server.client().with(ANN).put("/db", "").expect(201);
    server.client().with(ANN).get("/_all_dbs").expect(200);
    let closed = server.client().get("/db");
    closed.expect_error(401, "unauthorized", "You are not authorized to access this db.");
    drop(server);
    let stored = directory.configuration();
    assert!(stored.contains("ann = -pbkdf2"), "{stored}");
    assert!(!stored.contains("secret"), "{stored}");
    let server = Server::start_as(&directory, serve(&directory).args(["--bind", "0.0.0.0"]));
    let address = (std::net::Ipv4Addr::LOCALHOST, server.address.port()).into();
    refused(Client::connect(address));
    Client::connect(address).with(ANN).get("/db").expect(200);
}

#[test]
fn the_first_administrator_ends_open_access() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    client.put("/_node/_local/_config/admins/ann", "\"secret\"").expect(200);
    client.get("/_all_dbs").expect(401);
    client.get("/_config").expect(401);
    client.delete("/db").expect(401);
    let mut ann = server.client().with(ANN);
    ann.get("/_all_dbs").expect(200);
    let shown = ann.get("/_node/_local/_config/admins/ann").expect(200).text();
    assert!(shown.starts_with("\"-pbkdf2"), "{shown}");
    ann.put("/db/_security", "{}").expect(200);
    client.get("/db").expect(200);
    client.put("/db/doc", "{}").expect(201);
    for path in ["/db/_design/d", "/db/_design%2Fd", "/db/%5Fdesign%2Fd", "/db/%5Fdesign/d"] {
        client.put(path, "{}").expect_error(401, "unauthorized", "You are not a db or server admin.");
    }
    let bulk = client.post("/db/_bulk_docs", r#"{"docs":[{"_id":"_design/d"},{"_id":"e"}]}"#).expect(201).text();
    assert!(
        bulk.contains(r#"{"id":"_design/d","error":"unauthorized""#) && bulk.contains(r#""id":"e","rev""#),
        "{bulk}"
    );
    client.post("/db", r#"{"_id":"_design/d"}"#).expect(401);
    client.request("COPY", "/db/doc", &[("Destination", "_design/d")], b"").unwrap().expect(401);
    client.put("/db/_security", "{}").expect(401);
    assert_eq!(ann.get("/db/_design_docs").expect(200).text(), "{\"total_rows\":0,\"offset\":0,\"rows\":[\r\n\r\n]}\n");
}

#[test]
fn the_last_administrator_of_a_reachable_server_cannot_be_removed() {
    let directory = Directory::new();
    directory.configure("[admins]\nann = secret\n");
    let config = "/_node/_local/_config";
    let server = Server::start(&directory);
    server.client().with(ANN).delete(&format!("{config}/admins/ann")).expect(200);
    server.client().get("/_all_dbs").expect(200);
    drop(server);
    directory.configure("[admins]\nann = secret\n");
    let server = Server::start_as(&directory, serve(&directory).args(["--bind", "0.0.0.0"]));
    let address = (std::net::Ipv4Addr::LOCALHOST, server.address.port()).into();
    let mut ann = Client::connect(address).with(ANN);
    let refused = "The last admin cannot be removed while the server listens on 0.0.0.0";
    ann.delete(&format!("{config}/admins/ann")).expect_error(400, "bad_request", refused);
    ann.put(&format!("{config}/chttpd/bind_address"), "\"127.0.0.1\"").expect(200);
    ann.delete(&format!("{config}/admins/ann")).expect(200);
    Client::connect(address).get("/_all_dbs").expect(401);
    Client::connect(address).put("/db", "").expect(401);
}

#[test]
fn a_data_directory_has_one_server() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let before = directory.configuration();
    let mut second = serve(&directory);
    let output = run(second.env("COUCHDB_USER", "ann").env("COUCHDB_PASSWORD", "secret"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("another server uses the data directory"), "{text}");
    assert!(text.contains("--data"), "{text}");
    assert_eq!(directory.configuration(), before, "the second server must not touch what is the first one's");
    server.client().get("/_all_dbs").expect(200);
    server.kill();
    Server::start(&directory);
}

#[test]
fn an_occupied_port_is_reported() {
    let (first, second) = (Directory::new(), Directory::new());
    let server = Server::start(&first);
    let port = server.address.port().to_string();
    let output = run(program(&["serve", "--port", &port, "--data"]).arg(second.path()));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("cannot listen on 127.0.0.1:{port}")) && text.contains("--port"), "{text}");
}

#[test]
fn an_invalid_configuration_is_reported() {
    let directory = Directory::new();
    directory.configure("[chttpd]\nbind_address = nowhere\n");
    let output = run(&mut serve(&directory));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("local.ini:4: [chttpd] bind_address = nowhere: it must be an IP address"), "{text}");
}

#[test]
fn invalid_settings_stop_the_start() {
    let check = |ini: &str, arguments: &[&str], variables: &[(&str, &str)], expected: &str| {
        let directory = Directory::new();
        directory.configure(ini);
        let mut command = program(&["serve", "--data"]);
        command.arg(directory.path()).args(arguments).envs(variables.iter().copied());
        let output = run(&mut command);
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{text} does not say {expected}");
    };
    check("[chttpd]\nport = 59x\n", &[], &[], "local.ini:4: [chttpd] port = 59x: it must be an integer");
    check("[chttpd]\nprot = 0\n", &[], &[], "local.ini:4: [chttpd] prot is not known; did you mean [chttpd] port?");
    check("", &["--set", "chttpd/prot=0"], &[], "--set chttpd/prot: [chttpd] prot is not known; did you mean");
    check("", &["--set", "chttpd/port=x"], &[], "--set chttpd/port: [chttpd] port = x: it must be");
    check("", &[], &[("SETTEE_CHTPD__PORT", "0")], "SETTEE_CHTPD__PORT: [chtpd] port is not known; did you mean");
    check("", &[], &[("COUCHDB_USER", "ann")], "COUCHDB_USER is set and COUCHDB_PASSWORD is not");
    check("", &[], &[("COUCHDB_PASSWORD", "x")], "COUCHDB_PASSWORD is set and COUCHDB_USER is not");
}

#[test]
fn a_configuration_is_shown_and_checked() {
    let directory = Directory::new();
    directory.configure("[ioq]\nratio = 0.01\n[chttpd]\nport = 1234\n[admins]\nann = secret\n");
    let file = directory.path().join("local.ini");
    let shown = run(program(&["config", "show", "--data"]).arg(directory.path()));
    let text = String::from_utf8_lossy(&shown.stdout);
    assert!(text.contains(&format!("port = 1234 ; {}:6", file.display())) && text.contains("; default"), "{text}");
    assert!(text.contains("ann = ****") && !text.contains("secret = secret"), "{text}");
    let checked = run(program(&["config", "check"]).arg(&file));
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(checked.status.success() && text.contains("[ioq] ratio is a setting of CouchDB"), "{text}");
    directory.configure("[chttpd]\nprot = 1\n");
    let checked = run(program(&["config", "check"]).arg(&file));
    let text = String::from_utf8_lossy(&checked.stdout);
    assert!(!checked.status.success() && text.contains("WRONG") && text.contains("did you mean"), "{text}");
}

#[test]
fn localhost_is_an_address() {
    let directory = Directory::new();
    let server = Server::start_as(&directory, serve(&directory).args(["--bind", "localhost"]));
    assert!(server.address.ip().is_loopback());
}

/// Set-up scripts send a name and a password from the first request on.
#[test]
fn a_group_accepts_all_members_by_any_name() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut ann = server.client().with(ANN);
    ann.put("/db", "").expect(201);
    ann.get("/_all_dbs").expect(200);
    ann.put("/_node/_local/_config/admins/ann", "\"secret\"").expect(200);
    ann.get("/_all_dbs").expect(200);
    server.client().with(WRONG).get("/_all_dbs").expect(401);
    server.client().get("/_all_dbs").expect(401);
}

#[test]
fn a_different_password_of_the_environment_is_reported() {
    let directory = Directory::new();
    let start = |password: &str| {
        let mut command = serve(&directory);
        command.env("COUCHDB_USER", "ann").env("COUCHDB_PASSWORD", password);
        Server::start_as(&directory, &mut command)
    };
    let server = start("secret");
    assert!(server.greeting.contains("The administrator is ann\n"), "{}", server.greeting);
    drop(server);
    let log = || fs::read_to_string(directory.path().join("log")).unwrap();
    drop(start("secret"));
    assert!(!log().contains("COUCHDB_PASSWORD"), "{}", log());
    let server = start("changed");
    server.client().with(ANN).get("/_all_dbs").expect(200);
    assert!(log().contains("COUCHDB_PASSWORD is not the password of ann"), "{}", log());
}

#[test]
fn configuration_and_documents_outlive_a_restart() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let rev = save(&mut client, "/db/doc", r#"{"n":1.50}"#);
    client.put("/db/_revs_limit", "7").expect(200);
    let uuid = text(client.get("/").json().value(), "uuid");
    let instance = client.get("/db").expect(200).json();
    let config = "/_node/_local/_config";
    client.put(&format!("{config}/my%20section/a%20key"), "\"an ‘odd’ value = x\"").expect(200);
    client.put(&format!("{config}/uuids/algorithm"), "\"random\"").expect(200);
    let forget = client.request("PUT", &format!("{config}/mine/brief"), &[("X-Couch-Persist", "false")], b"\"x\"");
    forget.unwrap().expect(200);
    assert_eq!(client.get(&format!("{config}/mine/brief")).expect(200).text(), "\"x\"\n");
    let (status, _) = server.terminate();
    assert!(status.success());

    let server = Server::start(&directory);
    let mut client = server.client();
    assert_eq!(client.get(&format!("{config}/my%20section/a%20key")).expect(200).text(), "\"an ‘odd’ value = x\"\n");
    assert_eq!(client.get(&format!("{config}/uuids/algorithm")).expect(200).text(), "\"random\"\n");
    client.get(&format!("{config}/mine/brief")).expect(404);
    assert_eq!(text(client.get("/").json().value(), "uuid"), uuid);
    let doc = client.get("/db/doc").expect(200).text();
    assert_eq!(doc, format!("{{\"_id\":\"doc\",\"_rev\":\"{rev}\",\"n\":1.50}}\n"));
    assert_eq!(client.get("/db/_revs_limit").text(), "7\n");
    let after = client.get("/db").expect(200).json();
    for name in ["update_seq", "instance_start_time"] {
        assert_eq!(text(after.value(), name), text(instance.value(), name), "{name}");
    }
    assert!(fs::metadata(directory.path().join("local.ini")).is_ok());
}
