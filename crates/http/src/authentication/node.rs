//! Requests of other nodes of the cluster: they prove with a token that they know the secret of the store. Who does not is refused,
//! whatever else the request has.

use hyper::HeaderMap;
use hyper::header::HeaderName;
use settee_auth::{ADMIN_ROLE, UserContext, node_token_matches};
use settee_settings::cluster;

use super::Authentication;
use crate::Error;
use crate::head::RequestHead;

/// The header with the token.
pub(crate) const TOKEN: HeaderName = HeaderName::from_static("x-settee-node");

/// The role that tells requests of nodes, which are answered for this node alone, from those of clients.
pub(crate) const NODE_ROLE: &str = "_node";

/// The node that sends the request, if it is one: an administrator. The administrator for whom it asks was judged there.
pub(super) fn user(
    parts: &Authentication,
    head: &RequestHead,
    headers: &HeaderMap,
) -> Result<Option<UserContext>, Error> {
    let Some(token) = headers.get(TOKEN) else { return Ok(None) };
    let refused = || Error::unauthorized("This is no token of a node of this cluster.");
    let secret = cluster::SECRET.text(parts.settings.as_ref()).filter(|_| parts.has_nodes).ok_or_else(refused)?;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let now_s = (parts.clock_ms)() / 1000;
    let is_good = token
        .to_str()
        .is_ok_and(|token| node_token_matches(secret.as_bytes(), token, head.method.as_str(), target, now_s));
    let roles = vec![ADMIN_ROLE.to_owned(), NODE_ROLE.to_owned()];
    if is_good { Ok(Some(UserContext { name: None, roles })) } else { Err(refused()) }
}
