//! Who may do what: the one place that decides.
//!
//! Each resource of the router declares a [`Permission`] for each of its methods; there is no default. Paths
//! within a database are judged by the database's security object, which is closed unless it says otherwise. In the
//! databases of the system only what is declared to care for itself is open to others than server administrators.

mod security;

use std::borrow::Cow;
use std::sync::Arc;

use hyper::Method;
use settee_auth::{METRICS_ROLE, UserContext};
use settee_database::{Database, validate_name};
use settee_model::json::Json;
use settee_settings::chttpd;

use crate::node::Node;
use crate::router::Captures;
use crate::{Error, bridge, users};

pub(crate) use security::{MalformedSecurity, Security};

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permission {
    /// Nothing.
    Anyone,
    /// To be a server administrator.
    ServerAdmin,
    /// To be a server administrator, unless `[chttpd] admin_only_all_dbs` is off.
    ListDatabases,
    /// To be a server administrator or to have the role `_metrics`.
    Metrics,
    /// To be a member of the database that the path names. In databases of the system, to be a server administrator.
    Member,
    /// To be a member of the database that the path names, also in databases of the system: who serves this shows everybody
    /// there only what they may see, see [`crate::users::Sight`].
    Document,
    /// To be an administrator of the database that the path names.
    DatabaseAdmin,
    /// The same, for requests that keep house. CouchDB refuses these in other words.
    Maintenance,
}

/// What a path needs that nothing serves, or not with this method: what CouchDB asks before it looks at what there is, so that
/// nobody learns by it who may not know.
pub(crate) fn of_unserved(method: &Method, path: &[Cow<'_, str>]) -> Permission {
    let path: Vec<&str> = path.iter().map(AsRef::as_ref).collect();
    let makes_or_ends = [Method::PUT, Method::DELETE].contains(method);
    match path[..] {
        [] | ["favicon.ico", ..] => Permission::Anyone,
        ["_all_dbs" | "_dbs_info", ..] => Permission::ListDatabases,
        ["_up" | "_uuids" | "_session" | "_replicate" | "_active_tasks"] => Permission::Anyone,
        ["_utils", ..] if *method == Method::GET => Permission::Anyone,
        ["_node", _, "_stats" | "_system" | "_prometheus", ..] | ["_stats", ..] => Permission::Metrics,
        ["_users" | "_replicator", "_all_docs" | "_changes", ..] => Permission::ServerAdmin,
        [_] if makes_or_ends => Permission::ServerAdmin,
        ["_users" | "_replicator" | "_global_changes", ..] => Permission::Document,
        [first, ..] if first.starts_with('_') => Permission::ServerAdmin,
        [_, "_compact", ..] | [_, "_view_cleanup"] => Permission::Maintenance,
        [_, "_sync_shards" | "_purge"] => Permission::ServerAdmin,
        _ => Permission::Document,
    }
}

/// Lets the request pass or says why not.
pub(crate) async fn authorize(
    node: &Arc<Node>,
    permission: Permission,
    user: &UserContext,
    captures: &Captures,
) -> Result<(), Error> {
    if user.is_admin() {
        return Ok(());
    }
    match permission {
        Permission::Anyone => Ok(()),
        Permission::ServerAdmin => Err(Error::unauthorized("You are not a server admin.")),
        Permission::ListDatabases if !chttpd::ADMIN_ONLY_ALL_DBS.of(&*node.settings) => Ok(()),
        Permission::ListDatabases => Err(Error::unauthorized("You are not a server admin.")),
        Permission::Metrics if user.roles.iter().any(|role| role == METRICS_ROLE) => Ok(()),
        Permission::Metrics => Err(Error::unauthorized("You are not a server admin or read-only metrics user")),
        Permission::Member | Permission::Document | Permission::DatabaseAdmin | Permission::Maintenance => {
            // Whatever else the server may have under such a name one day is for administrators.
            let name = captures.get("db");
            if name.starts_with('_') && validate_name(name).is_err() {
                return Err(Error::unauthorized("You are not a server admin."));
            }
            let is_listing = permission == Permission::Member && is_of_system(node, captures.get("db"));
            let of_design = !captures.get("ddoc").is_empty();
            if is_listing && !of_design {
                return Err(Error::unauthorized("You are not a server admin."));
            }
            let database = node.database(captures.get("db"))?;
            let user = user.clone();
            bridge::blocking(move || {
                let security = Security::of(&database)?;
                judge(permission, &user, &security)?;
                if is_listing && judge(Permission::DatabaseAdmin, &user, &security).is_err() {
                    let reason = "Only administrators can view design docs in the users database.";
                    return Err(Error::forbidden(reason));
                }
                Ok(())
            })
            .await
        }
    }
}

/// Whether a database is one of users or of replications.
fn is_of_system(node: &Node, name: &str) -> bool {
    users::is_users_db(&node.auth_policy(), name) || name.rsplit('/').next() == Some("_replicator")
}

/// The security object of a database as clients and functions see it: as it was set, or closed to all but administrators.
pub(crate) fn security(database: &Arc<Database>) -> Result<Json, Error> {
    security::stored(database)
}

/// Whether `user` is an administrator of `database`. Reads it, so it belongs on a thread that may block.
pub(crate) fn administers(database: &Arc<Database>, user: &UserContext) -> Result<bool, Error> {
    Ok(user.is_admin() || Security::of(database)?.names_admin(user))
}

/// Refuses a design document to who is no administrator of the database.
pub(crate) async fn require_database_admin(
    node: &Arc<Node>,
    user: &UserContext,
    captures: &Captures,
) -> Result<(), Error> {
    authorize(node, Permission::DatabaseAdmin, user, captures).await
}

fn judge(permission: Permission, user: &UserContext, security: &Security) -> Result<(), Error> {
    let is_admin = security.names_admin(user);
    if permission == Permission::Maintenance {
        let refused = Error::unauthorized("You are not a server or db admin.");
        return if is_admin { Ok(()) } else { Err(refused) };
    }
    match (is_admin || security.names_member(user), &user.name) {
        (false, None) => Err(Error::unauthorized("You are not authorized to access this db.")),
        (false, Some(_)) => Err(Error::forbidden("You are not allowed to access this db.")),
        (true, _) if permission != Permission::DatabaseAdmin || is_admin => Ok(()),
        (true, None) => Err(Error::unauthorized("You are not a db or server admin.")),
        (true, Some(_)) => Err(Error::forbidden("You are not a db or server admin.")),
    }
}

#[cfg(test)]
mod tests;
