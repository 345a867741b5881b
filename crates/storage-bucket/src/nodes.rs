//! [`Nodes`]: the membership of this process. One process, the coordinator, holds the lease in the bucket and keeps the
//! claims of all ([`Coordinator`]). The others send it heartbeats. If it does not answer, they wait for the end of its
//! lease, and one of them becomes the coordinator. The bucket itself receives only the renewals of the lease.

mod answers;
mod heartbeats;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_cluster::Groups;
use settee_storage::members::{Claim, Node, NodeId, WRITER_PREFIX};
use settee_storage::{Result, Shard, StorageError, Version};
use tokio::runtime::Handle;

use crate::block::block_on;
use crate::coordinator::{CLAIM_TIMEOUT, Coordinator};
use crate::lease::{Candidate, Hold, Lease};
use crate::news::News;
use crate::peers::{PeerError, Peers};
use crate::protocol::{Answer, BeatAnswer, Message, Refusal};

/// Interval of heartbeats.
pub(crate) const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(500);

/// Interval of heartbeats while there is no coordinator.
pub(crate) const SEARCH_INTERVAL: Duration = Duration::from_millis(200);

/// Time within which the coordinator must answer a heartbeat.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Age of a heartbeat after which the coordinator probes the process: one whose address refuses connections has ended.
const PROBE_AFTER: Duration = Duration::from_millis(1200);
const PROBE_TIMEOUT: Duration = Duration::from_millis(500);

/// Time for which a process that has released the lease leaves it to others.
const YIELD_TIME: Duration = Duration::from_secs(10);

/// Time for which an operation waits for a coordinator.
const COORDINATOR_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for which a process waits until its name is free. Heartbeats of a failed process expire earlier.
const NAME_TIMEOUT: Duration = Duration::from_secs(6);

/// Epochs that a coordinator reserves at once.
const RESERVED_EPOCHS: u64 = 1 << 16;

pub(crate) struct Nodes {
    pub(crate) id: NodeId,
    pub(crate) groups: Groups,
    pub(crate) news: News,
    runtime: Handle,
    secret: [u8; 32],
    peers: Option<Arc<dyn Peers>>,
    started: Instant,
    started_ms: u64,
    state: Mutex<State>,
    /// `None` for a store that only this process can use. Locked during a heartbeat.
    candidate: Option<tokio::sync::Mutex<Candidate>>,
    /// Held while this process asks for a claim.
    claiming: Mutex<()>,
}

#[derive(Default)]
struct State {
    /// Name and address of this process before it has announced itself.
    unannounced: (String, String),
    announced: Option<(String, String)>,
    /// The same while this process takes no part, because it cannot reach the store.
    withdrawn: Option<(String, String)>,
    has_left: bool,
    yields_until: Option<Instant>,
    role: Role,
    claims: HashMap<String, u64>,
    /// Time at which the last answered heartbeat was sent.
    confirmed: Option<Instant>,
    /// True if that heartbeat contained the address of this process.
    is_followed: bool,
    live: Arc<[Node]>,
    writers: Arc<[(Claim, NodeId)]>,
    awaited: HashSet<String>,
    /// Time at which the last renewal of the coordinator's lease became known.
    renewed: Option<Instant>,
    /// The coordinator of the last answer.
    last_coordinator: Option<NodeId>,
}

#[derive(Default)]
enum Role {
    /// There is no coordinator, or it was not found yet.
    #[default]
    Searching,
    Follower(Target),
    Coordinator {
        lease: Arc<Lease>,
        coordinator: Coordinator,
    },
    /// No other process can use the store.
    Sole,
}

#[derive(Clone, Debug)]
struct Target {
    node: NodeId,
    name: String,
    address: String,
}

/// The receiver of the last message of a leaving process.
pub(crate) struct Leaving(Option<Last>);

enum Last {
    Lease(Arc<Lease>),
    Coordinator(Target),
}

/// The process that serves a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    This,
    Other {
        node: NodeId,
        address: String,
    },
    /// None, or one that is not known yet.
    Unknown,
}

