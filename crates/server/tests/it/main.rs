//! Integration tests of the program: a separate process and requests over sockets.
#![expect(clippy::unwrap_used, reason = "tests")]

#[cfg(target_os = "linux")]
mod attachments;
mod attacks;
mod backup;
mod client;
#[cfg(feature = "wasm")]
mod couchdb_image;
mod crash;
mod damage;
#[cfg(target_os = "linux")]
mod disk;
mod exchange;
mod feeds;
mod format;
mod index_lifecycle;
mod integrity;
mod isolation;
mod languages;
mod limits;
mod migrate;
mod on_postgresql;
mod operation;
#[cfg(target_os = "linux")]
mod power;
mod protocol;
#[path = "../../../storage-postgres/tests/it/proxy.rs"]
#[expect(dead_code, reason = "tests that include it use more of it")]
mod proxy;
mod query_servers;
mod replication;
mod runaway_functions;
#[path = "../../../storage-postgres/tests/it/scratch.rs"]
#[expect(dead_code, unreachable_pub, reason = "tests that include it use more of it")]
mod scratch;
mod search;
mod server;
mod setup;
mod start;
mod stop;
mod transfer;
mod transport;
mod users;
mod views;

use std::time::{Duration, Instant};

use client::{Client, Reply};
use settee_model::json::{Json, Value};

const TIMEOUT: Duration = Duration::from_secs(120);

#[track_caller]
fn wait_for<T>(label: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = ready() {
            return found;
        }
        assert!(Instant::now() < deadline, "waited too long for {label}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

#[track_caller]
fn text(value: Value<'_>, name: &str) -> String {
    let member = value.get(name).and_then(|member| member.as_str().map(std::borrow::Cow::into_owned));
    member.unwrap_or_else(|| panic!("no text {name} in {}", String::from_utf8_lossy(value.raw())))
}

#[track_caller]
fn number(value: Value<'_>, name: &str) -> i64 {
    let member = value.get(name).and_then(Value::as_i64);
    member.unwrap_or_else(|| panic!("no integer {name} in {}", String::from_utf8_lossy(value.raw())))
}

#[track_caller]
fn save(client: &mut Client, path: &str, body: &str) -> String {
    let reply = client.put(path, body).expect(201);
    text(reply.json().value(), "rev")
}

fn load(client: &mut Client, database: &str, count: usize, padding: usize) {
    let padding = "x".repeat(padding);
    for first in (0..count).step_by(1000) {
        let docs: Vec<String> = (first..count.min(first + 1000))
            .map(|n| format!(r#"{{"_id":"d{n:06}","n":{n},"g":{},"padding":"{padding}"}}"#, n % 10))
            .collect();
        client.post(&format!("{database}/_bulk_docs"), &format!(r#"{{"docs":[{}]}}"#, docs.join(","))).expect(201);
    }
}

fn design(map: &str, reduce: Option<&str>) -> String {
    let mut out = br#"{"views":{"v":{"map":"#.to_vec();
    settee_model::json::write_string(&mut out, map);
    if let Some(reduce) = reduce {
        out.extend_from_slice(br#","reduce":"#);
        settee_model::json::write_string(&mut out, reduce);
    }
    out.extend_from_slice(b"}}}");
    String::from_utf8(out).unwrap()
}

fn rows(json: &Json) -> Vec<Value<'_>> {
    json.value().get("rows").map(|rows| rows.elements().collect()).unwrap_or_default()
}
