//! [`Inner`]: finds the process that serves a shard, and performs operations there. It opens the groups whose claims
//! this process holds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use object_store::ObjectStoreExt as _;
use object_store::path::Path;
use parking_lot::Mutex;
use settee_storage::members::NodeId;
use settee_storage::{Batch, CommitToken, Durability, Outcome, Result, Shard, Snapshot as _, StorageError, Version};

use crate::block::block_on;
use crate::group::{Context, Group};
use crate::identity;
use crate::nodes::{Failure, Nodes, Owner};
use crate::peers::PeerError;
use crate::protocol::{Answer, Message, Received, Refusal, needs_io};
use crate::served::Served;

/// Time for which an operation waits for a process that serves its shard.
const OWNER_TIMEOUT: Duration = Duration::from_secs(2);
const OWNER_INTERVAL: Duration = Duration::from_millis(20);

/// Time without a response of the store after which a process that waits for one gives its groups to others.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Inner {
    pub(crate) nodes: Nodes,
    pub(crate) context: Arc<Context>,
    groups: Vec<Mutex<Option<Arc<Group>>>>,
    served: Served,
    is_closed: AtomicBool,
}

/// Another process.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    node: NodeId,
    address: String,
}

pub(crate) enum Route {
    Here(Arc<Group>),
    There(Place),
}

/// The group of this process, or the answer of another one.
pub(crate) enum Asked {
    Here(Arc<Group>),
    There(Place, Answer),
}

impl Inner {
    pub(crate) fn new(nodes: Nodes, context: Arc<Context>) -> Self {
        let groups = (0..nodes.groups.count()).map(|_| Mutex::default()).collect();
        Self { nodes, context, groups, served: Served::default(), is_closed: AtomicBool::new(false) }
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(&self.context.runtime, future)
    }

    /// Returns the open groups, without those that are being opened or closed.
    pub(crate) fn open_groups(&self) -> Vec<Arc<Group>> {
        self.groups.iter().filter_map(|group| group.try_lock()?.clone()).collect()
    }

    /// Opens a group whose claim this process holds.
    pub(crate) fn open_group(&self, group: u32) -> Result<Arc<Group>> {
        let opened = {
            let mut slot = self.groups[group as usize].lock();
            if let Some(open) = slot.as_ref().filter(|open| !open.is_fenced()) {
                open.touch();
                return Ok(Arc::clone(open));
            }
            // The claim may have been released while this thread waited.
            if self.nodes.owner(group) != Owner::This || self.is_closed.load(Ordering::SeqCst) {
                return Err(StorageError::Deposed);
            }
            let opened = Arc::new(Group::open(&self.context, group)?);
            *slot = Some(Arc::clone(&opened));
            opened
        };
        // What this process has cached may be older than the last commits of the former owner.
        self.nodes.news.invalidate(|shard| self.nodes.groups.of(shard) == group);
        Ok(opened)
    }

    /// Opens a group that has data, so that its first request does not wait. If the listing does not show the data yet,
    /// the first operation opens the group, which fences the earlier owner as well.
    pub(crate) fn prepare_group(&self, group: u32) -> Result<()> {
        let mut objects = self.context.objects.list(Some(&crate::group::path(group)));
        let has_data = self.block_on(async { objects.next().await.is_some() });
        if has_data { self.open_group(group).map(|_| ()) } else { Ok(()) }
    }

    /// Closes a group whose claim this process no longer uses.
    pub(crate) fn close_group(&self, group: u32) {
        let open = {
            let mut slot = self.groups[group as usize].lock();
            let Some(open) = slot.take() else { return };
            // The end of the engine, and operations after a new claim, wait for the lock.
            open.close();
            open
        };
        // The next owner may change what this process has cached, and may not have what was not durable.
        open.shards().into_iter().for_each(|shard| self.nodes.news.read_remotely(shard));
        self.nodes.news.invalidate(|shard| self.nodes.groups.of(shard) == group);
    }

