//! [`Policies`]: what every request needs of the configuration, taken from it once and again when it changes.

use std::sync::Arc;

use std::time::Duration;

use hyper::header::{self, HeaderName};
use parking_lot::Mutex;

use crate::authentication::policy::AuthPolicy;
use crate::browser::BrowserPolicy;
use crate::origin::Forwarded;
use crate::params::Plus;
use crate::rate::RateLimit;
use crate::routes::write;
use crate::{Settings, attachments};

/// CouchDB's `[chttpd] prefer_minimal`.
const MINIMAL_HEADERS: &str =
    "Cache-Control, Content-Length, Content-Range, Content-Type, ETag, Server, Transfer-Encoding, Vary";

/// What holds for all requests.
pub(crate) struct Policy {
    /// The most bytes of a request's path and query.
    pub(crate) max_uri_length: u64,
    /// The most bytes of a body that is read as a whole.
    pub(crate) max_body_bytes: usize,
    /// How long a client may take for the next piece of a body.
    pub(crate) receive_timeout: Duration,
    /// How long a client may take nothing of an answer.
    pub(crate) send_timeout: Duration,
    pub(crate) documents: write::Limits,
    pub(crate) attachments: attachments::Policy,
    pub(crate) browser: BrowserPolicy,
    /// What a plus sign in a path stands for.
    pub(crate) plus: Plus,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) authentication: Arc<AuthPolicy>,
    pub(crate) forwarded: Forwarded,
    /// Whether answers may be calls of functions that pages name.
    pub(crate) allows_jsonp: bool,
    /// Whether the header `Server` tells versions.
    pub(crate) tells_versions: bool,
    /// The headers that an answer keeps if its client prefers a short one.
    pub(crate) minimal_headers: Vec<HeaderName>,
}

/// The policy of the configuration as it is.
#[derive(Default)]
pub(crate) struct Policies(Mutex<Option<(u64, Arc<Policy>)>>);

impl Policies {
    pub(crate) fn current(&self, settings: &dyn Settings) -> Arc<Policy> {
        // Taken before the values: who changes them meanwhile is seen the next time.
        let version = settings.version();
        let mut known = self.0.lock();
        if let (Some((old, policy)), Some(version)) = (&*known, version)
            && *old == version
        {
            return Arc::clone(policy);
        }
        let policy = Arc::new(Policy::of(settings));
        *known = version.map(|version| (version, Arc::clone(&policy)));
        policy
    }
}

impl Policy {
    fn of(settings: &dyn Settings) -> Self {
        let number = |key, default| settings.number("chttpd", key, default);
        Self {
            max_uri_length: number("max_uri_length", 8000),
            max_body_bytes: usize::try_from(number("max_http_request_size", 4 << 30)).unwrap_or(usize::MAX),
            receive_timeout: Duration::from_millis(number("receive_timeout_ms", 60_000)),
            send_timeout: Duration::from_millis(number("send_timeout_ms", 300_000)),
            documents: write::Limits::of(settings),
            attachments: attachments::Policy::of(settings),
            browser: BrowserPolicy::of(settings),
            plus: if settings.switch("chttpd", "decode_plus_to_space", true) { Plus::Space } else { Plus::Plus },
            rate_limit: RateLimit::of(settings),
            authentication: Arc::new(AuthPolicy::of(settings)),
            forwarded: Forwarded::of(settings),
            allows_jsonp: settings.switch("chttpd", "allow_jsonp", false),
            tells_versions: settings.switch("chttpd", "server_header_versions", true),
            minimal_headers: minimal_headers(settings),
        }
    }
}

fn minimal_headers(settings: &dyn Settings) -> Vec<HeaderName> {
    let names = settings.effective("chttpd", "prefer_minimal").unwrap_or_else(|| MINIMAL_HEADERS.to_owned());
    // Without the last one a client would wait on a connection that is closed.
    names.split(',').filter_map(|name| name.trim().parse().ok()).chain([header::CONNECTION]).collect()
}
