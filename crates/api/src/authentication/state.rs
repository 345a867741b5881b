//! [`Authentication`]: the parts of the server that all handlers of authentication use.

use std::sync::Arc;

use settee_auth::Authenticator;
use settee_service::{Hashers, Users, Writer};
use settee_settings::{Derived, Settings};

use super::jwt::Keys;
use super::node::NodeTokens;
use super::secrets::Secrets;
use crate::auth_policy::AuthPolicy;

pub(crate) struct Authentication {
    pub(crate) settings: Arc<dyn Settings>,
    pub(crate) authenticator: Authenticator,
    pub(crate) users: Arc<Users>,
    pub(crate) writer: Arc<Writer>,
    pub(crate) hashers: Arc<Hashers>,
    pub(crate) keys: Keys,
    pub(crate) clock_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub(crate) policy: Derived<AuthPolicy>,
    pub(crate) secrets: Secrets,
    pub(crate) has_nodes: bool,
    pub(crate) node_tokens: NodeTokens,
}

impl Authentication {
    pub(crate) fn policy(&self) -> Arc<AuthPolicy> {
        self.policy.current(self.settings.as_ref(), AuthPolicy::of)
    }
}
