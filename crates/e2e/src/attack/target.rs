//! [`Target`]: the attacked server, and the sending of hostile requests to it.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::client::{Connection, head, split};
use super::entry::{Attack, Expect, HostileRequest, Text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A few seconds per attack; neither times nor memory are checked.
    Short,
    Long,
}

pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) admin: String,
    pub(super) form: Form,
    pub(super) stop: Arc<AtomicBool>,
    ended: (Mutex<()>, Condvar),
    pub(super) next: AtomicU64,
    /// Requests of the attack, as bits, that had the required answer at least once.
    answered: AtomicU64,
    pub(super) unfinished: AtomicU64,
    pub(super) longest_ms: AtomicU64,
    pub(super) failures: Mutex<Vec<String>>,
}

impl Target {
    pub(super) fn prepare(url: &str, form: Form, attack: &Attack) -> Result<Self> {
        let (address, admin) = split(url)?;
        let (stop, ended, next, answered, longest_ms, failures) = Default::default();
        let required = attack.requests.iter().filter(|request| matches!(request.expect, Expect::Answer(..))).count();
        let unfinished = AtomicU64::new(required as u64);
        let target = Self { address, admin, form, stop, ended, next, answered, unfinished, longest_ms, failures };
        target.make("PUT /public", b"")?;
        target.make("PUT /public/_security", br#"{"admins":{"roles":[]},"members":{"roles":[]}}"#)?;
        for (line, body) in attack.setup {
            target.make(line, body.as_bytes())?;
        }
        (attack.prepare)(&target)?;
        Ok(target)
    }

    pub(super) fn make(&self, line: &str, body: &[u8]) -> Result<()> {
        let (status, text) = Connection::open(self.address)?.ask(line, &self.admin, body)?;
        ensure!(matches!(status, 200..=202), "{line}: {status} {}", String::from_utf8_lossy(&text));
        Ok(())
    }

    pub(super) fn connect(&self) -> io::Result<Connection> {
        Connection::open_until(self.address, &self.stop)
    }

    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        drop(self.ended.0.lock().unwrap_or_else(PoisonError::into_inner));
        self.ended.1.notify_all();
    }

    pub(super) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    pub(super) fn wait(&self) {
        self.pause(Duration::MAX);
    }

    pub(super) fn warm_up(&self) -> Result<()> {
        self.make("PUT /warm", b"")?;
        let docs: Vec<String> = (0..500).map(|number| format!("{{\"n\":{number}}}")).collect();
        self.make("POST /warm/_bulk_docs", format!("{{\"docs\":[{}]}}", docs.join(",")).as_bytes())?;
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

    pub(super) fn longest(&self) -> Duration {
        Duration::from_millis(self.longest_ms.load(Ordering::Relaxed))
    }

    pub(super) fn ask(&self, place: usize, request: &HostileRequest) {
        let Ok(mut connection) = self.connect() else { return };
        let body = match request.body {
            Text::Is(text) => text.as_bytes().to_vec(),
            Text::Made(make) => make(self),
        };
        let start = Instant::now();
        if let Expect::LeavesAfter(time) = request.expect {
            let _ = connection.write(&[&head(request.line, request.headers, body.len()), &body[..]].concat());
            self.pause(time);
            return;
        }
        let answer = connection.ask(request.line, request.headers, &body);
        if self.is_over() {
            return;
        }
        let millis = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.longest_ms.fetch_max(millis, Ordering::Relaxed);
        if let Expect::Answer(status, part) = request.expect {
            match answer {
                Ok((429 | 503, _)) | Err(_) => {}
                Ok((found, text)) if found == status && String::from_utf8_lossy(&text).contains(part) => {
                    if self.answered.fetch_or(1 << place, Ordering::Relaxed) & (1 << place) == 0 {
                        self.unfinished.fetch_sub(1, Ordering::Relaxed);
                    }
                }
                Ok((found, text)) => {
                    let text: String = String::from_utf8_lossy(&text).chars().take(80).collect();
                    self.fail(format!("{}: {found} {text}", request.line));
                }
            }
        }
    }

    /// Hundreds of attackers that poll would take a processor from the server.
    pub(super) fn pause(&self, time: Duration) {
        let ended = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = self.ended.1.wait_timeout_while(ended, time, |()| !self.is_over());
    }

    pub(super) fn is_unfinished(&self) -> bool {
        self.unfinished.load(Ordering::Relaxed) > 0
    }

    pub(super) fn fail(&self, text: String) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

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

    pub(super) fn count(&self, short: usize, long: usize) -> usize {
        if self.form == Form::Short { short } else { long }
    }
}
