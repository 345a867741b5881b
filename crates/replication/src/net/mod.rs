//! [`Network`]: access to databases of other servers, over sockets, TLS and proxies.
//!
//! All replications share connections, which are kept for a limited time; feeds have connections of their own
//! ([`lasting`]). The number of concurrent exchanges of a replication with a peer is limited by a setting of the
//! replication. An exchange without progress is aborted after a timeout. Redirects are followed as by CouchDB, but
//! credentials are sent only to their own host. This module does not retry.

mod connector;
mod exchange;
mod lasting;
mod proxy;
mod reach;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use settee_tls::{Identity, Trust};
use tokio::sync::Semaphore;

use crate::endpoint::{Endpoint, User};
use crate::transport::{Body, BoxFuture, Connect, Transport, TransportError};
use crate::tuning::{SocketOptions, Tuning};
use connector::Connector;
use proxy::Proxy;
use reach::Reach;

const IDLE: Duration = Duration::from_secs(20);

/// Maximum number of idle connections to a host: the default number of connections of one replication.
const IDLE_CONNECTIONS: usize = 20;

/// Maximum number of cached routes, each with its connections. A route is a combination of proxy, socket options and
/// permitted addresses.
const WAYS_MAX: usize = 64;

#[derive(Default)]
pub struct Options {
    pub trust: Trust,
    /// The client certificate.
    pub identity: Option<Identity>,
    pub sockets: SocketOptions,
}

/// Returns true if a user may make this server connect to addresses that are not public.
pub type ReachesPrivate = Arc<dyn Fn(&User) -> bool + Send + Sync>;

pub struct Network {
    reaches_private: ReachesPrivate,
    state: Mutex<State>,
}

struct State {
    tls: Arc<rustls::ClientConfig>,
    sockets: SocketOptions,
    ways: HashMap<(Option<String>, SocketOptions, Reach), Way>,
}

/// Route: the connector, and the client with its connections.
#[derive(Clone)]
struct Way {
    client: Client<Connector, Body>,
    connector: Connector,
}

impl Network {
    /// Creates a network with these options.
    ///
    /// # Errors
    /// If the key does not match the client certificate.
    pub fn new(options: &Options, reaches_private: ReachesPrivate) -> Result<Self, TransportError> {
        let tls = client_config(options)?;
        let state = State { tls, sockets: options.sockets, ways: HashMap::new() };
        Ok(Self { reaches_private, state: Mutex::new(state) })
    }

    /// Changes the options for new connections.
    ///
    /// # Errors
    /// If the key does not match the client certificate; the previous options then stay in force.
    pub fn configure(&self, options: &Options) -> Result<(), TransportError> {
        let tls = client_config(options)?;
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

fn client_config(options: &Options) -> Result<Arc<rustls::ClientConfig>, TransportError> {
    let config = settee_tls::client_config(&options.trust, options.identity.as_ref());
    let unusable = |error| TransportError::Tls(format!("the client certificate and its key: {error}"));
    config.map(Arc::new).map_err(unusable)
}

impl Connect for Network {
    fn connect(&self, endpoint: &Endpoint, tuning: &Tuning) -> Result<Arc<dyn Transport>, TransportError> {
        let Endpoint::Remote(remote) = endpoint else {
            return Err(TransportError::Unusable("a database of this server is not reached by the network".to_owned()));
        };
        let timeout = Duration::from_millis(tuning.connection_timeout_ms);
        let proxy = remote.proxy.as_deref();
        // The requests contain the proxy's credentials only if the proxy reads the requests.
        let authorization = match proxy.filter(|_| remote.scheme == "http").map(Proxy::parse).transpose()? {
            Some(proxy) if proxy.reads_requests() => proxy.authorization(),
            Some(_) | None => None,
        };
        let reach = if (self.reaches_private)(&remote.user) { Reach::Everything } else { Reach::Public };
        Ok(Arc::new(Peering {
            way: self.way(proxy, tuning.socket_options, reach)?,
            authorization,
            // One additional permit, because a feed holds one permanently.
            connections: Arc::new(Semaphore::new(tuning.http_connections.saturating_add(1))),
            timeout,
        }))
    }
}

struct Peering {
    way: Way,
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
