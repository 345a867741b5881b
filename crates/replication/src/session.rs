//! [`Session`]: runs a replication, once or continuously.
//!
//! 1. Both databases are opened (the target is created if requested), and their checkpoints are compared.
//! 2. A reader follows the changes of the source after the common checkpoint. Its queue is bounded.
//! 3. Up to `worker_processes` workers copy batches of changes concurrently. They end in any order.
//! 4. Every `checkpoint_interval`, and at the end, both sides record the sequence before which *all* batches are
//!    written.

mod batch;
mod context;
pub(crate) mod progress;
mod reader;
mod single;
mod start;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use settee_model::json::Json;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::context::Context;
pub use self::context::{Failure, Places, Services};
use self::reader::Item;
use self::start::Started;
use crate::id::ReplicationId;
use crate::peer::Peer;
use crate::peer::changes::ChangesQuery;
use crate::spec::{Filter, Spec};
pub use progress::{Progress, Statistics};

const FINAL_CHECKPOINT_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    #[default]
    Run,
    Stop,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    /// A one-shot replication is complete. Contains the members of the `_replicate` response after `ok`, as in CouchDB.
    Completed(Json),
    Stopped,
    /// A later session may succeed.
    Failed(Failure),
}

pub struct Session {
    spec: Arc<Spec>,
    id: ReplicationId,
    context: Arc<Context>,
}

impl Session {
    #[must_use]
    pub fn new(
        spec: Arc<Spec>,
        id: ReplicationId,
        source: Peer,
        target: Peer,
        services: Services,
        progress: Arc<Progress>,
    ) -> Self {
        Self { spec, id, context: Arc::new(Context { source, target, services, progress }) }
    }

    /// A one-shot session completes after all changes of the source's normal feed; a continuous session runs until it
    /// is stopped or fails. The futures of rare steps are on the heap, so that waiting needs little memory.
    pub async fn run(self, mut control: watch::Receiver<Control>) -> Outcome {
        let started = tokio::select! {
            biased;
            () = stopped(&mut control) => return Outcome::Stopped,
            started = Box::pin(self.start()) => started,
        };
        match started {
            Ok(started) => Run::new(self, started).run(control).await,
            Err(failure) => {
                self.context.services.counters.failed_starts.increment();
                Outcome::Failed(failure)
            }
        }
    }

    async fn start(&self) -> Result<Started, Failure> {
        let _permit = self.context.services.places.take().await;
        start::start(&self.spec, &self.id, &self.context).await
    }
}

async fn stopped(control: &mut watch::Receiver<Control>) {
    let _ = control.wait_for(|control| *control == Control::Stop).await;
}

struct PendingBatch {
    ordinal: u64,
    seq: Option<Json>,
    is_done: bool,
}

struct Run {
    spec: Arc<Spec>,
    context: Arc<Context>,
    checkpoints: start::Checkpoints,
    items: mpsc::Receiver<Item>,
    _reader_task: JoinSet<()>,
    workers: JoinSet<(u64, Result<(), Failure>)>,
    rows: Vec<Bytes>,
    pending_batches: VecDeque<PendingBatch>,
    next_ordinal: u64,
    /// Sequence up to which all changes are at the target.
    through: Json,
    pending_counted_at: Option<Json>,
    feed: FeedState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FeedState {
    Open,
    Ended(Option<u64>),
}

impl Run {
    fn new(session: Session, started: Started) -> Self {
        let Session { spec, context, .. } = session;
        let tuning = &spec.tuning;
        let (sender, items) = mpsc::channel(2 * tuning.worker_batch_size);
        let mut reader = JoinSet::new();
        let query = ChangesQuery::of(&spec);
        let since = started.since.clone();
        reader.spawn(reader::read(context.source.clone(), query, since, started.instance, sender));
        Self {
            spec,
            context,
            through: started.since,
            checkpoints: started.checkpoints,
            items,
            _reader_task: reader,
            workers: JoinSet::new(),
            rows: Vec::new(),
            pending_batches: VecDeque::new(),
            next_ordinal: 0,
            pending_counted_at: None,
            feed: FeedState::Open,
        }
    }

    async fn run(mut self, mut control: watch::Receiver<Control>) -> Outcome {
        match self.work(&mut control).await {
            Ok(Control::Run) => Box::pin(self.complete()).await,
            Ok(Control::Stop) => {
                Box::pin(self.final_checkpoint()).await;
                Outcome::Stopped
            }
            Err(failure) => {
                Box::pin(self.final_checkpoint()).await;
                Outcome::Failed(failure)
            }
        }
    }

    /// Records the progress, so that work is not repeated, if both sides respond before the timeout.
    async fn final_checkpoint(&mut self) {
        self.workers.shutdown().await;
        let record = self.checkpoints.record(&self.context, &self.through);
        match tokio::time::timeout(FINAL_CHECKPOINT_TIMEOUT, record).await {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => tracing::info!("the last checkpoint of a failed replication failed: {failure}"),
            Err(_) => tracing::info!("the last checkpoint of a failed replication timed out"),
        }
    }

