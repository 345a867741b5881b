//! [`Databases`]: creation and deletion of databases, and their initial contents, above all the rules of user
//! documents.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use settee_database::{
    AccessControl, Catalog, Database, DatabaseError, DatabaseOptions, DocUpdate, EditMode, Layout, Work,
};
use settee_model::json::{self, Json};
use settee_model::{Document, Rev, RevisionHasher};
use settee_replication::Replicator;
use settee_settings::{Settings, cluster, couchdb};

use crate::Error;
use crate::users::{Entropy, Users};
use crate::validation::Writer;

const AUTH_ID: &str = "_design/_auth";

/// Revision of this document in CouchDB. The equivalent document of Settee has the same one, so that users databases
/// can be replicated between both without conflicts.
const AUTH_REV: &str = "1-625dc565328e800ce8dfe08fff750098";

/// Delay after which the rules are added to a new or newly configured users database. CouchDB adds them within 5 s, and
/// clients expect a database without documents until then.
pub const RULES_DELAY: Duration = Duration::from_secs(2);

const AUTH_RULES: &str = include_str!("databases/auth.js");

pub struct Databases {
    dependencies: DatabasesDependencies,
}

pub type Release = Arc<dyn Fn(&Arc<Database>) + Send + Sync>;

pub struct DatabasesDependencies {
    pub catalog: Arc<Catalog>,
    /// Ends all work on the indexes of a database that is about to be deleted.
    pub release: Release,
    pub settings: Arc<dyn Settings>,
    pub users: Arc<Users>,
    /// The cache of the writer must not contain deleted databases.
    pub writer: Arc<Writer>,
    /// Set once the replicator has started; it is then notified of databases.
    pub replicator: Arc<OnceLock<Arc<Replicator>>>,
    /// Milliseconds of the Unix epoch.
    pub clock_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub entropy: Entropy,
}

impl Databases {
    #[must_use]
    pub fn new(dependencies: DatabasesDependencies) -> Self {
        Self { dependencies }
    }

    /// Creates a database with default options, and with the rules if it is a users database. Blocks until it is
    /// durable.
    pub fn create(&self, name: &str) -> Result<(), Error> {
        let database = self.create_empty(name, (Layout::Whole, AccessControl::PerDatabase), self.default_q())?;
        if self.dependencies.users.is_users_db(name) {
            add_rules(&database).map_err(in_doubt)?;
        }
        Ok(())
    }

    /// Creates a database without documents. Blocks until it is durable. The caller must call
    /// [`Self::add_rules_later`].
    pub fn create_empty(
        &self,
        name: &str,
        (layout, access): (Layout, AccessControl),
        q: u32,
    ) -> Result<Arc<Database>, Error> {
        let dependencies = &self.dependencies;
        let (created_ms, instance) = ((dependencies.clock_ms)(), (dependencies.entropy)());
        let options = DatabaseOptions { created_ms, instance, layout, q };
        let database = dependencies.catalog.create_with(name, options, access)?;
        // From here on an error leaves the outcome open, because the database exists.
        self.initialise(&database).map_err(in_doubt)?;
        if let Some(replicator) = dependencies.replicator.get() {
            replicator.database_found(name);
        }
        Ok(database)
    }

    #[must_use]
    pub fn default_q(&self) -> u32 {
        u32::try_from(cluster::Q.of(&*self.dependencies.settings)).unwrap_or(u32::MAX).max(1)
    }

    /// Blocks until the deletion is durable.
    pub fn delete(&self, name: &str) -> Result<(), Error> {
        let dependencies = &self.dependencies;
        let database = dependencies.catalog.database(name)?;
        (dependencies.release)(&database);
        dependencies.writer.forget(&database);
        dependencies.catalog.delete(name)?;
        if let Some(replicator) = dependencies.replicator.get() {
            replicator.database_deleted(name);
        }
        Ok(())
    }

    fn initialise(&self, database: &Arc<Database>) -> Result<(), Error> {
        if matches!(couchdb::DEFAULT_SECURITY.of(&*self.dependencies.settings).as_str(), "everyone" | "admin_local") {
            database.update(Work::SetSecurity(Json::empty_object()))?;
        }
        Ok(())
    }

    /// Adds the rules to the users database later, because the configuration may have changed its name.
    pub fn guard_users_database(self: &Arc<Self>) {
        self.add_rules_later(&self.dependencies.users.policy().users_db);
    }

    /// Adds the rules to a database after [`RULES_DELAY`] if it is a users database. Until then [`Writer`] adds them
    /// before the first update of a user without administrator rights.
    pub fn add_rules_later(self: &Arc<Self>, name: &str) {
        if !self.dependencies.users.is_users_db(name) {
            return;
        }
        let (databases, name) = (Arc::downgrade(self), name.to_owned());
        tokio::spawn(async move {
            tokio::time::sleep(RULES_DELAY).await;
            let Some(databases) = databases.upgrade() else { return };
            let added = settee_threads::run(move || match databases.dependencies.catalog.database(&name) {
                Ok(database) => add_rules(&database),
                Err(DatabaseError::NotFound | DatabaseError::IllegalName(_) | DatabaseError::NameTooLong(_)) => Ok(()),
                Err(error) => Err(error.into()),
            });
            if let Err(error) = added.await {
                tracing::error!(%error, "a users database has no validation function");
            }
        });
    }

    /// Creates the users database, unless it exists or `[couchdb] single_node` is off.
    pub async fn make_users_database(self: &Arc<Self>) -> Result<(), Error> {
        let databases = Arc::clone(self);
        settee_threads::run(move || {
            if !couchdb::SINGLE_NODE.of(&*databases.dependencies.settings) {
                return Ok(());
            }
            match databases.users_database() {
                Ok(database) => add_rules(&database),
                Err(DatabaseError::NotFound) => {
                    match databases.create(&databases.dependencies.users.policy().users_db) {
                        Err(Error::Database(DatabaseError::Exists)) => add_rules(&databases.users_database()?),
                        made => made,
                    }
                }
                Err(error) => Err(error.into()),
            }
        })
        .await
    }

    fn users_database(&self) -> Result<Arc<Database>, DatabaseError> {
        self.dependencies.catalog.database(&self.dependencies.users.policy().users_db)
    }
}

fn in_doubt(error: Error) -> Error {
    match error {
        Error::Database(error) => error.in_doubt().into(),
        error => error,
    }
}

/// Does nothing if the design document exists or was deleted.
pub(crate) fn add_rules(database: &Arc<Database>) -> Result<(), Error> {
    if database.read()?.head(AUTH_ID)?.is_some() {
        return Ok(());
    }
    let body = json::object(|body| _ = body.string("language", "javascript").string("validate_doc_update", AUTH_RULES));
    let document = Document {
        id: None,
        rev: Some(Rev::parse(AUTH_REV)?),
        deleted: false,
        body: Json::trusted(body),
        attachments: None,
        revisions: None,
    };
    let mode = EditMode::Replicated;
    let update = DocUpdate::prepare(AUTH_ID.to_owned(), document, mode, &mut RevisionHasher::default())
        .ok_or(Error::Internal("a replicated document needs a revision"))?;
    database.update(Work::Documents(vec![update]))?;
    Ok(())
}
