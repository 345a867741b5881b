//! [`Policies`]: what every request needs of the configuration, taken from it once and again when it changes.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::Settings;
use crate::authentication::policy::AuthPolicy;
use crate::browser::BrowserPolicy;
use crate::rate::RateLimit;

/// What holds for all requests.
pub(crate) struct Policy {
    /// The most bytes of a request's path and query.
    pub(crate) max_uri_length: u64,
    pub(crate) browser: BrowserPolicy,
    pub(crate) rate_limit: Option<RateLimit>,
    pub(crate) authentication: Arc<AuthPolicy>,
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
        Self {
            max_uri_length: settings.number("chttpd", "max_uri_length", 8000),
            browser: BrowserPolicy::of(settings),
            rate_limit: RateLimit::of(settings),
            authentication: Arc::new(AuthPolicy::of(settings)),
        }
    }
}
