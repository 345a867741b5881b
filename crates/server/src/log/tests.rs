//! Tests from an event to a line.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

struct Fixture {
    log: Log,
    path: PathBuf,
}

impl Fixture {
    fn new(level: &str, format: Format) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("settee-log-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let settings = LogSettings { threshold: threshold(level), format, target: Target::File(path.clone()) };
        Self { log: Log::unregistered(settings, "nonode@nohost".to_owned()).unwrap(), path }
    }

    fn lines(&self, events: impl FnOnce()) -> String {
        tracing::subscriber::with_default(Collector(self.log.clone()), events);
        self.log.flush();
        std::fs::read_to_string(&self.path).unwrap_or_default()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn access(target: &str) {
    tracing::info!(target: settee_api::ACCESS_LOG, request = "abc", host = "h:5984", peer = %"127.0.0.1", user = "ann",
        method = "GET", target, status = 200_u16, outcome = "ok", duration_ms = 3_u64, bytes = 17_u64);
}

fn everything() {
    tracing::debug!(target: "settee_api", "one");
    tracing::info!(target: "settee_api", database = "db", "two");
    access("/db?x=1");
    tracing::warn!(target: "settee_api", error = %"broken\n[error] forged", request = "r1", "three");
    tracing::error!(target: "settee_api", path = "p", "four");
    tracing::debug!(target: "hyper", "of a library");
}

#[test]
fn levels_and_texts() {
    let check = |level: &str, expected: &[&str]| {
        let text = Fixture::new(level, Format::Text);
        let text = text.lines(everything);
        let lines: Vec<String> = text
            .lines()
            .map(|line| {
                let (level, rest) = line.split_once(' ').unwrap();
                let (time, rest) = rest.split_once(' ').unwrap();
                assert!(time.len() == 27 && time.ends_with('Z'), "{line}");
                format!("{level} {rest}")
            })
            .collect();
        assert_eq!(lines, expected, "{level}");
    };
    let all = [
        "[debug] nonode@nohost <0.0.0> -------- one",
        "[info] nonode@nohost <0.0.0> -------- two database=db",
        "[notice] nonode@nohost <0.0.0> abc h:5984 127.0.0.1 ann GET /db?x=1 200 ok 3",
        "[warning] nonode@nohost <0.0.0> r1 three error=broken\\n[error] forged",
        "[error] nonode@nohost <0.0.0> -------- four path=p",
    ];
    check("debug", &all);
    check("info", &all[1..]);
    check("notice", &all[2..]);
    check("warning", &all[3..]);
    check("emergency", &all[4..]);
    check("none", &[]);
}

#[test]
fn json_and_the_journal() {
    let json = Fixture::new("notice", Format::Json);
    let text = json.lines(everything);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3);
    for line in &lines {
        settee_model::json::Json::parse(line.as_bytes()).unwrap();
    }
    let rest = |line: &str| line.split_once("Z\",").unwrap().1.to_owned();
    assert_eq!(
        rest(lines[0]),
        concat!(
            r#""level":"notice","node":"nonode@nohost","request":"abc","message":"request","host":"h:5984","#,
            r#""peer":"127.0.0.1","user":"ann","method":"GET","target":"/db?x=1","status":200,"outcome":"ok","#,
            r#""duration_ms":3,"bytes":17}"#
        )
    );
    assert!(
        lines[1].ends_with(r#""request":"r1","message":"three","error":"broken\n[error] forged"}"#),
        "{}",
        lines[1]
    );

    let journal = Fixture::new("warning", Format::Journal);
    assert_eq!(journal.lines(everything), "<4>r1 three error=broken\\n[error] forged\n<3>-------- four path=p\n");
}

#[test]
fn syslog_gets_a_datagram_for_each_line() {
    let collector = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    collector.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    let port = collector.local_addr().unwrap().port();
    let settings =
        syslog::SyslogSettings { host: "127.0.0.1".to_owned(), port, appid: "mine".to_owned(), facility: 16 };
    let fixture = Fixture::new("notice", Format::Text);
    fixture.log.apply(super::LogSettings {
        threshold: threshold("notice"),
        format: Format::Syslog,
        target: Target::Syslog(settings),
    });
    assert_eq!(fixture.lines(everything), "", "the file gets nothing");
    let received = || {
        let mut message = [0; 4096];
        let length = collector.recv(&mut message).unwrap();
        let message = String::from_utf8(message[..length].to_vec()).unwrap();
        let mut parts = message.splitn(6, ' ').map(str::to_owned);
        let [priority, time, _host, appid, process, rest] = std::array::from_fn(|_| parts.next().unwrap());
        assert!(time.len() == 27 && time.ends_with('Z'), "{message}");
        assert_eq!(process, std::process::id().to_string());
        format!("{priority} {appid} {rest}")
    };
    assert_eq!(received(), "<133>1 mine abc - h:5984 127.0.0.1 ann GET /db?x=1 200 ok 3");
    assert_eq!(received(), "<132>1 mine r1 - three error=broken\\n[error] forged");
    assert_eq!(received(), "<131>1 mine -------- - four path=p");
}

#[test]
fn secrets_do_not_arrive() {
    let fixture = Fixture::new("debug", Format::Text);
    let text = fixture.lines(|| {
        access("/_session?name=ann&password=geheim1");
        access("/db/_find?source=http%3A%2F%2Fann%3Ageheim2%40host%2F");
        tracing::error!(target: "settee_api", error = %"GET http://ann:geheim3@host/db: refused", "failed");
        tracing::info!(target: "settee_api", "header Authorization: Basic Z2VoZWltNA== and cookie AuthSession=geheim5;");
    });
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(!text.contains("geheim") && !text.contains("Z2VoZWlt"), "{text}");
    assert_eq!(fixture.log.tail(), text.as_bytes(), "the tail is what was written");
    assert_eq!(fixture.log.lines(), [("debug", 0), ("info", 1), ("notice", 2), ("warning", 0), ("error", 1)]);
}

#[test]
fn a_file_that_was_moved_is_started_again() {
    let fixture = Fixture::new("info", Format::Text);
    assert!(fixture.lines(|| tracing::info!(target: "settee", "before")).ends_with("before\n"));
    let moved = fixture.path.with_extension("old");
    std::fs::rename(&fixture.path, &moved).unwrap();
    let text = fixture.lines(|| tracing::info!(target: "settee", "after"));
    assert!(text.ends_with("after\n") && !text.contains("before"), "{text}");
    std::fs::remove_file(moved).unwrap();
}

#[test]
fn the_level_and_the_target_change_while_it_runs() {
    let fixture = Fixture::new("error", Format::Text);
    let second = Fixture::new("error", Format::Text);
    assert_eq!(fixture.lines(everything).lines().count(), 1);
    fixture.log.apply(LogSettings {
        threshold: threshold("info"),
        format: Format::Json,
        target: Target::File(second.path.clone()),
    });
    fixture.lines(everything);
    assert_eq!(std::fs::read_to_string(&second.path).unwrap().lines().count(), 4);
    assert_eq!(std::fs::read_to_string(&fixture.path).unwrap().lines().count(), 1);
}
