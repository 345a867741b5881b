//! Authorization of all requests. Every operation needs a [`Permission`]; no operation has a default.
//!
//! The security object of a database authorizes operations within it, and admits only administrators unless it says
//! otherwise. In system databases, users other than server administrators may perform only operations that restrict
//! their own result.

use std::sync::Arc;

use settee_auth::{METRICS_ROLE, UserContext};
use settee_database::{AccessControl, Catalog, Database, EVERY_USER, validate_name};
use settee_settings::{Settings, chttpd};

use crate::Error;
use crate::security::{Security, security};
use crate::users::Users;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    Anyone,
    ServerAdmin,
    /// Server administrator; any user if `[chttpd] admin_only_all_dbs` is off.
    ListDatabases,
    /// Server administrator, or a user with the role `_metrics`.
    Metrics,
    /// Member of the database; in system databases, server administrator.
    Member,
    /// Member of the database, including system databases. The operation must restrict the result to the visible part,
    /// see [`crate::Visibility`].
    Document,
    DatabaseAdmin,
    /// Administrator of the database. CouchDB refuses these requests with another reason.
    Maintenance,
}

#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// Empty outside of databases.
    pub database: &'a str,
    /// Empty if the operation concerns no design document.
    pub design_document: &'a str,
}

/// A larger security object is evaluated on a thread that may block.
const SMALL_BYTES: usize = 16 << 10;

pub struct Access {
    catalog: Arc<Catalog>,
    settings: Arc<dyn Settings>,
    users: Arc<Users>,
}

impl Access {
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, settings: Arc<dyn Settings>, users: Arc<Users>) -> Self {
        Self { catalog, settings, users }
    }

    /// Fails if the user is not authorized or the database does not exist.
    pub async fn authorize(&self, permission: Permission, user: &UserContext, place: Place<'_>) -> Result<(), Error> {
        if user.is_admin() {
            return Ok(());
        }
        match permission {
            Permission::Anyone => Ok(()),
            Permission::ServerAdmin => Err(Error::Unauthorized("You are not a server admin.")),
            Permission::ListDatabases if !chttpd::ADMIN_ONLY_ALL_DBS.of(&*self.settings) => Ok(()),
            Permission::ListDatabases => Err(Error::Unauthorized("You are not a server admin.")),
            Permission::Metrics if user.roles.iter().any(|role| role == METRICS_ROLE) => Ok(()),
            Permission::Metrics => Err(Error::Unauthorized("You are not a server admin or read-only metrics user")),
            Permission::Member | Permission::Document | Permission::DatabaseAdmin | Permission::Maintenance => {
                // Other names with an underscore are reserved for administrators.
                let name = place.database;
                if name.starts_with('_') && validate_name(name).is_err() {
                    return Err(Error::Unauthorized("You are not a server admin."));
                }
                let is_listing = permission == Permission::Member && self.is_of_system(name);
                let of_design = !place.design_document.is_empty();
                if is_listing && !of_design {
                    return Err(Error::Unauthorized("You are not a server admin."));
                }
                let database = self.catalog.database(name)?;
                let object = security(&database)?;
                let (is_small, user) = (object.as_bytes().len() <= SMALL_BYTES, with_common_role(&database, user));
                let judge = move || {
                    let security = Security::in_force(&database, object);
                    check(permission, &user, &security)?;
                    if is_listing && check(Permission::DatabaseAdmin, &user, &security).is_err() {
                        let reason = "Only administrators can view design docs in the users database.";
                        return Err(Error::forbidden(reason));
                    }
                    Ok(())
                };
                if is_small { judge() } else { settee_threads::run(judge).await }
            }
        }
    }

    fn is_of_system(&self, name: &str) -> bool {
        self.users.is_users_db(name) || name.rsplit('/').next() == Some("_replicator")
    }
}

/// In a database with per-document access every authenticated user has the role `_users`, so that the security object
/// can admit all of them.
fn with_common_role(database: &Database, user: &UserContext) -> UserContext {
    let mut user = user.clone();
    if database.access() == AccessControl::PerDocument && user.name.is_some() {
        user.roles.push(EVERY_USER.to_owned());
    }
    user
}

fn check(permission: Permission, user: &UserContext, security: &Security) -> Result<(), Error> {
    let is_admin = security.names_admin(user);
    let needs_admin = matches!(permission, Permission::DatabaseAdmin | Permission::Maintenance);
    match (is_admin || security.names_member(user), &user.name) {
        (false, None) => Err(Error::Unauthorized("You are not authorized to access this db.")),
        (false, Some(_)) => Err(Error::forbidden("You are not allowed to access this db.")),
        (true, _) if !needs_admin || is_admin => Ok(()),
        (true, _) if permission == Permission::Maintenance => {
            Err(Error::Unauthorized("You are not a server or db admin."))
        }
        (true, None) => Err(Error::Unauthorized("You are not a db or server admin.")),
        (true, Some(_)) => Err(Error::forbidden("You are not a db or server admin.")),
    }
}

#[cfg(test)]
mod tests;
