//! Authentication of requests between nodes of the cluster. A node proves with a token that it has the secret
//! of the store. A request with an invalid token is refused, whatever other credentials it has. The token
//! covers the method, the target, the body and the headers that nodes read ([`COVERED`]); all other headers
//! are dropped. An attacker on the network can therefore neither change a request nor replay it.

use hyper::header::{self, HeaderName};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Uri};
use settee_auth::{ADMIN_ROLE, NodeRequest, NodeToken, SeenTokens, UserContext};

use super::Authentication;
use crate::Error;
use crate::head::RequestHead;

pub(crate) const TOKEN: HeaderName = HeaderName::from_static("x-settee-node");

/// The role of requests of nodes, which are answered for this node alone.
pub(crate) const NODE_ROLE: &str = "_node";

/// The headers of requests between nodes that the receiver reads.
pub(crate) const COVERED: [HeaderName; 4] = [
    header::ACCEPT,
    header::CONTENT_TYPE,
    HeaderName::from_static("x-couch-persist"),
    HeaderName::from_static("x-settee-applies"),
];

/// State for the verification of tokens sent to this node.
#[derive(Debug)]
pub(crate) struct NodeTokens {
    /// The name of this node.
    pub(crate) receiver: String,
    pub(crate) seen: SeenTokens,
}

/// Returns the covered headers as both sides compute them.
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

/// Returns the headers of a request of a node that its token covers.
pub(crate) fn covered(headers: &HeaderMap) -> HeaderMap {
    let mut kept = HeaderMap::new();
    for name in COVERED {
        for value in headers.get_all(&name) {
            kept.append(name.clone(), value.clone());
        }
    }
    kept
}

/// Returns the user of a request that another node sends: an administrator. The sending node has authorized
/// the administrator on whose behalf it asks. The caller must verify the body.
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

/// Returns an error if the request is not from another node. The caller must verify the body with
/// [`require_body`].
pub(crate) fn require_node(parts: &Authentication, request: &Parts) -> Result<NodeToken, Error> {
    require_token(parts, &request.method, &request.uri, &request.headers)
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
