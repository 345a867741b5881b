//! Tests that large attachments are streamed and not held in memory. `SETTEE_ATTACHMENT_MB=2000` makes them larger.

use std::fs;
use std::io::Read;

use crate::server::{Directory, Server};
use crate::{Client, number, text, wait_for};

const GROWTH_MB: u64 = 64;

struct Data {
    state: u64,
    left: u64,
}

impl Data {
    fn new(length: u64) -> Self {
        Self { state: 1, left: length }
    }
}

impl Read for Data {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let length = self.left.min(out.len() as u64) as usize;
        for word in out[..length].chunks_mut(8) {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            word.copy_from_slice(&(self.state ^ (self.state >> 31)).to_le_bytes()[..word.len()]);
        }
        self.left -= length as u64;
        Ok(length)
    }
}

fn memory_mb(server: &Server, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1000
}

fn reset_peak(server: &Server) {
    fs::write(format!("/proc/{}/clear_refs", server.pid()), "5").unwrap();
}

fn upload(client: &mut Client, path: &str, kind: &str, before: &str, length: u64, after: &str) -> String {
    let total = length + (before.len() + after.len()) as u64;
    let mut head = client.head("PUT", path, &[("Content-Type", kind), ("Content-Length", &total.to_string())]);
    head.extend_from_slice(format!("\r\n{before}").as_bytes());
    client.write(&head).unwrap();
    let mut data = Data::new(length);
    let mut piece = vec![0; 1 << 20];
    loop {
        let read = data.read(&mut piece).unwrap();
        if read == 0 {
            break;
        }
        client.write(&piece[..read]).unwrap();
    }
    client.write(after.as_bytes()).unwrap();
    let reply = client.reply("PUT").unwrap().expect(201);
    text(reply.json().value(), "rev")
}

fn check_data(client: &mut Client, length: u64) {
    let (mut data, mut received) = (Data::new(length), client.take(length));
    let (mut wanted, mut piece) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut seen = 0;
    loop {
        let read = data.read(&mut wanted).unwrap();
        if read == 0 {
            break;
        }
        received.read_exact(&mut piece[..read]).unwrap();
        assert!(piece[..read] == wanted[..read], "after {seen} bytes");
        seen += read;
    }
}

#[test]
fn large_attachments_are_not_kept_in_memory() {
    let megabytes: u64 = std::env::var("SETTEE_ATTACHMENT_MB").map_or(200, |size| size.parse().unwrap());
    let length = megabytes * 1_000_000;
    let directory = Directory::new();
    directory.configure("[couchdb]\nmax_attachment_size = infinity\n");
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let before = memory_mb(&server, "VmRSS");

    let rev = upload(&mut client, "/db/alone/x", "image/png", "", length, "");
    let grown = memory_mb(&server, "VmHWM") - before;
    assert!(grown < GROWTH_MB, "{grown} MB for an upload of {megabytes} MB");

    reset_peak(&server);
    let before = memory_mb(&server, "VmRSS");
    client.send("GET", "/db/alone/x", &[], b"").unwrap();
    let reply = client.reply_head().unwrap();
    assert_eq!((reply.status, reply.header("content-length")), (200, Some(length.to_string().as_str())));
    check_data(&mut client, length);
    let related = ("Accept", "multipart/related");
    client.send("GET", "/db/alone?attachments=true", &[related], b"").unwrap();
    let reply = client.reply_head().unwrap();
    let total: u64 = reply.header("content-length").unwrap().parse().unwrap();
    let passed = std::io::copy(&mut client.take(total), &mut std::io::sink()).unwrap();
    assert!(passed == total && total > length);
    client.send("GET", "/db/alone?attachments=true", &[("Accept", "application/json")], b"").unwrap();
    client.reply_head().unwrap();
    let mut encoded = 0;
    while let Some(chunk) = client.chunk().unwrap() {
        encoded += chunk.len() as u64;
    }
    assert!(encoded > length / 3 * 4);
    let grown = memory_mb(&server, "VmHWM").saturating_sub(before);
    assert!(grown < GROWTH_MB, "{grown} MB for downloads of {megabytes} MB");

    reset_peak(&server);
    let before = memory_mb(&server, "VmRSS");
    let document =
        format!(r#"{{"_attachments":{{"x":{{"follows":true,"length":{length},"content_type":"image/png"}}}}}}"#);
    let begin = format!("--sep\r\nContent-Type: application/json\r\n\r\n{document}\r\n--sep\r\n\r\n");
    let kind = "multipart/related; boundary=sep";
    assert_eq!(upload(&mut client, "/db/related", kind, &begin, length, "\r\n--sep--"), rev);
    let grown = memory_mb(&server, "VmHWM").saturating_sub(before);
    assert!(grown < GROWTH_MB, "{grown} MB for a document with {megabytes} MB behind it");
}

#[test]
fn only_incomplete_downloads_are_abandoned() {
    let abandoned = |client: &mut Client| {
        let found = client.get("/_node/_local/_stats/couchdb/httpd/abandoned_streaming_requests").expect(200).json();
        number(found.value(), "value")
    };
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    for (name, length) in [("empty", 0), ("small", 10), ("large", 30_000_000)] {
        upload(&mut client, &format!("/db/{name}/x"), "image/png", "", length, "");
        client.send("GET", &format!("/db/{name}/x"), &[], b"").unwrap();
        client.reply_head().unwrap().expect(200);
        check_data(&mut client, length);
    }
    client.request("GET", "/db/large/x", &[("Range", "bytes=5-300000")], b"").unwrap().expect(206);
    client.request("GET", "/db/small?attachments=true", &[("Accept", "multipart/related")], b"").unwrap().expect(200);
    client.get("/db/_all_docs").expect(200);
    assert_eq!(abandoned(&mut client), 0);
    let mut other = server.client();
    other.send("GET", "/db/large/x", &[], b"").unwrap();
    other.reply_head().unwrap().expect(200);
    drop(other);
    wait_for("the download to be abandoned", || (abandoned(&mut client) == 1).then_some(()));
}

#[test]
fn a_slow_reader_causes_no_buffering() {
    let length = 100_000_000;
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    upload(&mut client, "/db/doc/x", "image/png", "", length, "");
    reset_peak(&server);
    let before = memory_mb(&server, "VmRSS");
    let mut readers: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for reader in &mut readers {
        reader.send("GET", "/db/doc/x", &[], b"").unwrap();
        reader.reply_head().unwrap().expect(200);
    }
    client.send("GET", "/db/doc/x", &[], b"").unwrap();
    client.reply_head().unwrap().expect(200);
    check_data(&mut client, length);
    let grown = memory_mb(&server, "VmHWM").saturating_sub(before);
    assert!(grown < 32, "{grown} MB for responses that no client reads");
    for reader in &mut readers {
        check_data(reader, length);
    }
}
