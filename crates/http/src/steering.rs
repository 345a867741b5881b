//! Small writes to databases that several nodes write to go to the node that all of them prefer ([`steer`]). That makes one commit of
//! what others would make several of, one after the other, and judges requests as if their clients had come to it.
//!
//! This saves time only: whoever has a write may make it, and makes it if the other one is away, or vanishes. If that may have made it, and so it
//! conflicts, the answer is an error: whether it was made is not known here, as clients of that node do not know it either.

use std::sync::Arc;

use hyper::{HeaderMap, Method, StatusCode, Uri, header};
use settee_database::members::Node as Member;
use settee_replication::TransportError;

use crate::Error;
use crate::authentication::TOKEN;
use crate::body::inbound::Inbound;
use crate::body::{self, timeout::ReceiveTimeout};
use crate::budget::Account;
use crate::handover::{self, HandedOver, couriers};
use crate::head::Seen;
use crate::limits::SMALL_BODY_BYTES_MAX;
use crate::metrics::Count;
use crate::node::Node;
use crate::nodes::ALIVE;
use crate::origin::Peer;
use crate::presume;
use crate::pulse;
use crate::request::Unread;
use crate::respond::{self, Response};
use crate::router::Router;

/// A request of which only the head was looked at.
pub(crate) struct Arriving<'a> {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) peer: Peer,
    /// Its name in logs.
    pub(crate) id: &'a str,
    pub(crate) seen: Arc<Seen>,
    pub(crate) account: Arc<Account>,
}

/// What became of a request.
pub(crate) enum Steered {
    /// It is to be served here.
    Here(Unread),
    /// It is to be served here, and may have been served already.
    Again(Unread, Doubt),
    /// It has its answer.
    Answered(Response),
}

/// A write that may have been made by a node that has vanished, and is made again.
pub(crate) struct Doubt {
    writer: String,
    is_deletion: bool,
}

impl Doubt {
    /// Says that nobody knows, where the second write is refused as it would be if it had been made before: it conflicts with itself, or what it
    /// deletes is not there.
    pub(crate) fn judge(self, response: Response) -> Response {
        let may_be_made = match response.status() {
            StatusCode::CONFLICT => true,
            StatusCode::NOT_FOUND => self.is_deletion,
            _ => false,
        };
        if may_be_made { respond::error(&Error::in_doubt(&self.writer)) } else { response }
    }
}

/// Hands a request over to the node that its database's writes are for, if there is such a node. Signs of life are given at once.
pub(crate) async fn steer(node: &Arc<Node>, router: &Router, request: &Arriving<'_>, body: Inbound) -> Steered {
    // Before it is found out whether a node asks: that may take as long as the store does.
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
        Err(error) => return Steered::Answered(respond::error(&error)),
    };
    let Some(frame) =
        handover::frame_of((&request.method, &request.uri, &request.headers), (request.peer, request.id), &body)
    else {
        return Steered::Here(Unread::Known(body));
    };
    let asked = couriers::hand_over(&node.nodes, &writer, frame);
    let why = match pulse::while_alive(&node.nodes, &writer, asked).await {
        Some(Ok(HandedOver::Answered(response, user))) => {
            node.metrics.count(Count::HandedOver);
            user.iter().for_each(|name| request.seen.set_user(name));
            return Steered::Answered(response);
        }
        // Nothing was looked at: it is of another version, has another clock or secret, or no store.
        Some(Ok(HandedOver::Refused) | Err(TransportError::Unusable(_))) => {
            return Steered::Here(Unread::Known(body));
        }
        // Nothing was sent.
        Some(Err(TransportError::Refused(_) | TransportError::Tls(_))) => {
            pulse::look_for(&node.nodes, &writer);
            return Steered::Here(Unread::Known(body));
        }
        Some(Err(error @ (TransportError::Broken(_) | TransportError::Timeout))) => {
            pulse::look_for(&node.nodes, &writer);
            error.to_string()
        }
        None => "it gives no sign of life".to_owned(),
    };
    tracing::warn!(request = request.id, node = writer.name, why, "a node vanished that was to write");
    // As its client would make it again, or a proxy. Twice it would conflict, but not where the server gives out ids.
    if request.method != Method::POST {
        let doubt = Doubt { writer: writer.name, is_deletion: request.method == Method::DELETE };
        return Steered::Again(Unread::Known(body), doubt);
    }
    Steered::Answered(respond::error(&Error::in_doubt(&writer.name)))
}

/// The node that a request is to be handed to.
fn writer_elsewhere(node: &Node, router: &Router, request: &Arriving<'_>, body: &Inbound) -> Option<Member> {
    let Arriving { method, uri, headers, seen, .. } = request;
    // What a node asks for is answered here, so nothing goes around in circles. Addresses in answers need the host that was asked for.
    if headers.contains_key(TOKEN) || !headers.contains_key(header::HOST) {
        return None;
    }
    let (path, database) = presume::small_write(node, router, (method, uri, headers), body)?;
    seen.set_under_way(&node.nodes.writing);
    let best = node.nodes.writer(&database, database.yields_write())?;
    if best.name == node.nodes.own || best.address.is_empty() {
        return None;
    }
    // Before anything is sent to a node it has shown that it can be reached.
    if !node.nodes.pulses.is_there(best.id) {
        pulse::look_for(&node.nodes, &best);
        return None;
    }
    seen.set_route(path);
    Some(best)
}
