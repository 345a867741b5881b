//! Accepting connections, and an orderly shutdown.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::shutdown::{Shutdown, until_true};
use crate::slots::Slots;
use crate::tls::Tls;
use settee_settings::{Settings, chttpd};

use crate::connection::{self, Accepted, Handler, Service};
use crate::request_permits::RequestPermits;

/// Open requests have this time to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);

pub enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Tls),
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

#[must_use]
pub fn connections_max(settings: &dyn Settings) -> u64 {
    chttpd::MAX_CONNECTIONS.of(settings).max(1)
}

/// Serves at most `connections` at once, until `shutdown` starts and open requests have finished or timed out.
pub async fn serve(handler: Arc<dyn Handler>, listeners: Vec<Listener>, connections: u64, shutdown: Shutdown) {
    let most = usize::try_from(connections).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
    let slots = Slots::new(most);
    let service = Arc::new(Service { handler: Arc::clone(&handler), request_permits: RequestPermits::default() });
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept_all(Arc::clone(&service), listener, Arc::clone(&slots), shutdown.clone()));
    }
    let mut connections = accepting.join_all().await;
    handler.stop();
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

async fn accept_all(service: Arc<Service>, listener: Listener, slots: Arc<Slots>, shutdown: Shutdown) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let mut stopping = shutdown.watch();
    loop {
        // A slot is acquired only for a connected client, because idle connections are closed for it.
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
                    // Usually too many files are open: wait until some are closed.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
        while connections.try_join_next().is_some() {}
    }
}
