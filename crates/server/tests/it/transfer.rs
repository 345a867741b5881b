//! Tests of the copy of a server's data from its directory into a PostgreSQL and back.

use std::path::Path;
use std::process::Stdio;

use crate::client::Client;
use crate::scratch::Scratch;
use crate::server::{Directory, Server, program, run, serve};
use crate::{design, load, save, text, wait_for};

const DOCUMENTS: usize = 30_000;

/// The visible state of a server.
const STATE_PATHS: [&str; 10] = [
    "/db/_changes?style=all_docs",
    "/db/conflict?open_revs=all&revs=true&attachments=true",
    "/db/deleted?open_revs=all&revs=true",
    "/db/file?attachments=true",
    "/db/_design/d/_view/v?update=false&group=true",
    "/db/_design/d/_view/v?update=false&reduce=false&skip=100&limit=50",
    "/db/_local_docs?include_docs=true",
    "/db/_security",
    "/db/_revs_limit",
    "/other/_all_docs?include_docs=true",
];

fn look(client: &mut Client) -> Vec<String> {
    let mut answer =
        |path: &&str| client.request("GET", path, &[("Accept", "application/json")], b"").unwrap().expect(200);
    STATE_PATHS.iter().map(|path| answer(path).text()).collect()
}

fn fill(client: &mut Client) {
    client.put("/db", "").expect(201);
    client.put("/other?partitioned=true", "").expect(201);
    load(client, "/db", DOCUMENTS, 600);
    save(client, "/other/a:b", r#"{"n":1.50}"#);
    let rev = save(client, "/db/conflict", r#"{"n":1}"#);
    let body = r#"{"new_edits":false,"docs":[{"_id":"conflict","_rev":"1-ffffffffffffffffffffffffffffffff","x":2}]}"#;
    client.post("/db/_bulk_docs", body).expect(201);
    client.put("/db/conflict", &format!(r#"{{"_rev":"{rev}","n":2}}"#)).expect(201);
    let rev = save(client, "/db/deleted", "{}");
    client.delete(&format!("/db/deleted?rev={rev}")).expect(200);
    let rev = save(client, "/db/file", r#"{"_attachments":{"s":{"content_type":"text/plain","data":"aGVsbG8="}}}"#);
    let large: Vec<u8> = (0..9_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let headers = [("Content-Type", "image/png")];
    client.request("PUT", &format!("/db/file/p?rev={rev}"), &headers, &large).unwrap().expect(201);
    for n in 0..50 {
        client.put(&format!("/db/_local/checkpoint-{n}"), &format!("{{\"n\":{n}}}")).expect(201);
    }
    client.put("/db/_revs_limit", "77").expect(200);
    client.put("/db/_security", r#"{"members":{"names":[]},"admins":{"roles":["_admin"]}}"#).expect(200);
    save(client, "/db/_design/d", &design("function (doc) { emit(doc.g, doc.n); }", Some("_sum")));
    client.get("/db/_design/d/_view/v").expect(200);
}

fn copy(from: &str, to: &str, options: &[&str]) -> (bool, String) {
    let output = run(program(&["storage", "copy", from, to]).args(options));
    let printed_text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed_text).unwrap())
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn kill_in_the_middle(postgres: &Scratch, schema: &str, from: &str, to: &str) {
    let mut command = program(&["storage", "copy", from, to]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("a part of the copy", || {
        let size = postgres.run(&format!("SELECT coalesce(pg_relation_size(to_regclass('{schema}.kv_bodies')), 0)"));
        (size.parse::<u64>().unwrap() > 1 << 20).then_some(())
    });
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "the copy ended before it was killed");
}

#[test]
fn databases_that_cannot_be_copied_are_reported() {
    let (empty, other) = (Directory::new(), Directory::new());
    let server = Server::start(&other);
    server.client().put("/db", "").expect(201);
    assert!(server.terminate().0.success());
    let (empty, other) = (shown(empty.path()), shown(other.path()));
    for (from, to, wanted) in [
        (empty.as_str(), other.as_str(), "contains no data of a server"),
        ("/nowhere/at/all", &other, "/nowhere/at/all cannot be found"),
        (
            &other,
            "postgres://u:secret@%2Fnowhere/d",
            "the target of the copy cannot be used: PostgreSQL cannot be reached",
        ),
        (&other, "rocks://x", "it does not start with postgres://"),
        (&other, &other, "cannot be copied to itself"),
    ] {
        let (is_done, printed_text) = copy(from, to, &[]);
        assert!(!is_done && printed_text.contains(wanted) && !printed_text.contains("secret"), "{printed_text}");
    }
    let (is_done, printed_text) = copy(&other, &empty, &["--resume"]);
    assert!(!is_done && printed_text.contains("there is no unfinished copy"), "{printed_text}");
    let (is_done, printed_text) = copy(&other, &empty, &[]);
    assert!(is_done, "from a directory to another: {printed_text}");
}

mod on_postgresql {
    use super::*;

    #[test]
    fn a_server_is_copied_to_postgresql_and_back() {
        let Some(postgres) = Scratch::start("") else { return };
        let (home, back) = (Directory::new(), Directory::new());
        let server = Server::start(&home);
        fill(&mut server.client());
        let wanted = look(&mut server.client());
        let (from, to, to_back) =
            (shown(home.path()), postgres.url_as("settee", "postgres", "moved"), shown(back.path()));
        let (is_done, printed_text) = copy(&from, &to, &[]);
        assert!(!is_done && printed_text.contains("another server uses the data directory"), "{printed_text}");
        assert!(server.terminate().0.success());

        kill_in_the_middle(&postgres, "moved", &from, &to);
        let (is_done, printed_text) = copy(&from, &to, &[]);
        assert!(!is_done && printed_text.contains("--resume continues it"), "{printed_text}");
        let refused = run(serve(&home).args(["--storage", &to]));
        let printed_text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(
            !refused.status.success() && printed_text.contains("these data are an unfinished copy"),
            "{printed_text}"
        );
        let (is_done, printed_text) = copy(&from, &to, &["--resume"]);
        let wanted_there = "the same on both sides: 4 databases with 30006 documents, 2 attachments and 1 indexes, ";
        assert!(is_done && printed_text.contains(wanted_there), "{printed_text}");
        let (is_done, printed_text) = copy(&from, &to, &["--verify"]);
        assert!(is_done && printed_text.starts_with("the same on both sides: "), "{printed_text}");
        let (is_done, printed_text) = copy(&from, &to, &[]);
        assert!(!is_done && printed_text.contains("the target contains data"), "{printed_text}");

        let server = Server::start_as(&home, serve(&home).args(["--storage", &to]));
        let client = &mut server.client();
        assert_eq!(look(client), wanted);
        let rev = save(client, "/db/new", r#"{"g":1,"n":1}"#);
        client.put("/db/new", &format!(r#"{{"_rev":"{rev}","g":2,"n":2}}"#)).expect(201);
        client.get("/db/_design/d/_view/v").expect(200);
        let wanted = look(client);
        assert!(server.terminate().0.success());
        std::fs::remove_file(home.path().join("storage")).unwrap();
        let (is_done, printed_text) = copy(&from, &to, &["--verify"]);
        assert!(!is_done && printed_text.contains("database db, documents new: is in the copy only"), "{printed_text}");

        let (is_done, printed_text) = copy(&to, &to_back, &[]);
        assert!(is_done && printed_text.contains(&format!("settee serve --data {to_back}")), "{printed_text}");
        let server = Server::start(&back);
        let client = &mut server.client();
        assert_eq!(look(client), wanted);
        assert_eq!(text(client.get("/db/new").json().value(), "_id"), "new");
        save(client, "/db/later", "{}");
        assert!(server.terminate().0.success());
        let output = run(program(&["verify", "--data"]).arg(back.path()));
        assert!(output.status.success(), "{output:?}");
    }
}
