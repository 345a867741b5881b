//! Requests of other nodes of the cluster: they prove with a token that they know the secret of the store. Who does not is refused,
//! whatever else the request has.

use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Uri};
use settee_auth::{ADMIN_ROLE, UserContext, node_token_matches};

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
    if !headers.contains_key(TOKEN) {
        return Ok(None);
    }
    require_token(parts, &head.method, &head.uri, headers)?;
    Ok(Some(UserContext { name: None, roles: vec![ADMIN_ROLE.to_owned(), NODE_ROLE.to_owned()] }))
}

/// Refuses a request that is not of another node.
pub(crate) fn require_node(parts: &Authentication, request: &Parts) -> Result<(), Error> {
    require_token(parts, &request.method, &request.uri, &request.headers)
}

fn require_token(parts: &Authentication, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<(), Error> {
    let policy = parts.policy();
    let secret = policy.node_secret.as_ref().filter(|_| parts.has_nodes).ok_or_else(refused)?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let now_s = (parts.clock_ms)() / 1000;
    let token = headers.get(&TOKEN).and_then(|token| token.to_str().ok()).unwrap_or_default();
    let matches = node_token_matches(secret.as_bytes(), token, method.as_str(), target, now_s);
    if matches { Ok(()) } else { Err(refused()) }
}

fn refused() -> Error {
    Error::unauthorized("This is no token of a node of this cluster.")
}
