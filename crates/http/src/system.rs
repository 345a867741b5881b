//! New databases: what belongs into them from the beginning, above all the rules of user documents. What else is special about users is in
//! [`crate::users`].

use std::sync::Arc;

use settee_database::{Database, DatabaseError, DocUpdate, EditMode, Work};
use settee_model::json::{Json, write_string};
use settee_model::{Document, Rev, RevisionHasher};
use settee_settings::couchdb;

use crate::node::Node;
use crate::routes::databases;
use crate::{Error, bridge, users};

/// The design document of databases of users.
const AUTH_ID: &str = "_design/_auth";

/// The revision that this document has in CouchDB. Ours says the same in other words and has it too, so that databases of
/// users can be replicated between both without a conflict.
const AUTH_REV: &str = "1-625dc565328e800ce8dfe08fff750098";

/// The rules of user documents.
const AUTH_RULES: &str = include_str!("system/auth.js");

/// Gives a new database what belongs into one of its name. Waits for the disk.
pub(crate) fn furnish(node: &Node, database: &Arc<Database>) -> Result<(), Error> {
    if matches!(couchdb::DEFAULT_SECURITY.of(&*node.settings).as_str(), "everyone" | "admin_local") {
        database.update(Work::SetSecurity(Json::empty_object()))?;
    }
    if users::is_users_db(&node.auth_policy(), database.name()) {
        add_rules(database)?;
    }
    Ok(())
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
        .ok_or_else(|| Error::internal("a replicated document needs a revision"))?;
    // Nobody validates design documents.
    database.update(Work::Documents(vec![update]))?;
    Ok(())
}

impl Node {
    /// Gives the database of users its rules, if it is there: the configuration may have named another one. One that is made
    /// later gets them then.
    pub(crate) async fn guard_users_database(self: &Arc<Self>) -> Result<(), Error> {
        let node = Arc::clone(self);
        bridge::blocking(move || match node.catalog.database(&node.auth_policy().users_db) {
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
        let node = Arc::clone(self);
        bridge::blocking(move || {
            if !couchdb::SINGLE_NODE.of(&*node.settings) {
                return Ok(());
            }
            let name = &node.auth_policy().users_db;
            match node.catalog.database(name) {
                Ok(database) => add_rules(&database),
                Err(DatabaseError::NotFound) => databases::create_now(&node, name),
                Err(error) => Err(error.into()),
            }
        })
        .await
    }
}
