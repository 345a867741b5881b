//! Requests of other nodes of the cluster: they prove with a token that they know the secret of the store. Who does not is refused,
//! whatever else the request has.

use std::borrow::Cow;

use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method};
use settee_auth::{ADMIN_ROLE, UserContext, node_token_matches};
use settee_settings::cluster;

use super::Authentication;
use crate::Error;
use crate::head::RequestHead;
use crate::origin::{Peer, Scheme};

/// The header with the token.
pub(crate) const TOKEN: HeaderName = HeaderName::from_static("x-settee-node");

/// The role that tells requests of nodes, which are answered for this node alone, from those of clients.
pub(crate) const NODE_ROLE: &str = "_node";

/// The header that tells for which client a node asks, beside a token for that: the scheme of the client's address of this server, and
/// the client's own address. Who answers such a request says so with the same header: [`TAKEN`] or [`BUSY`].
pub(crate) const CLIENT: HeaderName = HeaderName::from_static("x-settee-client");

/// The request was taken.
pub(crate) const TAKEN: HeaderValue = HeaderValue::from_static("1");

/// It was taken by a node that has much to do: others should write as well.
pub(crate) const BUSY: HeaderValue = HeaderValue::from_static("busy");

/// The node that sends the request for itself, if it is one: an administrator. The administrator for whom it asks was judged there.
pub(super) fn user(
    parts: &Authentication,
    head: &RequestHead,
    headers: &HeaderMap,
) -> Result<Option<UserContext>, Error> {
    if headers.contains_key(CLIENT) || !is_of_node(parts, head, headers)? {
        return Ok(None);
    }
    Ok(Some(UserContext { name: None, roles: vec![ADMIN_ROLE.to_owned(), NODE_ROLE.to_owned()] }))
}

/// The client for whom a node sends the request, who is to be judged as if the request had come from there.
pub(crate) fn client(parts: &Authentication, head: &RequestHead, headers: &HeaderMap) -> Result<Option<Peer>, Error> {
    if !headers.contains_key(CLIENT) || !is_of_node(parts, head, headers)? {
        return Ok(None);
    }
    let told = text(headers, &CLIENT).and_then(|client| client.split_once(' '));
    let peer = told.and_then(|(scheme, ip)| Some(Peer { ip: ip.parse().ok()?, scheme: Scheme::named(scheme)? }));
    peer.map(Some).ok_or_else(refused)
}

/// Whether a node sends the request.
fn is_of_node(parts: &Authentication, head: &RequestHead, headers: &HeaderMap) -> Result<bool, Error> {
    if !headers.contains_key(TOKEN) {
        return Ok(false);
    }
    let secret = cluster::SECRET.text(parts.settings.as_ref()).filter(|_| parts.has_nodes).ok_or_else(refused)?;
    let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
    let now_s = (parts.clock_ms)() / 1000;
    let purpose = purpose(&head.method, text(headers, &CLIENT));
    let token = text(headers, &TOKEN).unwrap_or_default();
    if node_token_matches(secret.as_bytes(), token, &purpose, target, now_s) { Ok(true) } else { Err(refused()) }
}

/// What a token is for, beside the target: one for a client's request is none for a node's own.
pub(crate) fn purpose<'a>(method: &'a Method, client: Option<&str>) -> Cow<'a, str> {
    client.map_or(Cow::Borrowed(method.as_str()), |client| Cow::Owned(format!("{method} for {client}")))
}

/// The text of [`CLIENT`].
pub(crate) fn told_client(client: Peer) -> String {
    format!("{} {}", client.scheme.name(), client.ip)
}

fn refused() -> Error {
    Error::unauthorized("This is no token of a node of this cluster.")
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
