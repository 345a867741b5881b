//! The attacks. Those who attack are strangers to the server: what they use, somebody with rights has made public.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, ensure};
use flate2::Compression;
use flate2::write::GzEncoder;

use super::Form;
use super::client::{Connection, base64, head, split};

/// All attacks.
pub(super) const ALL: &[Attack] = &[
    // Fewer than it makes.
    Attack { settings: &["chttpd/max_connections=1000"], ..attack("idle-connections", 1, nothing, idle_connections) },
    attack("gzip-bombs", 8, nothing, gzip_bombs),
    attack("slow-senders", 1, nothing, slow_senders),
    attack("closed-windows", 1, large_documents, closed_windows),
    attack("non-readers", 1, large_documents, non_readers),
    attack("refused-bodies", 8, nothing, refused_bodies),
    // Their valid writes are as good as those of the other client, who stands in line with them.
    Attack { slower_max: 20.0, ..attack("pool-of-writers", POOL, nothing, pool_of_writers) },
    attack("huge-emits", 4, huge_emits, query_view),
    attack("slow-compilation", 4, nothing, slow_compilation),
    attack("hanging-functions", 60, hanging_functions, query_view),
    attack("many-conflicts", 4, nothing, many_conflicts),
    attack("endless-lists", 100, endless_lists, endless_list),
];

/// Connections of a pool.
const POOL: usize = 100;

/// One of them.
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// How many act at a time.
    threads: usize,
    /// How the server is configured, `section/key=value`.
    pub(super) settings: &'static [&'static str],
    /// How many times as long as without it the other client may wait.
    pub(super) slower_max: f64,
    /// Makes what it uses.
    prepare: fn(&Target) -> Result<()>,
    /// Is called again and again until it is enough.
    act: fn(&Target),
}

const fn attack(name: &'static str, threads: usize, prepare: fn(&Target) -> Result<()>, act: fn(&Target)) -> Attack {
    Attack { name, threads, settings: &[], slower_max: 10.0, prepare, act }
}

fn nothing(_: &Target) -> Result<()> {
    Ok(())
}

/// The server that is attacked.
pub(super) struct Target {
    address: SocketAddr,
    /// For what is prepared.
    admin: String,
    form: Form,
    /// Set when it is enough.
    stop: Arc<AtomicBool>,
    /// For names that nobody else uses.
    next: AtomicU64,
    /// What is to be finished before the attack ends.
    unfinished: AtomicU64,
    /// What went wrong that should not have.
    failures: Mutex<Vec<String>>,
}

impl Target {
    pub(super) fn prepare(url: &str, form: Form, attack: &Attack) -> Result<Self> {
        let (address, admin) = split(url)?;
        let (stop, next, unfinished, failures) = Default::default();
        let target = Self { address, admin, form, stop, next, unfinished, failures };
        target.make("PUT /public", b"")?;
        target.make("PUT /public/_security", br#"{"admins":{"roles":[]},"members":{"roles":[]}}"#)?;
        (attack.prepare)(&target)?;
        Ok(target)
    }

    fn make(&self, line: &str, body: &[u8]) -> Result<()> {
        let (status, text) = Connection::open(self.address)?.ask(line, &self.admin, body)?;
        ensure!(matches!(status, 200..=202), "{line}: {status} {}", String::from_utf8_lossy(&text));
        Ok(())
    }

    /// A connection for an attack, which ends with it.
    fn connect(&self) -> io::Result<Connection> {
        Connection::open_until(self.address, &self.stop)
    }

    /// Ends the attack.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn wait(&self) {
        while !self.is_over() {
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Lets the server do what servers do, so that what it needs for that is there.
    pub(super) fn warm_up(&self) -> Result<()> {
        self.make("PUT /warm", b"")?;
        let docs: Vec<String> = (0..500).map(|number| format!("{{\"n\":{number}}}")).collect();
        self.make("POST /warm/_bulk_docs", format!("{{\"docs\":[{}]}}", docs.join(",")).as_bytes())?;
        // The second one is nothing for the native evaluator.
        let views = r#"{"views":{"a":{"map":"function(doc){emit(doc.n,1)}","reduce":"_sum"},
            "b":{"map":"function(doc){emit(new Date(doc.n).getTime(),1)}","reduce":"function(k,v){return sum(v)}"}}}"#;
        self.make("PUT /warm/_design/d", views.as_bytes())?;
        let mut connection = Connection::open(self.address)?;
        for view in ["a", "b"] {
            let (status, _) = connection.ask(&format!("GET /warm/_design/d/_view/{view}"), &self.admin, b"")?;
            ensure!(status == 200, "the view {view} of the warm-up: {status}");
        }
        Ok(())
    }