    async fn work(&mut self, control: &mut watch::Receiver<Control>) -> Result<Control, Failure> {
        let interval = Duration::from_millis(self.spec.tuning.checkpoint_interval_ms);
        let mut timer = Box::pin(tokio::time::sleep(interval));
        let mut received = Vec::new();
        loop {
            self.dispatch();
            if self.feed != FeedState::Open && self.workers.is_empty() && self.rows.is_empty() {
                return Ok(Control::Run);
            }
            let capacity = self.spec.tuning.worker_batch_size.saturating_sub(self.rows.len());
            tokio::select! {
                biased;
                () = stopped(control) => return Ok(Control::Stop),
                Some(ended) = self.workers.join_next() => self.record(ended)?,
                () = &mut timer => {
                    Box::pin(self.checkpoint()).await?;
                    timer = Box::pin(tokio::time::sleep(interval));
                }
                count = self.items.recv_many(&mut received, capacity), if capacity > 0 && self.feed == FeedState::Open => {
                    if count == 0 {
                        return Err(Failure::Checkpoint("the reader of changes ended".to_owned()));
                    }
                    for item in received.drain(..) {
                        self.take(item)?;
                    }
                }
            }
        }
    }

    fn take(&mut self, item: Item) -> Result<(), Failure> {
        match item {
            Item::Row(row) => self.rows.push(row),
            Item::Failed(error) => {
                self.context.services.counters.failed_changes.increment();
                return Err(Failure::Source(*error));
            }
            Item::Recreated => return Err(start::recreated("Source database")),
            Item::End { last_seq, pending } => {
                self.dispatch_batch();
                // CouchDB records no checkpoint for a replication by ids if none of the documents exists.
                let is_nothing = self.next_ordinal == 0 && matches!(self.spec.filter, Filter::DocIds(_));
                let seq = (!is_nothing).then_some(last_seq);
                self.pending_batches.push_back(PendingBatch { ordinal: self.next_ordinal, seq, is_done: true });
                self.next_ordinal += 1;
                self.feed = FeedState::Ended(pending);
                self.advance_checkpoint();
            }
        }
        Ok(())
    }

    /// Gives the waiting rows to a worker, if a worker is free and the batch is ready.
    fn dispatch(&mut self) {
        let tuning = &self.spec.tuning;
        // A continuous replication copies pending rows at once. A one-shot replication collects full batches.
        let idle = self.workers.is_empty() && self.items.is_empty();
        let ready = self.spec.continuous || self.rows.len() >= tuning.worker_batch_size || idle;
        if ready && self.workers.len() < tuning.worker_processes {
            self.dispatch_batch();
        }
    }

    fn dispatch_batch(&mut self) {
        let Some(last) = self.rows.last() else { return };
        let seq = reader::sequence(last);
        let ordinal = self.next_ordinal;
        self.next_ordinal += 1;
        if let Some(seq) = &seq {
            self.context.progress.update(|statistics| statistics.source_seq = Some(seq.clone()));
        }
        self.pending_batches.push_back(PendingBatch { ordinal, seq, is_done: false });
        let (context, rows) = (self.context.clone(), std::mem::take(&mut self.rows));
        context.services.counters.workers.increment();
        self.workers.spawn(async move { (ordinal, batch::copy(context, rows).await) });
    }

    fn record(&mut self, ended: Result<(u64, Result<(), Failure>), tokio::task::JoinError>) -> Result<(), Failure> {
        let (ordinal, result) = match ended {
            Ok(ended) => ended,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => return Err(Failure::Checkpoint(error.to_string())),
            },
        };
        result?;
        if let Some(slot) = self.pending_batches.iter_mut().find(|slot| slot.ordinal == ordinal) {
            slot.is_done = true;
        }
        self.advance_checkpoint();
        Ok(())
    }

    fn advance_checkpoint(&mut self) {
        while self.pending_batches.front().is_some_and(|slot| slot.is_done) {
            if let Some(seq) = self.pending_batches.pop_front().and_then(|slot| slot.seq) {
                self.through = seq;
            }
        }
        let through = self.through.clone();
        self.context.progress.update(|statistics| statistics.through_seq = Some(through));
    }

    async fn checkpoint(&mut self) -> Result<(), Failure> {
        self.checkpoints.record(&self.context, &self.through).await?;
        // The number is requested once per sequence, because thousands of replications may be idle.
        if self.pending_counted_at.as_ref() == Some(&self.through) {
            return Ok(());
        }
        if let Ok(Some(pending)) = self.context.source.pending(&self.through).await {
            self.context.progress.update(|statistics| statistics.changes_pending = Some(pending));
        }
        self.pending_counted_at = Some(self.through.clone());
        Ok(())
    }

    async fn complete(mut self) -> Outcome {
        if let FeedState::Ended(pending) = self.feed {
            let pending = Some(pending.unwrap_or(0));
            self.context.progress.update(|statistics| statistics.changes_pending = pending);
        }
        match self.checkpoints.record(&self.context, &self.through).await {
            Ok(()) => Outcome::Completed(self.checkpoints.answer()),
            Err(failure) => Outcome::Failed(failure),
        }
    }
}
