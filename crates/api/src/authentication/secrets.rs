//! [`Secrets`]: the current secret and its predecessors. Values signed with a former secret stay valid for the
//! lifetime of a session, but are kept in memory only.

use parking_lot::Mutex;

use crate::auth_policy::AuthPolicy;

/// Maximum number of former secrets. More changes within the lifetime of a session are not a key rotation.
const FORMER_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct Secrets {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<String>,
    asked_s: u64,
    former: Vec<(String, u64)>,
}

impl Secrets {
    /// Returns `None` if no secret is set.
    pub(crate) fn find<T>(&self, policy: &AuthPolicy, now_s: u64, accepts: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        self.note(policy, now_s);
        let current = policy.secret.as_ref()?;
        accepts(current.as_bytes()).or_else(|| {
            let former: Vec<String> = self.state.lock().former.iter().map(|(secret, _)| secret.clone()).collect();
            former.iter().find_map(|secret| accepts(secret.as_bytes()))
        })
    }

    /// The expiry of a former secret counts from its last use, because no value can have been signed with it later.
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
