//! Authentication of requests between nodes of the cluster. A node proves with a token that it has the secret
//! of the store. A request with an invalid token is refused, whatever other credentials it has. The token
//! covers the method, the target, the body and the headers that nodes read ([`COVERED`]); all other headers
//! are dropped. An attacker on the network can therefore neither change a request nor replay it. The token of a
//! forwarded request of a client does not cover its body (module `forwarding`).

use hyper::header::{self, HeaderName};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Uri};
use settee_auth::{ADMIN_ROLE, NodeRequest, NodeToken, SeenTokens, UserContext};

use super::state::Authentication;
use crate::Error;
use crate::head::RequestHead;

pub(crate) const TOKEN: HeaderName = HeaderName::from_static("x-settee-node");

/// The role of requests of nodes, which are answered for this node alone.
pub(crate) const NODE_ROLE: &str = "_node";

pub(crate) const COVERED: [HeaderName; 6] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    HeaderName::from_static("x-couch-persist"),
    HeaderName::from_static("x-settee-applies"),
    HeaderName::from_static("x-settee-client"),
    HeaderName::from_static("x-settee-sender"),
];

#[derive(Debug)]
pub(crate) struct NodeTokens {
    pub(crate) receiver: String,
    pub(crate) seen: SeenTokens,
}

pub(crate) fn covered_text(headers: &HeaderMap) -> Vec<u8> {
    let mut text = Vec::new();
    for name in &COVERED {
        for value in headers.get_all(name) {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.push(b'\n');
        }
    }
    text
}

pub(crate) fn covered(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in COVERED {
        for value in headers.get_all(&name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// Returns an administrator: the sending node has authorized the user. The caller must verify the body.
pub(super) fn user(
    parts: &Authentication,
    head: &RequestHead,
    headers: &HeaderMap,
) -> Result<Option<(UserContext, NodeToken)>, Error> {
    if !headers.contains_key(TOKEN) {
        return Ok(None);
    }
    let token = require_token(parts, &head.method, &head.uri, headers)?;
    Ok(Some((UserContext { name: None, roles: vec![ADMIN_ROLE.to_owned(), NODE_ROLE.to_owned()] }, token)))
}

/// Returns an error if the request is not from another node. The body is not verified.
pub(crate) fn require_node(parts: &Authentication, request: &Parts) -> Result<(), Error> {
    require_token(parts, &request.method, &request.uri, &request.headers).map(|_| ())
}

pub(crate) fn require_body(token: &NodeToken, body: &[u8]) -> Result<(), Error> {
    if token.covers(body) { Ok(()) } else { Err(refused()) }
}

fn require_token(parts: &Authentication, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<NodeToken, Error> {
    let policy = parts.policy();
    let secret = policy.node_secret.as_ref().filter(|_| parts.has_nodes).ok_or_else(refused)?;
    let request = NodeRequest {
        receiver: &parts.node_tokens.receiver,
        method: method.as_str(),
        target: uri.path_and_query().map_or("/", |target| target.as_str()),
        headers: &covered_text(headers),
    };
    let now_s = (parts.clock_ms)() / 1000;
    let token = headers.get(&TOKEN).and_then(|token| NodeToken::parse(token.to_str().ok()?)).ok_or_else(refused)?;
    let is_valid = token.matches(secret.as_bytes(), &request, now_s) && parts.node_tokens.seen.take(&token, now_s);
    if is_valid { Ok(token) } else { Err(refused()) }
}

fn refused() -> Error {
    Error::unauthorized("This is no token of a node of this cluster.")
}
