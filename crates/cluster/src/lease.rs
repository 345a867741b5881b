//! [`Lease`]: the state machine of one group on one node, without I/O, threads or a clock.
//!
//! The caller reports what it observes ([`Input`]), performs one [`Action`] after the other, and reports its result.
//!
//! | state | commits | leaves the state when |
//! |---|---|---|
//! | [`Follower`](State::Follower) | forwards writes | no live node holds the claim: `Claiming` |
//! | [`Claiming`](State::Claiming) | forwards writes | the store answers: `Fencing`, or `Follower` |
//! | [`Fencing`](State::Fencing) | none | no commit under an earlier claim can be applied: `CatchingUp` |
//! | [`CatchingUp`](State::CatchingUp) | none | all earlier commits are observed: `Writer` |
//! | [`Writer`](State::Writer) | under its epoch, without polls | its heartbeats are late: `Deposed` |
//! | [`Deposed`](State::Deposed) | none | its heartbeats arrive in time for the store: `CatchingUp`; the claim is lost: `Follower` |
//! | [`Stopped`](State::Stopped) | none | never |
//!
//! A node that observes another claim than its own releases its own and is a follower, in every state. So is a writer
//! whose commit was rejected.

/// Pause before a failed action is repeated.
pub const RETRY_PAUSE_MS: u64 = 100;

/// Time for which a group has no holder before a node claims it that is not the preferred one.
pub const FREE_DELAY_MS: u64 = 500;

/// Time for which a node that gives a group to its preferred node does not claim it.
pub const GIVEN_DELAY_MS: u64 = 3000;

/// Time for which a suspected holder is checked, which is longer than the expiry of a heartbeat without a connection.
pub const SUSPICION_MS: u64 = 3000;

/// Holder of the claim, as the last heartbeat has shown it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holder {
    /// No node.
    Free {
        /// True if this node should claim it at once.
        is_preferred: bool,
    },
    /// This node with the epoch of the lease, or with any epoch if the lease has none.
    This {
        /// True if the lease is valid by the clock of this node.
        is_valid: bool,
    },
    /// Another live node, or another claim of this one.
    Live,
    /// A node that has sent no heartbeat for some time. Only the store determines whether its claim has expired.
    Expired,
}

/// An observation, or the result of an [`Action`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Reported several times a second, and not while an action is in progress.
    Observed(Holder),
    /// The holder was unreachable, or replied that it is not the writer.
    Suspected,
    /// Result of [`Action::Claim`]: the epoch, unless another node holds the claim or the store failed.
    Claimed(Option<u64>),
    /// Result of [`Action::Fence`].
    Fenced {
        /// Epoch of the action.
        epoch: u64,
        /// False if commits under an earlier claim may still be in progress.
        is_done: bool,
    },
    /// Result of [`Action::CatchUp`].
    CaughtUp {
        /// Epoch of the action.
        epoch: u64,
        /// False if the store failed.
        is_done: bool,
    },
    /// The store has rejected a commit under this epoch.
    Rejected {
        /// Epoch of the commit.
        epoch: u64,
    },
    /// Another node should serve the group. Only sent while all groups have a writer.
    Given,
    /// The node stops. The caller has finished its commits.
    Stop,
}

/// Work for the caller, which may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Claim the group.
    Claim,
    /// Send a heartbeat, so that later observations show the claim, then wait for commits under earlier claims.
    Fence {
        /// Epoch of the claim.
        epoch: u64,
    },
    /// Observe all commits so far.
    CatchUp {
        /// Epoch of the claim.
        epoch: u64,
    },
    /// Release the claim. The result is not reported: if the store fails, the claim expires.
    Release {
        /// Epoch of the claim.
        epoch: u64,
    },
}

/// State of a [`Lease`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Another node is the writer, or none.
    Follower,
    /// An attempt to claim is in progress.
    Claiming,
    /// The claim is held; commits under earlier claims may still be in progress.
    Fencing {
        /// Epoch of the claim.
        epoch: u64,
    },
    /// The claim is held, and earlier commits may not have been observed yet.
    CatchingUp {
        /// Epoch of the claim.
        epoch: u64,
    },
    /// This node commits under the epoch, as long as its lease is valid by its own clock.
    Writer {
        /// Epoch of the claim.
        epoch: u64,
    },
    /// The lease was not renewed in time. Another node may hold the claim.
    Deposed {
        /// Epoch of the claim.
        epoch: u64,
    },
    /// The node has stopped.
    Stopped,
}

/// The lease of one group.
#[derive(Clone, Debug)]
pub struct Lease {
    state: State,
    /// Time before which no failed action is repeated.
    retry_at: u64,
    /// Time at which the group was first observed without a holder.
    free_since: Option<u64>,
    suspected_until: u64,
}

