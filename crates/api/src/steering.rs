//! Write forwarding: small writes to databases that several nodes write to are handled by the preferred node
//! ([`steer`]). It combines into one commit what several nodes would commit one after the other, and handles
//! requests as if their clients were connected to it.
//!
//! Forwarding is an optimization only: every node may make a write itself, and does so if the preferred node
//! is unresponsive or fails. If that node may have made the write already and the second attempt conflicts,
//! the response is an error, because the outcome is in doubt.

use std::sync::Arc;

use hyper::{HeaderMap, Method, StatusCode, Uri, header};
use settee_database::members::Node as Member;
use settee_edge::body::inbound::Inbound;
use settee_edge::body::{self, timeout::ReceiveTimeout};
use settee_edge::budget::Account;
use settee_edge::origin::Peer;
use settee_replication::TransportError;

use crate::Error;
use crate::authentication::TOKEN;
use crate::handover::{self, HandedOver, forwarding};
use crate::head::Seen;
use crate::health_probe;
use crate::limits::SMALL_BODY_BYTES_MAX;
use crate::metrics::Count;
use crate::node::Node;
use crate::nodes::ALIVE;
use crate::optimistic;
use crate::request::Unread;
use crate::respond::{self, Response};
use crate::router::Router;

/// A request of which only the head was read.
pub(crate) struct Arriving<'a> {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Peer,
    /// The request id in logs.
    pub(crate) id: &'a str,
    pub(crate) seen: Arc<Seen>,
    pub(crate) account: Arc<Account>,
}

/// The result of [`steer`].
pub(crate) enum Steered {
    /// The request must be handled by this node.
    Here(Unread),
    /// The request must be handled by this node, and may have been handled already by another one.
    Again(Unread, Doubt),
    Answered(Response),
}

/// A write that a failed node may have made, and that is retried by this node.
pub(crate) struct Doubt {
    writer: String,
    is_deletion: bool,
}

impl Doubt {
    /// Replaces the response by an in-doubt error if the retry has failed, or may have failed because of the
    /// first attempt: it conflicts with itself, or the document to delete does not exist.
    pub(crate) fn resolve(self, response: Response) -> Response {
        let may_be_made = match response.status() {
            StatusCode::CONFLICT => true,
            StatusCode::NOT_FOUND => self.is_deletion,
            status => status.is_server_error(),
        };
        if may_be_made { respond::error(&Error::in_doubt(&self.writer)) } else { response }
    }
}

/// Forwards a request to the preferred node of its database, if that is another node. Health probes are
/// answered immediately.
pub(crate) async fn steer(node: &Arc<Node>, router: &Router, request: &Arriving<'_>, body: Inbound) -> Steered {
    // Health probes are answered before the token is verified, because that may have to wait for the store.
    if request.uri.path() == ALIVE && node.nodes.is_cluster() && request.headers.contains_key(TOKEN) {
        return Steered::Answered(respond::json(StatusCode::OK, b"{}".to_vec()));
    }
    let Some(writer) = writer_elsewhere(node, router, request, &body) else {
        return Steered::Here(Unread::Incoming(body));
    };
    let Ok(_place) = node.nodes.handing_over.try_acquire() else { return Steered::Here(Unread::Incoming(body)) };
    let timeout = ReceiveTimeout::new(node.policy().receive_timeout);
    let body = match body::read(body, &request.headers, SMALL_BODY_BYTES_MAX, timeout, &request.account).await {
        Ok(body) => body,
        Err(error) => return Steered::Answered(respond::error(&error.into())),
    };
    let Some(frame) =
        handover::frame_of((&request.method, &request.uri, &request.headers), (request.peer, request.id), &body)
    else {
        return Steered::Here(Unread::Known(body));
    };
    let asked = forwarding::hand_over(&node.nodes, &writer, frame);
    let why = match health_probe::while_alive(&node.nodes, &writer, asked).await {
        Some(Ok(HandedOver::Answered(response, user))) => {
            node.metrics.count(Count::HandedOver);
            user.iter().for_each(|name| request.seen.set_user(name));
            return Steered::Answered(response);
        }
        // The request was not handled: the other node has another version, clock or secret, or no store.
        Some(Ok(HandedOver::Refused) | Err(TransportError::Unusable(_))) => {
            return Steered::Here(Unread::Known(body));
        }
        // The request was not sent.
        Some(Err(TransportError::Refused(_) | TransportError::Tls(_))) => {
            health_probe::mark_unresponsive(&node.nodes, &writer);
            return Steered::Here(Unread::Known(body));
        }
        Some(Err(error @ (TransportError::Broken(_) | TransportError::Timeout))) => {
            health_probe::mark_unresponsive(&node.nodes, &writer);
            error.to_string()
        }
        None => "it does not answer health probes".to_owned(),
    };
    tracing::warn!(
        request = request.id,
        node = writer.name,
        why,
        "the node to which a write was forwarded does not respond"
    );
    // Retries like a client or a proxy. A retry of a completed write conflicts, except where the server
    // generates the id.
    if request.method != Method::POST {
        let doubt = Doubt { writer: writer.name, is_deletion: request.method == Method::DELETE };
        return Steered::Again(Unread::Known(body), doubt);
    }
    Steered::Answered(respond::error(&Error::in_doubt(&writer.name)))
}

/// Returns the node to which a request must be forwarded.
fn writer_elsewhere(node: &Node, router: &Router, request: &Arriving<'_>, body: &Inbound) -> Option<Member> {
    let Arriving { method, uri, headers, seen, .. } = request;
    // Requests of nodes are handled here, which prevents forwarding loops. Requests without `Host` are not
    // forwarded because URLs in responses need it.
    if headers.contains_key(TOKEN) || !headers.contains_key(header::HOST) {
        return None;
    }
    let (path, database) = optimistic::small_write(node, router, (method, uri, headers), body)?;
    if !database.yields_write() {
        return None;
    }
    let best = node.nodes.writer(&database)?;
    if best.name == node.nodes.own || best.address.is_empty() {
        return None;
    }
    // A node must have answered a health probe before requests are sent to it.
    if !node.nodes.health_probes.is_there(best.id) {
        health_probe::mark_unresponsive(&node.nodes, &best);
        return None;
    }
    seen.set_route(path);
    Some(best)
}
