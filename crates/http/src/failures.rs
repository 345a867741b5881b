//! [`Failures`]: logins that failed at this node, on the way to the other nodes, which count them as their own. Nothing is stored, and
//! nobody waits: a node that does not answer misses some, and one that begins knows of none.

use std::fmt::Write as _;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use settee_auth::{Authenticator, Sharing, Suspect, UserContext};
use settee_settings::{Settings, cluster};
use tokio::sync::mpsc;

use crate::node::Node;

/// Failures that wait to be told. Who tries passwords faster than nodes tell each other is told of in part.
const WAITING_MAX: usize = 10_000;

/// Those that are told at a time: some 40 bytes each.
pub(crate) const TOLD_MAX: usize = 1_000;

/// The failures of this node, for who tells of them.
pub(crate) struct Failures(Mutex<Option<mpsc::Receiver<Suspect>>>);

impl Failures {
    /// Those of a server that is the only one.
    pub(crate) fn of_one() -> Self {
        Self(Mutex::default())
    }

    /// Those that `authenticator` sees from now on.
    pub(crate) fn of(authenticator: &Authenticator, settings: &Arc<dyn Settings>) -> Self {
        let (failed, waiting) = mpsc::channel(WAITING_MAX);
        let settings = Arc::clone(settings);
        authenticator.share_failures(Sharing {
            secret: Box::new(move || cluster::SECRET.text(settings.as_ref()).unwrap_or_default().into_bytes()),
            tell: Box::new(move |suspect| {
                // One that has no place is counted here all the same.
                let _ = failed.try_send(suspect);
            }),
        });
        Self(Mutex::new(Some(waiting)))
    }

    /// Begins to tell, on the runtime of the caller.
    pub(crate) fn begin(node: &Arc<Node>) {
        if let Some(waiting) = node.failures.0.lock().take() {
            tokio::spawn(tell(Arc::downgrade(node), waiting));
        }
    }
}

/// Tells the other nodes, of those together that failed while they were told of others.
async fn tell(node: Weak<Node>, mut waiting: mpsc::Receiver<Suspect>) {
    let mut failed = Vec::new();
    loop {
        if waiting.recv_many(&mut failed, TOLD_MAX).await == 0 {
            return;
        }
        let Some(node) = node.upgrade() else { return };
        let mut body = String::from("{\"failed\":[");
        for (at, suspect) in failed.drain(..).enumerate() {
            let separator = if at > 0 { "," } else { "" };
            let _ = write!(body, "{separator}\"{suspect}\"");
        }
        body += "]}";
        node.nodes.post_all("/_node/_local/_failed_logins", body.into_bytes(), &UserContext::anonymous()).await;
    }
}
