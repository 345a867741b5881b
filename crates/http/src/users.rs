//! The database of users: reading accounts from it, what its documents become before they are written, and who may see them.
//! Its other rules are those of its design document, see [`crate::system`].

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_auth::user_document::{self, PasswordRules, USER_PREFIX};
use settee_auth::{Account, UserContext};
use settee_database::{Database, DocUpdate, EditMode, NewAttachment, NewAttachments, ReadView, Subscription};
use settee_model::json::{Json, Value};
use settee_model::{Document, Rev, RevisionHasher};

use crate::authentication::policy::AuthPolicy;
use crate::metrics::Count;
use crate::node::Node;
use crate::request::Request;
use crate::{Error, access, bridge, validation};

/// Accounts that are remembered, also of names that nobody has.
const REMEMBERED_MAX: usize = 20_000;

/// Accounts as they were read, for as long as the database of users does not change.
#[derive(Default)]
pub(crate) struct Users {
    known: Mutex<Known>,
    changes: Arc<AtomicU64>,
    upgrading: Mutex<Vec<String>>,
    /// Held while the secret of session cookies is made up.
    pub(crate) making_secret: Mutex<()>,
}

#[derive(Default)]
struct Known {
    accounts: HashMap<String, Entry>,
    /// The instance of the database that is listened to.
    watched: Option<(u64, Subscription)>,
}

struct Entry {
    /// Of how many changes the reader knew.
    changes: u64,
    instance: u64,
    /// The admin of this name when the account was made.
    admin: Option<Arc<Account>>,
    account: Result<Option<Arc<Account>>, Error>,
}

impl Users {
    /// How many changes there were so far, counted from when this was first asked.
    fn changes(&self, database: &Arc<Database>) -> u64 {
        let mut known = self.known.lock();
        if known.watched.as_ref().is_none_or(|(instance, _)| *instance != database.instance()) {
            let changes = Arc::clone(&self.changes);
            let subscription = database.subscribe(move |_| {
                changes.fetch_add(1, Ordering::AcqRel);
            });
            known.accounts.clear();
            known.watched = Some((database.instance(), subscription));
        }
        self.changes.load(Ordering::Acquire)
    }

    fn find(
        &self,
        name: &str,
        instance: u64,
        changes: u64,
        admin: Option<&Arc<Account>>,
    ) -> Option<Result<Option<Arc<Account>>, Error>> {
        let known = self.known.lock();
        let entry = known.accounts.get(name)?;
        let is_current = (entry.instance, entry.changes) == (instance, changes)
            && entry.admin.as_ref().map(Arc::as_ptr) == admin.map(Arc::as_ptr);
        is_current.then(|| entry.account.clone())
    }

    fn remember(&self, name: &str, entry: Entry) {
        let mut known = self.known.lock();
        if known.accounts.len() >= REMEMBERED_MAX {
            known.accounts.clear();
        }
        known.accounts.insert(name.to_owned(), entry);
    }
}

/// The account of this name: a server admin, with the roles that a document adds, or a user. A change of either counts at once.
pub(crate) async fn account(node: &Arc<Node>, policy: &AuthPolicy, name: &str) -> Result<Option<Arc<Account>>, Error> {
    let admin = node.authenticator.admin(name);
    let Ok(database) = node.database(&policy.users_db) else { return Ok(admin) };
    let changes = node.users.changes(&database);
    if let Some(found) = node.users.find(name, database.instance(), changes, admin.as_ref()) {
        count(node, admin.as_ref(), Count::AuthCacheHits);
        return found;
    }
    count(node, admin.as_ref(), Count::AuthCacheMisses);
    let (instance, wanted, conflicted_users) = (database.instance(), name.to_owned(), policy.conflicted_users);
    let read = bridge::blocking(move || read(&database.read()?, &wanted, conflicted_users));
    let account = match (read.await, &admin) {
        (Ok(Some(document)), Some(admin)) => Ok(Some(Arc::new(admin.with_roles_of(document.value())))),
        (Ok(Some(document)), None) => Ok(Some(Arc::new(Account::of_document(name, document.value())))),
        (Ok(None), admin) => Ok(admin.clone()),
        (Err(error), _) => Err(error),
    };
    let is_lasting = account.as_ref().err().is_none_or(|error| !error.status.is_server_error());
    if is_lasting {
        node.users.remember(name, Entry { changes, instance, admin, account: account.clone() });
    }
    account
}

