//! [`Link`]: the network between the nodes and a PostgreSQL, which can be cut, delayed, and made unresponsive. An
//! unresponsive link accepts everything, forwards nothing, and does not report the end of a connection, like a lost
//! route. Afterwards it either delivers the held data or has lost its connections.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Maximum number of pieces of [`PIECE_BYTES`] in flight in one direction of a connection.
const PIECES_IN_FLIGHT: usize = 256;
const PIECE_BYTES: usize = 64 << 10;

pub(crate) struct Link {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    delay_us: AtomicU64,
    connections: Mutex<HashMap<u64, Connection>>,
    made: AtomicU64,
    outage: Mutex<Outage>,
    restored: Condvar,
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
}

#[derive(Default)]
struct Outage {
    is_unresponsive: bool,
    dropped_generation: u64,
}

impl Link {
    pub(crate) fn to(target: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port is free")?;
        let port = listener.local_addr().context("a listener has an address")?.port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let target = SocketAddr::from(([127, 0, 0, 1], target));
                if let Ok(server) = TcpStream::connect_timeout(&target, Duration::from_secs(1)) {
                    shared.join(client, server);
                }
            }
        });
        Ok(Self { port, state })
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Also closes connections with data in flight. New ones are accepted.
    pub(crate) fn cut(&self) {
        for (_, Connection { client, server }) in lock(&self.state.connections).drain() {
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        }
    }

    pub(crate) fn make_unresponsive(&self) {
        lock(&self.state.outage).is_unresponsive = true;
    }

    pub(crate) fn restore(&self) {
        lock(&self.state.outage).is_unresponsive = false;
        self.state.restored.notify_all();
    }

    /// The target observes the end of the other connections, and their clients never get a response.
    pub(crate) fn restore_without_connections(&self) {
        let mut outage = lock(&self.state.outage);
        outage.is_unresponsive = false;
        outage.dropped_generation += 1;
        for (_, Connection { server, .. }) in lock(&self.state.connections).drain() {
            let _ = server.shutdown(Shutdown::Both);
        }
        drop(outage);
        self.state.restored.notify_all();
    }

    pub(crate) fn delay(&self, delay: Duration) {
        self.state.delay_us.store(u64::try_from(delay.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

impl State {
    fn join(self: &Arc<Self>, client: TcpStream, server: TcpStream) {
        for stream in [&client, &server] {
            let _ = stream.set_nodelay(true);
        }
        let (Ok(from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { return };
        let (Ok(kept_client), Ok(kept_server)) = (client.try_clone(), server.try_clone()) else { return };
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let dropped_generation = {
            // Locked, so that the unresponsive state does not end concurrently.
            let outage = lock(&self.outage);
            lock(&self.connections).insert(number, Connection { client: kept_client, server: kept_server });
            outage.dropped_generation
        };
        for (from, to) in [(from_client, to_server), (server, client)] {
            let state = Arc::clone(self);
            thread::spawn(move || {
                state.copy(from, to, dropped_generation);
                lock(&state.connections).remove(&number);
            });
        }
    }

    fn copy(&self, mut from: TcpStream, to: TcpStream, dropped_generation: u64) {
        let (sender, pieces) = mpsc::sync_channel(PIECES_IN_FLIGHT);
        let Ok(end) = to.try_clone() else { return };
        let delivering = thread::spawn(move || deliver(&pieces, to));
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let count = from.read(&mut buffer).unwrap_or(0);
            if !self.passes(dropped_generation) {
                // A client that still sends is not notified that the connection is lost.
                while matches!(from.read(&mut buffer), Ok(1..)) {}
                return;
            }
            let due = Instant::now() + Duration::from_micros(self.delay_us.load(Ordering::Relaxed));
            if count == 0 || sender.send((due, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
        // The last pieces precede the end.
        drop(sender);
        let _ = delivering.join();
        let _ = (from.shutdown(Shutdown::Both), end.shutdown(Shutdown::Both));
    }

    /// Waits until the link responds. Returns false if the connection is lost.
    fn passes(&self, dropped_generation: u64) -> bool {
        let outage = lock(&self.outage);
        let outage = self.restored.wait_while(outage, |outage| outage.is_unresponsive);
        outage.unwrap_or_else(PoisonError::into_inner).dropped_generation == dropped_generation
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn deliver(pieces: &mpsc::Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
    for (due, piece) in pieces {
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            thread::sleep(wait);
        }
        if to.write_all(&piece).is_err() {
            break;
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn echo() -> Link {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link::to(listener.local_addr().unwrap().port()).unwrap();
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                thread::spawn(move || {
                    let mut byte = [0];
                    while client.read(&mut byte).unwrap_or(0) == 1 && client.write_all(&byte).is_ok() {}
                });
            }
        });
        link
    }

    fn client(link: &Link) -> TcpStream {
        TcpStream::connect(("127.0.0.1", link.port())).unwrap()
    }

    /// Returns data that arrives within a short time; empty if the link is unresponsive; `None` at the end.
    fn within_a_moment(client: &mut TcpStream) -> Option<Vec<u8>> {
        client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut buffer = [0; 10];
        let count = client.read(&mut buffer);
        client.set_read_timeout(None).unwrap();
        match count {
            Ok(0) => None,
            Ok(count) => Some(buffer[..count].to_vec()),
            Err(_) => Some(Vec::new()),
        }
    }

    fn echoed(client: &mut TcpStream, text: &[u8]) {
        let mut answer = vec![0; text.len()];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(answer, text);
    }

    #[test]
    fn the_last_bytes_before_the_end_of_a_connection_arrive() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link::to(listener.local_addr().unwrap().port()).unwrap();
        link.delay(Duration::from_millis(30));
        thread::spawn(move || listener.accept().unwrap().0.write_all(b"last").unwrap());
        let mut text = String::new();
        client(&link).read_to_string(&mut text).unwrap();
        assert_eq!(text, "last");
    }

    #[test]
    fn a_connection_that_has_ended_is_not_kept() {
        let link = echo();
        let mut last = client(&link);
        for _ in 0..20 {
            let mut client = client(&link);
            client.write_all(b"a").unwrap();
            echoed(&mut client, b"a");
        }
        last.write_all(b"b").unwrap();
        echoed(&mut last, b"b");
        let begun = Instant::now();
        while lock(&link.state.connections).len() > 1 && begun.elapsed() < Duration::from_secs(30) {
            thread::yield_now();
        }
        assert_eq!(lock(&link.state.connections).len(), 1);
    }

    #[test]
    fn an_unresponsive_link_accepts_data_and_returns_none() {
        let link = echo();
        let (mut old, mut idle) = (client(&link), client(&link));
        for client in [&mut old, &mut idle] {
            client.write_all(b"a").unwrap();
            echoed(client, b"a");
        }
        link.make_unresponsive();
        let mut new = client(&link);
        for client in [&mut old, &mut new] {
            client.write_all(b"bc").unwrap();
            assert_eq!(within_a_moment(client), Some(Vec::new()));
        }
        link.restore();
        for client in [&mut old, &mut new] {
            echoed(client, b"bc");
        }
        link.make_unresponsive();
        old.write_all(b"d").unwrap();
        link.restore_without_connections();
        let mut later = client(&link);
        later.write_all(b"e").unwrap();
        echoed(&mut later, b"e");
        idle.write_all(b"f").unwrap();
        for client in [&mut old, &mut idle, &mut new] {
            assert_eq!(within_a_moment(client), Some(Vec::new()), "nothing, and no end");
        }
        link.cut();
        assert_eq!(later.read(&mut [0]).unwrap_or(0), 0);
    }

    #[test]
    fn pieces_wait_together_and_a_cut_ends_them() {
        let link = echo();
        link.delay(Duration::from_millis(20));
        let mut client = client(&link);
        let (begun, mut answer) = (Instant::now(), [0; 10]);
        client.write_all(b"0123456789").unwrap();
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"0123456789");
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(40), "both ways: {took:?}");
        assert!(took < Duration::from_millis(200), "together: {took:?}");
        link.cut();
        assert_eq!(client.read(&mut answer).unwrap_or(0), 0);
    }
}
