//! Tests of a server with its data in a PostgreSQL, and of error messages where that is not possible.

use std::process::Command;

use crate::scratch::Scratch;
use crate::server::{Directory, Server, program, run, serve};
use crate::{Reply, save};

fn on(directory: &Directory, url: &str) -> Command {
    let mut command = serve(directory);
    command.args(["--storage", url]);
    command
}

fn body(reply: &Reply) -> String {
    String::from_utf8(reply.body.clone()).unwrap()
}

fn refusal(command: &mut Command) -> String {
    let output = run(command);
    assert!(!output.status.success());
    String::from_utf8(output.stderr).unwrap()
}

#[test]
fn data_outlive_the_server_and_its_directory() {
    let Some(postgres) = Scratch::start("") else { return };
    let (directory, url) = (Directory::new(), postgres.url());
    let server = Server::start_as(&directory, &mut on(&directory, &url));
    assert!(server.greeting.contains("\nThe data is in PostgreSQL: database postgres on "), "{}", server.greeting);
    let client = &mut server.client();
    assert_eq!(client.put("/db", "").status, 201);
    for number in 0..50 {
        save(client, &format!("/db/{number}"), &format!("{{\"number\":{number}}}"));
    }
    let design = r#"{"views":{"all":{"map":"function (doc) { emit(doc.number, 1); }","reduce":"_sum"}}}"#;
    save(client, "/db/_design/views", design);
    let rows = client.get("/db/_design/views/_view/all");
    assert_eq!(body(&rows), "{\"rows\":[\r\n{\"key\":null,\"value\":50}\r\n]}\n");
    drop(server);
    let other = Directory::new();
    let server = Server::start_as(&other, serve(&other).env("SETTEE_STORAGE", &url));
    let client = &mut server.client();
    assert!(body(&client.get("/db/49")).contains("\"number\":49"));
    let rows = client.get("/db/_design/views/_view/all?reduce=false&startkey=48");
    assert!(body(&rows).starts_with("{\"total_rows\":50,\"offset\":48,"), "{}", body(&rows));
    let third = Directory::new();
    let beside = Server::start_as(&third, on(&third, &url).args(["--node-name", "beside@here"]));
    save(client, "/db/more", "{}");
    assert_eq!(beside.client().get("/db/more").status, 200);
    assert!(beside.terminate().0.success());
    assert!(server.terminate().0.success());
    for arguments in [&["verify"][..], &["backup", "--to", "/nowhere"], &["salvage", "--to", "/nowhere"], &["serve"]] {
        let printed_text = refusal(program(arguments).arg("--data").arg(other.path()));
        assert!(
            printed_text.contains("is not there but in PostgreSQL: database postgres on "),
            "{arguments:?}: {printed_text}"
        );
    }
}

#[test]
fn tables_are_created_for_a_role_without_privileges() {
    let Some(postgres) = Scratch::start("") else { return };
    postgres.run("CREATE ROLE couch LOGIN");
    let (theirs, ours) =
        (postgres.url_as("settee", "postgres", "couch"), postgres.url_as("couch", "postgres", "couch"));
    let directory = Directory::new();
    let printed_text = refusal(&mut on(&directory, &ours));
    assert!(
        printed_text.contains("permission denied") && printed_text.contains("settee storage init URL --owner ROLE"),
        "{printed_text}"
    );
    for wanted in ["created the tables: ", "the tables already exist: "] {
        let output = run(&mut program(&["storage", "init", &theirs, "--owner", "couch"]));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && text.starts_with(wanted), "{text}");
    }
    let server = Server::start_as(&directory, &mut on(&directory, &ours));
    assert_eq!(server.client().put("/db", "").status, 201);
}

#[test]
fn unusable_settings_are_reported() {
    let directory = Directory::new();
    for (url, wanted) in [
        ("postgres://u:secret@%2Fnowhere/d", "PostgreSQL cannot be reached (database d on /nowhere, schema settee)"),
        ("postgres:///d", "it contains no host"),
        ("rocks://x", "it does not start with postgres://"),
    ] {
        let printed_text = refusal(&mut on(&directory, url));
        assert!(printed_text.contains(wanted) && !printed_text.contains("secret"), "{printed_text}");
    }
    assert!(!directory.path().join("engine").exists(), "no other store was made in its place");
}