/// As in CouchDB administrators of the configuration do not count: there is nothing to remember of them.
fn count(node: &Node, admin: Option<&Arc<Account>>, what: Count) {
    if admin.is_none() {
        node.metrics.count(what);
    }
}

/// The body of a user's document, if there is one.
fn read(view: &ReadView, name: &str, conflicted_users: bool) -> Result<Option<Json>, Error> {
    let Some(record) = view.record(&format!("{USER_PREFIX}{name}"))? else { return Ok(None) };
    let Some(winner) = record.tree.winner(|stored| stored.deleted) else { return Ok(None) };
    let Some(stored) = record.tree.node(winner).value.filter(|stored| !stored.deleted) else { return Ok(None) };
    let lives = |leaf: &u32| record.tree.node(*leaf).value.is_some_and(|stored| !stored.deleted);
    if !conflicted_users && record.tree.leaves().filter(lives).nth(1).is_some() {
        let reason =
            "User document conflicts must be resolved before the document is used for authentication purposes.";
        return Err(Error::unauthorized(reason));
    }
    Ok(view.revision(stored)?.map(|revision| Json::trusted(revision.into_body())))
}

/// Whether a database is one of users: the configured one, or one that ends in `/_users`.
pub(crate) fn is_users_db(policy: &AuthPolicy, name: &str) -> bool {
    name == policy.users_db || name.rsplit('/').next() == Some("_users")
}

/// What somebody may see of a user document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// All of it.
    Whole,
    /// Its public fields, which are named.
    Public(String),
}

impl Sight {
    /// What `user` may see of document `id`, who may read `database`. In other databases than those of users it is everything.
    pub(crate) fn of(node: &Arc<Node>, database: &Arc<Database>, user: &UserContext, id: &str) -> Result<Self, Error> {
        if user.is_admin() {
            return Ok(Self::Whole);
        }
        let policy = node.auth_policy();
        if !is_users_db(&policy, database.name()) {
            return Ok(Self::Whole);
        }
        let is_own = user.name.as_deref().is_some_and(|name| id.strip_prefix(USER_PREFIX) == Some(name));
        if is_own || access::administers(database, user)? {
            return Ok(Self::Whole);
        }
        if id.starts_with("_design/") {
            return Err(Error::forbidden("Only administrators can view design docs in the users database."));
        }
        Ok(Self::Public(policy.public_fields.clone()))
    }

    /// Refuses whoever may not see the whole document.
    pub(crate) fn require_whole(&self) -> Result<(), Error> {
        match self {
            Self::Whole => Ok(()),
            Self::Public(_) => Err(Error::not_found("missing")),
        }
    }
}

/// What the user of a request may see of document `id` of its database.
pub(crate) async fn sight(request: &Request, database: &Arc<Database>, id: &str) -> Result<Sight, Error> {
    let (node, database, user) = (Arc::clone(&request.node), Arc::clone(database), request.user.clone());
    if user.is_admin() || !is_users_db(&node.auth_policy(), database.name()) {
        return Ok(Sight::Whole);
    }
    let id = id.to_owned();
    bridge::blocking(move || Sight::of(&node, &database, &user, &id)).await
}

/// What everybody may see of a document, with its revision.
pub(crate) fn public_part(view: &ReadView, id: &str, fields: &str) -> Result<(Rev, Vec<u8>), Error> {
    let missing = || Error::not_found("missing");
    let head = view.head(id)?.filter(|head| !head.stored.deleted).ok_or_else(missing)?;
    let mut text = Vec::new();
    view.write_document(&mut text, id, &head.rev, head.stored, |_| {})?;
    let part = user_document::public_part(Value::trusted(&text), fields).ok_or_else(missing)?;
    Ok((head.rev, part.into_bytes()))
}

/// Whether updates of a database have to pass [`before_write`].
pub(crate) fn guards(node: &Node, database: &Database) -> bool {
    is_users_db(&node.auth_policy(), database.name())
}

