//! [`Writers`]: the driver of the leases of all groups, on a thread of its own.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use settee_storage::members::{Claim, Members, NodeId, preferred};
use settee_storage::{Engine, Result, Shard, StorageError};

use crate::groups::Groups;
use crate::lease::{Action, Holder, Input, Lease, State};

/// Interval at which the cached membership is observed. It costs no round trip.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time between two groups that a node gives to their preferred nodes, and after a change of the nodes.
const BALANCE_INTERVAL_MS: u64 = 3000;

/// The node that commits writes to a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterLocation {
    /// This node.
    Here,
    /// The last observed holder of the lease, which may have failed since.
    At(NodeId),
    /// No node, or none that was observed yet.
    Unknown,
}

/// Listener for changes of writers.
pub type Listener = Box<dyn Fn() + Send + Sync>;

/// The leases of this node. The process must be announced as a member before, so that other nodes can reach the writer.
/// When the last reference is dropped, the thread ends, and the leases expire with the engine.
pub struct Writers {
    inner: Arc<Inner>,
}

struct Inner {
    engine: Arc<dyn Engine>,
    groups: Groups,
    started: Instant,
    shared: Mutex<Shared>,
    /// Notified when the thread has work.
    work: Condvar,
    listeners: Mutex<Vec<Arc<Listener>>>,
}

struct Shared {
    leases: Vec<Lease>,
    locations: Vec<WriterLocation>,
    /// Actions that other threads have caused.
    actions: VecDeque<(u32, Action)>,
    must_refresh: bool,
    is_leaving: bool,
    has_ended: bool,
    balance: Balance,
}

/// The nodes, and the time of their last change or of the last group that was given away.
#[derive(Default)]
struct Balance {
    nodes: Vec<NodeId>,
    since: u64,
}

impl fmt::Debug for Writers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writers").field("locations", &self.inner.shared.lock().locations).finish_non_exhaustive()
    }
}

impl Writers {
    /// Starts to acquire leases. The only process of an engine is the writer of all groups at once.
    ///
    /// # Panics
    /// If the thread cannot be started.
    #[must_use]
    pub fn start(engine: Arc<dyn Engine>, groups: Groups) -> Arc<Self> {
        let count = groups.count() as usize;
        let is_sole = engine.members().is_sole();
        let shared = Shared {
            leases: vec![Lease::default(); count],
            locations: vec![WriterLocation::Unknown; count],
            actions: VecDeque::new(),
            must_refresh: false,
            is_leaving: false,
            has_ended: false,
            balance: Balance::default(),
        };
        let inner = Arc::new(Inner {
            engine,
            groups,
            started: Instant::now(),
            shared: Mutex::new(shared),
            work: Condvar::new(),
            listeners: Mutex::default(),
        });
        if is_sole {
            inner.observe();
        } else {
            let inner = Arc::clone(&inner);
            let thread = thread::Builder::new().name("settee-leases".to_owned());
            thread.spawn(move || inner.run()).expect("the system starts a thread");
        }
        Arc::new(Self { inner })
    }

    /// Returns the claim under which this node may commit to the shard now. Reads cached state only.
    ///
    /// # Errors
    /// [`StorageError::Deposed`] if this node is not the writer, or its lease has expired by its own clock.
    pub fn claim(&self, shard: Shard) -> Result<Claim> {
        let group = self.inner.groups.of(shard);
        self.inner.held(group).filter(|claim| self.members().holds(claim)).ok_or(StorageError::Deposed)
    }

    /// Returns true if this node is the writer of every group, and no other node can have become one: its data is
    /// current without a catch-up. Reads cached state only.
    #[must_use]
    pub fn holds_all(&self) -> bool {
        let members = self.members();
        let mut groups = 0..self.inner.groups.count();
        groups.all(|group| self.inner.held(group).is_some_and(|claim| members.is_exclusive(&claim)))
    }

    /// Returns the node that commits writes to the shard.
    #[must_use]
    pub fn location(&self, shard: Shard) -> WriterLocation {
        let group = self.inner.groups.of(shard) as usize;
        self.inner.shared.lock().locations[group]
    }

    /// Reports that a commit under this claim was rejected. This node becomes a follower.
    pub fn deposed(&self, claim: &Claim) {
        let Some(group) = self.inner.groups.of_key(&claim.key) else { return };
        self.inner.change(|shared, now| {
            let action = shared.leases[group as usize].step(now, Input::Rejected { epoch: claim.epoch });
            let Some(action) = action else { return };
            shared.actions.push_back((group, action));
            shared.must_refresh = true;
        });
        self.inner.work.notify_one();
    }

