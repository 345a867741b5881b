//! Reads the changes of a source, and reopens a broken feed.

use bytes::Bytes;
use settee_model::json::{Json, Value};
use tokio::sync::mpsc;

use crate::peer::changes::{ChangesQuery, Feed};
use crate::peer::{Attempts, Peer, PeerError};

#[derive(Clone, Debug)]
pub(super) enum Item {
    Row(Bytes),
    End {
        last_seq: Json,
        pending: Option<u64>,
    },
    /// The error is boxed, because the queue has slots for many items, most of which are rows.
    Failed(Box<PeerError>),
    /// The database was deleted and recreated, with different sequences.
    Recreated,
}

/// Reads to the end of a normal feed, or indefinitely. `items` is bounded, so a slow target applies backpressure.
pub(super) async fn read(
    source: Peer,
    query: ChangesQuery,
    since: Json,
    instance: Option<Json>,
    items: mpsc::Sender<Item>,
) {
    let mut reader = Reader { tries: Attempts::new(source.tuning()), source, query, since, instance, items };
    let end = reader.run().await.unwrap_or_else(|error| Some(Item::Failed(Box::new(error))));
    if let Some(end) = end {
        let _ = reader.items.send(end).await;
    }
}

struct Reader {
    source: Peer,
    query: ChangesQuery,
    since: Json,
    instance: Option<Json>,
    items: mpsc::Sender<Item>,
    tries: Attempts,
}

impl Reader {
    async fn run(&mut self) -> Result<Option<Item>, PeerError> {
        loop {
            let error = match self.feed().await {
                Ok(end) => return Ok(end),
                Err(error) => error,
            };
            if !error.is_transient() || !self.tries.wait(None).await {
                return Err(error);
            }
            tracing::info!("the feed of changes of {} is reopened: {error}", self.source.endpoint());
            let instance = Box::pin(self.source.info()).await?.instance_start_time;
            if self.instance.is_some() && instance.is_some() && self.instance != instance {
                return Ok(Some(Item::Recreated));
            }
        }
    }

    async fn feed(&mut self) -> Result<Option<Item>, PeerError> {
        let mut feed = Box::pin(self.source.changes(&self.query, &self.since)).await?;
        let mut last: Option<Bytes> = None;
        let mut rows = 0u64;
        let ended = loop {
            match feed.next().await {
                Ok(Some(row)) if self.query.feed == Feed::Continuous && ends_feed(&row) => {
                    last = Some(row);
                }
                Ok(Some(row)) => {
                    rows += 1;
                    last = Some(row.clone());
                    if self.query.keeps(&row) && self.items.send(Item::Row(row)).await.is_err() {
                        return Ok(None);
                    }
                }
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Some(seq) = last.as_deref().and_then(sequence) {
            self.since = seq;
        }
        // Many proxies end a feed after a time. This is no failure if the feed was alive and ended between rows.
        if rows > 0 || feed.ended_alive() {
            self.tries = Attempts::new(self.source.tuning());
        }
        match (ended, self.query.feed) {
            (Err(error), _) => Err(error),
            (Ok(()), Feed::Normal) => {
                let (last_seq, pending) = feed.end()?;
                Ok(Some(Item::End { last_seq, pending }))
            }
            (Ok(()), Feed::Continuous) => Err(feed.ended()),
        }
    }
}

fn ends_feed(row: &[u8]) -> bool {
    let row = Value::trusted(row);
    row.get("last_seq").is_some() && row.get("changes").is_none()
}

pub(super) fn sequence(row: &[u8]) -> Option<Json> {
    let row = Value::trusted(row);
    let seq = row.get("seq").or_else(|| row.get("last_seq"))?;
    Json::parse(seq.raw()).ok().filter(|seq| !seq.value().is_null())
}
