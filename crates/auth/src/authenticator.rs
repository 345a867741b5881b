//! [`Authenticator`]: checks basic credentials against the server's admins. Users of the `_users` database, cookies and tokens
//! are not known here yet.

use crate::base64;
use crate::cache::{Fingerprint, Verified, fingerprint};
use crate::password::PasswordHash;
use crate::user::UserContext;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// Verified credentials that are remembered. Each takes 32 bytes.
const REMEMBERED_MAX: usize = 1000;

/// Why credentials are refused. The texts are CouchDB's `reason`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// No such name, or another password (`unauthorized`). CouchDB does not say which, so neither do we.
    #[error("Name or password is incorrect.")]
    Incorrect,
    /// The header's value cannot be decoded (`bad_request`).
    #[error("Authorization header has invalid base64 value")]
    InvalidHeader,
}

/// What [`Authenticator::check`] found.
#[derive(Debug)]
pub enum Check {
    /// The request may go on under this context.
    Known(UserContext),
    /// The password has to be hashed first.
    NeedsHashing(Job),
}

/// Checks credentials. Clones share the admins and the cache.
#[derive(Clone)]
pub struct Authenticator {
    shared: Arc<Shared>,
}

struct Shared {
    admins: RwLock<HashMap<String, Arc<Admin>>>,
    verified: Mutex<Verified>,
    key: [u8; 32],
}

struct Admin {
    stored: String,
    /// `None`: damaged or in plain text. Such an admin exists, which ends the admin party, but cannot log in.
    hash: Option<PasswordHash>,
}

impl Authenticator {
    /// An authenticator without admins. `key` must be random and of this process only; it protects the cache.
    pub fn new(key: [u8; 32]) -> Authenticator {
        let shared = Shared { admins: RwLock::default(), verified: Mutex::new(Verified::new(REMEMBERED_MAX)), key };
        Authenticator { shared: Arc::new(shared) }
    }

    /// Replaces all admins by `admins`: name and stored hash, as the section `[admins]` has them. An entry that is not a hash
    /// still counts as an admin, so that a damaged line never opens the server to everybody, but nobody can log in with it.
    pub fn set_admins(&self, admins: impl IntoIterator<Item = (String, String)>) {
        let admins = admins
            .into_iter()
            .map(|(name, stored)| {
                let hash = PasswordHash::parse(&stored).ok();
                (name, Arc::new(Admin { stored, hash }))
            })
            .collect();
        *self.shared.admins.write().unwrap_or_else(PoisonError::into_inner) = admins;
    }

    /// Whether the server has an admin; without one everybody is an admin.
    pub fn has_admins(&self) -> bool {
        !self.shared.admins.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whether there is an admin of this name.
    pub fn is_admin(&self, name: &str) -> bool {
        self.shared.admins.read().unwrap_or_else(PoisonError::into_inner).contains_key(name)
    }

    /// The context of a request without credentials.
    pub fn without_credentials(&self) -> UserContext {
        if self.has_admins() { UserContext::anonymous() } else { UserContext::admin_party() }
    }

    /// Checks the value of an `Authorization` header (`None`: not sent) without ever doing slow work.
    ///
    /// As in CouchDB, another scheme than `Basic`, credentials without a colon and the pair `_:_` (which browsers send to log
    /// out) count as no credentials; and a name that is not an admin's is refused even during the admin party.
    pub fn check(&self, authorization: Option<&str>) -> Result<Check, AuthError> {
        let Some(credentials) = authorization.map(basic_credentials).transpose()?.flatten() else {
            return Ok(Check::Known(self.without_credentials()));
        };
        let name = String::from_utf8(credentials.name).map_err(|_| AuthError::Incorrect)?;
        let admins = self.shared.admins.read().unwrap_or_else(PoisonError::into_inner);
        let admin = admins.get(&name).cloned().ok_or(AuthError::Incorrect)?;
        drop(admins);
        let fingerprint = fingerprint(&self.shared.key, &name, &credentials.password, &admin.stored);
        if self.shared.verified().contains(&fingerprint) {
            return Ok(Check::Known(UserContext::admin(&name)));
        }
        let password = credentials.password;
        Ok(Check::NeedsHashing(Job { shared: Arc::clone(&self.shared), admin, name, password, fingerprint }))
    }

    /// [`check`](Self::check), and the slow work at once on this thread.
    pub fn basic(&self, authorization: Option<&str>) -> Result<UserContext, AuthError> {
        match self.check(authorization)? {
            Check::Known(context) => Ok(context),
            Check::NeedsHashing(job) => job.run(),
        }
    }
}

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Authenticator").finish_non_exhaustive()
    }
}

impl Shared {
    fn verified(&self) -> std::sync::MutexGuard<'_, Verified> {
        self.verified.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Slow work that decides about one request: the derivation of a key from a password.
pub struct Job {
    shared: Arc<Shared>,
    admin: Arc<Admin>,
    name: String,
    password: Vec<u8>,
    fingerprint: Fingerprint,
}

impl Job {
    /// Verifies the password. Blocks for as long as its hash has iterations (100 ms and more for CouchDB's default of 600,000).
    /// Credentials that are right are remembered; wrong ones cost the same each time.
    pub fn run(self) -> Result<UserContext, AuthError> {
        // Many requests with the same credentials may have queued up behind the first one.
        if self.shared.verified().contains(&self.fingerprint) {
            return Ok(UserContext::admin(&self.name));
        }
        let hash = self.admin.hash.as_ref().ok_or(AuthError::Incorrect)?;
        if !hash.verify(&self.password) {
            return Err(AuthError::Incorrect);
        }
        self.shared.verified().insert(self.fingerprint);
        Ok(UserContext::admin(&self.name))
    }
}

impl std::fmt::Debug for Job {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Job").field("name", &self.name).finish_non_exhaustive()
    }
}

struct Credentials {
    name: Vec<u8>,
    password: Vec<u8>,
}

fn basic_credentials(authorization: &str) -> Result<Option<Credentials>, AuthError> {
    let Some((scheme, value)) = authorization.trim().split_once(' ') else {
        return Ok(None);
    };
    if !scheme.eq_ignore_ascii_case("basic") {
        return Ok(None);
    }
    let decoded = base64::decode(value.trim()).ok_or(AuthError::InvalidHeader)?;
    let Some(colon) = decoded.iter().position(|&byte| byte == b':') else {
        return Ok(None);
    };
    if decoded == b"_:_" {
        return Ok(None);
    }
    Ok(Some(Credentials { name: decoded[..colon].to_vec(), password: decoded[colon + 1..].to_vec() }))
}

#[cfg(test)]
mod tests;
