//! Messages between the engines of the nodes of one store. An engine whose data is served by one node per group of
//! shards ([`PeerService`](settee_database::PeerService)) answers them; [`PeerClient`] sends them. They need no account
//! and no settings: a node sends them before it can read either. The secret is that of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use settee_auth::{NodeRequest, NodeToken};
use settee_edge::body::inbound::Inbound;
use settee_edge::body::timeout::ReceiveTimeout;
use settee_edge::budget::Account;
use settee_replication::{Connect, Endpoint, TransportError, Tuning, full_body};
use settee_threads::Threads;

use crate::Error;
use crate::authentication::TOKEN;
use crate::node::Node;
use crate::nodes::remote;
use crate::respond::{self, Answer};

/// Target of all messages.
pub(crate) const TARGET: &str = "/_node/_local/_peers";

/// Maximum size of a message or an answer: a commit of documents with their attachments.
const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// The part of a message that its token covers in addition to the body. The sender need not know the name of the
/// receiver.
const REQUEST: NodeRequest<'static> = NodeRequest { receiver: "", method: "POST", target: TARGET, headers: b"" };

pub(crate) fn is_message(parts: &Parts) -> bool {
    parts.uri.path() == TARGET && parts.method == Method::POST
}

/// Answers a message of another node. The token is verified before the body is received.
pub(crate) async fn answer(node: &Arc<Node>, parts: &Parts, body: Inbound, account: &Arc<Account>) -> Answer {
    let unknown = || Error::not_found("missing");
    let engine = Arc::clone(&node.nodes.engine);
    let secret = engine.peers().map(|peers| peers.secret().to_vec()).ok_or_else(unknown)?;
    let refused = || Error::unauthorized("This is no token of a node of this store.");
    let token =
        parts.headers.get(&TOKEN).and_then(|token| NodeToken::parse(token.to_str().ok()?)).ok_or_else(refused)?;
    let now_s = (node.clock_ms)() / 1000;
    if !(token.matches(&secret, &REQUEST, now_s) && node.peer_tokens.take(&token, now_s)) {
        return Err(refused());
    }
    let timeout = ReceiveTimeout::new(node.policy().receive_timeout);
    let threads = Threads::default();
    let message =
        settee_edge::body::read(body, &parts.headers, MESSAGE_BYTES_MAX, timeout, (account, &threads)).await?;
    if !token.covers(&message) {
        return Err(refused());
    }
    let at_once = engine.peers().and_then(|peers| peers.answer_at_once(&message));
    let answer = match at_once {
        Some(answer) => answer,
        // Requests of clients may wait for other nodes, so messages of these must not wait for their threads.
        None => {
            let work = move || engine.peers().map(|peers| peers.answer(&message));
            // After a panic the message may have been handled.
            let panicked = |_| Error::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", "A message was not answered.");
            tokio::task::spawn_blocking(work).await.map_err(panicked)?.ok_or_else(unknown)?
        }
    };
    Ok(respond::whole(StatusCode::OK, "application/octet-stream", Bytes::from(answer)))
}

/// Sends messages to other nodes.
pub struct PeerClient {
    network: Arc<dyn Connect>,
    /// Distinguishes the tokens of this process.
    sender: u64,
    sent: AtomicU64,
    clock_ms: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl PeerClient {
    /// `sender` must be random, and `clock_ms` return the milliseconds of the Unix epoch.
    #[must_use]
    pub fn new(network: Arc<dyn Connect>, sender: u64, clock_ms: Box<dyn Fn() -> u64 + Send + Sync>) -> Self {
        Self { network, sender, sent: AtomicU64::new(0), clock_ms }
    }

    /// Sends a message to the node with the address and returns its answer.
    ///
    /// # Errors
    /// [`TransportError::Refused`] if the message was certainly not received.
    pub async fn call(
        &self,
        address: &str,
        secret: &[u8],
        message: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, TransportError> {
        let remote = remote(address).map_err(TransportError::Unusable)?;
        let uri = format!("{}{TARGET}", remote.url.trim_end_matches('/'));
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let tuning = Tuning { connection_timeout_ms: timeout_ms, ..Tuning::default() };
        let unusable = |error: &dyn std::fmt::Display| TransportError::Unusable(error.to_string());
        let transport = self.network.connect(&Endpoint::Remote(remote), &tuning).map_err(|error| unusable(&error))?;
        let number = self.sent.fetch_add(1, Ordering::Relaxed) + 1;
        let token = NodeToken::sign(secret, &REQUEST, &message, (self.sender, number), (self.clock_ms)() / 1000);
        let request = http::Request::post(uri).header(&TOKEN, token).body(full_body(message));
        let exchange = async {
            let (head, body) = transport.call(request.map_err(|error| unusable(&error))?).await?.into_parts();
            let answered = || format!("it answers with {}", head.status);
            if head.status.is_client_error() {
                return Err(TransportError::Refused(answered()));
            }
            if head.status != StatusCode::OK {
                return Err(TransportError::Broken(answered()));
            }
            let body = Limited::new(body, MESSAGE_BYTES_MAX).collect().await;
            Ok(body.map_err(|error| TransportError::Broken(error.to_string()))?.to_bytes())
        };
        tokio::time::timeout(timeout, exchange).await.unwrap_or(Err(TransportError::Timeout))
    }
}