impl Default for Lease {
    fn default() -> Self {
        Self { state: State::Follower, retry_at: 0, free_since: None, suspected_until: 0 }
    }
}

impl Lease {
    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Returns the epoch of the claim that this node holds, or has held until now.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        match self.state {
            State::Fencing { epoch }
            | State::CatchingUp { epoch }
            | State::Writer { epoch }
            | State::Deposed { epoch } => Some(epoch),
            State::Follower | State::Claiming | State::Stopped => None,
        }
    }

    /// Takes an input at `now_ms` of the monotonic clock of this node. Results of actions of an earlier epoch are ignored.
    pub fn step(&mut self, now_ms: u64, input: Input) -> Option<Action> {
        match (self.state, input) {
            // The claim was granted after the stop.
            (State::Stopped, Input::Claimed(Some(epoch))) => Some(Action::Release { epoch }),
            (State::Stopped, _) => None,
            (_, Input::Stop) => self.release(State::Stopped),
            (State::Writer { .. }, Input::Given) => {
                self.retry_at = now_ms + GIVEN_DELAY_MS;
                self.release(State::Follower)
            }
            (_, Input::Given) => None,
            (_, Input::Suspected) => {
                self.suspected_until = now_ms + SUSPICION_MS;
                None
            }
            (State::Claiming, Input::Claimed(Some(epoch))) => self.enter(State::Fencing { epoch }),
            (State::Claiming, Input::Claimed(None)) => {
                self.state = State::Follower;
                self.pause(now_ms)
            }
            (State::Fencing { epoch }, Input::Fenced { epoch: of, is_done }) if of == epoch => {
                if is_done {
                    self.enter(State::CatchingUp { epoch })
                } else {
                    self.pause(now_ms)
                }
            }
            (State::CatchingUp { epoch }, Input::CaughtUp { epoch: of, is_done }) if of == epoch => {
                if is_done {
                    self.enter(State::Writer { epoch })
                } else {
                    self.pause(now_ms)
                }
            }
            (_, Input::Rejected { epoch }) if self.epoch() == Some(epoch) => self.release(State::Follower),
            (_, Input::Observed(holder)) => self.observe(now_ms, holder),
            (_, Input::Claimed(_) | Input::Fenced { .. } | Input::CaughtUp { .. } | Input::Rejected { .. }) => None,
        }
    }

    fn observe(&mut self, now_ms: u64, holder: Holder) -> Option<Action> {
        let Holder::This { is_valid } = holder else {
            return match self.epoch() {
                Some(_) => self.release(State::Follower),
                None => self.follow(now_ms, holder),
            };
        };
        match self.state {
            State::Writer { epoch } if !is_valid => self.enter(State::Deposed { epoch }),
            // The store has received all heartbeats in time, so the claim was not taken over.
            State::Deposed { epoch } if is_valid => self.enter(State::CatchingUp { epoch }),
            State::Fencing { .. } | State::CatchingUp { .. } if is_valid && now_ms >= self.retry_at => {
                self.enter(self.state)
            }
            // The result of an earlier attempt to claim was lost.
            State::Follower => self.follow(now_ms, holder),
            _ => None,
        }
    }

    /// Claims the group if there is no live holder.
    fn follow(&mut self, now_ms: u64, holder: Holder) -> Option<Action> {
        let Holder::Free { is_preferred } = holder else {
            self.free_since = None;
            let is_due = holder != Holder::Live || now_ms < self.suspected_until;
            return if is_due { self.claim(now_ms) } else { None };
        };
        let free_since = *self.free_since.get_or_insert(now_ms);
        if is_preferred || now_ms - free_since >= FREE_DELAY_MS { self.claim(now_ms) } else { None }
    }

    fn claim(&mut self, now_ms: u64) -> Option<Action> {
        let is_due = self.state == State::Follower && now_ms >= self.retry_at;
        if is_due { self.enter(State::Claiming) } else { None }
    }

    /// Enters a state and returns its action.
    fn enter(&mut self, state: State) -> Option<Action> {
        self.state = state;
        match state {
            State::Claiming => Some(Action::Claim),
            State::Fencing { epoch } => Some(Action::Fence { epoch }),
            State::CatchingUp { epoch } => Some(Action::CatchUp { epoch }),
            State::Follower | State::Writer { .. } | State::Deposed { .. } | State::Stopped => None,
        }
    }

    fn pause(&mut self, now_ms: u64) -> Option<Action> {
        self.retry_at = now_ms + RETRY_PAUSE_MS;
        None
    }

    fn release(&mut self, next: State) -> Option<Action> {
        let epoch = self.epoch();
        (self.state, self.free_since) = (next, None);
        epoch.map(|epoch| Action::Release { epoch })
    }
}

#[cfg(test)]
mod tests;
