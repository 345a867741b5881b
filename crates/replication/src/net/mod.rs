//! [`Network`]: the way to databases of other servers, over sockets, TLS and proxies.
//!
//! Connections are shared by all replications and kept for a while, but for those of feeds ([`lasting`]); how many exchanges one replication has with one peer at
//! a time is limited by its own setting. An exchange without a sign of life is given up. Redirects are followed as CouchDB
//! does, but credentials stay with the host that they are for. Nothing is tried again here.

mod connector;
mod exchange;
mod lasting;
mod proxy;
mod reach;
mod tls;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::endpoint::{Endpoint, User};
use crate::transport::{Body, BoxFuture, Connect, Transport, TransportError};
use crate::tuning::{SocketOptions, Tuning};
use connector::Connector;
use proxy::Proxy;
use reach::Reach;
pub use tls::{TlsOptions, Trust};

/// The time for which a connection is kept that nobody uses.
const IDLE: Duration = Duration::from_secs(20);

/// So many unused connections to one host are kept: what one replication has at a time.
const IDLE_CONNECTIONS: usize = 20;

/// So many ways are remembered, each with its connections: a way is a proxy or none, options of sockets, and what it may reach.
const WAYS_MAX: usize = 64;

/// Options of all connections.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whom to trust.
    pub tls: TlsOptions,
    /// Options of sockets.
    pub sockets: SocketOptions,
}

/// Tells whether a user may have this server connect to addresses that are not public.
pub type ReachesPrivate = Arc<dyn Fn(&User) -> bool + Send + Sync>;

/// The way to other servers.
pub struct Network {
    reaches_private: ReachesPrivate,
    state: Mutex<State>,
}

struct State {
    tls: Arc<rustls::ClientConfig>,
    sockets: SocketOptions,
    ways: HashMap<(Option<String>, SocketOptions, Reach), Way>,
}

/// The way in which connections are made, and those that there are.
#[derive(Clone)]
struct Way {
    client: Client<Connector, Body>,
    connector: Connector,
}

impl Network {
    /// A network with these options.
    ///
    /// # Errors
    /// When certificates or keys cannot be used; the text says which.
    pub fn new(options: &Options, reaches_private: ReachesPrivate) -> Result<Self, TransportError> {
        let tls = options.tls.client_config()?;
        let state = State { tls, sockets: options.sockets, ways: HashMap::new() };
        Ok(Self { reaches_private, state: Mutex::new(state) })
    }

    /// Takes other options, for connections from now on.
    ///
    /// # Errors
    /// When certificates or keys cannot be used; the options are then as before.
    pub fn configure(&self, options: &Options) -> Result<(), TransportError> {
        let tls = options.tls.client_config()?;
        *self.state.lock() = State { tls, sockets: options.sockets, ways: HashMap::new() };
        Ok(())
    }

    fn way(&self, proxy: Option<&str>, sockets: Option<SocketOptions>, reach: Reach) -> Result<Way, TransportError> {
        let mut state = self.state.lock();
        let sockets = sockets.unwrap_or(state.sockets);
        let key = (proxy.map(str::to_owned), sockets, reach);
        if let Some(way) = state.ways.get(&key) {
            return Ok(way.clone());
        }
        if state.ways.len() >= WAYS_MAX {
            state.ways.clear();
        }
        let proxy = proxy.map(Proxy::parse).transpose()?.map(Arc::new);
        let connector = Connector { tls: Arc::clone(&state.tls), sockets, proxy, reach };
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .pool_timer(TokioTimer::new())
            .build(connector.clone());
        let way = Way { client, connector };
        state.ways.insert(key, way.clone());
        Ok(way)
    }
}

impl Connect for Network {
    fn connect(&self, endpoint: &Endpoint, tuning: &Tuning) -> Result<Arc<dyn Transport>, TransportError> {
        let Endpoint::Remote(remote) = endpoint else {
            return Err(TransportError::Unusable("a database of this server is not reached by the network".to_owned()));
        };
        let timeout = Duration::from_millis(tuning.connection_timeout_ms);
        let proxy = remote.proxy.as_deref();
        // In the requests themselves only where the proxy reads them.
        let authorization = match proxy.filter(|_| remote.scheme == "http").map(Proxy::parse).transpose()? {
            Some(proxy) if proxy.reads_requests() => proxy.authorization(),
            Some(_) | None => None,
        };
        let reach = if (self.reaches_private)(&remote.user) { Reach::Everything } else { Reach::Public };
        Ok(Arc::new(Peering {
            way: self.way(proxy, tuning.socket_options, reach)?,
            authorization,
            // One more, because a feed holds one as long as it goes on.
            connections: Arc::new(Semaphore::new(tuning.http_connections.saturating_add(1))),
            timeout,
        }))
    }
}

/// The exchanges of one replication with one of its peers.
struct Peering {
    way: Way,
    /// For the proxy.
    authorization: Option<http::HeaderValue>,
    connections: Arc<Semaphore>,
    timeout: Duration,
}

impl Transport for Peering {
    fn call(&self, request: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
        Box::pin(exchange::call(self, request))
    }
}

#[cfg(test)]
mod tests;
