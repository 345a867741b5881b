//! [`Proxy`]: a route to the server that can be cut after a number of bytes, stalled, and made to drop its connections
//! silently.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    left: Arc<AtomicI64>,
    gate: Arc<Gate>,
    down: Arc<Down>,
}

#[derive(Default)]
struct Down {
    is_down: AtomicBool,
    clients: Mutex<Vec<TcpStream>>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<State>,
    opened: Condvar,
}

#[derive(Default)]
struct State {
    is_closed: [bool; 2],
    dropped: u64,
}

#[derive(Clone, Copy)]
enum Direction {
    Request,
    Response,
}

impl Gate {
    fn dropped(&self) -> u64 {
        self.state.lock().unwrap().dropped
    }

    fn pass(&self, direction: Direction, dropped: u64) -> bool {
        let state = self.state.lock().unwrap();
        let state = self.opened.wait_while(state, |state| state.is_closed[direction as usize]).unwrap();
        state.dropped == dropped
    }

    fn set(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state.lock().unwrap());
        self.opened.notify_all();
    }
}

impl Proxy {
    pub(crate) fn url(&self, schema: &str) -> String {
        format!("postgres://settee@127.0.0.1:{}/postgres?schema={schema}&sslmode=disable", self.port)
    }

    pub(crate) fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let left = Arc::new(AtomicI64::new(-1));
        let (shared, gate) = (Arc::clone(&left), Arc::<Gate>::default());
        let keeper = Arc::clone(&gate);
        let down = Arc::<Down>::default();
        let known = Arc::clone(&down);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                known.clients.lock().unwrap().push(client.try_clone().unwrap());
                if known.is_down.load(Ordering::SeqCst) {
                    let _ = client.shutdown(Shutdown::Both);
                    continue;
                }
                let Ok(server) = UnixStream::connect(&socket) else { continue };
                serve(client, server, Arc::clone(&shared), Arc::clone(&keeper));
            }
        });
        Self { port, left, gate, down }
    }

    pub(crate) fn set_down(&self, is_down: bool) {
        self.down.is_down.store(is_down, Ordering::SeqCst);
        if is_down {
            for client in self.down.clients.lock().unwrap().drain(..) {
                let _ = client.shutdown(Shutdown::Both);
            }
        }
    }

    pub(crate) fn stall_requests(&self, is_closed: bool) {
        self.gate.set(|state| state.is_closed[Direction::Request as usize] = is_closed);
    }

    pub(crate) fn stall_responses(&self, is_closed: bool) {
        self.gate.set(|state| state.is_closed[Direction::Response as usize] = is_closed);
    }

    pub(crate) fn drop_silently(&self) {
        self.gate.set(|state| state.dropped += 1);
    }

    pub(crate) fn cut_after(&self, bytes: i64) {
        self.left.store(bytes, Ordering::SeqCst);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.left.load(Ordering::SeqCst) < 0
    }
}

fn serve(client: TcpStream, server: UnixStream, left: Arc<AtomicI64>, gate: Arc<Gate>) {
    let (mut from_client, mut to_server) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let (dropped, keeper) = (gate.dropped(), Arc::clone(&gate));
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = from_client.read(&mut buffer) {
            if !keeper.pass(Direction::Request, dropped) {
                while matches!(from_client.read(&mut buffer), Ok(1..)) {}
                // The end of the connection is not forwarded either.
                std::mem::forget(to_server);
                return;
            }
            if to_server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        if keeper.pass(Direction::Request, dropped) {
            // Requests that were sent are executed, even if the client has disconnected.
            let _ = to_server.shutdown(Shutdown::Write);
        } else {
            std::mem::forget(to_server);
        }
    });
    thread::spawn(move || {
        let (mut server, mut client) = (server, client);
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = server.read(&mut buffer) {
            if !gate.pass(Direction::Response, dropped) {
                return;
            }
            let before = left.load(Ordering::SeqCst);
            let count_signed = i64::try_from(count).unwrap();
            if before >= 0 && left.fetch_sub(count_signed, Ordering::SeqCst) < count_signed {
                left.store(-1, Ordering::SeqCst);
                let passed = usize::try_from(before.min(count_signed)).unwrap();
                let _ = client.write_all(&buffer[..passed]);
                let _ = client.shutdown(Shutdown::Both);
                return;
            }
            if client.write_all(&buffer[..count]).is_err() {
                return;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
    });
}
