//! [`RequestHead`]: the head of a request, and [`Seen`]: facts that are collected during its processing.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hyper::header::HeaderName;
use hyper::{Method, Uri};
use settee_database::Tally;
use settee_edge::budget::Account;
use settee_edge::origin::{Peer, Scheme};

use crate::auth_policy::Handler;

pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");

#[derive(Clone, Debug)]
pub(crate) struct RequestHead {
    /// The effective method; HEAD is represented as GET.
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) peer: IpAddr,
    pub(crate) scheme: Scheme,
    /// The path that the client requested, if it was rewritten, and the number of rewrites.
    pub(crate) requested: Option<String>,
    pub(crate) rewrites: u64,
    pub(crate) handler: Option<Handler>,
    pub(crate) seen: Arc<Seen>,
    pub(crate) account: Arc<Account>,
}

impl RequestHead {
    pub(crate) fn of_client(method: Method, uri: Uri, client: Peer, seen: Arc<Seen>, account: Arc<Account>) -> Self {
        let Peer { ip: peer, scheme } = client;
        Self { method, uri, peer, scheme, handler: None, requested: None, rewrites: 0, seen, account }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) route: OnceLock<&'static str>,
    pub(crate) user: OnceLock<String>,
    body_us: AtomicU64,
    pub(crate) tally: Arc<Tally>,
}

impl Seen {
    /// Sets the resource. Only the first call has an effect, because rewrites lead to further resources.
    pub(crate) fn set_route(&self, route: &'static str) {
        let _ = self.route.set(route);
    }

    pub(crate) fn set_body_time(&self, from_us: u64, until_us: u64) {
        self.body_us.store(until_us.saturating_sub(from_us), Ordering::Relaxed);
    }

    pub(crate) fn body_ms(&self) -> u64 {
        self.body_us.load(Ordering::Relaxed) / 1000
    }

    pub(crate) fn set_user(&self, name: &str) {
        let _ = self.user.set(name.to_owned());
    }
}

pub(crate) fn copy() -> Method {
    Method::from_bytes(b"COPY").expect("COPY is a token")
}
