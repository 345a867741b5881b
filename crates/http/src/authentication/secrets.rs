//! [`Secrets`]: the secret that cookies and proxies sign with, and those before it. Whoever changes the secret does not log out
//! everybody: what was signed before counts for as long as a session lasts.
//!
//! The secret itself is a setting. This remembers what it was, in memory only.

use parking_lot::Mutex;

use crate::auth_policy::AuthPolicy;

/// More changes than this within the time of a session are no rotation.
const FORMER_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct Secrets {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The secret that was in force when one was asked for last, and when that was.
    current: Option<String>,
    asked_s: u64,
    /// Each with the time from which it does not count any more.
    former: Vec<(String, u64)>,
}

impl Secrets {
    /// The first use of a secret that `accepts` what a client has sent: of the one in force, or of one before it whose time is
    /// not over. `None` while there is no secret.
    pub(crate) fn find<T>(&self, policy: &AuthPolicy, now_s: u64, accepts: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        self.note(policy, now_s);
        let current = policy.secret.as_ref()?;
        accepts(current.as_bytes()).or_else(|| {
            let former: Vec<String> = self.state.lock().former.iter().map(|(secret, _)| secret.clone()).collect();
            former.iter().find_map(|secret| accepts(secret.as_bytes()))
        })
    }

    /// Notices a change. Nothing can have been signed with the former secret later than it was asked for, so it is not kept for
    /// longer than what was signed then.
    pub(crate) fn note(&self, policy: &AuthPolicy, now_s: u64) {
        let mut state = self.state.lock();
        state.former.retain(|(_, end_s)| now_s < *end_s);
        if state.current != policy.secret {
            let end_s = state.asked_s.saturating_add(policy.cookie.timeout_s);
            if let Some(former) = std::mem::replace(&mut state.current, policy.secret.clone())
                && now_s < end_s
            {
                state.former.insert(0, (former, end_s));
                state.former.truncate(FORMER_MAX);
            }
        }
        state.asked_s = now_s;
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Secrets").finish_non_exhaustive()
    }
}
