//! The users database: lookup of accounts, preparation of its documents before they are written, and visibility of
//! its documents. Its other rules are part of its design document, see [`crate::databases`].

use std::num::{NonZeroU32, NonZeroUsize};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use lru::LruCache;
use parking_lot::Mutex;
use settee_auth::user_document::{self, PasswordRules, USER_PREFIX};
use settee_auth::{Account, Algorithm, Authenticator, Hashing, NewScheme, UserContext};
use settee_database::{Catalog, Database, DocUpdate, ReadView, Subscription};
use settee_model::json::{Json, Value};
use settee_model::{Rev, RevisionHasher};

use settee_settings::{Derived, Settings, chttpd_auth};
use tokio::sync::watch;

use crate::security::administers;
use crate::{Error, Hashers};

/// Includes names without an account.
const REMEMBERED_MAX: NonZeroUsize = NonZeroUsize::new(20_000).expect("not zero");

#[derive(Clone, Debug)]
pub struct UserPolicy {
    pub users_db: String,
    conflicted_users: bool,
    public_fields: String,
    /// Hashing of new passwords; `None` if the configured scheme is unknown.
    hashing: Option<Hashing>,
    upgrade: bool,
    password_regexp: String,
}

impl UserPolicy {
    fn of(settings: &dyn Settings) -> Self {
        Self {
            users_db: chttpd_auth::AUTHENTICATION_DB.of(settings),
            conflicted_users: chttpd_auth::ALLOW_CONFLICTED_USER_DOCS.of(settings),
            public_fields: chttpd_auth::PUBLIC_FIELDS.of(settings),
            hashing: hashing(settings),
            upgrade: chttpd_auth::UPGRADE_HASH_ON_AUTH.of(settings),
            password_regexp: chttpd_auth::PASSWORD_REGEXP.of(settings),
        }
    }

