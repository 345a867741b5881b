//! [`TcpProxy`]: each connection is forwarded to the next server, or to the one after it if the first refuses.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct TcpProxy {
    address: SocketAddr,
}

impl TcpProxy {
    pub(crate) fn start(port: u16, servers: Vec<SocketAddr>) -> Result<Self> {
        let listener =
            TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port} cannot be listened on"))?;
        let address = listener.local_addr().context("a listener has an address")?;
        thread::spawn(move || {
            let turn = AtomicUsize::new(0);
            for client in listener.incoming().flatten() {
                let first = turn.fetch_add(1, Ordering::Relaxed);
                if let Some(server) = connect(&servers, first) {
                    join(client, server);
                }
            }
        });
        Ok(Self { address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

fn connect(servers: &[SocketAddr], first: usize) -> Option<TcpStream> {
    let mut servers = servers.iter().cycle().skip(first % servers.len().max(1)).take(servers.len());
    servers.find_map(|server| TcpStream::connect_timeout(server, CONNECT_TIMEOUT).ok())
}

fn join(client: TcpStream, server: TcpStream) {
    for stream in [&client, &server] {
        let _ = stream.set_nodelay(true);
    }
    let (Ok(from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { return };
    thread::spawn(move || copy(from_client, to_server));
    thread::spawn(move || copy(server, client));
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let ended = io::copy(&mut from, &mut to);
    let how = if ended.is_ok() { Shutdown::Write } else { Shutdown::Both };
    let _ = to.shutdown(how);
    if ended.is_err() {
        let _ = from.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    fn server(name: &'static str) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                client.write_all(name.as_bytes()).unwrap();
            }
        });
        address
    }

    #[test]
    fn servers_take_turns_and_dead_ones_are_passed_over() {
        let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let tcp_proxy = TcpProxy::start(0, vec![server("a"), dead, server("b")]).unwrap();
        let ask = || {
            let mut answer = String::new();
            TcpStream::connect(tcp_proxy.address()).unwrap().read_to_string(&mut answer).unwrap();
            answer
        };
        let answers: Vec<String> = (0..6).map(|_| ask()).collect();
        assert_eq!(answers, ["a", "b", "b", "a", "b", "b"]);
        let no_node = TcpProxy::start(0, vec![dead]).unwrap();
        let mut answer = String::new();
        let _ = TcpStream::connect(no_node.address()).unwrap().read_to_string(&mut answer);
        assert_eq!(answer, "");
    }
}
