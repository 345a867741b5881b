//! [`Authenticator`]: the server's admins, and the check of passwords against accounts: what was verified before, what failed
//! too often, and what has to be hashed. It reads no headers and no databases.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use crate::account::Account;
use crate::cache::{Fingerprint, Known, Verified, fingerprint};
use crate::lockout::{LockoutMode, LockoutPolicy, Lockouts, Sharing, Suspect};
use crate::user::UserContext;

/// Verified passwords that are remembered. Each takes about 150 bytes.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(20_000).expect("not zero");

/// Why credentials are refused. The texts are CouchDB's `reason`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No such name, or another password (`unauthorized`). CouchDB does not say which, so neither do we.
    #[error("Name or password is incorrect.")]
    Incorrect,
    /// Too many logins failed (`forbidden`).
    #[error("Account is temporarily locked due to multiple authentication failures")]
    LockedOut,
    /// The hash takes fewer rounds than this server accepts (`forbidden`).
    #[error("Iteration count is too low for this server")]
    IterationsTooLow,
    /// The hash takes more rounds than this server accepts (`forbidden`).
    #[error("Iteration count is too high for this server")]
    IterationsTooHigh,
    /// The hash names a function that does not exist (`forbidden`).
    #[error("PRF is invalid")]
    InvalidPrf,
}

/// A login that is to be judged.
#[derive(Clone)]
pub struct Login {
    /// The user that is named.
    pub account: Arc<Account>,
    /// The password that came along.
    pub password: Vec<u8>,
    /// Where the request comes from.
    pub peer: IpAddr,
    /// The time.
    pub now_ms: u64,
}

/// The policy in force when a login is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginPolicy {
    /// The number of rounds that hashes may take.
    pub iterations: RangeInclusive<u32>,
    /// The lockout after many failures.
    pub lockout: LockoutPolicy,
}

/// The outcome of [`Authenticator::check`].
#[derive(Debug)]
pub enum Check {
    /// The password is right.
    Right,
    /// The password has to be hashed first.
    NeedsHashing(Job),
}

/// Checks credentials. Clones share the admins and what is remembered.
#[derive(Clone)]
pub struct Authenticator {
    shared: Arc<Shared>,
}

struct Shared {
    admins: RwLock<HashMap<String, Arc<Account>>>,
    verified: Mutex<Verified>,
    lockouts: Mutex<Lockouts>,
    sharing: OnceLock<Sharing>,
    key: [u8; 32],
}