impl Nodes {
    /// `candidate` is absent for a store that only this process can use.
    pub(crate) fn new(
        (id, started_ms): (NodeId, u64),
        groups: Groups,
        runtime: Handle,
        candidate: Option<Candidate>,
        (secret, peers): ([u8; 32], Option<Arc<dyn Peers>>),
    ) -> Self {
        let role = if candidate.is_some() { Role::Searching } else { Role::Sole };
        Self {
            id,
            groups,
            news: News::new(id),
            runtime,
            secret,
            peers,
            started: Instant::now(),
            started_ms,
            state: Mutex::new(State { role, ..State::default() }),
            candidate: candidate.map(tokio::sync::Mutex::new),
            claiming: Mutex::new(()),
        }
    }

    pub(crate) fn is_sole(&self) -> bool {
        self.candidate.is_none()
    }

    pub(crate) fn secret(&self) -> &[u8; 32] {
        &self.secret
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns true if this process is the coordinator, or the only process.
    pub(crate) fn is_coordinator(&self) -> bool {
        matches!(self.state.lock().role, Role::Coordinator { .. } | Role::Sole)
    }

    /// Fails if this process can rely on no claim.
    pub(crate) fn check(&self) -> Result<()> {
        self.state.lock().check()
    }

    pub(crate) fn holds(&self, claim: &Claim) -> bool {
        let state = self.state.lock();
        state.claims.get(&claim.key) == Some(&claim.epoch) && state.check().is_ok()
    }

    /// Returns true if this process has the claim of the group, even if it cannot rely on it at the moment.
    pub(crate) fn has_group(&self, group: u32) -> bool {
        self.state.lock().claims.contains_key(&self.groups.key(group))
    }

    pub(crate) fn owner(&self, group: u32) -> Owner {
        let key = self.groups.key(group);
        let state = self.state.lock();
        if state.claims.contains_key(&key) {
            return if state.check().is_ok() { Owner::This } else { Owner::Unknown };
        }
        let holder = state.writers.iter().find(|(claim, _)| claim.key == key).map(|(_, node)| *node);
        let Some(node) = holder.filter(|holder| *holder != self.id) else { return Owner::Unknown };
        let announced = state.live.iter().find(|live| live.id == node).map(|live| &live.address);
        // The coordinator may not have announced itself yet.
        let address = announced.or(match &state.role {
            Role::Follower(target) if target.node == node => Some(&target.address),
            _ => None,
        });
        address.map_or(Owner::Unknown, |address| Owner::Other { node, address: address.clone() })
    }

    /// Returns true if this process may claim every group without an owner: no other live process could.
    pub(crate) fn claims_freely(&self) -> bool {
        let state = self.state.lock();
        !state.has_left && state.withdrawn.is_none() && (state.announced.is_none() || state.live.len() <= 1)
    }

    /// Gives all claims of this process to others if it has not reached the store since a time, and the coordinator has.
    /// Others do not list this process until [`Self::rejoin`], and it claims nothing. Its requests are served by others.
    pub(crate) fn withdraw(&self, since: Instant) -> bool {
        let mut state = self.state.lock();
        let is_alone = matches!(state.role, Role::Follower(_)) && state.renewed.is_some_and(|renewed| renewed > since);
        if is_alone && state.announced.is_some() {
            state.withdrawn = state.announced.take();
            state.claims.clear();
        }
        is_alone && state.withdrawn.is_some()
    }

    /// Takes part again after [`Self::withdraw`].
    pub(crate) fn rejoin(&self) {
        let mut state = self.state.lock();
        state.announced = state.withdrawn.take();
    }

    pub(crate) fn is_withdrawn(&self) -> bool {
        self.state.lock().withdrawn.is_some()
    }

    /// Claims a group, unless this process has it already.
    pub(crate) fn claim_vacant(&self, group: u32) -> Result<()> {
        let _claiming = self.claiming.lock();
        if !self.has_group(group) {
            self.claim_as(&self.groups.key(group))?;
        }
        Ok(())
    }

    pub(crate) fn claim(&self, key: &str) -> Result<Option<Claim>> {
        let _claiming = self.claiming.lock();
        self.claim_as(key)
    }

    fn claim_as(&self, key: &str) -> Result<Option<Claim>> {
        let epoch = if self.is_sole() {
            Some(1)
        } else if self.is_withdrawn() {
            None
        } else {
            match self.coordinated(&Message::Claim(key))? {
                Answer::Claimed(epoch) => epoch,
                _ => None,
            }
        };
        let Some(epoch) = epoch else { return Ok(None) };
        self.state.lock().claims.insert(key.to_owned(), epoch);
        Ok(Some(Claim { key: key.to_owned(), epoch }))
    }

    /// Releases a claim of this process.
    pub(crate) fn release(&self, claim: &Claim) -> Result<()> {
        if self.forget(claim) { self.release_forgotten(claim) } else { Ok(()) }
    }

    /// Stops the use of a claim, which remains assigned to this process. Returns false if this process does not have it.
    pub(crate) fn forget(&self, claim: &Claim) -> bool {
        let mut state = self.state.lock();
        let is_held = state.claims.get(&claim.key) == Some(&claim.epoch);
        if is_held {
            state.claims.remove(&claim.key);
        }
        is_held
    }

    /// Gives a forgotten claim to others. The coordinator ends its role with the first group.
    pub(crate) fn release_forgotten(&self, claim: &Claim) -> Result<()> {
        enum Next {
            Done,
            Tell(Target),
            Yield(Arc<Lease>),
        }
        let is_first = self.groups.of_key(&claim.key) == Some(0);
        let next = {
            let mut state = self.state.lock();
            let next = match &mut state.role {
                Role::Sole | Role::Searching => Next::Done,
                Role::Follower(target) => Next::Tell(target.clone()),
                Role::Coordinator { lease, .. } if is_first => Next::Yield(Arc::clone(lease)),
                Role::Coordinator { coordinator, .. } => {
                    coordinator.release(self.id, claim);
                    Next::Done
                }
            };
            if matches!(next, Next::Yield(_)) {
                state.role = Role::Searching;
                state.yields_until = Some(Instant::now() + YIELD_TIME);
                // The claims of this process are valid until another coordinator confirms them.
                state.confirmed = Some(Instant::now());
            }
            self.refresh_view(&mut state);
            next
        };
        match next {
            Next::Done => Ok(()),
            Next::Tell(target) => {
                block_on(&self.runtime, self.call(&target, &Message::Release(claim.clone()))).map(|_| ())
            }
            Next::Yield(lease) => {
                block_on(&self.runtime, lease.release(Hold::Released));
                Ok(())
            }
        }
    }

    /// Returns true if other live processes exist.
    pub(crate) fn has_others(&self) -> bool {
        self.state.lock().live.iter().any(|node| node.id != self.id)
    }

    pub(crate) fn live(&self) -> Arc<[Node]> {
        Arc::clone(&self.state.lock().live)
    }

    pub(crate) fn writers(&self) -> Arc<[(Claim, NodeId)]> {
        let state = self.state.lock();
        if matches!(state.role, Role::Sole) {
            let claims = state.claims.iter().map(|(key, epoch)| Claim { key: key.clone(), epoch: *epoch });
            return claims.filter(|claim| claim.key.starts_with(WRITER_PREFIX)).map(|claim| (claim, self.id)).collect();
        }
        Arc::clone(&state.writers)
    }

    /// Returns the number of groups whose claim this process holds and can rely on.
    pub(crate) fn owned_groups(&self) -> u64 {
        let state = self.state.lock();
        let owned = state.claims.keys().filter(|key| self.groups.of_key(key).is_some());
        if state.check().is_ok() { owned.count() as u64 } else { 0 }
    }

    pub(crate) fn is_awaited(&self, claim: &Claim) -> bool {
        let state = self.state.lock();
        state.claims.get(&claim.key) == Some(&claim.epoch) && state.awaited.contains(&claim.key)
    }

    pub(crate) fn is_gone(&self, node: NodeId) -> Result<bool> {
        if self.is_sole() {
            return Ok(node != self.id);
        }
        Ok(self.coordinated(&Message::IsGone(node))? == Answer::IsGone(true))
    }

    pub(crate) fn announce_wait(&self, key: &str) -> Result<()> {
        if self.is_sole() { Ok(()) } else { self.coordinated(&Message::AnnounceWait(key)).map(|_| ()) }
    }

    /// Observes all commits to the shards of the coordinator. A process with an address whose heartbeats are answered has
    /// observed them before they were acknowledged ([`Self::spread`]).
    pub(crate) fn catch_up(&self) -> Result<()> {
        if self.is_coordinator() {
            return self.check();
        }
        {
            let state = self.state.lock();
            if state.is_followed && matches!(state.role, Role::Follower(_)) && state.check().is_ok() {
                return Ok(());
            }
        }
        match self.coordinated(&Message::CatchUp(self.news.cursor()))? {
            Answer::Commits(commits) => {
                self.news.receive(&commits);
                Ok(())
            }
            _ => Err(no_coordinator()),
        }
    }

    /// Waits, as the coordinator, until all other processes have observed a commit of `origin` to the first group, or rely
    /// on nothing that they have cached any more.
    pub(crate) fn spread(&self, origin: NodeId, commit: (Shard, Version)) -> Result<()> {
        let message = Message::Observe(vec![commit]);
        let mut observed = HashSet::from([origin, self.id]);
        loop {
            let (followers, is_incomplete) = match &self.state.lock().role {
                Role::Coordinator { lease, coordinator } if lease.check().is_ok() => coordinator.followers(self.id),
                Role::Sole => return Ok(()),
                _ => return Err(StorageError::InDoubt("another node may have become the coordinator".to_owned())),
            };
            let asked = followers.into_iter().filter(|(node, _)| !observed.contains(node)).map(|(node, address)| {
                let message = &message;
                async move { (node, self.send(&address, message, ANSWER_TIMEOUT).await) }
            });
            let answers = block_on(&self.runtime, futures_util::future::join_all(asked));
            let is_complete = answers.iter().all(|(_, answer)| answer.is_ok()) && !is_incomplete;
            observed.extend(answers.into_iter().filter(|(_, answer)| answer.is_ok()).map(|(node, _)| node));
            if is_complete {
                return Ok(());
            }
            std::thread::sleep(SEARCH_INTERVAL / 4);
        }
    }

    fn answer_own(&self, message: &Message<'_>) -> Result<Answer, Refusal> {
        match message {
            Message::Claim(key) => self.grant(self.id, key),
            message => self.answer_at_once(self.id, message).unwrap_or(Err(Refusal::NotHere)),
        }
    }

    /// Sends a message to the coordinator, which may be this process or change during the call.
    fn coordinated(&self, message: &Message<'_>) -> Result<Answer> {
        let started = Instant::now();
        loop {
            let target = match &self.state.lock().role {
                Role::Follower(target) => Some(target.clone()),
                _ => None,
            };
            let result = match target {
                Some(target) => block_on(&self.runtime, self.call(&target, message)),
                None => match self.answer_own(message) {
                    Err(Refusal::Storage(error)) => Err(error),
                    Err(Refusal::NotHere) => Err(no_coordinator()),
                    Ok(answer) => Ok(answer),
                },
            };
            match result {
                Err(StorageError::Unreached(_)) if started.elapsed() < COORDINATOR_TIMEOUT => {
                    std::thread::sleep(SEARCH_INTERVAL / 4);
                    let _ = block_on(&self.runtime, self.beat());
                }
                result => return result,
            }
        }
    }
}

/// Reason why a message has no answer.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    Network(PeerError),
    Refusal(Refusal),
}

impl State {
    fn check(&self) -> Result<()> {
        match &self.role {
            Role::Sole => Ok(()),
            Role::Coordinator { lease, .. } => lease.check(),
            Role::Follower(_) | Role::Searching => match self.confirmed {
                Some(sent) if sent.elapsed() < CLAIM_TIMEOUT => Ok(()),
                _ => Err(no_coordinator()),
            },
        }
    }

    fn show(&mut self, answer: BeatAnswer) {
        self.live = answer.live.into();
        self.writers = answer.writers.into();
        self.awaited = answer.awaited.into_iter().collect();
    }

    fn lose_everything(&mut self) {
        self.claims.clear();
        self.confirmed = None;
        self.role = Role::Searching;
        self.writers = Arc::default();
    }
}

fn no_coordinator() -> StorageError {
    StorageError::Unreached("no node coordinates the store at the moment".to_owned())
}
