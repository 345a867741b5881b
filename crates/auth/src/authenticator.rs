//! [`Authenticator`]: the server admins, and the check of passwords against accounts with a cache of verified
//! passwords, lockouts, and jobs for slow hashing. It reads no headers and no databases.

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use crate::account::Account;
use crate::cache::{Fingerprint, Known, Verified, fingerprint};
use crate::lockout::{LockoutMode, LockoutPolicy, Lockouts, Sharing, Suspect};
use crate::user::UserContext;

/// Maximum number of cached passwords. Each takes about 150 bytes.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(20_000).expect("not zero");

/// Reason why credentials are rejected. The texts are CouchDB's `reason`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Unknown name or wrong password (`unauthorized`). As in CouchDB, the text does not distinguish the two.
    #[error("Name or password is incorrect.")]
    Incorrect,
    /// Too many failed logins (`forbidden`).
    #[error("Account is temporarily locked due to multiple authentication failures")]
    LockedOut,
    /// The hash has fewer iterations than this server accepts (`forbidden`).
    #[error("Iteration count is too low for this server")]
    IterationsTooLow,
    /// The hash has more iterations than this server accepts (`forbidden`).
    #[error("Iteration count is too high for this server")]
    IterationsTooHigh,
    /// The hash names an unknown function (`forbidden`).
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
    /// Permitted number of iterations of hashes.
    pub iterations: RangeInclusive<u32>,
    /// Lockout after failed logins.
    pub lockout: LockoutPolicy,
}

/// Result of [`Authenticator::check`].
#[derive(Debug)]
pub enum Check {
    Right,
    /// The password must be hashed first.
    NeedsHashing(Job),
}

/// Numbers of checks of passwords.
#[derive(Debug, Default)]
pub struct PasswordChecks {
    fast: AtomicU64,
    slow: AtomicU64,
}

impl PasswordChecks {
    /// Returns the number of comparisons with the cache and of additions to it.
    pub fn fast(&self) -> u64 {
        self.fast.load(Ordering::Relaxed)
    }

    /// Returns the number of derivations of keys from passwords.
    pub fn slow(&self) -> u64 {
        self.slow.load(Ordering::Relaxed)
    }
}

/// Checks credentials. Clones share the admins and the caches.
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
    /// Creates an authenticator without admins. `key` must be random and specific to this process; it protects the
    /// cache.
    #[must_use]
    pub fn new(key: [u8; 32]) -> Authenticator {
        let shared = Shared {
            admins: RwLock::default(),
            verified: Mutex::new(Verified::new(REMEMBERED_MAX)),
            checks: PasswordChecks::default(),
            lockouts: Mutex::default(),
            sharing: OnceLock::new(),
            key,
        };
        Authenticator { shared: Arc::new(shared) }
    }

    /// Replaces all admins by `admins`: names and stored hashes, as in the section `[admins]`. An entry that is not a
    /// hash still counts as an admin, so that a damaged line never opens the server to unauthenticated clients, but no
    /// password matches it.
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
        // A second call has no effect.
        let _ = self.shared.sharing.set(sharing);
    }

    /// Counts a failure that another server reported.
    pub fn note_reported(&self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) {
        self.shared.lockouts().note(suspect, policy, now_ms);
    }

    /// Returns true if the server has an admin; without one, every client is an admin.
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

    /// Returns the numbers of checks since the start.
    #[must_use]
    pub fn password_checks(&self) -> &PasswordChecks {
        &self.shared.checks
    }

    /// Checks a login without slow work.
    ///
    /// # Errors
    /// If the login is rejected.
    pub fn check(&self, login: Login, policy: &LoginPolicy) -> Result<Check, AuthError> {
        let Login { account, password, peer, now_ms } = login;
        let shared = &self.shared;
        let suspect = || shared.suspect(peer, account.name(), account.salt());
        shared.refuse_suspect(suspect, &policy.lockout, now_ms)?;
        let known_as = fingerprint(&shared.key, &[account.name().as_bytes(), account.stored().as_bytes()]);
        let tried = fingerprint(&shared.key, &[b"password", &password]);
        match shared.look_up(&known_as, &tried) {
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

    /// Rejects a login with an unknown name, counted like one with a wrong password.
    #[must_use]
    pub fn refuse_unknown(&self, name: &str, peer: IpAddr, now_ms: u64, policy: &LockoutPolicy) -> AuthError {
        let suspect = self.shared.suspect(peer, name, "");
        if let Err(error) = self.shared.refuse_suspect(|| suspect.clone(), policy, now_ms) {
            return error;
        }
        self.shared.note(&suspect, policy, now_ms);
        AuthError::Incorrect
    }

    /// Caches `password` as correct, after the caller has hashed it.
    pub fn remember(&self, account: &Account, password: &[u8]) {
        let key = &self.shared.key;
        let known_as = fingerprint(key, &[account.name().as_bytes(), account.stored().as_bytes()]);
        self.shared.insert(known_as, fingerprint(key, &[b"password", password]));
    }

    /// Returns the digest, under the key of this process, of data that was verified elsewhere, such as signatures.
    pub(crate) fn fingerprint(&self, parts: &[&[u8]]) -> Fingerprint {
        fingerprint(&self.shared.key, parts)
    }

    /// Returns true if the digest was [cached](Self::remember_fingerprint).
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

    fn look_up(&self, account: &Fingerprint, password: &Fingerprint) -> Known {
        let known = self.verified().look_up(account, password);
        if known != Known::Unknown {
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

    /// Counts a failure, here and on the other servers.
    fn note(&self, suspect: &Suspect, policy: &LockoutPolicy, now_ms: u64) {
        self.lockouts().note(suspect, policy, now_ms);
        if policy.mode != LockoutMode::Off
            && let Some(sharing) = self.sharing.get()
        {
            (sharing.report)(suspect.clone());
        }
    }

    /// Rejects a client with too many failures. Computing the suspect takes longer than all else for a request with a
    /// cached password, so it is computed only if there are failures.
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

/// Slow work for one login: the derivation of a key from a password.
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
    /// Verifies the password. Blocks for a time proportional to the iterations of its hash (100 ms and more for
    /// CouchDB's default of 600,000). A correct password is cached; a failure is counted.
    ///
    /// # Errors
    /// If the login is rejected.
    pub fn run(self) -> Result<(), AuthError> {
        // Many logins may be queued behind the first one, whose result is now cached.
        let known = self.shared.look_up(&self.known_as, &self.tried);
        if known == Known::Right {
            return Ok(());
        }
        self.shared.refuse_suspect(|| self.suspect.clone(), &self.policy.lockout, self.now_ms)?;
        let hash = self.account.hash(&self.policy.iterations)?;
        let verifies = || {
            self.shared.checks.slow.fetch_add(1, Ordering::Relaxed);
            hash.verify(&self.password)
        };
        if known == Known::Wrong || !verifies() {
            self.shared.note(&self.suspect, &self.policy.lockout, self.now_ms);
            return Err(AuthError::Incorrect);
        }
        self.shared.insert(self.known_as, self.tried);
        Ok(())
    }
}

impl std::fmt::Debug for Job {
    /// Omits the password.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("name", &self.account.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
