//! Tests of backups: of a whole server under load, and of one database with all its contents.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::server::{Directory, Server, program, run};
use crate::{Client, design, load, number, save, text, wait_for};

const WRITERS: usize = 4;

#[track_caller]
fn succeeds(output: &Output) -> String {
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}{errors}");
    text.into_owned()
}

fn back_up(data: &Path, backups: &Path) -> PathBuf {
    let mut command = program(&["backup", "--data"]);
    let printed = succeeds(&run(command.arg(data).arg("--to").arg(backups)));
    printed.lines().next().unwrap().into()
}

fn restore(backup: &Path, data: &Path) -> Output {
    let mut command = program(&["restore", "--from"]);
    run(command.arg(backup).arg("--data").arg(data))
}

fn doctor(data: &Path) -> Output {
    run(program(&["doctor", "--data"]).arg(data))
}

#[test]
fn a_backup_under_load_has_all_acknowledged_writes() {
    let (directory, backups) = (Directory::new(), Directory::new());
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    save(&mut client, "/db/_design/d", &design("function (doc) { if (doc.n) emit(doc.n, 1); }", Some("_count")));
    let acknowledged: Mutex<BTreeMap<String, String>> = Mutex::default();
    let (writes, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut expected = Vec::new();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (mut client, acknowledged, writes, over) = (server.client(), &acknowledged, &writes, &over);
            scope.spawn(move || {
                let mut known: BTreeMap<usize, String> = BTreeMap::new();
                for round in 1.. {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    let place = round % 50;
                    let old = known.get(&place).map(|rev| format!("\"_rev\":\"{rev}\",")).unwrap_or_default();
                    let id = format!("w{writer}-{place}");
                    let rev = save(&mut client, &format!("/db/{id}"), &format!("{{{old}\"n\":{round}}}"));
                    acknowledged.lock().unwrap().insert(id, rev.clone());
                    known.insert(place, rev);
                    writes.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut client = server.client();
        for _ in 0..2 {
            let before = writes.load(Ordering::Relaxed);
            wait_for("a load", || (writes.load(Ordering::Relaxed) > before + 300).then_some(()));
            client.get("/db/_design/d/_view/v").expect(200);
            let known = acknowledged.lock().unwrap().clone();
            let backup = back_up(directory.path(), backups.path());
            let during = writes.load(Ordering::Relaxed);
            expected.push((known, backup));
            assert!(during > before, "nothing was written during the backup");
            wait_for("another second", || (!same_second(&expected.last().unwrap().1)).then_some(()));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(server.terminate().0.success());
    for (known, backup) in expected {
        let restored = Directory::new();
        let data = restored.path().join("data");
        succeeds(&restore(&backup, &data));
        let response = succeeds(&doctor(&data));
        assert!(response.contains("0 errors"), "{response}");
        let server = Server::start_as(&restored, program(&["serve", "--port", "0", "--data"]).arg(&data));
        let response = succeeds(&doctor(&data));
        assert!(response.contains("serves this data") && response.contains("0 errors"), "{response}");
        let mut client = server.client();
        assert!(known.len() >= 100, "{}", known.len());
        for (id, rev) in known {
            let reply = client.get(&format!("/db/{id}?revs=true")).expect(200);
            let json = reply.json();
            let hash = rev.split_once('-').unwrap().1;
            let ids = json.value().get("_revisions").unwrap().get("ids").unwrap();
            assert!(ids.elements().any(|id| id.is_string(hash)), "{id} lacks {rev}: {}", reply.text());
        }
        let total = number(client.get("/db").json().value(), "doc_count");
        let view = client.get("/db/_design/d/_view/v").expect(200).json();
        assert_eq!(number(crate::rows(&view)[0], "value"), total - 1, "the index fits the documents");
        save(&mut client, "/db/new", "{}");
        assert!(server.terminate().0.success());
    }
}

fn same_second(backup: &Path) -> bool {
    let name = backup.file_name().unwrap().to_string_lossy().into_owned();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    name.ends_with(&format!("{:02}Z", now % 60))
}

#[test]
fn a_stopped_server_is_backed_up_as_well_and_damage_is_found() {
    let (directory, backups) = (Directory::new(), Directory::new());
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    load(&mut client, "/db", 2000, 200);
    assert!(server.terminate().0.success());
    let backup = back_up(directory.path(), backups.path());
    succeeds(&run(program(&["restore", "--check", "--from"]).arg(&backup)));
    assert!(!restore(&backup, directory.path()).status.success(), "data is not overwritten");

    let file = std::fs::read_dir(backup.join("engine")).unwrap().map(|entry| entry.unwrap().path());
    let file = file.max_by_key(|path| std::fs::metadata(path).unwrap().len()).unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = run(program(&["restore", "--check", "--from"]).arg(&backup));
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("is damaged"));
    let target = backups.path().join("restored");
    assert!(!restore(&backup, &target).status.success());
    let output = run(program(&["serve", "--port", "0", "--data"]).arg(&target));
    assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
    assert_eq!(doctor(&target).status.code(), Some(1));
}

fn content(client: &mut Client, database: &str) -> Vec<String> {
    let changes = client.get(&format!("{database}/_changes?style=all_docs")).expect(200).json();
    let mut found = Vec::new();
    for row in changes.value().get("results").unwrap().elements() {
        let id = text(row, "id");
        let path = format!("{database}/{}?open_revs=all&revs=true&attachments=true", id.replace(' ', "%20"));
        let reply = client.request("GET", &path, &[("Accept", "application/json")], b"").unwrap();
        found.push(reply.expect(200).text());
    }
    found.sort();
    found
}

#[test]
fn one_database_is_restored_completely_under_another_name() {
    let directory = Directory::new();
    directory.configure("[admins]\nann = secret\n");
    let ann = "Basic YW5uOnNlY3JldA==";
    let server = Server::start(&directory);
    let mut client = server.client().with(ann);
    client.put("/db", "").expect(201);
    load(&mut client, "/db", 1500, 50);
    let rev = save(&mut client, "/db/a%20b", r#"{"n":1.50,"big":12345678901234567890,"e":1E-7}"#);
    let body = r#"{"new_edits":false,"docs":[{"_id":"a b","_rev":"1-ffffffffffffffffffffffffffffffff","x":2}]}"#;
    client.post("/db/_bulk_docs", body).expect(201);
    client.put("/db/a%20b", &format!(r#"{{"_rev":"{rev}","_deleted":true,"why":"x"}}"#)).expect(200);
    save(&mut client, "/db/small", r#"{"_attachments":{"t ü.txt":{"content_type":"text/plain","data":"aGVsbG8="}}}"#);
    let large: Vec<u8> = (0..6_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let rev = save(&mut client, "/db/large", "{}");
    let headers = [("Content-Type", "image/png")];
    let reply = client.request("PUT", &format!("/db/large/p?rev={rev}"), &headers, &large).unwrap().expect(201);
    let rev = text(reply.json().value(), "rev");
    let headers = [("Content-Type", "text/plain")];
    client.request("PUT", &format!("/db/large/q%2Fr?rev={rev}"), &headers, &[b'x'; 100_000]).unwrap().expect(201);
    let refuse = r#"{"validate_doc_update":"function (doc) { throw {forbidden: 'no'}; }"}"#;
    save(&mut client, "/db/_design/guard", refuse);
    for n in 0..250 {
        client.put(&format!("/db/_local/checkpoint%20{n:03}"), &format!("{{\"n\":{n}}}")).expect(201);
    }
    client.put("/db/_revs_limit", "77").expect(200);
    client.put("/db/_security", r#"{"members":{"names":["bob"]}}"#).expect(200);

    let file = directory.path().join("db.jsonl");
    let url = |name: &str| format!("http://ann:secret@{}/{name}", server.address);
    let output = run(program(&["backup", "--database", &url("db"), "--to"]).arg(&file));
    let response = String::from_utf8_lossy(&output.stderr).into_owned();
    succeeds(&output);
    assert!(response.contains("250 local documents") && response.contains("3 attachments"), "{response}");
    let mut restoring = program(&["restore", "--database", &url("copy"), "--from"]);
    let restored = succeeds(&run(restoring.arg(&file)));
    assert_eq!(restored, response);

    assert_eq!(content(&mut client, "/copy"), content(&mut client, "/db"));
    assert_eq!(client.get("/copy/_revs_limit").text(), "77\n");
    assert_eq!(client.get("/copy/_security").text(), client.get("/db/_security").text());
    assert_eq!(client.get("/copy/large/p").expect(200).body, large);
    assert_eq!(text(client.get("/copy/_local/checkpoint%20249").json().value(), "_id"), "_local/checkpoint 249");
    client.put("/copy/new", "{}").expect(403);

    let again = run(program(&["restore", "--database", &url("copy"), "--from"]).arg(&file));
    assert!(String::from_utf8_lossy(&again.stderr).contains("restore under another name"), "{again:?}");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, &whole[..whole.trim_end().rfind('\n').unwrap() + 1]).unwrap();
    let restore = |name: &str| run(program(&["restore", "--database", &url(name), "--from"]).arg(&file));
    let half = restore("half");
    let response = String::from_utf8_lossy(&half.stderr);
    assert!(
        !half.status.success() && response.contains("is not complete") && response.contains("Nothing was restored"),
        "{response}"
    );
    client.get("/half").expect(404);
    let other = whole.replacen("\"n\":7,", "\"n\":8,", 1);
    assert_ne!(other, whole);
    std::fs::write(&file, &other).unwrap();
    let damaged = restore("half");
    assert!(String::from_utf8_lossy(&damaged.stderr).contains("is damaged"), "{damaged:?}");
    client.get("/half").expect(404);
    let old = format!("{}}}\n", whole.split(",\"sha256\"").next().unwrap());
    std::fs::write(&file, old).unwrap();
    let unverified = restore("half");
    assert!(unverified.status.success(), "{unverified:?}");
    assert!(String::from_utf8_lossy(&unverified.stderr).contains("cannot be verified"), "{unverified:?}");
    let mut refused = program(&["backup", "--database", &url("db").replace("secret", "wrong"), "--to", "-"]);
    let rejected = run(&mut refused);
    assert!(
        !rejected.status.success() && !String::from_utf8_lossy(&rejected.stderr).contains("wrong@"),
        "{rejected:?}"
    );
}

#[test]
fn a_partitioned_database_remains_partitioned() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db?partitioned=true", "").expect(201);
    save(&mut client, "/db/p:1", "{}");
    let file = directory.path().join("db.jsonl");
    let url = |name: &str| format!("http://{}/{name}", server.address);
    succeeds(&run(program(&["backup", "--database", &url("db"), "--to"]).arg(&file)));
    succeeds(&run(program(&["restore", "--database", &url("copy"), "--from"]).arg(&file)));
    client.put("/copy/nopartition", "{}").expect(400);
    client.get("/copy/_partition/p").expect(200);
}

#[test]
fn one_database_is_restored_from_the_backup_of_a_server() {
    let (directory, backups, scratch) = (Directory::new(), Directory::new(), Directory::new());
    directory.configure("[admins]\nann = secret\n");
    let ann = "Basic YW5uOnNlY3JldA==";
    let server = Server::start(&directory);
    let mut client = server.client().with(ann);
    for database in ["/shop%2Forders", "/other"] {
        client.put(database, "").expect(201);
        load(&mut client, database, 500, 100);
    }
    let rev = save(&mut client, "/shop%2Forders/changed", r#"{"n":1}"#);
    client.put("/shop%2Forders/_security", r#"{"members":{"names":["bob"]}}"#).expect(200);
    let before = content(&mut client, "/shop%2Forders");
    let backup = back_up(directory.path(), backups.path());
    client.put("/shop%2Forders/changed", &format!(r#"{{"_rev":"{rev}","n":2}}"#)).expect(201);
    client.delete("/other").expect(200);

    let url = |name: &str| format!("http://ann:secret@{}/{name}", server.address);
    let restore = |target: &str, further: &[&str]| {
        let mut command = program(&["restore", "--database", &url(target), "--scratch"]);
        run(command.arg(scratch.path()).arg("--from").arg(&backup).args(further))
    };
    let response = succeeds(&restore("copy", &["--name", "shop/orders"]));
    assert!(response.starts_with("501 documents"), "{response}");
    assert_eq!(content(&mut client, "/copy"), before);
    assert_eq!(client.get("/copy/_security").text(), client.get("/shop%2Forders/_security").text());
    succeeds(&restore("other", &[]));
    client.get("/other/_all_docs").expect(200);
    let nothing = restore("nothing", &[]);
    assert!(!nothing.status.success(), "{nothing:?}");
    let there = restore("copy", &["--name", "shop/orders"]);
    assert!(String::from_utf8_lossy(&there.stderr).contains("restore under another name"), "{there:?}");
    let left = std::fs::read_dir(scratch.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.collect::<Vec<_>>(), ["local.ini"], "nothing is left behind");
    for (arguments, expected) in [
        (["--backup", "2026-11-20T15-04-05Z"], "require a bucket"),
        (["--at", "2026-11-20T15:04:05Z"], "require a bucket"),
        (["--key-file", "key"], "require a bucket"),
        (["--at", "yesterday"], "invalid time: write it in UTC"),
    ] {
        let output = restore("x", &arguments);
        assert!(String::from_utf8_lossy(&output.stderr).contains(expected), "{output:?}");
    }
}