    /// Whether the attack is to go on.
    pub(super) fn is_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed) > 0
    }

    fn fail(&self, text: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// What went wrong that should not have.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut failures = std::mem::take(&mut *self.failures.lock().unwrap_or_else(PoisonError::into_inner));
        if self.is_unfinished() {
            failures.push(format!("{} were not finished", self.unfinished.load(Ordering::Relaxed)));
        }
        if failures.len() > 3 {
            let more = format!("{} more", failures.len() - 3);
            failures.truncate(3);
            failures.push(more);
        }
        failures
    }

    /// So many in the short form, and in the long one.
    fn count(&self, short: usize, long: usize) -> usize {
        if self.form == Form::Short { short } else { long }
    }
}

impl Attack {
    /// Begins. The threads end soon after [`Target::stop`].
    pub(super) fn begin(&'static self, target: &Arc<Target>) -> Vec<JoinHandle<()>> {
        let one = || {
            let target = Arc::clone(target);
            thread::spawn(move || {
                while !target.is_over() {
                    (self.act)(&target);
                }
            })
        };
        (0..self.threads).map(|_| one()).collect()
    }
}

/// More than there may be, all without a request; and clients that come later.
fn idle_connections(target: &Target) {
    let wanted = target.count(1200, 5000);
    let mut connections: Vec<_> = (0..wanted).map_while(|_| target.connect().ok()).collect();
    for round in 0.. {
        // The next database needs files of its own.
        let line = if round == 0 { "PUT /another" } else { "GET /another" };
        let answer = target.connect().and_then(|open| {
            let mut open = open.with_timeout(Duration::from_secs(5));
            open.ask(line, &target.admin, b"")
        });
        match answer {
            _ if target.is_over() => return,
            Ok((200 | 201, _)) => {}
            failed => target.fail(format!("a client that came later: {:?}", failed.map(|(status, _)| status))),
        }
        // Who was closed comes back.
        let closed = round % connections.len().max(1);
        if let (Some(place), Ok(open)) = (connections.get_mut(closed), target.connect()) {
            *place = open;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn gzip_bombs(target: &Target) {
    let megabytes = target.count(200, 1000);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    let spaces = vec![b' '; 1 << 20];
    for _ in 0..megabytes {
        // It is written to memory.
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

/// Sends nearly all of a body.
fn slow_senders(target: &Target) {
    let body = vec![b' '; 4_000_000];
    let mut connections = Vec::new();
    while connections.len() < target.count(300, 2000) && !target.is_over() {
        let Ok(connection) = target.connect() else { continue };
        let mut connection = connection.with_timeout(Duration::from_millis(200));
        let begun = connection.write(&head("PUT /public/doc", "", body.len() + 1));
        let _ = begun.and_then(|()| connection.write(&body));
        connections.push(connection);
    }
    target.wait();
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

/// A connection of HTTP/2 whose windows let nothing through, with 90 requests.
fn closed_windows(target: &Target) {
    let mut connections = Vec::new();
    for _ in 0..target.count(10, 50) {
        let Ok(mut connection) = target.connect() else { continue };
        // SETTINGS with INITIAL_WINDOW_SIZE 0, and another one to say that those of the server were seen.
        let mut text =
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x04\x01\0\0\0\0".to_vec();
        for stream in 0..90_u32 {
            let path = LARGE_PATHS[stream as usize % LARGE_PATHS.len()];
            // GET and http of the static table, the path and the authority as they are.
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
    // Who was cut off comes back.
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

/// Streams what is refused: a wrong password, a database that is not there.
fn refused_bodies(target: &Target) {
    let chunk = [&b"10000\r\n"[..], &vec![b'x'; 1 << 16], b"\r\n"].concat();
    for (path, who) in [("/nothing/doc/a", ""), ("/probe/doc/a", ""), ("/public/d/a", "Authorization: Basic eDp5\r\n")]
    {
        let Ok(mut connection) = target.connect() else { return };
        let begin = format!("PUT {path} HTTP/1.1\r\nHost: x\r\n{who}Transfer-Encoding: chunked\r\n\r\n");
        let sent = connection.write(begin.as_bytes());
        let _ = sent.and_then(|()| (0..64).try_for_each(|_| connection.write(&chunk)));
        let _ = connection.write(b"0\r\n\r\n").and_then(|()| connection.answer());
    }
}

/// One connection of a pool, on which valid writes and refused streaming ones follow each other: what the server did not
/// read of these must not be taken for the next request. No valid one may fail.
fn pool_of_writers(target: &Target) {
    let writes = target.count(10, 100);
    let number = target.next.fetch_add(1, Ordering::Relaxed);
    if number >= POOL as u64 {
        return target.wait();
    }
    target.unfinished.fetch_add(writes as u64, Ordering::Relaxed);
    let chunk = [&b"10000\r\n"[..], &vec![b'x'; 1 << 16], b"\r\n"].concat();
    let mut connection = target.connect();
    for write in 0..writes {
        let answer = connection.as_mut().map(|open| open.ask(&format!("PUT /public/p{number}-{write}"), "", b"{}"));
        match answer {
            _ if target.is_over() => return,
            Ok(Ok((201, _))) => {}
            failed => {
                target.fail(format!("a valid write: {:?}", failed.map(|answer| answer.map(|(status, _)| status))));
            }
        }
        target.unfinished.fetch_sub(1, Ordering::Relaxed);
        // Who is told to close the connection, or finds it closed, opens another one, as clients do.
        let mut goes_on = connection.as_ref().is_ok_and(|open| !open.is_closing());
        if goes_on && write % 5 == 4 {
            let Ok(open) = connection.as_mut() else { continue };
            let (path, who) = [("/nothing/d/a", ""), ("/public/d/a", "Authorization: Basic eDp5\r\n")][write / 5 % 2];
            let begin = format!("PUT {path} HTTP/1.1\r\nHost: x\r\n{who}Transfer-Encoding: chunked\r\n\r\n");
            let sent = open.write(begin.as_bytes());
            let sent = sent.and_then(|()| (0..64).try_for_each(|_| open.write(&chunk)));
            let answer = sent.and_then(|()| open.write(b"0\r\n\r\n")).and_then(|()| open.answer());
            match answer {
                Ok((401 | 404, _)) => {}
                Ok((status, _)) => target.fail(format!("a refused upload: {status}")),
                Err(_) => goes_on = false,
            }
            goes_on &= !open.is_closing();
        }
        if !goes_on {
            connection = target.connect();
        }
    }
    target.wait();
}

fn sixteen_documents(target: &Target) -> Result<()> {
    let docs: Vec<String> = (0..16).map(|number| format!("{{\"_id\":\"{number}\"}}")).collect();
    target.make("POST /public/_bulk_docs", format!("{{\"docs\":[{}]}}", docs.join(",")).as_bytes())
}

fn view(target: &Target, map: &str) -> Result<()> {
    sixteen_documents(target)?;
    target.make("PUT /public/_design/d", format!("{{\"views\":{{\"v\":{{\"map\":\"{map}\"}}}}}}").as_bytes())
}

fn huge_emits(target: &Target) -> Result<()> {
    view(target, "function(doc){var s='x';while(s.length<60000000){s+=s}emit(s,null)}")
}

fn hanging_functions(target: &Target) -> Result<()> {
    view(target, "function(doc){while(true){}}")
}

fn query_view(target: &Target) {
    let Ok(connection) = target.connect() else { return };
    let _ = connection.with_timeout(Duration::from_secs(10)).ask("GET /public/_design/d/_view/v?limit=1", "", b"");
}

fn endless_lists(target: &Target) -> Result<()> {
    sixteen_documents(target)?;
    let list = "function(head,req){start({});while(true){send('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')}}";
    let text =
        format!("{{\"views\":{{\"v\":{{\"map\":\"function(doc){{emit(1)}}\"}}}},\"lists\":{{\"l\":\"{list}\"}}}}");
    target.make("PUT /public/_design/d", text.as_bytes())
}

fn endless_list(target: &Target) {
    let Ok(mut connection) = target.connect() else { return };
    let asked = connection.write(&head("GET /public/_design/d/_list/l/v", "", 0));
    let _ = asked.and_then(|()| connection.swallow());
}

/// Makes ten thousand conflicts of a document in one request, and asks for them in ways that look at each.
fn many_conflicts(target: &Target) {
    let number = target.next.fetch_add(1, Ordering::Relaxed);
    let revs = |generation: usize| (0..10_000).map(move |hash| format!("\"{generation}-{hash:032x}\""));
    let docs: Vec<String> = revs(1).map(|rev| format!("{{\"_id\":\"c{number}\",\"_rev\":{rev}}}")).collect();
    let docs = format!("{{\"new_edits\":false,\"docs\":[{}]}}", docs.join(","));
    let wanted: Vec<String> = revs(1).map(|rev| format!("{{\"id\":\"c{number}\",\"rev\":{rev}}}")).collect();
    let wanted = format!("{{\"docs\":[{}]}}", wanted.join(","));
    let missing = format!("{{\"c{number}\":[{}]}}", revs(2).collect::<Vec<_>>().join(","));
    let Ok(mut connection) = target.connect() else { return };
    for (line, body) in [
        ("POST /public/_bulk_docs".to_owned(), docs.as_bytes()),
        ("POST /public/_bulk_get".to_owned(), wanted.as_bytes()),
        ("POST /public/_revs_diff".to_owned(), missing.as_bytes()),
        (format!("GET /public/c{number}?open_revs=all&revs=true"), b""),
        (format!("GET /public/c{number}?conflicts=true"), b""),
    ] {
        if connection.ask(&line, "Accept: application/json\r\n", body).is_err() {
            return;
        }
    }
}

/// Saves design documents with modules of one large function. Only admins may, so somebody was talked into it.
fn slow_compilation(target: &Target) {
    let module = base64(&module(target.count(200_000, 1_300_000)));
    let text = format!("{{\"language\":\"wasm\",\"views\":{{\"v\":{{\"map\":\"{module}\"}}}}}}");
    let Ok(mut connection) = target.connect() else { return };
    let _ = connection.ask("PUT /public/_design/w", &target.admin, text.as_bytes());
}

/// A module with the exports of the contract, whose map function has so many instructions.
fn module(instructions: usize) -> Vec<u8> {
    let mut out = b"\0asm\x01\0\0\0".to_vec();
    // (i32) -> i32 and (i32, i32) -> i32, a function of each, a memory of one page.
    section(&mut out, 1, b"\x02\x60\x01\x7f\x01\x7f\x60\x02\x7f\x7f\x01\x7f");
    section(&mut out, 3, b"\x02\0\x01");
    section(&mut out, 5, b"\x01\0\x01");
    section(&mut out, 7, b"\x03\x06memory\x02\0\x0csettee_alloc\0\0\x03map\0\x01");
    // Sums that depend on each other, and no locals beside the arguments.
    let mut body = vec![0, 0x20, 0];
    for _ in 0..instructions / 2 {
        body.extend_from_slice(b"\x20\x01\x6a\x20\x00\x6c");
    }
    body.push(0x0b);
    let mut code = vec![2, 4, 0, 0x41, 0, 0x0b];
    leb(&mut code, body.len());
    code.extend_from_slice(&body);
    section(&mut out, 10, &code);
    out
}

fn section(out: &mut Vec<u8>, id: u8, content: &[u8]) {
    out.push(id);
    leb(out, content.len());
    out.extend_from_slice(content);
}

fn leb(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push((value & 0x7f | 0x80) as u8);
        value >>= 7;
    }
    out.push(value as u8);
}
