//! Accepting connections, and an orderly end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use settee_settings::{Settings, chttpd};

use crate::connection::{self, Accepted};
use crate::node::Node;
use crate::routes;
use crate::shutdown::{Shutdown, until_true};
use crate::slots::Slots;
use crate::stages::Service;
use crate::tls::Tls;

/// The time that open requests may take to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);

/// Where clients come in.
pub enum Listener {
    /// HTTP/1.1 and HTTP/2 in plain text.
    Tcp(TcpListener),
    /// The same over TLS.
    Tls(TcpListener, Tls),
    /// The same over a socket in the file system.
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| Accepted::Tcp(stream, peer.ip())),
            Self::Tls(listener, tls) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::Tls(stream, peer.ip(), tls.clone()))
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Accepted::Unix(stream)),
        }
    }
}

/// The number of connections that the configuration allows at a time.
#[must_use]
pub fn connections_max(settings: &dyn Settings) -> u64 {
    chttpd::MAX_CONNECTIONS.of(settings).max(1)
}

/// Serves `listeners`, and so many connections at a time, until `shutdown` begins and open requests have ended, or have had
/// their time.
pub async fn serve(node: Arc<Node>, listeners: Vec<Listener>, connections: u64, shutdown: Shutdown) {
    let router = Arc::new(routes::router(&shutdown));
    let most = usize::try_from(connections).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
    let slots = Slots::new(most);
    let service = Service::new(Arc::clone(&node), router);
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept_all(Arc::clone(&service), listener, Arc::clone(&slots), shutdown.clone()));
    }
    let mut connections = accepting.join_all().await;
    // A build would hold up the query that waits for it, and is continued after the next start.
    tokio::task::spawn_blocking(move || node.views.stop());
    let drained = tokio::time::timeout(DRAIN_TIMEOUT, async {
        for connections in &mut connections {
            while connections.join_next().await.is_some() {}
        }
    });
    if drained.await.is_err() {
        let open: usize = connections.iter().map(JoinSet::len).sum();
        tracing::warn!(open, "connections were closed before their requests ended");
    }
}

/// Accepts clients until the end begins. Those that are still there are given back.
async fn accept_all(service: Arc<Service>, listener: Listener, slots: Arc<Slots>, shutdown: Shutdown) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let mut stopping = shutdown.watch();
    loop {
        // A slot is needed only when there is a client: idle connections give way to clients, not to nobody.
        let accept = async {
            let client = listener.accept().await?;
            io::Result::Ok((client, slots.take().await))
        };
        tokio::select! {
            biased;
            () = until_true(&mut stopping) => return connections,
            accepted = accept => match accepted {
                Ok((client, slot)) => {
                    let ending = Arc::clone(slot.ending());
                    let connection = connection::serve(Arc::clone(&service), client, ending, shutdown.watch());
                    connections.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    // Most often too many open files: wait for some to close.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
        while connections.try_join_next().is_some() {}
    }
}
