//! Heartbeats of a process: to the coordinator, or as the coordinator; the search for a coordinator.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use settee_storage::members::{Claim, NodeId};
use settee_storage::{Result, StorageError};

use super::{
    ANSWER_TIMEOUT, Failure, HEARTBEAT_INTERVAL, Last, Leaving, NAME_TIMEOUT, Nodes, PROBE_AFTER, PROBE_TIMEOUT,
    RESERVED_EPOCHS, Role, SEARCH_INTERVAL, State, Target, no_coordinator,
};
use crate::coordinator::{Coordinator, Handover};
use crate::lease::{Attempt, Candidate, Description, Hold, Lease, Record};
use crate::peers::{PeerCall, PeerError};
use crate::protocol::{Answer, Beat, BeatAnswer, Message, Refusal};

impl Nodes {
    /// Returns the interval until the next heartbeat.
    pub(crate) fn interval(&self) -> Duration {
        match self.state.lock().role {
            Role::Searching => SEARCH_INTERVAL,
            _ => HEARTBEAT_INTERVAL,
        }
    }

    /// Sends a heartbeat, or becomes the coordinator if there is none.
    pub(crate) async fn beat(&self) -> Result<()> {
        let Some(candidate) = &self.candidate else { return Ok(()) };
        let mut candidate = candidate.lock().await;
        if self.state.lock().has_left {
            return Ok(());
        }
        let (target, lease) = {
            let mut state = self.state.lock();
            match &state.role {
                Role::Coordinator { lease, .. } if lease.is_lost() => {
                    state.lose_everything();
                    (None, None)
                }
                Role::Coordinator { lease, .. } => (None, Some(Arc::clone(lease))),
                Role::Follower(target) => (Some(target.clone()), None),
                Role::Searching | Role::Sole => (None, None),
            }
        };
        if let Some(lease) = lease {
            return self.beat_here(&lease).await;
        }
        if let Some(target) = target {
            match self.beat_there(&target, &mut candidate).await {
                Ok(()) => return Ok(()),
                Err(error) => tracing::warn!(node = target.name, %error, "the coordinator does not answer"),
            }
            self.state.lock().role = Role::Searching;
        }
        self.search(&mut candidate).await
    }

    pub(super) fn own_beat(&self, state: &State) -> Beat {
        let claims = state.claims.iter().map(|(key, epoch)| Claim { key: key.clone(), epoch: *epoch }).collect();
        let announced = state.announced.clone();
        let is_fresh = state.check().is_ok();
        let (commits, cursor) = (Vec::new(), self.news.cursor());
        Beat { announced, started_ms: self.started_ms, claims, is_fresh, commits, cursor }
    }

    async fn beat_here(&self, lease: &Lease) -> Result<()> {
        let late = {
            let mut state = self.state.lock();
            self.refresh_view(&mut state);
            match &state.role {
                Role::Coordinator { coordinator, .. } => coordinator.late(self.now(), PROBE_AFTER),
                _ => Vec::new(),
            }
        };
        for (node, address) in late {
            if node != self.id && self.has_ended(node, address).await {
                let mut state = self.state.lock();
                if let Role::Coordinator { coordinator, .. } = &mut state.role {
                    coordinator.end(node);
                }
                self.refresh_view(&mut state);
            }
        }
        self.describe(lease, false).await?;
        lease.check()
    }

    /// Updates the object of the lease: before a claim is granted to another process, after a change of the address, and
    /// when epochs must be reserved.
    pub(crate) async fn describe(&self, lease: &Lease, grants_to_others: bool) -> Result<()> {
        let before = lease.description();
        let next = {
            let state = self.state.lock();
            let Role::Coordinator { coordinator, .. } = &state.role else { return Ok(()) };
            let (name, address) =
                state.announced.clone().unwrap_or_else(|| (before.name.clone(), before.address.clone()));
            let Range { start, end } = coordinator.epochs();
            let reserved = if end - start < RESERVED_EPOCHS / 2 { start + RESERVED_EPOCHS } else { end };
            Description {
                name,
                address,
                has_others: grants_to_others || coordinator.others(self.id) > 0,
                epochs: reserved,
            }
        };
        let is_changed = (&next.name, &next.address, next.has_others, next.epochs)
            != (&before.name, &before.address, before.has_others, before.epochs);
        if is_changed {
            let epochs = next.epochs;
            lease.describe(next).await?;
            if let Role::Coordinator { coordinator, .. } = &mut self.state.lock().role {
                coordinator.extend(epochs);
            }
        }
        Ok(())
    }

