//! Tests of `settee import` and `settee export` with files in the format of other programs.

use std::fs;
use std::io::Write as _;
use std::process::{Output, Stdio};

use crate::client::Client;
use crate::server::{Directory, Server, program, run};
use crate::{load, number, rows, save, text, wait_for};

struct Place {
    server: Server,
    directory: Directory,
}

impl Place {
    fn new() -> Self {
        let directory = Directory::new();
        directory.configure("[log]\nlevel = warn\n");
        Self { server: Server::start(&directory), directory }
    }

    fn url(&self, database: &str) -> String {
        format!("http://{}/{database}", self.server.address)
    }

    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.directory.path().join(name);
        fs::write(&path, content).unwrap();
        path.display().to_string()
    }

    fn import(&self, file: &str, database: &str, further: &[&str]) -> Output {
        run(program(&["import", file, "--to", &self.url(database)]).args(further))
    }

    fn content(&self, database: &str) -> Vec<String> {
        let list =
            self.server.client().get(&format!("/{database}/_all_docs?include_docs=true&attachments=true")).expect(200);
        let json = list.json();
        let document = |row: &settee_model::json::Value<'_>| {
            let members = row.get("doc").unwrap().members().filter(|(name, _)| !name.is_string("_rev"));
            let members: Vec<String> = members
                .map(|(name, value)| {
                    format!("{}:{}", String::from_utf8_lossy(name.raw()), String::from_utf8_lossy(value.raw()))
                })
                .collect();
            format!("{{{}}}", members.join(","))
        };
        rows(&json).iter().map(document).collect()
    }
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    let response = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{response}{}", String::from_utf8_lossy(&output.stderr));
    response
}

fn gzip(content: &str) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    out.write_all(content.as_bytes()).unwrap();
    out.finish().unwrap()
}

fn zstd(content: &str) -> Vec<u8> {
    let mut out = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
    let header = u32::try_from(content.len() << 3 | 1).unwrap();
    out.extend_from_slice(&header.to_le_bytes()[..3]);
    out.extend_from_slice(content.as_bytes());
    out
}

#[test]
fn files_of_all_formats_have_the_same_contents() {
    let place = Place::new();
    let lines = "{\"_id\":\"a\",\"n\":1.50}\n\n{\"_id\":\"b\",\"t\":\"x\"}\n";
    let expected = ["{\"_id\":\"a\",\"n\":1.50}", "{\"_id\":\"b\",\"t\":\"x\"}"];
    let backup = "{\"name\":\"@cloudant/couchbackup\",\"version\":\"2.9.10\",\"mode\":\"full\"}\n[{\"_id\":\"a\",\"_rev\":\"1-0a\",\"n\":1.50,\"_revisions\":{\"start\":1,\"ids\":[\"0a\"]}}]\n[{\"_id\":\"b\",\"_rev\":\"2-0b\",\"_revisions\":{\"start\":2,\"ids\":[\"0b\",\"0a\"]},\"t\":\"x\"}]\n";
    let files: [(&str, Vec<u8>, &[&str]); 9] = [
        ("lines", lines.into(), &[]),
        ("lines.gz", gzip(lines), &[]),
        ("lines.zst", [zstd("{\"_id\":\"a\",\"n\":1.50}\n"), zstd("{\"_id\":\"b\",\"t\":\"x\"}")].concat(), &[]),
        ("array", b"[{\"_id\":\"a\",\"n\":1.50},\n {\"_id\":\"b\",\n\"t\":\"x\"}]".into(), &[]),
        ("backup", backup.into(), &[]),
        ("old backup", backup.split_once('\n').unwrap().1.into(), &["--format", "couchbackup"]),
        ("dump", b"{\"new_edits\":false,\"docs\":[\n{\"_id\":\"a\",\"n\":1.50},\n{\"_id\":\"b\",\"t\":\"x\"}\n]}".into(), &[]),
        (
            "list",
            b"{\"total_rows\":2,\"offset\":0,\"rows\":[\r\n{\"id\":\"a\",\"key\":\"a\",\"value\":{\"rev\":\"1-a\"},\"doc\":{\"_id\":\"a\",\"_rev\":\"1-a\",\"n\":1.50}},\r\n{\"id\":\"b\",\"key\":\"b\",\"value\":{\"rev\":\"1-b\"},\"doc\":{\"_id\":\"b\",\"_rev\":\"1-b\",\"t\":\"x\"}}\r\n]}".into(),
            &[],
        ),
        ("table", b"key,n:number,t\na,1.50,\nb,,x\n".into(), &["--id", "key"]),
    ];
    for (index, (name, content, further)) in files.iter().enumerate() {
        let (file, database) = (place.file(name, content), format!("db{index}"));
        let response = succeeds(&place.import(&file, &database, further));
        assert!(response.starts_with("2 documents written, 0 rows refused"), "{name}: {response}");
        assert_eq!(place.content(&database), expected, "{name}");
        let response = succeeds(&place.import(&file, &database, further));
        let again = response.starts_with("0 documents written, 2 already existed, 0 rows refused");
        assert!(again || response.starts_with("2 documents written"), "{name}: {response}");
        assert_eq!(place.content(&database), expected, "{name}");
        let locals = place.server.client().get(&format!("/{database}/_local_docs")).expect(200);
        assert_eq!(rows(&locals.json()).len(), 0, "nothing is left of a whole run");
    }
    let reply = place.server.client().get("/db4/b?revs=true").expect(200);
    assert!(reply.text().contains("\"_revisions\":{\"start\":2,\"ids\":[\"0b\",\"0a\"]}"), "{}", reply.text());
}

