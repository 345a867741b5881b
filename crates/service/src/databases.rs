//! [`Databases`]: creation and deletion of databases, and their initial contents, above all the rules of user
//! documents. For other special handling of users see [`crate::users`].

use std::sync::{Arc, OnceLock};

use settee_database::{Catalog, Database, DatabaseError, DatabaseOptions, DocUpdate, EditMode, Layout, Work};
use settee_model::json::{Json, write_string};
use settee_model::{Document, Rev, RevisionHasher};
use settee_replication::Replicator;
use settee_settings::{Settings, cluster, couchdb};

use crate::Error;
use crate::users::{Entropy, Users};
use crate::validation::Writer;

const AUTH_ID: &str = "_design/_auth";

/// Revision of this document in CouchDB. The equivalent document of Settee has the same revision, so that users
/// databases can be replicated between both without conflicts.
const AUTH_REV: &str = "1-625dc565328e800ce8dfe08fff750098";

/// Validation function of user documents.
const AUTH_RULES: &str = include_str!("databases/auth.js");

pub struct Databases {
    dependencies: DatabasesDependencies,
}

/// Ends all work on the indexes of a database.
pub type Release = Arc<dyn Fn(&Arc<Database>) + Send + Sync>;

pub struct DatabasesDependencies {
    pub catalog: Arc<Catalog>,
    /// Ends all work on the indexes of a database that is about to be deleted.
    pub release: Release,
    pub settings: Arc<dyn Settings>,
    pub users: Arc<Users>,
    /// The writer, whose cache must not contain deleted databases.
    pub writer: Arc<Writer>,
    /// The replicator, which is notified of databases once it has started.
    pub replicator: Arc<OnceLock<Arc<Replicator>>>,
    /// Clock in milliseconds of the Unix epoch.
    pub clock_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub entropy: Entropy,
}

impl Databases {
    #[must_use]
    pub fn new(dependencies: DatabasesDependencies) -> Self {
        Self { dependencies }
    }

    /// Creates a database with default options. Blocks until it is durable.
    ///
    /// # Errors
    /// Fails if the database exists or cannot be created.
    pub fn create(&self, name: &str) -> Result<(), Error> {
        self.create_as(name, Layout::Whole, self.default_q())
    }

    /// Creates a database. Blocks until it is durable.
    ///
    /// # Errors
    /// Fails if the database exists or cannot be created.
    pub fn create_as(&self, name: &str, layout: Layout, q: u32) -> Result<(), Error> {
        let dependencies = &self.dependencies;
        let (created_ms, instance) = ((dependencies.clock_ms)(), (dependencies.entropy)());
        let database = dependencies.catalog.create(name, DatabaseOptions { created_ms, instance, layout, q })?;
        // The database exists from here on.
        self.initialise(&database).map_err(|error| match error {
            Error::Database(error) => error.in_doubt().into(),
            error => error,
        })?;
        if let Some(replicator) = dependencies.replicator.get() {
            replicator.database_found(name);
        }
        Ok(())
    }

    /// Default number of shards that databases report.
    #[must_use]
    pub fn default_q(&self) -> u32 {
        u32::try_from(cluster::Q.of(&*self.dependencies.settings)).unwrap_or(u32::MAX).max(1)
    }

    /// Deletes a database. Blocks until the deletion is durable.
    ///
    /// # Errors
    /// Fails if the database does not exist.
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

    /// Writes the initial contents of a new database. Blocks until they are durable.
    fn initialise(&self, database: &Arc<Database>) -> Result<(), Error> {
        if matches!(couchdb::DEFAULT_SECURITY.of(&*self.dependencies.settings).as_str(), "everyone" | "admin_local") {
            database.update(Work::SetSecurity(Json::empty_object()))?;
        }
        if self.dependencies.users.is_users_db(database.name()) {
            add_rules(database)?;
        }
        Ok(())
    }

    /// Adds the rules to the users database if it exists. This is necessary because the configuration may name
    /// another database than before. A database created later receives them at its creation.
    pub async fn guard_users_database(self: &Arc<Self>) -> Result<(), Error> {
        let databases = Arc::clone(self);
        settee_threads::run(move || match databases.users_database() {
            Ok(database) => add_rules(&database),
            Err(DatabaseError::NotFound | DatabaseError::IllegalName(_) | DatabaseError::NameTooLong(_)) => Ok(()),
            Err(error) => Err(error.into()),
        })
        .await
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
                        // Another server that starts concurrently has created it.
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

/// Writes the rules of user documents, unless the design document exists.
fn add_rules(database: &Arc<Database>) -> Result<(), Error> {
    if database.read()?.head(AUTH_ID)?.is_some() {
        return Ok(());
    }
    let mut body = br#"{"language":"javascript","validate_doc_update":"#.to_vec();
    write_string(&mut body, AUTH_RULES);
    body.push(b'}');
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
    // Design documents are not validated.
    database.update(Work::Documents(vec![update]))?;
    Ok(())
}