    /// Returns true if a process whose heartbeats are late has certainly ended: nothing or another process listens at its
    /// address.
    async fn has_ended(&self, node: NodeId, address: String) -> bool {
        let Some(peers) = &self.peers else { return false };
        let body = Message::Ping.encode(self.id).into();
        let answer = peers.call(PeerCall { address, secret: self.secret, body, timeout: PROBE_TIMEOUT }).await;
        match answer {
            Ok(bytes) => matches!(Answer::decode(&bytes), Ok(Answer::Id(found)) if found != node),
            Err(PeerError::Refused(_)) => true,
            Err(PeerError::Failed(_)) => false,
        }
    }

    async fn beat_there(&self, target: &Target, candidate: &mut Candidate) -> Result<()> {
        let sent = Instant::now();
        let (commits, next) = self.news.unsent();
        let beat = Beat { commits, ..self.own_beat(&self.state.lock()) };
        let is_followed = beat.announced.is_some();
        let claims = beat.claims.clone();
        let Answer::Beat(answer) = self.call(target, &Message::Beat(beat)).await? else { return Err(no_coordinator()) };
        candidate.observe(target.node.0, answer.beat, sent);
        self.news.sent(next);
        // Before this process relies on the answer.
        self.news.receive(&answer.commits);
        self.confirm(target, (sent, &claims, is_followed), candidate.renewed(), *answer);
        Ok(())
    }

    /// Records the answer to a heartbeat that was sent at `sent` with `claims`.
    fn confirm(
        &self,
        target: &Target,
        (sent, claims, is_followed): (Instant, &[Claim], bool),
        renewed: Option<Instant>,
        answer: BeatAnswer,
    ) {
        let mut state = self.state.lock();
        for claim in claims {
            if !answer.held.contains(claim) && state.claims.get(&claim.key) == Some(&claim.epoch) {
                state.claims.remove(&claim.key);
            }
        }
        (state.confirmed, state.is_followed, state.renewed) = (Some(sent), is_followed, renewed);
        state.last_coordinator = Some(target.node);
        state.show(answer);
    }

    /// Looks for the coordinator in the bucket, or becomes it.
    async fn search(&self, candidate: &mut Candidate) -> Result<()> {
        let (own, may_take) = {
            let state = self.state.lock();
            let (name, address) = state.announced.clone().unwrap_or_else(|| state.unannounced.clone());
            let yields = state.yields_until.is_some_and(|until| Instant::now() < until) && state.live.len() > 1;
            (Description { name, address, has_others: false, epochs: 0 }, !yields)
        };
        match candidate.attempt(may_take, &own, RESERVED_EPOCHS).await? {
            Attempt::Taken { lease, before } => {
                self.runtime.spawn(Arc::clone(&lease).renew());
                self.promote(&lease, before);
                self.beat_here(&lease).await
            }
            Attempt::Held(record) if record.address.is_empty() => Err(StorageError::Unreached(format!(
                "{} coordinates the nodes, but does not serve requests yet",
                record.name
            ))),
            Attempt::Held(record) => {
                let target = Target { node: NodeId(record.node), name: record.name, address: record.address };
                self.beat_there(&target, candidate).await?;
                tracing::info!(node = target.name, "found the coordinator");
                self.state.lock().role = Role::Follower(target);
                Ok(())
            }
        }
    }

    fn promote(&self, lease: &Arc<Lease>, before: Option<Record>) {
        let epochs = lease.description().epochs;
        let first = self.groups.key(0);
        let mut state = self.state.lock();
        // The last answer is of no use if the lease has moved in between.
        let is_successor = |record: &Record| state.last_coordinator == Some(NodeId(record.node));
        let handover = match before {
            Some(record) if is_successor(&record) => {
                let ended = Some(NodeId(record.node)).filter(|_| record.hold != Hold::Released);
                let is_freed = |(claim, node): &&(Claim, NodeId)| Some(*node) == ended || claim.key == first;
                Handover {
                    live: state.live.iter().map(|node| node.id).filter(|node| Some(*node) != ended).collect(),
                    freed: state.writers.iter().filter(is_freed).map(|(claim, _)| claim.key.clone()).collect(),
                    writers: state.writers.to_vec(),
                    is_incomplete: false,
                }
            }
            before => Handover {
                is_incomplete: before.is_some_and(|record| record.has_others),
                freed: HashSet::from([first]),
                ..Handover::default()
            },
        };
        let coordinator = Coordinator::new(self.now(), epochs - RESERVED_EPOCHS..epochs, handover);
        state.role = Role::Coordinator { lease: Arc::clone(lease), coordinator };
        state.last_coordinator = Some(self.id);
        tracing::info!("this node coordinates the nodes of the store");
    }

