//! [`Link`]: the network between the nodes and a PostgreSQL, which can be cut and made slow. What is delayed arrives later, but as
//! much of it at a time: pieces that follow each other wait together, as on a long line.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
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
    connections: Mutex<Vec<TcpStream>>,
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
        for connection in self.state.connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
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
        let kept = [&client, &server].map(TcpStream::try_clone);
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).extend(kept.into_iter().flatten());
        for (from, to) in [(from_client, to_server), (server, client)] {
            let state = Arc::clone(self);
            thread::spawn(move || state.copy(from, to));
        }
    }

    fn copy(&self, mut from: TcpStream, to: TcpStream) {
        let (sender, pieces) = mpsc::sync_channel(UNDER_WAY);
        let Ok(end) = to.try_clone() else { return };
        thread::spawn(move || hand_over(&pieces, to));
        let mut buffer = vec![0; PIECE_BYTES];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let delay = Duration::from_micros(self.delay_us.load(Ordering::Relaxed));
            if sender.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
                break;
            }
        }
        // One that has ended on one side is of no use on the other.
        let _ = (from.shutdown(Shutdown::Both), end.shutdown(Shutdown::Both));
    }
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

    #[test]
    fn pieces_wait_together_and_a_cut_ends_them() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let link = Link::to(listener.local_addr().unwrap().port()).unwrap();
        thread::spawn(move || {
            let mut client = listener.accept().unwrap().0;
            let mut byte = [0];
            while client.read(&mut byte).unwrap_or(0) == 1 {
                client.write_all(&byte).unwrap();
            }
        });
        link.delay(Duration::from_millis(20));
        let mut client = TcpStream::connect(("127.0.0.1", link.port())).unwrap();
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
