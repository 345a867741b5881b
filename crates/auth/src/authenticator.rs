//! [`Authenticator`]: checks passwords against accounts, with a cache of verified passwords, lockouts, and jobs for
//! slow hashing. It reads neither headers nor databases.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use crate::account::Account;
use crate::cache::{CachedResult, Fingerprint, Verified, fingerprint};
use crate::lockout::{LockoutMode, LockoutPolicy, Lockouts, Sharing, Suspect};
use crate::user::UserContext;

/// Maximum number of cached passwords, of about 150 bytes each.
const CACHED_PASSWORDS_MAX: NonZeroUsize = NonZeroUsize::new(20_000).expect("not zero");

/// The texts are CouchDB's `reason`s; the error is `forbidden` except for [`AuthError::Incorrect`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Unknown name or wrong password (`unauthorized`). As in CouchDB, the text does not distinguish the two.
    #[error("Name or password is incorrect.")]
    Incorrect,
    #[error("Account is temporarily locked due to multiple authentication failures")]
    LockedOut,
    #[error("Iteration count is too low for this server")]
    IterationsTooLow,
    #[error("Iteration count is too high for this server")]
    IterationsTooHigh,
    #[error("PRF is invalid")]
    InvalidPrf,
}

#[derive(Clone)]
pub struct Login {
    pub account: Arc<Account>,
    pub password: Vec<u8>,
    pub peer: IpAddr,
    pub now_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginPolicy {
    pub iterations: RangeInclusive<u32>,
    pub lockout: LockoutPolicy,
}

#[derive(Debug)]
pub enum Check {
    Right,
    /// Requires slow work: [`Job::run`].
    NeedsHashing(Job),
}

#[derive(Debug, Default)]
pub struct PasswordChecks {
    fast: AtomicU64,
    slow: AtomicU64,
}

impl PasswordChecks {
    pub fn fast(&self) -> u64 {
        self.fast.load(Ordering::Relaxed)
    }

    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }
}

#[derive(Clone)]
pub struct Authenticator {
    shared: Arc<Shared>,
}

struct Shared {
    admins: RwLock<HashMap<String, Arc<Account>>>,
    verified: Mutex<Verified>,
    checks: PasswordChecks,
    lockouts: Mutex<Lockouts>,
    sharing: OnceLock<Sharing>,
    key: [u8; 32],
}

