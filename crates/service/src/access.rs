//! Who may do what: the one place that decides.
//!
//! Whatever can be done needs a [`Permission`]; there is no default. What is done
//! within a database is judged by the database's security object, which is closed unless it says otherwise. In the
//! databases of the system only what is declared to care for itself is open to others than server administrators.

use std::sync::Arc;

use settee_auth::{METRICS_ROLE, UserContext};
use settee_database::{Catalog, validate_name};

use settee_settings::{Settings, chttpd};

use crate::security::{Security, security};
use crate::users::Users;
use crate::{Error, threads};

/// The permission that somebody needs for an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Nothing.
    Anyone,
    /// To be a server administrator.
    ServerAdmin,
    /// To be a server administrator, unless `[chttpd] admin_only_all_dbs` is off.
    ListDatabases,
    /// To be a server administrator or to have the role `_metrics`.
    Metrics,
    /// To be a member of the database. In databases of the system, to be a server administrator.
    Member,
    /// To be a member of the database, also in databases of the system: who serves this shows everybody
    /// there only what they may see, see [`crate::Visibility`].
    Document,
    /// To be an administrator of the database.
    DatabaseAdmin,
    /// The same, for requests that keep house. CouchDB refuses these in other words.
    Maintenance,
}

/// Where in a server somebody wants to do something.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The database; empty outside of databases.
    pub database: &'a str,
    /// The design document below which it is; empty elsewhere.
    pub design_document: &'a str,
}

/// A security object of more takes too long for a thread that serves others meanwhile.
const SMALL_BYTES: usize = 16 << 10;

/// The check of permissions.
pub struct Access {
    catalog: Arc<Catalog>,
    settings: Arc<dyn Settings>,
    users: Arc<Users>,
}

impl Access {
    /// For these databases.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, settings: Arc<dyn Settings>, users: Arc<Users>) -> Self {
        Self { catalog, settings, users }
    }

    /// Lets the request pass or says why not.
    ///
    /// # Errors
    /// When the user may not, or the database is not there.
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
                // Whatever else the server may have under such a name one day is for administrators.
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
                let (is_small, user) = (object.as_bytes().len() <= SMALL_BYTES, user.clone());
                let judge = move || {
                    let security = Security::in_force(&database, object);
                    check(permission, &user, &security)?;
                    if is_listing && check(Permission::DatabaseAdmin, &user, &security).is_err() {
                        let reason = "Only administrators can view design docs in the users database.";
                        return Err(Error::forbidden(reason));
                    }
                    Ok(())
                };
                if is_small { judge() } else { threads::run(judge).await }
            }
        }
    }

    /// Whether a database is one of users or of replications.
    fn is_of_system(&self, name: &str) -> bool {
        self.users.is_users_db(name) || name.rsplit('/').next() == Some("_replicator")
    }
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
