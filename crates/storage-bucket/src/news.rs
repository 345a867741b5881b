//! [`News`]: the commits that the listeners of this process and other processes must observe.

use std::collections::{BTreeMap, HashSet, VecDeque};

use parking_lot::{Mutex, RwLock};
use settee_storage::members::NodeId;
use settee_storage::{CommitListener, Shard, Version};

use crate::protocol::{Commits, Cursor};

/// Commits that are kept for processes that have not observed them.
const KEPT_COMMITS: usize = 65_536;

/// The shard that all processes read, even if they have never read it from another process.
const CATALOG: Shard = Shard(0);

pub(crate) struct News {
    this: NodeId,
    state: Mutex<State>,
    /// Held while an answer of the coordinator is processed: no later answer is complete before the listeners have
    /// observed the earlier ones.
    receiving: Mutex<()>,
    listeners: RwLock<Vec<CommitListener>>,
}

#[derive(Default)]
struct State {
    commits: VecDeque<Commit>,
    /// Number of the next commit.
    next: u64,
    /// Number of the first commit that the coordinator has not received from this process.
    unsent: u64,
    /// Position in the commits of the coordinator.
    cursor: Cursor,
    /// Shards that this process has read from their owners, and may have cached.
    remote: HashSet<Shard>,
}

struct Commit {
    number: u64,
    origin: NodeId,
    shard: Shard,
    version: Version,
}

impl State {
    fn push(&mut self, origin: NodeId, shard: Shard, version: Version) {
        if self.commits.len() == KEPT_COMMITS {
            self.commits.pop_front();
        }
        self.commits.push_back(Commit { number: self.next, origin, shard, version });
        self.next += 1;
    }

    fn first(&self) -> u64 {
        self.commits.front().map_or(self.next, |commit| commit.number)
    }

    /// Returns the last version of each shard, without the commits of `except`.
    fn since(&self, number: u64, except: Option<NodeId>) -> Vec<(Shard, Version)> {
        let skipped = usize::try_from(number.saturating_sub(self.first())).unwrap_or(usize::MAX);
        let after = self.commits.iter().skip(skipped).filter(|commit| Some(commit.origin) != except);
        let mut last = BTreeMap::new();
        for Commit { shard, version, .. } in after {
            last.insert(*shard, *version);
        }
        last.into_iter().collect()
    }
}

impl News {
    pub(crate) fn new(this: NodeId) -> Self {
        Self { this, state: Mutex::default(), receiving: Mutex::default(), listeners: RwLock::default() }
    }

    pub(crate) fn subscribe(&self, listener: CommitListener) {
        self.listeners.write().push(listener);
    }

    /// Notifies the listeners of commits of other processes.
    pub(crate) fn notify(&self, commits: &[(Shard, Version)]) {
        let listeners = self.listeners.read();
        for (shard, version) in commits {
            listeners.iter().for_each(|listener| listener(*shard, *version));
        }
    }

    /// Records a commit that this process has made at the request of `origin`.
    pub(crate) fn record(&self, origin: NodeId, shard: Shard, version: Version) {
        self.state.lock().push(origin, shard, version);
        if origin != self.this {
            self.notify(&[(shard, version)]);
        }
    }

    /// Records commits of another process, as the coordinator.
    pub(crate) fn relay(&self, origin: NodeId, commits: &[(Shard, Version)]) {
        {
            let mut state = self.state.lock();
            commits.iter().for_each(|(shard, version)| state.push(origin, *shard, *version));
        }
        self.notify(commits);
    }

    /// Returns the commits that `asking` has not observed, as the coordinator.
    pub(crate) fn since(&self, cursor: Cursor, asking: NodeId) -> Commits {
        let state = self.state.lock();
        let has_gap = cursor.coordinator != self.this.0 || cursor.number < state.first() || cursor.number > state.next;
        let commits = if has_gap { Vec::new() } else { state.since(cursor.number, Some(asking)) };
        Commits { cursor: Cursor { coordinator: self.this.0, number: state.next }, has_gap, commits }
    }

    /// Returns the commits of this process that the coordinator has not received, and the argument of [`Self::sent`].
    pub(crate) fn unsent(&self) -> (Vec<(Shard, Version)>, u64) {
        let state = self.state.lock();
        (state.since(state.unsent, None), state.next)
    }

