//! Notifications between processes by `NOTIFY`: of commits, and of waiters for claims. [`Notifications`] stores the
//! received ones.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_postgres::Error;

use crate::connect::PostgresConnection;
use crate::nodes_sql::NodesSql;
use crate::sql::Sql;

pub(crate) const CHANNEL: &str = "settee_commits";

/// The notification of a waiter expires after this time.
const WAITER_EXPIRY: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notification<'a> {
    Committed,
    /// A caller in the sender waits for the claim with this key.
    Awaited(&'a str),
}

#[derive(Debug)]
pub(crate) struct Notifications {
    /// Prefix of own notifications: schema and node number.
    own: String,
    schema: String,
    committed: Arc<Notify>,
    awaited: Mutex<HashMap<String, Instant>>,
}

impl Notifications {
    /// A process on the tables in `schema` recognizes its own notifications by its number.
    pub(crate) fn new(schema: &str, node: i64) -> Self {
        let (own, schema) = (format!("{schema} {node}"), schema.to_owned());
        Self { own, schema, committed: Arc::default(), awaited: Mutex::default() }
    }

    pub(crate) fn committed(&self) -> &Arc<Notify> {
        &self.committed
    }

    pub(crate) fn is_awaited(&self, key: &str) -> bool {
        self.awaited.lock().get(key).is_some_and(|notification| notification.elapsed() < WAITER_EXPIRY)
    }

    pub(crate) fn clear_waiters(&self, key: &str) {
        self.awaited.lock().remove(key);
    }

    pub(crate) async fn send(&self, link: &PostgresConnection, notification: Notification<'_>) -> Result<(), Error> {
        let statement = link.statement(Sql::Nodes(NodesSql::Notify)).await?;
        link.client.query(&statement, &[&CHANNEL, &self.payload(notification)]).await.map(drop)
    }

    fn payload(&self, notification: Notification<'_>) -> String {
        match notification {
            Notification::Committed => self.own.clone(),
            Notification::Awaited(key) => format!("{} {key}", self.own),
        }
    }

    pub(crate) fn receive(&self, channel: &str, payload: &str) {
        match self.decode(channel, payload) {
            Some(Notification::Committed) => self.committed.notify_one(),
            Some(Notification::Awaited(key)) => {
                let mut awaited = self.awaited.lock();
                awaited.retain(|_, notification| notification.elapsed() < WAITER_EXPIRY);
                awaited.insert(key.to_owned(), Instant::now());
            }
            None => {}
        }
    }

    /// `None` for notifications of this process and of other tables.
    fn decode<'p>(&self, channel: &str, payload: &'p str) -> Option<Notification<'p>> {
        let (node, key) = match payload.strip_prefix(&self.schema)?.strip_prefix(' ')?.split_once(' ') {
            Some((_, key)) => (&payload[..payload.len() - key.len() - 1], Some(key)),
            None => (payload, None),
        };
        let is_foreign = channel == CHANNEL && node != self.own;
        is_foreign.then_some(key.map_or(Notification::Committed, Notification::Awaited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notifications_of_others_are_received() {
        let notifications = Notifications::new("settee", 7);
        for (channel, payload, wanted) in [
            (CHANNEL, "settee 5", Some(Notification::Committed)),
            (CHANNEL, "settee 7", None),
            (CHANNEL, "settee2 5", None),
            (CHANNEL, "", None),
            ("other", "settee 5", None),
            (CHANNEL, "settee 5 index/9", Some(Notification::Awaited("index/9"))),
            (CHANNEL, "settee 75 a b", Some(Notification::Awaited("a b"))),
            (CHANNEL, "settee 7 index/9", None),
            (CHANNEL, "settee2 5 index/9", None),
        ] {
            assert_eq!(notifications.decode(channel, payload), wanted, "{channel} {payload}");
        }
        let other = Notifications::new("settee", -5);
        for notification in [Notification::Committed, Notification::Awaited("index/9")] {
            let payload = other.payload(notification);
            assert_eq!(
                (notifications.decode(CHANNEL, &payload), other.decode(CHANNEL, &payload)),
                (Some(notification), None)
            );
        }
        assert!(!notifications.is_awaited("index/9"));
        notifications.receive(CHANNEL, &other.payload(Notification::Awaited("index/9")));
        assert!(notifications.is_awaited("index/9") && !notifications.is_awaited("index/8"));
        notifications.clear_waiters("index/9");
        assert!(!notifications.is_awaited("index/9"));
    }
}
