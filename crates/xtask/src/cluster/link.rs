//! [`Link`]: the network between the nodes and a PostgreSQL, which can be cut, made slow, and fall silent. What is delayed arrives later, but as
//! much of it at a time: pieces that follow each other wait together, as on a long line.
//!
//! A silent link takes everything, new connections included, passes nothing on, and tells nobody of an end, as a route that is gone
//! does. Afterwards it has kept all that, as the memory of those who send it again has, or it has forgotten its connections, as a firewall that was started anew.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// So many pieces of [`PIECE_BYTES`] are under way in one direction of a connection.
const UNDER_WAY: usize = 256;
const PIECE_BYTES: usize = 64 << 10;

/// A listener that connects to a port of this machine, for as long as the process lives.
pub(crate) struct Link {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The time that each piece takes longer.
    delay_us: AtomicU64,
    /// Those that have not ended, by the order in which they were made.
    connections: Mutex<HashMap<u64, Connection>>,
    made: AtomicU64,
    silence: Mutex<Silence>,
    spoken: Condvar,
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
}

#[derive(Default)]
struct Silence {
    is_silent: bool,
    /// How often connections were forgotten.
    forgotten: u64,
}

impl Link {
    pub(crate) fn to(target: u16) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).context("no port is free")?;
        let port = listener.local_addr().context("a listener has an address")?.port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                // Who cannot be connected is refused by the end of its connection.
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

    /// Ends all connections, whatever is under way in them. New ones are made.
    pub(crate) fn cut(&self) {
        for (_, Connection { client, server }) in lock(&self.state.connections).drain() {
            let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        }
    }

    /// Passes nothing on from now on, and takes everything.
    pub(crate) fn fall_silent(&self) {
        lock(&self.state.silence).is_silent = true;
    }

    /// Passes on what has come meanwhile, and what comes.
    pub(crate) fn speak(&self) {
        lock(&self.state.silence).is_silent = false;
        self.state.spoken.notify_all();
    }

    /// Passes on what comes by new connections. The target sees the end of the others, and their clients hear nothing for ever.
    pub(crate) fn speak_anew(&self) {
        let mut silence = lock(&self.state.silence);
        silence.is_silent = false;
        silence.forgotten += 1;
        for (_, Connection { server, .. }) in lock(&self.state.connections).drain() {
            let _ = server.shutdown(Shutdown::Both);
        }
        drop(silence);
        self.state.spoken.notify_all();
    }

    /// Lets each piece take so much longer, in either direction.
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
        let forgotten = {
            // Not in the middle of an end of the silence.
            let silence = lock(&self.silence);
            lock(&self.connections).insert(number, Connection { client: kept_client, server: kept_server });
            silence.forgotten
        };
        for (from, to) in [(from_client, to_server), (server, client)] {
            let state = Arc::clone(self);
            thread::spawn(move || {
                state.copy(from, to, forgotten);
                lock(&state.connections).remove(&number);
            });
        }
    }

    /// Copies what comes by a connection that was made when connections had been forgotten so often.
    fn copy(&self, mut from: TcpStream, to: TcpStream, forgotten: u64) {
        let (sender, pieces) = mpsc::sync_channel(UNDER_WAY);
        let Ok(end) = to.try_clone() else { return };
        thread::spawn(move || hand_over(&pieces, to));
        let mut buffer = vec![0; PIECE_BYTES];
        loop {
            let count = from.read(&mut buffer).unwrap_or(0);
            if !self.passes(forgotten) {
                // Whoever still sends is not told that nobody listens.
                while matches!(from.read(&mut buffer), Ok(1..)) {}
                return;
            }
            let due = Instant::now() + Duration::from_micros(self.delay_us.load(Ordering::Relaxed));
            if count == 0 || sender.send((due, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
        // One that has ended on one side is of no use on the other.
        let _ = (from.shutdown(Shutdown::Both), end.shutdown(Shutdown::Both));
    }

    /// Waits for the end of a silence. False: the connection is forgotten.
    fn passes(&self, forgotten: u64) -> bool {
        let silence = lock(&self.silence);
        let silence = self.spoken.wait_while(silence, |silence| silence.is_silent);
        silence.unwrap_or_else(PoisonError::into_inner).forgotten == forgotten
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Writes each piece when it is due.
fn hand_over(pieces: &mpsc::Receiver<(Instant, Vec<u8>)>, mut to: TcpStream) {
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

    /// A link to somebody who says everything again.
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

    /// What comes within a moment, which is nothing where there is silence; `None` at the end of the connection.
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
    fn a_silent_link_takes_everything_and_tells_nothing() {
        let link = echo();
        let (mut old, mut idle) = (client(&link), client(&link));
        for client in [&mut old, &mut idle] {
            client.write_all(b"a").unwrap();
            echoed(client, b"a");
        }
        link.fall_silent();
        let mut new = client(&link);
        for client in [&mut old, &mut new] {
            client.write_all(b"bc").unwrap();
            assert_eq!(within_a_moment(client), Some(Vec::new()));
        }
        link.speak();
        for client in [&mut old, &mut new] {
            echoed(client, b"bc");
        }
        // Whoever was there is forgotten, and those who come later are not.
        link.fall_silent();
        old.write_all(b"d").unwrap();
        link.speak_anew();
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
        // Ten answers of one byte, one after the other, would take 200 ms more.
        assert!(took < Duration::from_millis(200), "together: {took:?}");
        link.cut();
        assert_eq!(client.read(&mut answer).unwrap_or(0), 0);
    }
}
