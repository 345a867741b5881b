//! Wake-up of feeds: one [`watch`] channel per database, which a subscription to the database feeds.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_database::{Database, Event, Subscription};
use tokio::sync::watch;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Latest update sequence that was committed while the channel existed.
    Seq(u64),
    Deleted,
}

#[derive(Default)]
pub struct Feeds {
    watched: Mutex<HashMap<u64, Watched>>,
}

struct Watched {
    sender: Arc<watch::Sender<Progress>>,
    _subscription: Subscription,
}

impl Feeds {
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
