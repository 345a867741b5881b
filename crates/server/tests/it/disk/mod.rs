//! Tests of a full or failing disk and of too few open files: nothing acknowledged is lost, reads continue, and writes
//! resume once the cause is removed. Only a failed sync requires a restart.

mod small;

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use settee_model::testing::Random;

use crate::server::{Directory, Server, program, run, serve};
use crate::{Client, design, number, rows, save, text, wait_for};
use small::SmallDisk;

pub(crate) fn preload(source: &str, directory: &Directory) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it").join(source);
    let library = directory.path().join(source.with_extension("so").file_name().unwrap());
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-Wall", "-o"]).arg(&library).arg(&source).arg("-ldl");
    assert!(compiler.status().unwrap().success(), "{} is not compiled", source.display());
    library
}

struct Faulty {
    directory: Directory,
    server: Server,
}

impl Faulty {
    fn start() -> Self {
        let directory = Directory::new();
        let server = Self::serve(&directory);
        server.client().put("/db", "").expect(201);
        Self { directory, server }
    }

    fn serve(directory: &Directory) -> Server {
        let library = preload("disk/faults.c", directory);
        let mut command = serve(directory);
        command.env("LD_PRELOAD", library).env("SETTEE_FAULTS", directory.path().join("faults"));
        Server::start_as(directory, &mut command)
    }

    fn inject(&self, call: &str) {
        fs::write(self.directory.path().join("faults"), call).unwrap();
    }

    fn repair(&self) {
        self.inject("");
    }
}

fn write_until_refused(client: &mut Client, acknowledged: &mut Vec<String>) -> (u16, String) {
    let mut number = acknowledged.len();
    wait_for("a refusal", || {
        number += 1;
        let id = format!("d{number}");
        client.post("/db/_compact", "{}");
        let reply = client.put(&format!("/db/{id}"), "{}");
        if reply.status == 201 {
            acknowledged.push(id);
            return None;
        }
        Some((reply.status, reply.text().to_owned()))
    })
}

#[track_caller]
fn are_there(client: &mut Client, acknowledged: &[String]) {
    let all = client.get("/db/_all_docs").expect(200).json();
    let found: Vec<String> = rows(&all).into_iter().map(|row| text(row, "id")).collect();
    for id in acknowledged {
        assert!(found.contains(id), "{id} is lost; there are {found:?}");
    }
}

#[track_caller]
fn check_recovery(call: &str, status: u16) {
    let faulty = Faulty::start();
    let mut client = faulty.server.client();
    let mut acknowledged = Vec::new();
    for round in 0..3 {
        faulty.inject(call);
        let refusal = write_until_refused(&mut client, &mut acknowledged);
        assert_eq!(refusal.0, status, "{refusal:?} in round {round}");
        are_there(&mut client, &acknowledged);
        assert_ne!(client.get("/_up").status, 200, "round {round}");
        faulty.repair();
        wait_for("writes", || (client.get("/_up").status == 200).then_some(()));
        client.put(&format!("/db/after-{round}"), "{}").expect(201);
        acknowledged.push(format!("after-{round}"));
        are_there(&mut client, &acknowledged);
    }
    faulty.server.kill();
    let server = Server::start(&faulty.directory);
    are_there(&mut server.client(), &acknowledged);
}

#[test]
fn writes_continue_after_files_could_not_be_opened() {
    check_recovery("open", 503);
}

#[test]
fn writes_continue_after_a_write_without_space() {
    check_recovery("write", 507);
}

#[test]
fn after_a_failed_sync_nothing_is_written_until_the_next_start() {
    let faulty = Faulty::start();
    let mut client = faulty.server.client();
    let mut acknowledged = Vec::new();
    client.put("/db/before", "{}").expect(201);
    acknowledged.push("before".to_owned());
    faulty.inject("sync");
    assert_eq!(client.put("/db/failed", "{}").status, 503);
    faulty.repair();
    let uptime = |client: &mut Client| number(client.get("/_node/_local/_system").expect(200).json().value(), "uptime");
    let since = uptime(&mut client);
    wait_for("three seconds", || (uptime(&mut client) >= since + 3).then_some(()));
    let refused = client.put("/db/later", "{}");
    assert_eq!(refused.status, 500);
    assert!(refused.text().contains("failed sync"), "{}", refused.text());
    are_there(&mut client, &acknowledged);
    faulty.server.kill();
    let server = Server::start(&faulty.directory);
    are_there(&mut server.client(), &acknowledged);
    server.client().put("/db/later", "{}").expect(201);
}

fn limited(directory: &Directory, files: u32) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n {files}; exec \"$@\""), "sh"]).arg(env!("CARGO_BIN_EXE_settee"));
    shell.args(["serve", "--port", "0", "--data"]).arg(directory.path());
    shell
}

