//! [`Secrets`]: the current secret of cookies and proxy tokens, and its predecessors. A change of the secret
//! does not end existing sessions: values signed with a former secret stay valid for the lifetime of a
//! session.
//!
//! The secret itself is a setting. The former secrets are kept in memory only.

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
    /// The secret at the last request, and the time of that request.
    current: Option<String>,
    asked_s: u64,
    /// Former secrets, each with its expiry.
    former: Vec<(String, u64)>,
}

impl Secrets {
    /// Returns the first result of `accepts` for the current secret or a former one that has not expired.
    /// Returns `None` if no secret is set.
    pub(crate) fn find<T>(&self, policy: &AuthPolicy, now_s: u64, accepts: impl Fn(&[u8]) -> Option<T>) -> Option<T> {
        self.note(policy, now_s);
        let current = policy.secret.as_ref()?;
        accepts(current.as_bytes()).or_else(|| {
            let former: Vec<String> = self.state.lock().former.iter().map(|(secret, _)| secret.clone()).collect();
            former.iter().find_map(|secret| accepts(secret.as_bytes()))
        })
    }

    /// Records a change of the secret. The expiry of the former secret counts from its last use, because no
    /// value can have been signed with it later.
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
