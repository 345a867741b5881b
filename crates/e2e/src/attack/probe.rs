//! [`Probe`]: a well-behaved client that writes, reads and lists, and records its waiting times.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::client::{Connection, split};

const PACE: Duration = Duration::from_millis(10);

pub(super) struct Probe {
    state: Arc<State>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    seen: Mutex<Seen>,
    is_unpaced: AtomicBool,
    is_over: AtomicBool,
}

#[derive(Default)]
struct Seen {
    waited: Vec<Duration>,
    failed: u64,
}

pub(super) struct Figures {
    pub(super) p99: Duration,
    pub(super) answered: usize,
    pub(super) failed: u64,
}

impl Probe {
    pub(super) fn begin(url: &str) -> Result<Self> {
        let (address, authorization) = split(url)?;
        let made = Connection::open(address)?.ask("PUT /probe", &authorization, b"")?.0;
        ensure!(made == 201, "the database of the other client was not made: {made}");
        let state = Arc::<State>::default();
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || ask(address, &authorization, &shared));
        Ok(Self { state, thread: Some(thread) })
    }

    pub(super) fn speed(&self, time: Duration) -> f64 {
        self.take();
        self.state.is_unpaced.store(true, Ordering::Relaxed);
        let begun = Instant::now();
        thread::sleep(time);
        self.state.is_unpaced.store(false, Ordering::Relaxed);
        let Figures { answered, failed, .. } = self.take();
        (answered as f64 - failed as f64) / begun.elapsed().as_secs_f64()
    }

    pub(super) fn take(&self) -> Figures {
        let Seen { mut waited, failed } =
            std::mem::take(&mut *self.state.seen.lock().unwrap_or_else(PoisonError::into_inner));
        waited.sort_unstable();
        let p99 = waited.get((waited.len() * 99 / 100).min(waited.len().saturating_sub(1))).copied();
        Figures { p99: p99.unwrap_or_default(), answered: waited.len(), failed }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.state.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ask(address: SocketAddr, authorization: &str, state: &State) {
    let mut connection = Connection::open(address);
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(500));
    for round in 0_u64.. {
        if state.is_over.load(Ordering::Relaxed) {
            return;
        }
        let (line, body) = match round % 3 {
            0 => (format!("PUT /probe/{round}"), body.as_bytes()),
            1 => (format!("GET /probe/{}", round - 1), &b""[..]),
            _ => ("GET /probe/_all_docs?limit=20&include_docs=true".to_owned(), &b""[..]),
        };
        let begun = Instant::now();
        let answer = connection.as_mut().map(|open| open.ask(&line, authorization, body));
        let waited = begun.elapsed();
        let is_well = matches!(answer, Ok(Ok((200 | 201, _))));
        {
            let mut seen = state.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.waited.push(waited);
            seen.failed += u64::from(!is_well);
        }
        if !is_well {
            connection = Connection::open(address);
        }
        if !state.is_unpaced.load(Ordering::Relaxed) {
            thread::sleep(PACE.saturating_sub(begun.elapsed()));
        }
    }
}
