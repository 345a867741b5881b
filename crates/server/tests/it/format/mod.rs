//! Data of each stored layout with its expected responses: every later version must read the data of each earlier one.
//! `layout-N.tar.gz` is a data directory written by a server of layout N, `layout-N.txt` its responses. When the layout
//! changes, `SETTEE_MAKE_LAYOUT=1 cargo test --release -p settee-server --test it format` makes both for the new one;
//! those of earlier layouts are never made again.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::server::{Directory, Server, run, serve};
use crate::{Client, load};

const LAYOUT: u64 = 2;

const QUESTIONS: [&str; 16] = [
    "/_all_dbs",
    "/plain/_all_docs?include_docs=true&conflicts=true&attachments=true&startkey=\"d000990\"",
    "/plain/_all_docs?limit=0",
    "/plain/many?conflicts=true&revs_info=true",
    "/plain/many?rev=2-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb&revs=true",
    "/plain/gone?open_revs=all&revs=true",
    "/plain/files/small.txt",
    "/plain/_local_docs?include_docs=true",
    "/plain/_security",
    "/plain/_revs_limit",
    "/plain/_purged_infos_limit",
    "/plain/_design/d/_view/by_n?reduce=false&start_key=995",
    "/plain/_design/d/_view/by_n?group_level=1&limit=3",
    "/parts/_partition/a/_all_docs?include_docs=true",
    "/parts/_partition/b/_design/p/_view/all",
    "/plain/conflicts?conflicts=true&deleted_conflicts=true&revs=true",
];

fn place(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/format").join(name)
}

fn tar(arguments: &[&str]) {
    let output = Command::new("tar").args(arguments).output().unwrap();
    assert!(output.status.success(), "tar {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn fill(client: &mut Client) {
    client.put("/plain", "").expect(201);
    load(client, "/plain", 1000, 20);
    client
        .post(
            "/plain/_bulk_docs",
            r#"{"new_edits":false,"docs":[
            {"_id":"many","_rev":"2-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","_revisions":{"start":2,"ids":["bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb","aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]},"exact":[1.50,12345678901234567890,1e-7]},
            {"_id":"many","_rev":"2-cccccccccccccccccccccccccccccccc","_revisions":{"start":2,"ids":["cccccccccccccccccccccccccccccccc","aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]},"text":"ä\u0000\ud83d\ude00"},
            {"_id":"many","_rev":"3-dddddddddddddddddddddddddddddddd","_deleted":true}]}"#,
        )
        .expect(201);
    let files = r#"{"_attachments":{"small.txt":{"content_type":"text/plain","data":"c21hbGw="},"none":{"data":""}}}"#;
    client.put("/plain/files", files).expect(201);
    let large = "a large body ".repeat(6_000);
    client.put("/plain/large", &format!(r#"{{"text":"{large}"}}"#)).expect(201);
    let gone = crate::save(client, "/plain/gone", "{}");
    client.delete(&format!("/plain/gone?rev={gone}")).expect(200);
    let purged = crate::save(client, "/plain/purged", "{}");
    client.post("/plain/_purge", &format!(r#"{{"purged":["{purged}"]}}"#)).expect(201);
    client.put("/plain/_local/checkpoint", r#"{"seq":7}"#).expect(201);
    client.put("/plain/_security", r#"{"members":{"names":["ann"],"roles":[]}}"#).expect(200);
    client.put("/plain/_revs_limit", "50").expect(200);
    let design = r#"{"views":{"by_n":{"map":"function (doc) { if (doc.n !== undefined) emit(doc.n, doc.n); }","reduce":"_stats"}}}"#;
    client.put("/plain/_design/d", design).expect(201);
    client.get("/plain/_design/d/_view/by_n").expect(200);
    client.put("/parts?partitioned=true", "").expect(201);
    for id in ["a:1", "a:2", "b:1"] {
        client.put(&format!("/parts/{id}"), "{}").expect(201);
    }
    client
        .put("/parts/_design/p", r#"{"views":{"all":{"map":"function (doc) { emit(doc._id, null); }"}}}"#)
        .expect(201);
    let conflict = |number: usize| {
        format!(r#"{{"_id":"conflicts","_rev":"1-{number:032x}","_deleted":{},"c":{number}}}"#, number % 2 == 1)
    };
    let conflicts = (0..3_000).map(conflict).collect::<Vec<_>>().join(",");
    client.post("/plain/_bulk_docs", &format!(r#"{{"new_edits":false,"docs":[{conflicts}]}}"#)).expect(201);
    client.put("/dropped", "").expect(201);
    client.delete("/dropped").expect(200);
}

fn answers(client: &mut Client, layout: u64) -> String {
    let mut response = String::new();
    let count = if layout == 1 { 15 } else { QUESTIONS.len() };
    for question in &QUESTIONS[..count] {
        let reply = client.request("GET", question, &[("accept", "application/json")], b"").unwrap();
        let _ = writeln!(response, "GET {question}\n{} {}\n", reply.status, reply.text().trim_end());
    }
    response
}

fn make() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    fill(&mut server.client());
    fs::write(place(&format!("layout-{LAYOUT}.txt")), answers(&mut server.client(), LAYOUT)).unwrap();
    server.terminate();
    let archive = place(&format!("layout-{LAYOUT}.tar.gz"));
    let (archive, data) = (archive.to_str().unwrap(), directory.path().to_str().unwrap());
    tar(&["-czf", archive, "-C", data, "--exclude=./LOG*", "--exclude=./engine/LOG*", "."]);
}

#[test]
fn data_of_every_layout_is_read() {
    if std::env::var_os("SETTEE_MAKE_LAYOUT").is_some() {
        make();
    }
    for layout in 1..=LAYOUT {
        let directory = Directory::new();
        let archive = place(&format!("layout-{layout}.tar.gz"));
        tar(&["-xzf", archive.to_str().unwrap(), "-C", directory.path().to_str().unwrap()]);
        let server = Server::start(&directory);
        let expected = fs::read_to_string(place(&format!("layout-{layout}.txt"))).unwrap();
        assert_eq!(answers(&mut server.client(), layout), expected, "layout {layout}");
        server.client().put("/plain/new", "{}").expect(201);
        let rows = server.client().get("/plain/_design/d/_view/by_n?reduce=false&limit=0").expect(200).text();
        assert!(rows.contains(r#""total_rows":1000"#), "{rows}");
        let mark = fs::read_to_string(directory.path().join("version")).unwrap();
        assert_eq!(mark.trim(), LAYOUT.to_string(), "older programs refuse what this one has written");
    }
}

#[test]
fn data_of_a_later_layout_is_rejected() {
    let directory = Directory::new();
    Server::start(&directory).terminate();
    fs::write(directory.path().join("version"), format!("{}\n", LAYOUT + 1)).unwrap();
    let output = run(&mut serve(&directory));
    let printed_text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{printed_text}");
    assert!(printed_text.contains(&format!("has layout {}", LAYOUT + 1)), "{printed_text}");
}