#[test]
fn idle_connections_take_no_files_from_the_engine() {
    let directory = Directory::new();
    let server = Server::start_as(&directory, &mut limited(&directory, 256));
    let notice = "Accepts 128 concurrent connections, not 20000: this process may open 256 files, \
                  which leaves 128 for connections\n";
    assert!(server.greeting.contains(notice), "{}", server.greeting);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let idle: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(server.address).unwrap()).collect();
    // The connection of the client was idle longest and was closed. A new one is accepted in the same way.
    let mut client = server.client();
    save(&mut client, "/db/_design/d", &design("function (doc) { emit(doc.n, null); }", None));
    for number in 0..20 {
        client.put(&format!("/db/d{number}"), &format!("{{\"n\":{number}}}")).expect(201);
        client.put(&format!("/other{number}"), "").expect(201);
        client.post("/db/_compact", "{}").expect(202);
    }
    let view = client.get("/db/_design/d/_view/v").expect(200).json();
    assert_eq!(rows(&view).len(), 20);
    drop(idle);
}

#[test]
fn a_low_limit_of_open_files_is_reported() {
    let directory = Directory::new();
    let output = run(&mut limited(&directory, 64));
    let printed_text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && printed_text.contains("may open 64 files, which is too few"), "{printed_text}");
}

fn padding(random: &mut Random, bytes: usize) -> String {
    (0..bytes).map(|_| char::from(b'0' + random.below(64_u8))).filter(|letter| *letter != '\\').collect()
}

fn fill(client: &mut Client, database: &str, random: &mut Random) -> usize {
    let mut count = 0;
    loop {
        let docs: Vec<String> = (0..20).map(|_| format!("{{\"padding\":\"{}\"}}", padding(random, 10_000))).collect();
        let reply = client.post(&format!("{database}/_bulk_docs"), &format!("{{\"docs\":[{}]}}", docs.join(",")));
        if reply.status == 507 {
            return count;
        }
        reply.expect(201);
        count += docs.len();
        assert!(count < 20_000, "the disk does not get full");
    }
}

#[track_caller]
fn remove(client: &mut Client, path: &str) {
    client.delete(path).expect(200);
}

#[test]
fn a_full_disk_accepts_deletions_and_then_writes() {
    let Some(disk) = SmallDisk::new(60) else { return };
    let mut random = Random::new();
    let server = disk.start();
    let mut client = server.client();
    for database in ["/large", "/small", "/other"] {
        client.put(database, "").expect(201);
    }
    let rev = save(&mut client, "/small/d", "{}");
    save(&mut client, "/other/d", "{}");
    let (mut count, mut probes) = (0, 0);
    // A compaction that ends concurrently frees space for more writes.
    wait_for("a full disk that all nodes report", || {
        count += fill(&mut client, "/large", &mut random);
        assert_eq!(number(client.get("/large").expect(200).json().value(), "doc_count"), count as i64);
        probes += 1;
        let refused = client.put(&format!("/small/probe{probes}"), "{}");
        let up = client.get("/_up").status;
        let doctor = run(&mut disk.enter(program(&["doctor", "--data"]).arg(disk.data())));
        let is_reported = String::from_utf8_lossy(&doctor.stdout).contains("the server rejects writes: no space left");
        let is_refused = refused.status == 507 && refused.text().contains("no space left");
        (is_refused && up == 503 && is_reported).then_some(())
    });
    assert!(count > 1_000, "only {count} documents found room on 60 MB");
    remove(&mut client, &format!("/small/d?rev={rev}"));
    client.post("/large/_compact", "{}").expect(202);
    remove(&mut client, "/large");
    wait_for("room", || (client.put("/small/e", "{}").status == 201).then_some(()));
    assert_eq!(client.get("/_up").status, 200);
    wait_for("the space of the database", || (disk.used_mebibytes() < 15).then_some(()));
    let again = fill(&mut client, "/small", &mut random);
    assert!(again * 4 > count * 3, "{again} documents have room where {count} had");

    disk.fill();
    remove(&mut client, "/small");
    remove(&mut client, "/other");
    disk.empty();
    wait_for("room", || (client.put("/last", "").status == 201).then_some(()));
    client.put("/last/d", "{}").expect(201);
    server.kill();
    let server = disk.start();
    server.client().get("/last/d").expect(200);
    server.client().get("/large").expect(404);
    assert!(server.terminate().0.success());
}

#[test]
fn a_server_starts_on_a_full_disk_and_writes_once_space_is_available() {
    let Some(disk) = SmallDisk::new(60) else { return };
    let mut random = Random::new();
    let server = disk.start();
    let mut client = server.client();
    client.put("/db", "").expect(201);
    fill(&mut client, "/db", &mut random);
    let count = number(client.get("/db").expect(200).json().value(), "doc_count");
    server.kill();
    assert!(disk.start().terminate().0.success());
    for is_reserve_left in [true, false] {
        if !is_reserve_left {
            // A start on a disk without space for the reserve releases it.
            let _ = fs::remove_file(disk.here().join("reserve"));
        }
        disk.fill();
        let server = disk.start();
        assert!(server.greeting.contains("Writes are rejected until space is available"), "{}", server.greeting);
        let mut client = server.client();
        assert_eq!(number(client.get("/db").expect(200).json().value(), "doc_count"), count);
        assert_eq!(client.put("/db/new", "{}").status, 507);
        assert_eq!(client.get("/_up").status, 503);
        server.kill();
    }
    let server = disk.start();
    let mut client = server.client();
    disk.empty();
    wait_for("a store that can be written", || (client.delete("/db").status == 200).then_some(()));
    wait_for("room", || (client.put("/db", "").status == 201).then_some(()));
    assert!(server.terminate().0.success());
}