/// What becomes of updates of user documents before they are written: passwords become hashes, and nobody writes the document
/// of somebody else.
pub(crate) async fn before_write(
    node: &Arc<Node>,
    database: &Arc<Database>,
    user: &UserContext,
    updates: Vec<DocUpdate>,
) -> Result<Vec<Result<DocUpdate, Error>>, Error> {
    let policy = node.auth_policy();
    let owned = Arc::clone(database);
    let asking = user.clone();
    let is_admin = user.is_admin() || bridge::blocking(move || access::administers(&owned, &asking)).await?;
    let mut results = Vec::with_capacity(updates.len());
    for update in updates {
        let is_foreign = user.name.is_some() && user.name.as_deref() != update.id().strip_prefix(USER_PREFIX);
        if !update.is_subject_to_validation() {
            results.push(Ok(update));
        } else if is_foreign && !is_admin {
            results.push(Err(Error::not_found("missing")));
        } else {
            results.push(hash_password(node, &policy, update).await);
        }
    }
    Ok(results)
}

async fn hash_password(node: &Arc<Node>, policy: &AuthPolicy, update: DocUpdate) -> Result<DocUpdate, Error> {
    if !user_document::has_password(update.body().value()) {
        return Ok(update);
    }
    let hashing = policy.hashing.ok_or(user_document::PasswordRefused::Misconfigured)?;
    let rules = PasswordRules::parse(&policy.password_regexp)?;
    let salt = node.random_hex();
    let hash = move || {
        let body = user_document::protect(update.body().value(), &hashing, &rules, &salt)?;
        Ok(match body {
            Some(body) => update.with_body(body, &mut RevisionHasher::default()),
            None => update,
        })
    };
    node.hashers.run(None, hash).await?
}

/// Hashes the password of a user who has just logged in anew, if new ones are hashed in another way. The salt stays, so that
/// sessions do. Goes on in the background.
pub(crate) fn upgrade(node: &Arc<Node>, policy: &AuthPolicy, account: &Arc<Account>, password: Vec<u8>) {
    let Some(hashing) = policy.hashing.filter(|hashing| policy.upgrade && account.needs_upgrade(hashing)) else {
        return;
    };
    let mut upgrading = node.users.upgrading.lock();
    if upgrading.iter().any(|name| name == account.name()) {
        return;
    }
    upgrading.push(account.name().to_owned());
    drop(upgrading);
    let (node, account) = (Arc::clone(node), Arc::clone(account));
    let users_db = policy.users_db.clone();
    tokio::spawn(async move {
        if let Err(error) = replace_hash(&node, &users_db, &account, hashing, password).await {
            tracing::warn!(user = account.name(), reason = %error.reason, "the hash of a password was not renewed");
        }
        node.users.upgrading.lock().retain(|name| name != account.name());
    });
}

async fn replace_hash(
    node: &Arc<Node>,
    users_db: &str,
    account: &Arc<Account>,
    hashing: settee_auth::Hashing,
    password: Vec<u8>,
) -> Result<(), Error> {
    let database = node.database(users_db)?;
    let id = format!("{USER_PREFIX}{}", account.name());
    let (reader, wanted) = (Arc::clone(&database), id.clone());
    let found = bridge::blocking(move || {
        let view = reader.read()?;
        let head = view.head(&wanted)?.filter(|head| !head.stored.deleted);
        let Some(head) = head else { return Ok(None) };
        Ok(view.revision(head.stored)?.map(|revision| (head.rev, revision)))
    });
    let Some((rev, revision)) = found.await? else { return Ok(()) };
    let salt = account.salt().to_owned();
    let attachments = revision.attachments.iter().cloned().map(NewAttachment::kept).collect();
    let attachments = NewAttachments::new(attachments)?;
    let body = Json::trusted(revision.into_body());
    if !Account::of_document(account.name(), body.value()).has_password_of(account) {
        // The password was changed meanwhile.
        return Ok(());
    }
    let (body, password) = node
        .hashers
        .run(None, move || (user_document::with_hash(body.value(), &hashing, &password, &salt), password))
        .await?;
    node.authenticator.remember(&Account::of_document(account.name(), body.value()), &password);
    let document = Document { id: None, rev: Some(rev), deleted: false, body, attachments: None, revisions: None };
    let mode = EditMode::Interactive;
    let update = DocUpdate::prepare_with(id, document, attachments, mode, &mut RevisionHasher::default())
        .ok_or_else(|| Error::internal("an edit needs no revision"))?;
    tracing::info!(user = account.name(), "the hash of a password is renewed");
    let results = validation::commit(node, &database, &UserContext::admin_party(), vec![update]).await?;
    results.into_iter().next().map_or(Ok(()), |result| result.map(|_| ()))
}
