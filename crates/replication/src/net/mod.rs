//! [`Network`]: access to databases of other servers, over sockets, TLS and proxies. All replications share
//! connections; feeds have connections of their own ([`long_lived`]). An exchange without progress is aborted after a
//! timeout. Redirects are followed as in CouchDB, but credentials are sent only to their own host. No retries.

mod addresses;
mod connector;
mod exchange;
mod long_lived;
mod proxy;

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
use addresses::AllowedAddresses;
use connector::Connector;
use proxy::Proxy;

const IDLE_TIMEOUT: Duration = Duration::from_secs(20);

const IDLE_CONNECTIONS: usize = 100;

/// Maximum number of cached routes, each with its connections.
const ROUTES_MAX: usize = 64;

#[derive(Default)]
pub struct Options {
    pub trust: Trust,
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
    routes: HashMap<(Option<String>, SocketOptions, AllowedAddresses), Route>,
}

#[derive(Clone)]
struct Route {
    client: Client<Connector, Body>,
    connector: Connector,
}

impl Network {
    /// Fails if the key does not match the client certificate.
    pub fn new(options: &Options, reaches_private: ReachesPrivate) -> Result<Self, TransportError> {
        let tls = client_config(options)?;
        let state = State { tls, sockets: options.sockets, routes: HashMap::new() };
        Ok(Self { reaches_private, state: Mutex::new(state) })
    }

    /// Applies to new connections. Fails, without a change, if the key does not match the client certificate.
    pub fn configure(&self, options: &Options) -> Result<(), TransportError> {
        let tls = client_config(options)?;
        *self.state.lock() = State { tls, sockets: options.sockets, routes: HashMap::new() };
        Ok(())
    }

    fn route(
        &self,
        proxy: Option<&str>,
        sockets: Option<SocketOptions>,
        allowed: AllowedAddresses,
    ) -> Result<Route, TransportError> {
        let mut state = self.state.lock();
        let sockets = sockets.unwrap_or(state.sockets);
        let key = (proxy.map(str::to_owned), sockets, allowed);
        if let Some(route) = state.routes.get(&key) {
            return Ok(route.clone());
        }
        if state.routes.len() >= ROUTES_MAX {
            state.routes.clear();
        }
        let proxy = proxy.map(Proxy::parse).transpose()?.map(Arc::new);
        let connector = Connector { tls: Arc::clone(&state.tls), sockets, proxy, allowed };
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .pool_timer(TokioTimer::new())
            .build(connector.clone());
        let route = Route { client, connector };
        state.routes.insert(key, route.clone());
        Ok(route)
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
        // Requests contain the proxy's credentials only if the proxy reads the requests.
        let authorization = match proxy.filter(|_| remote.scheme == "http").map(Proxy::parse).transpose()? {
            Some(proxy) if proxy.reads_requests() => proxy.authorization(),
            Some(_) | None => None,
        };
        let allowed =
            if (self.reaches_private)(&remote.user) { AllowedAddresses::All } else { AllowedAddresses::Public };
        Ok(Arc::new(RemoteTransport {
            route: self.route(proxy, tuning.socket_options, allowed)?,
            authorization,
            // A feed holds one permit permanently.
            connections: Arc::new(Semaphore::new(tuning.http_connections.saturating_add(1))),
            timeout,
        }))
    }
}

struct RemoteTransport {
    route: Route,
    authorization: Option<http::HeaderValue>,
    connections: Arc<Semaphore>,
    timeout: Duration,
}

impl Transport for RemoteTransport {
    fn call(&self, request: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
        Box::pin(exchange::call(self, request))
    }
}

#[cfg(test)]
mod tests;