impl Authenticator {
    /// `key` must be random and specific to this process, because it protects the cache against offline attacks.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Authenticator {
        let shared = Shared {
            admins: RwLock::default(),
            verified: Mutex::new(Verified::new(CACHED_PASSWORDS_MAX)),
            checks: PasswordChecks::default(),
            lockouts: Mutex::default(),
            sharing: OnceLock::new(),
            key,
        };
        Authenticator { shared: Arc::new(shared) }
    }

    /// Replaces all admins by `admins`: names and stored hashes of the section `[admins]`. An entry that is not a hash
    /// still counts as an admin, but no password matches it, so a damaged line never opens the server to
    /// unauthenticated clients.
    pub fn set_admins(&self, admins: impl IntoIterator<Item = (String, String)>) {
        let account = |(name, stored): (String, String)| {
            let account = Arc::new(Account::of_admin(&name, &stored));
            (name, account)
        };
        let admins = admins.into_iter().map(account).collect();
        *self.shared.admins.write().unwrap_or_else(PoisonError::into_inner) = admins;
    }

    /// Shares the count of failures with all servers of the same users. Must be called once, before any login.
    pub fn share_failures(&self, sharing: Sharing) {
        let _ = self.shared.sharing.set(sharing);
    }

    pub fn note_reported(&self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) {
        self.shared.lockouts().note(suspect, policy, now_ms);
    }

    /// Without an admin, every client is an admin.
    #[must_use]
    pub fn has_admins(&self) -> bool {
        !self.shared.admins.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub fn is_admin(&self, name: &str) -> bool {
        self.shared.admins.read().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    #[must_use]
    pub fn admin(&self, name: &str) -> Option<Arc<Account>> {
        self.shared.admins.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    #[must_use]
    pub fn without_credentials(&self) -> UserContext {
        if self.has_admins() { UserContext::anonymous() } else { UserContext::admin_party() }
    }

    #[must_use]
    pub fn password_checks(&self) -> &PasswordChecks {
        &self.shared.checks
    }

    pub fn check(&self, login: Login, policy: &LoginPolicy) -> Result<Check, AuthError> {
        let Login { account, password, peer, now_ms } = login;
        let shared = &self.shared;
        let suspect = || shared.suspect(peer, account.name(), account.salt());
        shared.refuse_suspect(suspect, &policy.lockout, now_ms)?;
        let known_as = fingerprint(&shared.key, &[account.name().as_bytes(), account.stored().as_bytes()]);
        let tried = fingerprint(&shared.key, &[b"password", &password]);
        match shared.look_up(&known_as, &tried) {
            CachedResult::Right => return Ok(Check::Right),
            CachedResult::Wrong => {
                shared.note(&suspect(), &policy.lockout, now_ms);
                return Err(AuthError::Incorrect);
            }
            CachedResult::Unknown => {}
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

    /// Counts a login with an unknown name like one with a wrong password.
    #[must_use]
    pub fn refuse_unknown(&self, name: &str, peer: IpAddr, now_ms: u64, policy: &LockoutPolicy) -> AuthError {
        let suspect = self.shared.suspect(peer, name, "");
        if let Err(error) = self.shared.refuse_suspect(|| suspect.clone(), policy, now_ms) {
            return error;
        }
        self.shared.note(&suspect, policy, now_ms);
        AuthError::Incorrect
    }

    /// Caches `password` as correct. The caller must have hashed it.
    pub fn remember(&self, account: &Account, password: &[u8]) {
        let key = &self.shared.key;
        let known_as = fingerprint(key, &[account.name().as_bytes(), account.stored().as_bytes()]);
        self.shared.insert(known_as, fingerprint(key, &[b"password", password]));
    }

    pub(crate) fn fingerprint(&self, parts: &[&[u8]]) -> Fingerprint {
        fingerprint(&self.shared.key, parts)
    }

    pub(crate) fn is_cached(&self, fingerprint: &Fingerprint) -> bool {
        self.shared.verified().look_up(fingerprint, fingerprint) == CachedResult::Right
    }

    pub(crate) fn cache_fingerprint(&self, fingerprint: Fingerprint) {
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

    fn look_up(&self, account: &Fingerprint, password: &Fingerprint) -> CachedResult {
        let known = self.verified().look_up(account, password);
        if known != CachedResult::Unknown {
            self.checks.fast.fetch_add(1, Ordering::Relaxed);
        }
        known
    }

    fn insert(&self, account: Fingerprint, password: Fingerprint) {
        self.checks.fast.fetch_add(1, Ordering::Relaxed);
        self.verified().insert(account, password);
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

    fn note(&self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) {
        self.lockouts().note(suspect, policy, now_ms);
        if policy.mode != LockoutMode::Off
            && let Some(sharing) = self.sharing.get()
        {
            (sharing.report)(suspect.clone());
        }
    }

    /// The suspect is computed only if failures are stored, because its hash costs more than a cached login.
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
    /// Verifies the password, caches a correct one, and counts a failure. Fails if the login is rejected. Blocks for a
    /// time proportional to the iterations of the hash (100 ms and more for CouchDB's default of 600,000).
    pub fn run(self) -> Result<(), AuthError> {
        // An earlier login of the same user may have cached the password while this one was queued.
        let known = self.shared.look_up(&self.known_as, &self.tried);
        if known == CachedResult::Right {
            return Ok(());
        }
        self.shared.refuse_suspect(|| self.suspect.clone(), &self.policy.lockout, self.now_ms)?;
        let hash = self.account.hash(&self.policy.iterations)?;
        let verifies = || {
            self.shared.checks.slow.fetch_add(1, Ordering::Relaxed);
            hash.verify(&self.password)
        };
        if known == CachedResult::Wrong || !verifies() {
            self.shared.note(&self.suspect, &self.policy.lockout, self.now_ms);
            return Err(AuthError::Incorrect);
        }
        self.shared.insert(self.known_as, self.tried);
        Ok(())
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("name", &self.account.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
