//! Proxy authentication: a trusted reverse proxy has authenticated the user.

use hyper::HeaderMap;
use settee_auth::{UserContext, proxy_token_matches};

use super::state::Authentication;
use crate::auth_policy::AuthPolicy;

pub(super) fn user(parts: &Authentication, policy: &AuthPolicy, headers: &HeaderMap) -> Option<UserContext> {
    let header = |name: &str| headers.get(name).and_then(|value| std::str::from_utf8(value.as_bytes()).ok());
    let proxy = &policy.proxy;
    let name = header(&proxy.name_header)?;
    if proxy.needs_token {
        // Without a secret CouchDB trusts every proxy; this server trusts none.
        let token = header(&proxy.token_header)?;
        let matches = |secret: &[u8]| proxy_token_matches(secret, name, token, &policy.algorithms).then_some(());
        parts.secrets.find(policy, (parts.clock_ms)() / 1000, matches)?;
    }
    let roles = header(&proxy.roles_header).unwrap_or_default();
    let roles = roles.split(',').map(str::trim).filter(|role| !role.is_empty()).map(str::to_owned).collect();
    Some(UserContext { name: Some(name.to_owned()), roles })
}
