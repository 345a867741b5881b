//! Waking feeds: one [`watch`] channel a database, fed by the database's own subscription.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_database::{Database, Event, Subscription};
use tokio::sync::watch;

/// The state that waiting feeds look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The last update sequence that was committed while somebody watched.
    Seq(u64),
    /// The database is gone.
    Deleted,
}

/// The channels of all databases that somebody watches.
#[derive(Default)]
pub struct Feeds {
    watched: Mutex<HashMap<u64, Watched>>,
}

struct Watched {
    sender: Arc<watch::Sender<Progress>>,
    _subscription: Subscription,
}

impl Feeds {
    /// A receiver that changes after each commit from now on.
    pub fn watch(&self, database: &Arc<Database>) -> watch::Receiver<Progress> {
        let mut watched = self.watched.lock();
        watched.retain(|_, watched| watched.sender.receiver_count() > 0);
        let entry = watched.entry(database.instance()).or_insert_with(|| {
            let sender = Arc::new(watch::Sender::new(Progress::Seq(0)));
            let notify = Arc::clone(&sender);
            let subscription = database.subscribe(move |event| {
                notify.send_replace(match event {
                    Event::Committed(seq) => Progress::Seq(seq),
                    Event::Deleted => Progress::Deleted,
                });
            });
            Watched { sender, _subscription: subscription }
        });
        entry.sender.subscribe()
    }
}
