//! [`Company`]: whether somebody else writes as well, whom a long commit would keep waiting. Commits of all databases share one log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::Shard;

use super::Work;

/// Who has written within this time is taken to go on.
const RECENT: Duration = Duration::from_secs(1);

/// A work of so few documents is somebody's who waits for each of them.
const FEW_UPDATES: usize = 16;

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

    /// Notes a commit of `works` to `shard`.
    pub(crate) fn note<'a>(&self, shard: Shard, mut works: impl Iterator<Item = &'a Work>, now: Instant) {
        let is_little = works.any(|work| !matches!(work, Work::Documents(updates) if updates.len() > FEW_UPDATES));
        let mut state = self.0.lock();
        let last = state.last.replace(shard);
        if is_little || last.is_some_and(|last| last != shard) {
            state.beside = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::new;

    #[test]
    fn who_writes_much_is_alone_until_somebody_else_writes() {
        let company = Company::default();
        let begin = Instant::now();
        let at = |milliseconds| begin + Duration::from_millis(milliseconds);
        let (here, there) = (Shard(1), Shard(2));
        let much = Work::Documents((0..17).map(|number| new(&number.to_string(), "{}")).collect());
        let little = Work::Documents(vec![new("a", "{}")]);
        assert!(company.is_absent(here, at(0)));
        company.note(here, [&much].into_iter(), at(0));
        assert!(company.is_absent(here, at(1)) && !company.is_absent(there, at(1)));
        company.note(here, [&much, &little].into_iter(), at(2));
        assert!(!company.is_absent(here, at(3)) && company.is_absent(here, at(1_003)));
        company.note(there, [&much].into_iter(), at(1_010));
        company.note(here, [&much].into_iter(), at(1_020));
        assert!(!company.is_absent(here, at(2_020)) && company.is_absent(here, at(2_021)));
    }
}
