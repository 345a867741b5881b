//! [`Link`]: the network between the nodes and a PostgreSQL, which can be cut and made slow.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// A listener that connects to a port of this machine, for as long as the process lives.
pub(super) struct Link {
    port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// The time that each piece takes longer.
    delay_ms: AtomicU64,
    connections: Mutex<Vec<TcpStream>>,
}

impl Link {
    pub(super) fn to(target: u16) -> Result<Self> {
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

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Ends all connections, whatever is under way in them. New ones are made.
    pub(super) fn cut(&self) {
        for connection in self.state.connections.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }

    /// Lets each piece take so much longer, in either direction.
    pub(super) fn delay(&self, delay_ms: u64) {
        self.state.delay_ms.store(delay_ms, Ordering::Relaxed);
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

    fn copy(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let delay_ms = self.delay_ms.load(Ordering::Relaxed);
            if delay_ms > 0 {
                thread::sleep(Duration::from_millis(delay_ms));
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        // One that has ended on one side is of no use on the other.
        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
    }
}