    /// `None` if the account's hash is up to date.
    pub(crate) fn upgrade_of(&self, account: &Account) -> Option<Hashing> {
        self.hashing.filter(|hashing| self.upgrade && account.needs_upgrade(hashing))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    VduReject,
    /// As in CouchDB this includes accounts whose document was read again because the database has changed.
    AuthCacheHit,
    AuthCacheMiss,
}

pub type Counting = Arc<dyn Fn(Counted) + Send + Sync>;

pub type Entropy = Arc<dyn Fn() -> u64 + Send + Sync>;

pub struct Users {
    dependencies: UsersDependencies,
    policy: Derived<UserPolicy>,
    known: Mutex<Known>,
    /// Number of observed changes of accounts, and of users databases.
    changes: Arc<watch::Sender<u64>>,
    /// Shard of the subscribed database. No shard has the number `u64::MAX`.
    shard: Arc<AtomicU64>,
    pub(crate) upgrading: Mutex<Vec<String>>,
}

pub struct UsersDependencies {
    pub catalog: Arc<Catalog>,
    pub settings: Arc<dyn Settings>,
    pub authenticator: Authenticator,
    pub hashers: Arc<Hashers>,
    pub count: Counting,
    pub entropy: Entropy,
}

struct Known {
    accounts: LruCache<String, Entry>,
    watched: Option<(u64, Subscription)>,
}

impl Default for Known {
    fn default() -> Self {
        let mut accounts = LruCache::unbounded();
        accounts.resize(REMEMBERED_MAX);
        Self { accounts, watched: None }
    }
}

struct Entry {
    /// Number of observed changes before the account was read.
    changes: u64,
    instance: u64,
    /// The server administrator of this name when the account was read.
    admin: Option<Arc<Account>>,
    account: Result<Option<Arc<Account>>, Error>,
}

impl Users {
    #[must_use]
    pub fn new(dependencies: UsersDependencies) -> Self {
        let (changes, shard) = (Arc::new(watch::Sender::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
        let (changed, watched) = (Arc::clone(&changes), Arc::clone(&shard));
        // The engine reports commits of other processes before requests can depend on them. The subscription of the
        // database may report them later.
        dependencies.catalog.engine().subscribe(Box::new(move |committed, _| {
            if committed.0 == watched.load(Ordering::Acquire) {
                changed.send_modify(|changes| *changes += 1);
            }
        }));
        Self {
            dependencies,
            policy: Derived::default(),
            known: Mutex::default(),
            changes,
            shard,
            upgrading: Mutex::default(),
        }
    }

    #[must_use]
    pub fn policy(&self) -> Arc<UserPolicy> {
        self.policy.current(self.dependencies.settings.as_ref(), UserPolicy::of)
    }

    pub(crate) fn dependencies(&self) -> &UsersDependencies {
        &self.dependencies
    }

    /// Returns a receiver of changes of accounts. When it is notified, [`Self::account`] returns the new state.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<u64> {
        if let Ok(database) = self.dependencies.catalog.database(&self.policy().users_db) {
            self.changes(&database);
        }
        self.changes.subscribe()
    }

    /// Returns the server administrator of this name, with the roles that a document adds, or the user. Changes of
    /// either take effect immediately. Fails if the account must not be used or cannot be read.
    pub async fn account(&self, name: &str) -> Result<Option<Arc<Account>>, Error> {
        let (admin, policy) = (self.dependencies.authenticator.admin(name), self.policy());
        let Ok(database) = self.dependencies.catalog.database(&policy.users_db) else { return Ok(admin) };
        let changes = self.changes(&database);
        if let Some(found) = self.find(name, database.instance(), changes, admin.as_ref()) {
            self.count(admin.as_ref(), Counted::AuthCacheHit);
            return found;
        }
        let is_remembered = self.known.lock().accounts.contains(name);
        self.count(admin.as_ref(), if is_remembered { Counted::AuthCacheHit } else { Counted::AuthCacheMiss });
        let (instance, wanted, conflicted_users) = (database.instance(), name.to_owned(), policy.conflicted_users);
        let read = settee_threads::run(move || read(&database.read()?, &wanted, conflicted_users));
        let account = match (read.await, &admin) {
            (Ok(Some(document)), Some(admin)) => Ok(Some(Arc::new(admin.with_roles_of(document.value())))),
            (Ok(Some(document)), None) => Ok(Some(Arc::new(Account::of_document(name, document.value())))),
            (Ok(None), admin) => Ok(admin.clone()),
            (Err(error), _) => Err(error),
        };
        // A refusal of the account is cached, a failure is not.
        let is_lasting = account.as_ref().err().is_none_or(|error| matches!(error, Error::Unauthorized(_)));
        if is_lasting {
            self.remember(name, Entry { changes, instance, admin, account: account.clone() });
        }
        account
    }

    /// The configured users database, and databases whose names end in `/_users`.
    #[must_use]
    pub fn is_users_db(&self, name: &str) -> bool {
        name == self.policy().users_db || name.rsplit('/').next() == Some("_users")
    }

    /// Fails if no part of the document is visible to `user`.
    pub async fn visibility(
        self: &Arc<Self>,
        user: &UserContext,
        database: &Arc<Database>,
        id: &str,
    ) -> Result<Visibility, Error> {
        let (users, database, user) = (Arc::clone(self), Arc::clone(database), user.clone());
        if user.is_admin() || !self.is_users_db(database.name()) {
            return Ok(Visibility::Whole);
        }
        let id = id.to_owned();
        settee_threads::run(move || Visibility::of(&users, &database, &user, &id)).await
    }

    /// Hashes passwords in updates of user documents, and refuses updates of other users' documents. A database without
    /// rules receives them first, unless the user is an administrator.
    pub(crate) async fn before_write(
        &self,
        database: &Arc<Database>,
        user: &UserContext,
        updates: Vec<DocUpdate>,
    ) -> Result<Vec<Result<DocUpdate, Error>>, Error> {
        let policy = self.policy();
        let owned = Arc::clone(database);
        let asking = user.clone();
        let is_admin = user.is_admin()
            || settee_threads::run(move || {
                crate::databases::add_rules(&owned)?;
                administers(&owned, &asking)
            })
            .await?;
        let mut results = Vec::with_capacity(updates.len());
        for update in updates {
            let is_foreign = user.name.is_some() && user.name.as_deref() != update.id().strip_prefix(USER_PREFIX);
            if !update.is_subject_to_validation() {
                results.push(Ok(update));
            } else if is_foreign && !is_admin {
                results.push(Err(Error::Missing));
            } else {
                results.push(self.hash_password(&policy, update).await);
            }
        }
        Ok(results)
    }

    async fn hash_password(&self, policy: &UserPolicy, update: DocUpdate) -> Result<DocUpdate, Error> {
        if !user_document::has_password(update.body().value()) {
            return Ok(update);
        }
        let hashing = policy.hashing.ok_or(user_document::PasswordRefused::Misconfigured)?;
        let rules = PasswordRules::parse(&policy.password_regexp)?;
        let salt = format!("{:016x}{:016x}", (self.dependencies.entropy)(), (self.dependencies.entropy)());
        let hash = move || {
            let body = user_document::protect(update.body().value(), &hashing, &rules, &salt)?;
            Ok(match body {
                Some(body) => update.with_body(body, &mut RevisionHasher::default()),
                None => update,
            })
        };
        self.dependencies.hashers.run(None, hash).await?
    }

    /// As in CouchDB, server administrators of the configuration are not counted, because their accounts need no cache.
    fn count(&self, admin: Option<&Arc<Account>>, label: Counted) {
        if admin.is_none() {
            (self.dependencies.count)(label);
        }
    }

    fn changes(&self, database: &Arc<Database>) -> u64 {
        let mut known = self.known.lock();
        if known.watched.as_ref().is_none_or(|(instance, _)| *instance != database.instance()) {
            let changes = Arc::clone(&self.changes);
            let subscription = database.subscribe(move |_| changes.send_modify(|changes| *changes += 1));
            self.shard.store(database.shard().0, Ordering::Release);
            known.accounts.clear();
            known.watched = Some((database.instance(), subscription));
            self.changes.send_modify(|changes| *changes += 1);
        }
        *self.changes.borrow()
    }

    fn find(
        &self,
        name: &str,
        instance: u64,
        changes: u64,
        admin: Option<&Arc<Account>>,
    ) -> Option<Result<Option<Arc<Account>>, Error>> {
        let mut known = self.known.lock();
        let entry = known.accounts.get(name)?;
        let is_current = (entry.instance, entry.changes) == (instance, changes)
            && entry.admin.as_ref().map(Arc::as_ptr) == admin.map(Arc::as_ptr);
        is_current.then(|| entry.account.clone())
    }

    fn remember(&self, name: &str, entry: Entry) {
        self.known.lock().accounts.put(name.to_owned(), entry);
    }
}

fn read(view: &ReadView<'_>, name: &str, conflicted_users: bool) -> Result<Option<Json>, Error> {
    let Some(record) = view.record(&format!("{USER_PREFIX}{name}"))? else { return Ok(None) };
    let Some(winner) = record.tree.winner(|stored| stored.deleted) else { return Ok(None) };
    let Some(stored) = record.tree.node(winner).value.filter(|stored| !stored.deleted) else { return Ok(None) };
    let lives = |leaf: &u32| record.tree.node(*leaf).value.is_some_and(|stored| !stored.deleted);
    if !conflicted_users && record.tree.leaves().filter(lives).nth(1).is_some() {
        let reason =
            "User document conflicts must be resolved before the document is used for authentication purposes.";
        return Err(Error::Unauthorized(reason));
    }
    Ok(view.revision(stored)?.map(|revision| Json::trusted(revision.into_body())))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visibility {
    Whole,
    Public(String),
}

impl Visibility {
    /// Returns the visibility of document `id` for `user`, which must be authorized to read `database`. Documents of
    /// other databases are wholly visible. Fails if no part is visible.
    pub fn of(users: &Users, database: &Arc<Database>, user: &UserContext, id: &str) -> Result<Self, Error> {
        if user.is_admin() {
            return Ok(Self::Whole);
        }
        if !users.is_users_db(database.name()) {
            return Ok(Self::Whole);
        }
        let is_own = user.name.as_deref().is_some_and(|name| id.strip_prefix(USER_PREFIX) == Some(name));
        if is_own || administers(database, user)? {
            return Ok(Self::Whole);
        }
        if id.starts_with("_design/") {
            return Err(Error::forbidden("Only administrators can view design docs in the users database."));
        }
        Ok(Self::Public(users.policy().public_fields.clone()))
    }

    /// Returns [`Error::Missing`] if only a part is visible, so that the existence of the document is not revealed.
    pub fn require_whole(&self) -> Result<(), Error> {
        match self {
            Self::Whole => Ok(()),
            Self::Public(_) => Err(Error::Missing),
        }
    }
}

/// Returns the public part of a document, with its revision.
pub fn public_part(view: &ReadView<'_>, id: &str, fields: &str) -> Result<(Rev, Vec<u8>), Error> {
    let missing = || Error::Missing;
    let head = view.head(id)?.filter(|head| !head.stored.deleted).ok_or_else(missing)?;
    let mut text = Vec::new();
    view.write_document(&mut text, id, &head.rev, head.stored, |_| {})?;
    let part = user_document::public_part(Value::trusted(&text), fields).ok_or_else(missing)?;
    Ok((head.rev, part.into_bytes()))
}

fn hashing(settings: &dyn Settings) -> Option<Hashing> {
    let scheme = match chttpd_auth::PASSWORD_SCHEME.of(settings).as_str() {
        "pbkdf2" => NewScheme::Pbkdf2,
        "simple" => NewScheme::Simple,
        _ => return None,
    };
    let prf = Algorithm::named(&chttpd_auth::PBKDF2_PRF.of(settings))?;
    let iterations = u32::try_from(chttpd_auth::ITERATIONS.of(settings)).unwrap_or(u32::MAX);
    Some(Hashing { scheme, prf, iterations: NonZeroU32::new(iterations)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::Values;

    #[test]
    fn only_a_clear_word_lets_documents_with_conflicts_in() {
        for value in ["true", "yes", "1", "on", "TRUE", "flase", "false", ""] {
            let settings = Values::of(&[&format!("chttpd_auth/allow_conflicted_user_docs={value}")]);
            assert_eq!(UserPolicy::of(&settings).conflicted_users, value == "true", "{value}");
        }
    }
}
