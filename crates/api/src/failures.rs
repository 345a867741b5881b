//! [`Failures`]: reports failed logins to the other nodes, which count them like their own. Reports
//! are not stored and not retried: a node that does not respond misses some.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use settee_auth::{Authenticator, Sharing, Suspect, UserContext};
use settee_model::json;
use settee_settings::{Settings, cluster};
use tokio::sync::mpsc;

use crate::node::Node;

/// Maximum number of queued failures. If logins fail faster than they can be sent, the excess is not reported.
const WAITING_MAX: usize = 10_000;

/// Maximum number of failures in one message, of about 40 bytes each.
pub(crate) const FAILURES_PER_MESSAGE_MAX: usize = 1_000;

pub(crate) struct Failures(Mutex<Option<mpsc::Receiver<Suspect>>>);

impl Failures {
    pub(crate) fn of_one() -> Self {
        Self(Mutex::default())
    }

    pub(crate) fn of(authenticator: &Authenticator, settings: &Arc<dyn Settings>) -> Self {
        let (failed, waiting) = mpsc::channel(WAITING_MAX);
        let settings = Arc::clone(settings);
        authenticator.share_failures(Sharing {
            secret: Box::new(move || cluster::SECRET.text(settings.as_ref()).unwrap_or_default().into_bytes()),
            report: Box::new(move |suspect| {
                // A failure that exceeds the queue is still counted at this node.
                let _ = failed.try_send(suspect);
            }),
        });
        Self(Mutex::new(Some(waiting)))
    }

    pub(crate) fn begin(node: &Arc<Node>) {
        if let Some(waiting) = node.failures.0.lock().take() {
            tokio::spawn(report(Arc::downgrade(node), waiting));
        }
    }
}

/// Failures that occur while a message is sent are combined in the next message.
async fn report(node: Weak<Node>, mut waiting: mpsc::Receiver<Suspect>) {
    let mut failed = Vec::new();
    loop {
        if waiting.recv_many(&mut failed, FAILURES_PER_MESSAGE_MAX).await == 0 {
            return;
        }
        let Some(node) = node.upgrade() else { return };
        let body =
            json::object(|object| _ = object.strings("failed", failed.drain(..).map(|suspect| suspect.to_string())));
        node.nodes.post_all("/_node/_local/_failed_logins", body, &UserContext::anonymous()).await;
    }
}