#[test]
fn rejected_rows_are_reported_by_line() {
    let place = Place::new();
    let mut client = place.server.client();
    client.put("/db", "").expect(201);
    save(&mut client, "/db/there", r#"{"n":1}"#);
    let guard = r#"{"validate_doc_update":"function (doc) { if (doc.no) throw {forbidden: 'not this'}; }"}"#;
    save(&mut client, "/db/_design/guard", guard);
    let lines = [
        r#"{"_id":"good"}"#,
        r#"{"_id":"broken""#,
        r#"[1]"#,
        r#"{"_id":"there","n":2}"#,
        r#"{"_id":"bad","no":true}"#,
        r#"{"_id":"_bad"}"#,
        r#"{"_id":"stub","_attachments":{"a":{"stub":true,"length":1}}}"#,
        r#"{"_id":"data","_attachments":{"a":{"content_type":"text/plain","data":"aGVsbG8="}}}"#,
        r#"{"_id":7}"#,
        r#"{"n":1}"#,
    ];
    let (file, refused) = (place.file("in", lines.join("\n").as_bytes()), place.directory.path().join("refused"));
    let output = place.import(&file, "db", &["--refused", &refused.display().to_string()]);
    let response = String::from_utf8_lossy(&output.stdout);
    assert!(!output.status.success() && response.starts_with("3 documents written, 7 rows refused"), "{output:?}");
    let mut found: Vec<String> = fs::read_to_string(&refused).unwrap().lines().map(str::to_owned).collect();
    found.sort_by_key(|line| number(settee_model::json::Json::parse(line.as_bytes()).unwrap().value(), "line"));
    for (line, (found, expected)) in [2, 3, 4, 5, 6, 7, 9].into_iter().zip(found.iter().zip([
        "it is not JSON",
        "it is not an object",
        "there: conflict: there is another document",
        "bad: forbidden: not this",
        "_bad: ",
        "only stubs",
        "its _id is not a string",
    ])) {
        assert!(
            found.starts_with(&format!("{{\"line\":{line},\"reason\":")) && found.contains(expected),
            "{expected}: {found}"
        );
    }
    assert!(
        found[3].ends_with(",\"doc\":{\"_id\":\"bad\",\"no\":true}}"),
        "it can be repaired and imported: {}",
        found[3]
    );
    assert_eq!(client.get("/db/data/a").expect(200).text(), "hello");
    let output = place.import(&file, "db", &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("refused: line 2: it is not JSON"), "{output:?}");
    let (nothing, folder) = (place.directory.path().join("nothing"), place.directory.path());
    for (arguments, expected) in [
        (["import", &*nothing.to_string_lossy(), "--to", "http://127.0.0.1:1/db"], "nothing cannot be read"),
        (["import", &*folder.to_string_lossy(), "--to", "http://127.0.0.1:1/db"], "cannot be read: Is a directory"),
        (["import", &*file, "--to", "127.0.0.1"], "invalid URL: write"),
    ] {
        let output = run(&mut program(&arguments));
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{output:?}");
    }
}

#[test]
fn a_killed_import_resumes() {
    let place = Place::new();
    const COUNT: usize = 60_000;
    let lines: String = (0..COUNT).map(|n| format!("{{\"n\":{n},\"padding\":\"{n:0200}\"}}\n")).collect();
    let file = place.file("in", lines.as_bytes());
    let mut client = place.server.client();
    let url = place.url("db");
    let start = || {
        program(&["import", &file, "--to", &url, "--batch", "100"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    };
    let mut child = start();
    let is_marked = |client: &mut Client| {
        let reply = client.get("/db/_local_docs?include_docs=true");
        reply.status == 200 && reply.text().contains("settee-import-") && reply.text().contains("\"rows\":")
    };
    wait_for("the first mark", || is_marked(&mut client).then_some(()));
    assert!(child.try_wait().unwrap().is_none(), "it was to be killed in the middle");
    child.kill().unwrap();
    child.wait().unwrap();
    let there = number(client.get("/db").json().value(), "doc_count");
    assert!(there > 0 && there < COUNT as i64, "{there}");
    let output = place.import(&file, "db", &[]);
    let response = succeeds(&output);
    assert!(String::from_utf8_lossy(&output.stderr).contains("resuming after row"), "{output:?}");
    assert!(response.contains(", 0 rows refused"), "{response}");
    // Documents without an id got theirs from the row numbers, so the second import adds none.
    assert_eq!(number(client.get("/db").json().value(), "doc_count"), COUNT as i64);
}

#[test]
fn exported_documents_can_be_imported() {
    let place = Place::new();
    let mut client = place.server.client();
    client.put("/db", "").expect(201);
    load(&mut client, "/db", 1200, 20);
    save(&mut client, "/db/photo", r#"{"_attachments":{"a b":{"content_type":"text/plain","data":"aGVsbG8="}}}"#);
    let body = r#"{"new_edits":false,"docs":[{"_id":"photo","_rev":"1-00000000000000000000000000000000","x":2}]}"#;
    client.post("/db/_bulk_docs", body).expect(201);
    save(&mut client, "/db/text", r#"{"t":"a,\"b\"\r\nc","o":{"k":[1.50]}}"#);
    save(&mut client, "/db/_design/d", r#"{"views":{}}"#);
    for format in ["ndjson", "json", "couchbackup"] {
        let file = place.directory.path().join(format).display().to_string();
        let url = place.url("db");
        let output = run(&mut program(&["export", &url, "--format", format, "--attachments", "--to", &file]));
        succeeds(&output);
        let response = succeeds(&place.import(&file, &format!("copy-{format}"), &[]));
        assert!(response.contains(" 0 rows refused"), "{format}: {response}");
        assert_eq!(place.content(&format!("copy-{format}")), place.content("db"), "{format}");
        let rev = |client: &mut Client, path: &str| text(client.get(path).expect(200).json().value(), "_rev");
        assert_eq!(rev(&mut client, &format!("/copy-{format}/text")), rev(&mut client, "/db/text"), "{format}");
    }
    let leaves = |client: &mut Client, database: &str| {
        let path = format!("/{database}/photo?open_revs=all");
        let reply = client.request("GET", &path, &[("Accept", "application/json")], b"").unwrap();
        reply.expect(200).json().value().elements().count()
    };
    assert_eq!((leaves(&mut client, "copy-couchbackup"), leaves(&mut client, "copy-ndjson")), (2, 1));
    let url = place.url("db");
    let file = place.directory.path().join("plain").display().to_string();
    let output = run(&mut program(&["export", &url, "--without-design", "--to", &file]));
    let response = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(response.contains("1 of them have attachments, which are not in the file"), "{response}");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().count(), 1202);
    let output = run(&mut program(&["export", &url, "--format", "csv", "--columns", "_id,t,o", "--without-design"]));
    let table = succeeds(&output);
    assert!(table.starts_with("_id,t,o\r\nd000000,,\r\n"), "{table:.100}");
    assert!(table.ends_with("text,\"a,\"\"b\"\"\r\nc\",\"{\"\"k\"\":[1.50]}\"\r\n"), "{}", &table[table.len() - 100..]);
    let file = place.file("table", table.as_bytes());
    succeeds(&place.import(&file, "table", &["--types", "o:json"]));
    let content = place.content("table");
    assert_eq!(content.last().unwrap(), r#"{"_id":"text","t":"a,\"b\"\r\nc","o":{"k":[1.50]}}"#);
    assert_eq!(content.len(), 1202);
}
