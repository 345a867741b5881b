//! [`Company`]: whether somebody else writes as well, whom a long commit would keep waiting. Commits of all databases share one log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::Shard;

/// Who has written within this time is taken to go on.
const RECENT: Duration = Duration::from_secs(1);

/// The writers of the last moment, of all databases.
#[derive(Debug, Default)]
pub(crate) struct Company(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The shard that was written last.
    last: Option<Shard>,
    /// When somebody wrote beside it: to another shard, or little.
    beside: Option<Instant>,
}

impl Company {
    /// Whether nobody but the writer of `shard` was there lately.
    pub(crate) fn is_absent(&self, shard: Shard, now: Instant) -> bool {
        let state = self.0.lock();
        state.last.is_none_or(|last| last == shard)
            && state.beside.is_none_or(|beside| now.saturating_duration_since(beside) > RECENT)
    }

    /// Notes a commit to `shard`; part of what it holds may be so little that somebody waits for it.
    pub(crate) fn note(&self, shard: Shard, has_little: bool, now: Instant) {
        let mut state = self.0.lock();
        let last = state.last.replace(shard);
        if has_little || last.is_some_and(|last| last != shard) {
            state.beside = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_much_is_alone_until_somebody_else_writes() {
        let company = Company::default();
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let (here, there) = (Shard(1), Shard(2));
        assert!(company.is_absent(here, at(0)));
        company.note(here, false, at(0));
        assert!(company.is_absent(here, at(1)) && !company.is_absent(there, at(1)));
        company.note(here, true, at(2));
        assert!(!company.is_absent(here, at(3)) && company.is_absent(here, at(1_003)));
        company.note(there, false, at(1_010));
        company.note(here, false, at(1_020));
        assert!(!company.is_absent(here, at(2_020)) && company.is_absent(here, at(2_021)));
    }
}
