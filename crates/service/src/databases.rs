//! [`Databases`]: making and ending them, and what belongs into them from the beginning, above all the rules of user documents.
//! What else is special about users is in [`crate::users`].

use std::sync::{Arc, OnceLock};

use settee_database::{Catalog, Database, DatabaseError, DatabaseOptions, DocUpdate, EditMode, Layout, Work};
use settee_model::json::{Json, write_string};
use settee_model::{Document, Rev, RevisionHasher};
use settee_replication::Replicator;
use settee_settings::{Settings, cluster, couchdb};

use crate::users::{Entropy, Users};
use crate::validation::Writer;
use crate::{Error, threads};

/// The design document of databases of users.
const AUTH_ID: &str = "_design/_auth";

/// The revision that this document has in CouchDB. Ours says the same in other words and has it too, so that databases of
/// users can be replicated between both without a conflict.
const AUTH_REV: &str = "1-625dc565328e800ce8dfe08fff750098";

/// The rules of user documents.
const AUTH_RULES: &str = include_str!("databases/auth.js");

/// Makes and ends databases.
pub struct Databases {
    dependencies: DatabasesDependencies,
}

/// Ends all work on something of a database.
pub type Release = Arc<dyn Fn(&Arc<Database>) + Send + Sync>;

/// The dependencies of [`Databases`].
pub struct DatabasesDependencies {
    /// The databases.
    pub catalog: Arc<Catalog>,
    /// Ends all work on the indexes of a database that is about to go.
    pub release: Release,
    /// The configuration.
    pub settings: Arc<dyn Settings>,
    /// The database of users.
    pub users: Arc<Users>,
    /// The writer, which forgets deleted databases.
    pub writer: Arc<Writer>,
    /// Is notified of databases, once it has begun.
    pub replicator: Arc<OnceLock<Arc<Replicator>>>,
    /// The time in milliseconds of the Unix epoch.
    pub clock_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// For the numbers of databases.
    pub entropy: Entropy,
}

impl Databases {
    /// Of its dependencies.
    #[must_use]
    pub fn new(dependencies: DatabasesDependencies) -> Self {
        Self { dependencies }
    }

    /// Creates a database that nobody described. Waits for the disk.
    ///
    /// # Errors
    /// When it is there, or cannot be.
    pub fn create(&self, name: &str) -> Result<(), Error> {
        self.create_as(name, Layout::Whole, self.default_q())
    }

    /// Creates a database. Waits for the disk.
    ///
    /// # Errors
    /// When it is there, or cannot be.
    pub fn create_as(&self, name: &str, layout: Layout, q: u32) -> Result<(), Error> {
        let dependencies = &self.dependencies;
        let (created_ms, instance) = ((dependencies.clock_ms)(), (dependencies.entropy)());
        let database = dependencies.catalog.create(name, DatabaseOptions { created_ms, instance, layout, q })?;
        self.initialise(&database)?;
        if let Some(replicator) = dependencies.replicator.get() {
            replicator.database_found(name);
        }
        Ok(())
    }

    /// The number of shards that databases say they have.
    #[must_use]
    pub fn default_q(&self) -> u32 {
        u32::try_from(cluster::Q.of(&*self.dependencies.settings)).unwrap_or(u32::MAX).max(1)
    }

    /// Deletes a database. Waits for the disk.
    ///
    /// # Errors
    /// When it is not there.
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

    /// Gives a new database what belongs into one of its name. Waits for the disk.
    fn initialise(&self, database: &Arc<Database>) -> Result<(), Error> {
        if matches!(couchdb::DEFAULT_SECURITY.of(&*self.dependencies.settings).as_str(), "everyone" | "admin_local") {
            database.update(Work::SetSecurity(Json::empty_object()))?;
        }
        if self.dependencies.users.is_users_db(database.name()) {
            add_rules(database)?;
        }
        Ok(())
    }

    /// Gives the database of users its rules, if it is there: the configuration may have named another one. One that is made
    /// later gets them then.
    ///
    /// # Errors
    /// When the engine failed.
    pub async fn guard_users_database(self: &Arc<Self>) -> Result<(), Error> {
        let databases = Arc::clone(self);
        threads::run(move || match databases.users_database() {
            Ok(database) => add_rules(&database),
            Err(DatabaseError::NotFound | DatabaseError::IllegalName(_) | DatabaseError::NameTooLong(_)) => Ok(()),
            Err(error) => Err(error.into()),
        })
        .await
    }

    /// Makes the database of users, unless it is there, or `[couchdb] single_node` is off.
    ///
    /// # Errors
    /// When the engine failed.
    pub async fn make_users_database(self: &Arc<Self>) -> Result<(), Error> {
        let databases = Arc::clone(self);
        threads::run(move || {
            if !couchdb::SINGLE_NODE.of(&*databases.dependencies.settings) {
                return Ok(());
            }
            match databases.users_database() {
                Ok(database) => add_rules(&database),
                Err(DatabaseError::NotFound) => {
                    match databases.create(&databases.dependencies.users.policy().users_db) {
                        // Another server that begins was first.
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

/// Writes the rules of user documents into a database of users that has none.
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
    // Nobody validates design documents.
    database.update(Work::Documents(vec![update]))?;
    Ok(())
}