impl Authenticator {
    /// An authenticator without admins. `key` must be random and of this process only; it protects what is remembered.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Authenticator {
        let shared = Shared {
            admins: RwLock::default(),
            verified: Mutex::new(Verified::new(REMEMBERED_MAX)),
            lockouts: Mutex::default(),
            sharing: OnceLock::new(),
            key,
        };
        Authenticator { shared: Arc::new(shared) }
    }

    /// Replaces all admins by `admins`: name and stored hash, as the section `[admins]` has them. An entry that is not a hash
    /// still counts as an admin, so that a damaged line never opens the server to everybody, but nobody can log in with it.
    pub fn set_admins(&self, admins: impl IntoIterator<Item = (String, String)>) {
        let account = |(name, stored): (String, String)| {
            let account = Arc::new(Account::of_admin(&name, &stored));
            (name, account)
        };
        let admins = admins.into_iter().map(account).collect();
        *self.shared.admins.write().unwrap_or_else(PoisonError::into_inner) = admins;
    }

    /// Has failures count on all servers of the same users. To be called once, before any login.
    pub fn share_failures(&self, sharing: Sharing) {
        // Nobody else does.
        let _ = self.shared.sharing.set(sharing);
    }

    /// Counts a failure that another server tells of.
    pub fn note_told(&self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) {
        self.shared.lockouts().note(suspect, policy, now_ms);
    }

    /// Whether the server has an admin; without one everybody is an admin.
    #[must_use]
    pub fn has_admins(&self) -> bool {
        !self.shared.admins.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether there is an admin of this name.
    pub fn is_admin(&self, name: &str) -> bool {
        self.shared.admins.read().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    /// The server admin of this name.
    #[must_use]
    pub fn admin(&self, name: &str) -> Option<Arc<Account>> {
        self.shared.admins.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// The context of a request without credentials.
    #[must_use]
    pub fn without_credentials(&self) -> UserContext {
        if self.has_admins() { UserContext::anonymous() } else { UserContext::admin_party() }
    }

    /// Judges a login without ever doing slow work.
    ///
    /// # Errors
    /// When it is refused.
    pub fn check(&self, login: Login, policy: &LoginPolicy) -> Result<Check, AuthError> {
        let Login { account, password, peer, now_ms } = login;
        let shared = &self.shared;
        let suspect = || shared.suspect(peer, account.name(), account.salt());
        shared.refuse_suspect(suspect, &policy.lockout, now_ms)?;
        let known_as = fingerprint(&shared.key, &[account.name().as_bytes(), account.stored().as_bytes()]);
        let tried = fingerprint(&shared.key, &[b"password", &password]);
        match shared.verified().look_up(&known_as, &tried) {
            Known::Right => return Ok(Check::Right),
            Known::Wrong => {
                shared.note(&suspect(), &policy.lockout, now_ms);
                return Err(AuthError::Incorrect);
            }
            Known::Unknown => {}
        }
        let suspect = suspect();
        let job = Job {
            shared: Arc::clone(shared),
            account,
            password,
            known_as,
            tried,
            suspect,
            policy: policy.clone(),
            now_ms,
        };
        Ok(Check::NeedsHashing(job))
    }

    /// The refusal of a login with a name that nobody has, counted like one with a wrong password.
    #[must_use]
    pub fn refuse_unknown(&self, name: &str, peer: IpAddr, now_ms: u64, policy: &LockoutPolicy) -> AuthError {
        let suspect = self.shared.suspect(peer, name, "");
        if let Err(error) = self.shared.refuse_suspect(|| suspect.clone(), policy, now_ms) {
            return error;
        }
        self.shared.note(&suspect, policy, now_ms);
        AuthError::Incorrect
    }

    /// Remembers that `password` is right, because the caller has just hashed it anew.
    pub fn remember(&self, account: &Account, password: &[u8]) {
        let key = &self.shared.key;
        let known_as = fingerprint(key, &[account.name().as_bytes(), account.stored().as_bytes()]);
        self.shared.verified().insert(known_as, fingerprint(key, &[b"password", password]));
    }

    /// The digest under the key of this process of what was verified elsewhere, such as signatures.
    pub(crate) fn fingerprint(&self, parts: &[&[u8]]) -> Fingerprint {
        fingerprint(&self.shared.key, parts)
    }

    /// Whether this was [remembered](Self::remember_fingerprint).
    pub(crate) fn knows_fingerprint(&self, fingerprint: &Fingerprint) -> bool {
        self.shared.verified().look_up(fingerprint, fingerprint) == Known::Right
    }

    pub(crate) fn remember_fingerprint(&self, fingerprint: Fingerprint) {
        self.shared.verified().insert(fingerprint, fingerprint);
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Shared {
    fn verified(&self) -> MutexGuard<'_, Verified> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lockouts(&self) -> MutexGuard<'_, Lockouts> {
        self.lockouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn suspect(&self, peer: IpAddr, name: &str, salt: &str) -> Suspect {
        match self.sharing.get() {
            Some(sharing) => Suspect::new(&(sharing.secret)(), peer, name, salt),
            None => Suspect::new(&self.key, peer, name, salt),
        }
    }

    /// Counts a failure, here and elsewhere.
    fn note(&self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) {
        self.lockouts().note(suspect, policy, now_ms);
        if policy.mode != LockoutMode::Off
            && let Some(sharing) = self.sharing.get()
        {
            (sharing.tell)(suspect.clone());
        }
    }

    /// Refuses who failed too often. Who that is takes longer to tell than all else of a request whose password is known, so nobody asks where it
    /// makes no difference.
    fn refuse_suspect(
        &self,
        suspect: impl FnOnce() -> Suspect,
        policy: &LockoutPolicy,
        now_ms: u64,
    ) -> Result<(), AuthError> {
        if policy.mode == LockoutMode::Off || self.lockouts().are_over(policy, now_ms) {
            return Ok(());
        }
        let suspect = suspect();
        let is_refused = policy.mode == LockoutMode::Enforce && self.lockouts().is_over(&suspect, policy, now_ms);
        if is_refused { Err(AuthError::LockedOut) } else { Ok(()) }
    }
}

/// Slow work that decides about one login: the derivation of a key from a password.
pub struct Job {
    shared: Arc<Shared>,
    account: Arc<Account>,
    password: Vec<u8>,
    known_as: Fingerprint,
    tried: Fingerprint,
    suspect: Suspect,
    policy: LoginPolicy,
    now_ms: u64,
}

impl Job {
    /// Verifies the password. Blocks for as long as its hash has iterations (100 ms and more for CouchDB's default of 600,000).
    /// A password that is right is remembered; so is how many were wrong.
    ///
    /// # Errors
    /// When the login is refused.
    pub fn run(self) -> Result<(), AuthError> {
        // Many logins may have queued up behind the first one: it may have decided about them.
        let known = self.shared.verified().look_up(&self.known_as, &self.tried);
        if known == Known::Right {
            return Ok(());
        }
        self.shared.refuse_suspect(|| self.suspect.clone(), &self.policy.lockout, self.now_ms)?;
        let hash = self.account.hash(&self.policy.iterations)?;
        if known == Known::Wrong || !hash.verify(&self.password) {
            self.shared.note(&self.suspect, &self.policy.lockout, self.now_ms);
            return Err(AuthError::Incorrect);
        }
        self.shared.verified().insert(self.known_as, self.tried);
        Ok(())
    }
}

impl std::fmt::Debug for Job {
    /// Shows no password.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("name", &self.account.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