    /// Records the heartbeat of this process as the coordinator, and shows the result.
    pub(super) fn refresh_view(&self, state: &mut State) {
        let (beat, now) = (self.own_beat(state), self.now());
        let Role::Coordinator { coordinator, .. } = &mut state.role else { return };
        let answer = coordinator.heartbeat(now, self.id, &beat);
        state.show(answer);
    }

    /// Returns when the coordinator was found. `shown` is the location of the store.
    pub(crate) async fn join(&self, (name, address): (&str, &str), shown: &str, is_exclusive: bool) -> Result<()> {
        let Some(candidate) = &self.candidate else { return Ok(()) };
        self.state.lock().unannounced = (name.to_owned(), address.to_owned());
        let mut first = None;
        let mut is_reported = false;
        loop {
            let result = self.beat().await;
            if self.is_coordinator() || result.is_ok() && !is_exclusive {
                return Ok(());
            }
            // Waiting does not help against missing permissions.
            if matches!(result, Err(StorageError::Io(_))) {
                return result;
            }
            if is_exclusive {
                let observed = candidate.lock().await.observed();
                let is_alive = first.is_some_and(|first| observed.is_some_and(|observed| observed != first));
                first = first.or(observed);
                if is_alive || result.is_ok() {
                    let holder = candidate.lock().await.holder().to_owned();
                    return Err(StorageError::Io(format!("{shown} is in use by {holder}: stop it first")));
                }
            } else if let Err(error) = result
                && !std::mem::replace(&mut is_reported, true)
            {
                tracing::info!(%error, "waiting for the coordinator of the store");
            }
            tokio::time::sleep(SEARCH_INTERVAL).await;
        }
    }

    pub(crate) async fn announce(&self, name: &str, address: &str) -> Result<()> {
        {
            let mut state = self.state.lock();
            (state.has_left, state.withdrawn) = (false, None);
            state.announced = Some((name.to_owned(), address.to_owned()));
        }
        let started = Instant::now();
        loop {
            match self.beat().await {
                // The earlier process of the name may have ended without a message.
                Err(StorageError::Io(_)) if started.elapsed() < NAME_TIMEOUT => {
                    tokio::time::sleep(SEARCH_INTERVAL).await;
                }
                result => {
                    if result.is_err() {
                        self.state.lock().announced = None;
                    }
                    return result;
                }
            }
        }
    }

    /// Starts to leave: this process uses no claim any more. Returns the argument of [`Self::end_leave`], which must follow
    /// after the groups are closed; `None` if
    /// it has left before.
    pub(crate) fn begin_leave(&self) -> Option<Leaving> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.has_left, true) {
            return None;
        }
        let leaving = match &state.role {
            Role::Coordinator { lease, .. } => Leaving(Some(Last::Lease(Arc::clone(lease)))),
            Role::Follower(target) => Leaving(Some(Last::Coordinator(target.clone()))),
            Role::Searching | Role::Sole => Leaving(None),
        };
        if !matches!(state.role, Role::Sole) {
            state.lose_everything();
        }
        (state.announced, state.withdrawn) = (None, None);
        state.live = Arc::default();
        Some(leaving)
    }

    /// Errors are ignored: the heartbeats of this process expire.
    pub(crate) async fn end_leave(&self, leaving: Leaving) {
        match leaving.0 {
            Some(Last::Lease(lease)) => lease.release(Hold::Left).await,
            Some(Last::Coordinator(target)) => drop(self.call(&target, &Message::Leave).await),
            None => {}
        }
    }

    pub(super) async fn call(&self, target: &Target, message: &Message<'_>) -> Result<Answer> {
        match self.send(&target.address, message, ANSWER_TIMEOUT).await {
            Ok(answer) => Ok(answer),
            Err(Failure::Refusal(Refusal::Storage(error))) => Err(error),
            Err(Failure::Refusal(Refusal::NotHere)) => Err(no_coordinator()),
            Err(Failure::Network(error)) => {
                Err(StorageError::Unreached(format!("node {} does not answer: {error}", target.name)))
            }
        }
    }

    /// Sends a message to another process.
    pub(crate) async fn send(
        &self,
        address: &str,
        message: &Message<'_>,
        timeout: Duration,
    ) -> Result<Answer, Failure> {
        let Some(peers) = &self.peers else {
            return Err(Failure::Network(PeerError::Refused("this process sends no messages".to_owned())));
        };
        let body = message.encode(self.id).into();
        let call = PeerCall { address: address.to_owned(), secret: self.secret, body, timeout };
        let bytes = peers.call(call).await.map_err(Failure::Network)?;
        Answer::decode(&bytes).map_err(Failure::Refusal)
    }
}
