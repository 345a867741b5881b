//! [`Policy`]: settings that every request needs, cached until a setting changes.

use std::time::Duration;

use hyper::header::{self, HeaderName};

use settee_edge::origin::Forwarded;
use settee_edge::proxies::TrustedProxies;
use settee_edge::rate::RateLimit;
use settee_settings::{Settings, chttpd};

use crate::attachments;
use crate::browser::BrowserPolicy;
use crate::limits::Limits;
use crate::params::Plus;

pub(crate) struct Policy {
    pub(crate) max_uri_length: u64,
    pub(crate) max_body_bytes: usize,
    pub(crate) receive_timeout: Duration,
    /// Time for which a client may receive nothing of a response.
    pub(crate) send_timeout: Duration,
    pub(crate) documents: Limits,
    pub(crate) attachments: attachments::Policy,
    pub(crate) browser: BrowserPolicy,
    pub(crate) plus: Plus,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) forwarded: Forwarded,
    pub(crate) trusted_proxies: TrustedProxies,
    pub(crate) allows_jsonp: bool,
    pub(crate) reports_versions: bool,
    pub(crate) minimal_headers: Vec<HeaderName>,
}

impl Policy {
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        Self {
            max_uri_length: chttpd::MAX_URI_LENGTH.of(settings),
            max_body_bytes: usize::try_from(chttpd::MAX_HTTP_REQUEST_SIZE.of(settings)).unwrap_or(usize::MAX),
            receive_timeout: Duration::from_millis(chttpd::RECEIVE_TIMEOUT_MS.of(settings)),
            send_timeout: Duration::from_millis(chttpd::SEND_TIMEOUT_MS.of(settings)),
            documents: Limits::of(settings),
            attachments: attachments::Policy::of(settings),
            browser: BrowserPolicy::of(settings),
            plus: if chttpd::DECODE_PLUS_TO_SPACE.of(settings) { Plus::Space } else { Plus::Plus },
            rate_limit: RateLimit::of(settings),
            forwarded: Forwarded::of(settings),
            trusted_proxies: TrustedProxies::of(settings),
            allows_jsonp: chttpd::ALLOW_JSONP.of(settings),
            reports_versions: chttpd::SERVER_HEADER_VERSIONS.of(settings),
            minimal_headers: minimal_headers(settings),
        }
    }
}

fn minimal_headers(settings: &dyn Settings) -> Vec<HeaderName> {
    let names = chttpd::PREFER_MINIMAL.of(settings);
    // Without `Connection` a client would wait on a connection that is closed.
    names.split(',').filter_map(|name| name.trim().parse().ok()).chain([header::CONNECTION]).collect()
}
