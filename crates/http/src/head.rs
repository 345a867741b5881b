//! [`RequestHead`]: the head of a request as far as everybody needs it, and [`Seen`]: what becomes known of the request on
//! its way.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use hyper::header::HeaderName;
use hyper::{Method, Uri};
use settee_database::Tally;

use crate::auth_policy::Handler;
use crate::budget::Account;
use crate::origin::{Peer, Scheme};

/// The name of a request in logs, as its client gave it or as it is told.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");

/// The request, and who sent it.
#[derive(Clone, Debug)]
pub(crate) struct RequestHead {
    /// The method in effect; HEAD counts as GET.
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    /// The address of the client.
    pub(crate) peer: IpAddr,
    /// The beginning of the client's address of this server.
    pub(crate) scheme: Scheme,
    /// The path that the client asked for, if a rewrite led elsewhere, and how many did.
    pub(crate) requested: Option<String>,
    pub(crate) rewrites: u64,
    /// How the user was found out.
    pub(crate) handler: Option<Handler>,
    /// Where is noted what becomes known of the request.
    pub(crate) seen: Arc<Seen>,
    /// The memory that is kept for its client.
    pub(crate) account: Arc<Account>,
}

impl RequestHead {
    /// A request as its client has sent it.
    pub(crate) fn of_client(method: Method, uri: Uri, client: Peer, seen: Arc<Seen>, account: Arc<Account>) -> Self {
        let Peer { ip: peer, scheme } = client;
        Self { method, uri, peer, scheme, handler: None, requested: None, rewrites: 0, seen, account }
    }
}

/// The facts that become known of a request on its way.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) route: OnceLock<&'static str>,
    pub(crate) user: OnceLock<String>,
    /// The time that the body took to come, in microseconds.
    body_us: AtomicU64,
    /// Whether it was looked at: this node knew what there was to know for that.
    is_judged: AtomicBool,
    /// Its place among the small writes that are under way.
    under_way: OnceLock<Arc<()>>,
    /// What was read for it.
    pub(crate) tally: Arc<Tally>,
}

impl Seen {
    /// The request is for this resource. The first one counts: rewrites lead to further ones.
    pub(crate) fn set_route(&self, route: &'static str) {
        let _ = self.route.set(route);
    }

    /// The body was read from one time to another.
    pub(crate) fn set_body_time(&self, from_us: u64, until_us: u64) {
        self.body_us.store(until_us.saturating_sub(from_us), Ordering::Relaxed);
    }

    pub(crate) fn body_ms(&self) -> u64 {
        self.body_us.load(Ordering::Relaxed) / 1000
    }

    /// The request is looked at.
    pub(crate) fn set_judged(&self) {
        self.is_judged.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_judged(&self) -> bool {
        self.is_judged.load(Ordering::Relaxed)
    }

    /// It is one of the writes that share `writing`, until it ends.
    pub(crate) fn set_under_way(&self, writing: &Arc<()>) {
        let _ = self.under_way.set(Arc::clone(writing));
    }

    pub(crate) fn set_user(&self, name: &str) {
        let _ = self.user.set(name.to_owned());
    }
}

/// CouchDB's own method.
pub(crate) fn copy() -> Method {
    Method::from_bytes(b"COPY").expect("COPY is a token")
}