    /// Refreshes the membership, after the holder of a lease was unreachable or replied that it is not the writer. The
    /// lease is claimed as soon as the store considers the holder failed.
    pub fn refresh(&self) {
        {
            let now = self.inner.now();
            let mut shared = self.inner.shared.lock();
            for lease in &mut shared.leases {
                let _: Option<Action> = lease.step(now, Input::Suspected);
            }
            shared.must_refresh = true;
        }
        self.inner.work.notify_one();
    }

    /// Registers a listener, which is called after a shard has another writer. It must be quick, and may call
    /// [`Writers::location`].
    pub fn on_change(&self, listener: Listener) {
        self.inner.listeners.lock().push(Arc::new(listener));
    }

    /// Returns true if some group has no observed writer.
    #[must_use]
    pub fn is_vacant(&self) -> bool {
        self.inner.shared.lock().locations.contains(&WriterLocation::Unknown)
    }

    /// Accepts no further writes: this node is the writer of no shard any more. The leases remain valid for writes in
    /// progress.
    pub fn leave(&self) {
        self.inner.change(|shared, _| shared.is_leaving = true);
    }

    /// Releases all leases and acquires none any more. The caller must have finished its commits, so that the next
    /// writer need not wait for them. The writers of other shards are still observed. May block.
    pub fn stop(&self) {
        let mut releases = Vec::new();
        self.inner.change(|shared, now| {
            for (lease, group) in shared.leases.iter_mut().zip(0..) {
                releases.extend(lease.step(now, Input::Stop).map(|action| (group, action)));
            }
        });
        // A release may have to write the data of its group.
        thread::scope(|scope| {
            for (group, action) in releases {
                scope.spawn(move || self.inner.perform(group, action));
            }
        });
    }

    fn members(&self) -> &dyn Members {
        self.inner.engine.members()
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.inner.shared.lock().has_ended = true;
        self.inner.work.notify_one();
    }
}

impl Inner {
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn run(&self) {
        loop {
            let (actions, must_refresh) = {
                let mut shared = self.shared.lock();
                if shared.has_ended {
                    return;
                }
                (std::mem::take(&mut shared.actions), std::mem::take(&mut shared.must_refresh))
            };
            for (group, action) in actions {
                self.advance(group, Some(action));
            }
            if must_refresh {
                // Without a response the cached membership remains, and requests continue to fail.
                let _: Result<()> = self.engine.members().refresh();
            }
            self.observe();
            self.balance();
            let mut shared = self.shared.lock();
            if !shared.has_ended && !shared.must_refresh {
                self.work.wait_for(&mut shared, POLL_INTERVAL);
            }
        }
    }

    /// Observes the membership, and performs the actions that follow: those of several groups concurrently, because a
    /// fence may have to open the data of its group.
    fn observe(&self) {
        let observed = (0..self.groups.count()).filter_map(|group| Some((group, self.step_observed(group)?)));
        match observed.collect::<Vec<_>>().as_slice() {
            [] => {}
            [(group, action)] => self.advance(*group, Some(*action)),
            several => thread::scope(|scope| {
                for (group, action) in several {
                    scope.spawn(|| self.advance(*group, Some(*action)));
                }
            }),
        }
    }

    /// Gives one group to its preferred node, if the engine keeps the data of a group at one node. The first group stays
    /// with the node that the engine determines.
    fn balance(&self) {
        if self.engine.group_count().is_none() {
            return;
        }
        let live = self.engine.members().live();
        let this = self.engine.members().this();
        let mut given = None;
        self.change(|shared, now| {
            let nodes: Vec<NodeId> = live.iter().map(|node| node.id).collect();
            if shared.balance.nodes != nodes {
                shared.balance = Balance { nodes, since: now };
            }
            let is_early = now - shared.balance.since < BALANCE_INTERVAL_MS;
            if is_early || shared.is_leaving || shared.locations.contains(&WriterLocation::Unknown) {
                return;
            }
            let is_preferred_elsewhere =
                |group: &u32| preferred(&live, &self.groups.key(*group)).is_some_and(|node| node.id != this);
            for group in (1..self.groups.count()).filter(is_preferred_elsewhere) {
                let action = shared.leases[group as usize].step(now, Input::Given);
                if let Some(action) = action {
                    given = Some((group, action));
                    shared.balance.since = now;
                    return;
                }
            }
        });
        if let Some((group, action)) = given {
            self.advance(group, Some(action));
        }
    }