    /// Closes an unused group, of which this process remains the owner.
    fn close_idle(&self, group: u32) {
        let mut slot = self.groups[group as usize].lock();
        // An operation that has the group has not finished.
        let is_unused = |open: &Arc<Group>| Arc::strong_count(open) == 1 && open.is_idle();
        if slot.as_ref().is_some_and(is_unused) {
            // Operations wait for the lock.
            slot.take().into_iter().for_each(|open| open.close());
        }
    }

    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        // Each group waits for some requests.
        std::thread::scope(|scope| {
            for group in 0..self.nodes.groups.count() {
                scope.spawn(move || self.close_group(group));
            }
        });
    }

    /// Waits until some process serves the shard.
    pub(crate) fn route(&self, shard: Shard) -> Result<Route> {
        let group = self.nodes.groups.of(shard);
        let started = Instant::now();
        loop {
            if self.is_closed.load(Ordering::SeqCst) {
                return Err(StorageError::Unreached("the server is about to end".to_owned()));
            }
            match self.nodes.owner(group) {
                Owner::This => match self.open_group(group) {
                    Err(StorageError::Deposed) => {}
                    opened => return opened.map(Route::Here),
                },
                Owner::Other { node, address } => {
                    self.nodes.news.read_remotely(shard);
                    return Ok(Route::There(Place { node, address }));
                }
                Owner::Unknown if self.nodes.claims_freely() => self.nodes.claim_vacant(group)?,
                Owner::Unknown => {}
            }
            if self.nodes.owner(group) == Owner::Unknown {
                if started.elapsed() > OWNER_TIMEOUT {
                    self.nodes.check()?;
                    return Err(StorageError::Unreached(format!(
                        "no node serves group {group} of {} at the moment",
                        self.context.shown
                    )));
                }
                std::thread::sleep(OWNER_INTERVAL);
            }
        }
    }

    /// Sends a message to another process.
    pub(crate) fn ask(&self, place: &Place, message: &Message<'_>) -> Result<Answer, Failure> {
        self.block_on(self.nodes.send(&place.address, message, self.context.timeout))
    }

    /// Sends a message without waiting for the answer.
    pub(crate) fn notify(self: &Arc<Self>, place: Place, message: Message<'static>) {
        let engine = Arc::clone(self);
        self.context.runtime.spawn(async move {
            let _ = engine.nodes.send(&place.address, &message, engine.context.timeout).await;
        });
    }

    /// Sends a message that may be repeated to the owner of a shard, which may change during the call. Returns the group
    /// instead if this process is the owner.
    pub(crate) fn ask_owner(&self, shard: Shard, message: &Message<'_>) -> Result<Asked> {
        let started = Instant::now();
        loop {
            let place = match self.route(shard)? {
                Route::There(place) => place,
                Route::Here(group) => return Ok(Asked::Here(group)),
            };
            let why = match self.ask(&place, message) {
                Ok(answer) => return Ok(Asked::There(place, answer)),
                Err(Failure::Refusal(Refusal::Storage(error))) => return Err(error),
                Err(Failure::Refusal(Refusal::NotHere)) => "it does not serve the data any more".to_owned(),
                Err(Failure::Network(error)) => error.to_string(),
            };
            if started.elapsed() > OWNER_TIMEOUT {
                return Err(StorageError::Unreached(format!("node {:x} does not answer: {why}", place.node.0)));
            }
            self.find_owner();
        }
    }

    fn find_owner(&self) {
        std::thread::sleep(OWNER_INTERVAL);
        let _ = self.block_on(self.nodes.beat());
    }

    pub(crate) fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome> {
        if batch.claim().is_some_and(|claim| !self.nodes.holds(claim)) {
            return Err(StorageError::Deposed);
        }
        let place = match self.route(shard)? {
            Route::Here(group) => {
                return self.commit_here(self.nodes.id, &group, (shard, expected, token, batch, durability));
            }
            Route::There(place) => place,
        };
        let message = Message::Commit { shard, expected, token, durability, batch };
        let started = Instant::now();
        let mut place = place;
        loop {
            match self.ask(&place, &message) {
                Ok(Answer::Outcome(outcome)) => return Ok(outcome),
                Err(Failure::Refusal(Refusal::Storage(error))) => return Err(error),
                // The message was certainly not handled.
                Err(Failure::Refusal(Refusal::NotHere) | Failure::Network(PeerError::Refused(_))) => {}
                Ok(_) | Err(Failure::Network(PeerError::Failed(_))) => return Ok(Outcome::Unknown),
            }
            if started.elapsed() > OWNER_TIMEOUT {
                return Err(StorageError::Deposed);
            }
            self.find_owner();
            place = match self.route(shard)? {
                Route::There(place) => place,
                Route::Here(_) => return Err(StorageError::Deposed),
            };
        }
    }

    fn commit_here(
        &self,
        origin: NodeId,
        group: &Group,
        (shard, expected, token, batch, durability): (Shard, Version, CommitToken, Batch, Durability),
    ) -> Result<Outcome> {
        let outcome = group.commit(shard, expected, token, batch, durability)?;
        if let Outcome::Committed(version) = outcome {
            self.publish(origin, shard, version)?;
        }
        Ok(outcome)
    }

    pub(crate) fn drop_shard(&self, shard: Shard) -> Result<()> {
        match self.ask_owner(shard, &Message::Drop(shard))? {
            Asked::Here(group) => self.drop_here(self.nodes.id, &group, shard),
            Asked::There(..) => Ok(()),
        }
    }

    fn drop_here(&self, origin: NodeId, group: &Group, shard: Shard) -> Result<()> {
        match group.drop_shard(shard)? {
            Some(version) => self.publish(origin, shard, version),
            None => Ok(()),
        }
    }

    /// Notifies other processes of a commit that this one has made. All of them read the first group, so a commit to it is
    /// acknowledged after they have observed it.
    fn publish(&self, origin: NodeId, shard: Shard, version: Version) -> Result<()> {
        self.nodes.news.record(origin, shard, version);
        if self.nodes.groups.of(shard) == 0 { self.nodes.spread(origin, (shard, version)) } else { Ok(()) }
    }

    /// Answers a message that needs no I/O.
    pub(crate) fn answer_at_once(&self, bytes: &[u8]) -> Option<Result<Answer, Refusal>> {
        // A commit is decoded once.
        if needs_io(bytes) {
            return None;
        }
        let Received { sender, message, .. } = Received::decode(bytes).ok()?;
        match message {
            Message::Observe(commits) => {
                self.nodes.news.notify(&commits);
                Some(Ok(Answer::Done))
            }
            Message::Close(id) => {
                self.served.close(id);
                Some(Ok(Answer::Done))
            }
            message => self.nodes.answer_at_once(sender, &message),
        }
    }

    /// Answers a message of another process.
    pub(crate) fn answer(&self, bytes: &[u8]) -> Result<Answer, Refusal> {
        if let Some(answer) = self.answer_at_once(bytes) {
            return answer;
        }
        let failed = |error: &dyn std::fmt::Display| Refusal::Storage(StorageError::Io(error.to_string()));
        let Received { sender, message, requests } = Received::decode(bytes).map_err(|error| failed(&error))?;
        match message {
            Message::Claim(key) => self.nodes.grant(sender, key),
            Message::Read { shard, snapshot, .. } => {
                let requests: Vec<_> = requests.iter().map(|request| request.request()).collect();
                if let Some(id) = snapshot {
                    let replies = self.served.get(id)?.read(&requests).map_err(Refusal::Storage)?;
                    return Ok(Answer::Replies(id, replies));
                }
                self.at_group(shard, |group| {
                    let view = group.durable_snapshot(shard)?;
                    let replies = view.read(&requests)?;
                    Ok(Answer::Replies(self.served.add(Arc::new(view))?, replies))
                })
            }
            Message::Commit { shard, expected, token, durability, batch } => {
                let commit = (shard, expected, token, batch, durability);
                match self.commit_here(sender, &*self.here(shard)?, commit) {
                    Ok(outcome) => Ok(Answer::Outcome(outcome)),
                    Err(StorageError::Deposed) => Err(Refusal::NotHere),
                    Err(error) => Err(Refusal::Storage(error)),
                }
            }
            Message::Drop(shard) => {
                self.at_group(shard, |group| self.drop_here(sender, group, shard).map(|()| Answer::Done))
            }
            Message::Restore { shard, state, batch } => {
                self.at_group(shard, |group| group.restore(shard, state, &batch).map(|()| Answer::Done))
            }
            Message::Reclaim(shard) => self.at_group(shard, |group| group.reclaim(shard).map(|()| Answer::Done)),
            Message::Size(shard) => self.at_group(shard, |group| Ok(Answer::Number(group.snapshot(shard)?.bytes()?))),
            _ => Err(failed(&"a message without an answer")),
        }
    }

    /// Performs an operation that may be repeated at the next owner.
    fn at_group(&self, shard: Shard, operation: impl FnOnce(&Group) -> Result<Answer>) -> Result<Answer, Refusal> {
        let group = self.here(shard)?;
        operation(&group).map_err(|error| if group.has_ended() { Refusal::NotHere } else { Refusal::Storage(error) })
    }

    /// Returns the group of a shard that this process serves.
    fn here(&self, shard: Shard) -> Result<Arc<Group>, Refusal> {
        let group = self.nodes.groups.of(shard);
        if self.nodes.owner(group) != Owner::This {
            return Err(Refusal::NotHere);
        }
        self.open_group(group).map_err(|error| match error {
            StorageError::Deposed => Refusal::NotHere,
            error => Refusal::Storage(error),
        })
    }

    /// Sends heartbeats until the engine ends.
    pub(crate) async fn run(engine: Weak<Self>) {
        loop {
            let Some(interval) = engine.upgrade().map(|engine| engine.nodes.interval()) else { return };
            tokio::time::sleep(interval).await;
            let Some(engine) = engine.upgrade() else { return };
            if let Err(error) = engine.nodes.beat().await {
                tracing::debug!(%error, "no heartbeat");
            }
            engine.watch_store().await;
            engine.served.close_idle();
            let lost = |group: u32| {
                let slot = engine.groups[group as usize].try_lock().filter(|_| !engine.nodes.has_group(group));
                slot.and_then(|slot| slot.clone()).map(|open| (group, open))
            };
            let is_idle = |group: &u32| {
                let slot = engine.groups[*group as usize].try_lock();
                slot.is_some_and(|slot| slot.as_ref().is_some_and(|open| open.is_idle()))
            };
            for group in (0..engine.nodes.groups.count()).filter(is_idle) {
                let engine = Arc::clone(&engine);
                tokio::task::spawn_blocking(move || engine.close_idle(group));
            }
            for (group, open) in (0..engine.nodes.groups.count()).filter_map(lost) {
                let engine = Arc::clone(&engine);
                tracing::warn!(group, "another node serves these shards now");
                open.lose();
                tokio::task::spawn_blocking(move || engine.close_group(group));
            }
        }
    }

    /// Gives the groups of this process to others while it cannot reach the store, and the coordinator can.
    async fn watch_store(&self) {
        if self.nodes.is_withdrawn() {
            let object = Path::from(identity::OBJECT);
            let probe = tokio::time::timeout(PROBE_TIMEOUT, self.context.objects.head(&object));
            if matches!(probe.await, Ok(Ok(_))) {
                tracing::warn!(store = self.context.shown, "this node reaches the store again");
                self.nodes.rejoin();
            }
            return;
        }
        let waiting = self.context.meter.waiting_since().filter(|since| since.elapsed() > STORE_TIMEOUT);
        if waiting.is_some_and(|since| self.nodes.withdraw(since)) {
            tracing::error!(store = self.context.shown, "this node does not reach the store; others serve its groups");
            self.open_groups().iter().for_each(|group| group.lose());
            // Others take the groups after this heartbeat.
            let _ = self.nodes.beat().await;
        }
    }

    /// Performs a read at this process, or returns the other one.
    pub(crate) fn at_owner<T>(&self, shard: Shard, read: impl Fn(&Group) -> Result<T>) -> Result<Result<T, Place>> {
        loop {
            let group = match self.route(shard)? {
                Route::Here(group) => group,
                Route::There(place) => return Ok(Err(place)),
            };
            match read(&group) {
                Err(_) if group.has_ended() && !self.is_closed.load(Ordering::SeqCst) => {
                    std::thread::sleep(OWNER_INTERVAL);
                }
                result => return result.map(Ok),
            }
        }
    }

    pub(crate) fn served_snapshots(&self) -> u64 {
        self.served.len() as u64
    }
}
