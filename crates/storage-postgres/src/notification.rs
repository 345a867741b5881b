//! Notifications between processes by `NOTIFY`: of commits, and of waiters for claims. [`Heard`] stores the received
//! ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_postgres::Error;

use crate::connect::Link;
use crate::nodes_sql::OfNodes;
use crate::sql::Sql;

/// Channel for all schemas of a database.
pub(crate) const CHANNEL: &str = "settee_commits";

/// Time after which the notification of a waiter expires.
const AWAITED: Duration = Duration::from_secs(1);

/// A notification to the other processes on the same tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    /// The sender has committed.
    Committed,
    /// A caller in the sender waits for the claim with this key.
    Awaited(&'a str),
}

/// Received notifications; requires a connection that listens.
#[derive(Debug)]
pub(crate) struct Heard {
    /// Prefix of own notifications: schema and node number.
    own: String,
    schema: String,
    committed: Arc<Notify>,
    awaited: Mutex<HashMap<String, Instant>>,
}

impl Heard {
    /// Creates the state for a process on the tables in `schema`, which recognizes its own notifications by its number.
    pub(crate) fn new(schema: &str, node: i64) -> Self {
        let (own, schema) = (format!("{schema} {node}"), schema.to_owned());
        Self { own, schema, committed: Arc::default(), awaited: Mutex::default() }
    }

    /// Returns the event that is set when others have committed.
    pub(crate) fn committed(&self) -> &Arc<Notify> {
        &self.committed
    }

    /// Returns true if another process has recently announced that it waits for this key.
    pub(crate) fn is_awaited(&self, key: &str) -> bool {
        self.awaited.lock().get(key).is_some_and(|said| said.elapsed() < AWAITED)
    }

    /// Removes the waiters for a key.
    pub(crate) fn forget(&self, key: &str) {
        self.awaited.lock().remove(key);
    }

    /// Sends a notification.
    pub(crate) async fn say(&self, link: &Link, said: Said<'_>) -> Result<(), Error> {
        let statement = link.statement(Sql::Nodes(OfNodes::Notify)).await?;
        link.client.query(&statement, &[&CHANNEL, &self.payload(said)]).await.map(drop)
    }

    /// Returns the payload of a notification.
    fn payload(&self, said: Said<'_>) -> String {
        match said {
            Said::Committed => self.own.clone(),
            Said::Awaited(key) => format!("{} {key}", self.own),
        }
    }

    /// Receives a notification.
    pub(crate) fn take(&self, channel: &str, payload: &str) {
        match self.read(channel, payload) {
            Some(Said::Committed) => self.committed.notify_one(),
            Some(Said::Awaited(key)) => {
                let mut awaited = self.awaited.lock();
                awaited.retain(|_, said| said.elapsed() < AWAITED);
                awaited.insert(key.to_owned(), Instant::now());
            }
            None => {}
        }
    }

    /// Decodes a notification of another process on the same tables; `None` for all others.
    fn read<'p>(&self, channel: &str, payload: &'p str) -> Option<Said<'p>> {
        let (node, key) = match payload.strip_prefix(&self.schema)?.strip_prefix(' ')?.split_once(' ') {
            Some((_, key)) => (&payload[..payload.len() - key.len() - 1], Some(key)),
            None => (payload, None),
        };
        let is_of_another = channel == CHANNEL && node != self.own;
        is_of_another.then_some(key.map_or(Said::Committed, Said::Awaited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_of_others_are_received() {
        let heard = Heard::new("settee", 7);
        for (channel, payload, wanted) in [
            (CHANNEL, "settee 5", Some(Said::Committed)),
            (CHANNEL, "settee 7", None),
            (CHANNEL, "settee2 5", None),
            (CHANNEL, "", None),
            ("other", "settee 5", None),
            (CHANNEL, "settee 5 index/9", Some(Said::Awaited("index/9"))),
            (CHANNEL, "settee 75 a b", Some(Said::Awaited("a b"))),
            (CHANNEL, "settee 7 index/9", None),
            (CHANNEL, "settee2 5 index/9", None),
        ] {
            assert_eq!(heard.read(channel, payload), wanted, "{channel} {payload}");
        }
        let other = Heard::new("settee", -5);
        for said in [Said::Committed, Said::Awaited("index/9")] {
            let payload = other.payload(said);
            assert_eq!((heard.read(CHANNEL, &payload), other.read(CHANNEL, &payload)), (Some(said), None));
        }
        assert!(!heard.is_awaited("index/9"));
        heard.take(CHANNEL, &other.payload(Said::Awaited("index/9")));
        assert!(heard.is_awaited("index/9") && !heard.is_awaited("index/8"));
        heard.forget("index/9");
        assert!(!heard.is_awaited("index/9"));
    }
}