    /// Performs an action and those that its result causes.
    fn advance(&self, group: u32, mut action: Option<Action>) {
        while let Some(current) = action {
            let Some(input) = self.perform(group, current) else { return };
            action = None;
            self.change(|shared, now| action = shared.leases[group as usize].step(now, input));
        }
    }

    fn perform(&self, group: u32, action: Action) -> Option<Input> {
        let members = self.engine.members();
        let claim = |epoch| Claim { key: self.groups.key(group), epoch };
        match action {
            Action::Claim => {
                let claimed = members.claim(&self.groups.key(group)).ok().flatten();
                Some(Input::Claimed(claimed.map(|claim| claim.epoch)))
            }
            Action::Fence { epoch } => {
                let fenced = members.refresh().and_then(|()| members.fence(&claim(epoch)));
                Some(Input::Fenced { epoch, is_done: fenced.is_ok() })
            }
            Action::CatchUp { epoch } => Some(Input::CaughtUp { epoch, is_done: self.engine.catch_up().is_ok() }),
            Action::Release { epoch } => {
                // If the store fails, the claim ends with the process, or this node adopts it again.
                let _: Result<()> = members.release(&claim(epoch));
                None
            }
        }
    }

    fn step_observed(&self, group: u32) -> Option<Action> {
        let mut action = None;
        self.change(|shared, now| {
            let lease = &mut shared.leases[group as usize];
            let holder = self.holder(group, lease.epoch());
            action = lease.step(now, Input::Observed(holder));
        });
        action
    }

    fn holder(&self, group: u32, epoch: Option<u64>) -> Holder {
        let members = self.engine.members();
        let live = members.live();
        let Some((claim, node)) = self.observed(group) else {
            let is_other = |(claim, node): &(Claim, NodeId)| {
                self.groups.of_key(&claim.key).is_none() && live.iter().any(|other| other.id == *node)
            };
            if members.writers().iter().any(is_other) {
                // A node with another number of groups may be the writer of these shards.
                return Holder::Live;
            }
            let preferred = preferred(&live, &self.groups.key(group)).is_none_or(|node| node.id == members.this());
            // With one group there is nothing to distribute.
            return Holder::Free { is_preferred: preferred || self.groups.count() == 1 };
        };
        if node != members.this() {
            let is_live = live.iter().any(|other| other.id == node);
            return if is_live { Holder::Live } else { Holder::Expired };
        }
        match epoch {
            Some(epoch) if epoch != claim.epoch => Holder::Live,
            _ => Holder::This { is_valid: members.holds(&claim) },
        }
    }

    /// Returns the claim of a group, as the last heartbeat has shown it.
    fn observed(&self, group: u32) -> Option<(Claim, NodeId)> {
        let writers = self.engine.members().writers();
        writers.iter().find(|(claim, _)| self.groups.of_key(&claim.key) == Some(group)).cloned()
    }

    /// Returns the claim of a group whose writer this node is, if the lease is valid.
    fn held(&self, group: u32) -> Option<Claim> {
        match self.shared.lock().leases[group as usize].state() {
            State::Writer { epoch } => Some(Claim { key: self.groups.key(group), epoch }),
            _ => None,
        }
    }

    /// Changes leases, then computes the locations and notifies those that wait for a change.
    fn change(&self, change: impl FnOnce(&mut Shared, u64)) {
        {
            let mut shared = self.shared.lock();
            change(&mut shared, self.now());
            let mut locations: Vec<_> =
                (0..).zip(&shared.leases).map(|(group, lease)| self.location(group, lease)).collect();
            if shared.is_leaving {
                locations
                    .iter_mut()
                    .filter(|location| **location == WriterLocation::Here)
                    .for_each(|location| *location = WriterLocation::Unknown);
            }
            if shared.locations == locations {
                return;
            }
            shared.locations = locations;
        }
        let listeners = self.listeners.lock().clone();
        listeners.iter().for_each(|listener| listener());
    }

    fn location(&self, group: u32, lease: &Lease) -> WriterLocation {
        if matches!(lease.state(), State::Writer { .. }) {
            return WriterLocation::Here;
        }
        let this = self.engine.members().this();
        match self.observed(group) {
            Some((_, node)) if node != this => WriterLocation::At(node),
            _ => WriterLocation::Unknown,
        }
    }
}

#[cfg(test)]
mod tests;