    pub(crate) fn sent(&self, next: u64) {
        let mut state = self.state.lock();
        state.unsent = state.unsent.max(next);
    }

    pub(crate) fn cursor(&self) -> Cursor {
        self.state.lock().cursor
    }

    /// Notifies the listeners of an answer of the coordinator. If commits are missing, everything that was read from
    /// other processes may have changed.
    pub(crate) fn receive(&self, answer: &Commits) {
        let _receiving = self.receiving.lock();
        let stale: Vec<(Shard, Version)> = {
            let mut state = self.state.lock();
            let is_later =
                state.cursor.coordinator != answer.cursor.coordinator || state.cursor.number < answer.cursor.number;
            if is_later {
                state.cursor = answer.cursor;
            }
            let remote = state.remote.iter().copied().filter(|_| answer.has_gap);
            remote.chain(answer.has_gap.then_some(CATALOG)).map(|shard| (shard, Version::default())).collect()
        };
        self.notify(&stale);
        self.notify(&answer.commits);
    }

    /// Records that this process reads a shard from another one.
    pub(crate) fn read_remotely(&self, shard: Shard) {
        self.state.lock().remote.insert(shard);
    }

    /// Reports that the contents of the matching shards may be others than those that this process has cached, and
    /// forgets them until they are read again.
    pub(crate) fn invalidate(&self, is_stale: impl Fn(Shard) -> bool) {
        let stale: Vec<(Shard, Version)> = {
            let mut state = self.state.lock();
            let (stale, rest) = std::mem::take(&mut state.remote).into_iter().partition(|shard| is_stale(*shard));
            state.remote = rest;
            let stale: HashSet<Shard> = stale;
            stale.into_iter().map(|shard| (shard, Version::default())).collect()
        };
        self.notify(&stale);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    type Heard = Arc<Mutex<Vec<(u64, u64)>>>;

    fn news(id: u128) -> (Arc<News>, Heard) {
        let (news, heard) = (Arc::new(News::new(NodeId(id))), Arc::new(Mutex::new(Vec::new())));
        let to = Arc::clone(&heard);
        news.subscribe(Box::new(move |shard, version| to.lock().push((shard.0, version.0))));
        (news, heard)
    }

    #[test]
    fn a_process_hears_of_the_commits_of_others_once() {
        let (coordinator, heard_here) = news(1);
        let (follower, heard_there) = news(2);
        let catch_up = || follower.receive(&coordinator.since(follower.cursor(), NodeId(2)));
        catch_up();
        assert_eq!(std::mem::take(&mut *heard_there.lock()), [(0, 0)], "it may have missed anything");
        coordinator.record(NodeId(1), Shard(5), Version(1));
        coordinator.record(NodeId(1), Shard(5), Version(2));
        coordinator.record(NodeId(2), Shard(6), Version(1));
        catch_up();
        catch_up();
        assert_eq!(std::mem::take(&mut *heard_there.lock()), [(5, 2)]);
        assert_eq!(std::mem::take(&mut *heard_here.lock()), [(6, 1)]);
        follower.record(NodeId(2), Shard(7), Version(3));
        let (unsent, next) = follower.unsent();
        coordinator.relay(NodeId(2), &unsent);
        follower.sent(next);
        assert_eq!((unsent, follower.unsent().0), (vec![(Shard(7), Version(3))], vec![]));
        assert_eq!(std::mem::take(&mut *heard_here.lock()), [(7, 3)]);
        catch_up();
        assert_eq!(*heard_there.lock(), []);
    }

    #[test]
    fn missing_commits_make_everything_stale() {
        let (coordinator, _) = news(1);
        let (follower, heard) = news(2);
        follower.receive(&coordinator.since(follower.cursor(), NodeId(2)));
        follower.read_remotely(Shard(9));
        heard.lock().clear();
        for number in 0..=KEPT_COMMITS as u64 {
            coordinator.record(NodeId(1), Shard(number), Version(1));
        }
        follower.receive(&coordinator.since(follower.cursor(), NodeId(2)));
        assert_eq!(*heard.lock(), [(9, 0), (0, 0)]);
    }
}
