//! Authorization of writes to `_replicator` databases ([`before_update`]), whose documents contain passwords and act on
//! behalf of their owners. The rules are those of CouchDB's `before_doc_update`, but stricter where a document could
//! act for another user: databases of this server are accessed with the permissions of the owner.

use std::borrow::Cow;
use std::sync::Arc;

use settee_auth::UserContext;
use settee_database::{Database, EditMode, Reader, Waiting};
use settee_model::Document;
use settee_model::json::{Json, Value, write_string};
use settee_replication::Tuning;
use settee_replication::documents::{self, OWNER, REPLICATOR_ROLE};

use crate::Error;

/// Authorizes and validates a document, and sets its owner.
pub fn before_update(
    database: &Arc<Database>,
    user: &UserContext,
    id: &str,
    document: &mut Document,
    mode: EditMode,
    waiting: Waiting<'_>,
) -> Result<(), Error> {
    let is_replicator = user.roles.iter().any(|role| role == REPLICATOR_ROLE);
    if is_replicator || id.starts_with("_design/") || id.starts_with("_local/") {
        return Ok(());
    }
    require_owner(document.body.value(), user)?;
    if !user.is_admin() {
        if !is_owner_of_old(database, id, user, waiting)? {
            return Err(not_yours());
        }
        require_own_roles(document.body.value(), user)?;
    }
    // Replicated revisions are not changed.
    if mode == EditMode::Replicated {
        return Ok(());
    }
    let owner = document.body.value().get(OWNER);
    if owner.is_none_or(Value::is_null) && (owner.is_none() || user.name.is_some()) {
        document.body = with_owner(document.body.value(), user.name.as_deref());
    }
    let failed = document.body.value().get("_replication_state").is_some_and(|state| state.is_string("failed"));
    if document.deleted || failed {
        return Ok(());
    }
    match documents::parse(document.body.value(), &Tuning::default()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::forbidden(documents::complaint(&error))),
    }
}

fn not_yours() -> Error {
    Error::forbidden("Can't update replication documents from other users.")
}

fn require_owner(document: Value<'_>, user: &UserContext) -> Result<(), Error> {
    let owner = document.get(OWNER).filter(|owner| !owner.is_null());
    let owner = owner.map(|owner| owner.as_str().map(Cow::into_owned));
    match owner {
        None => Ok(()),
        Some(owner) if owner.is_some() && owner == user.name => Ok(()),
        Some(_) if user.is_admin() => Ok(()),
        Some(_) => Err(not_yours()),
    }
}

/// Checks that the document grants no more permissions than its author has.
fn require_own_roles(document: Value<'_>, user: &UserContext) -> Result<(), Error> {
    if document.get("user_ctx").is_none() {
        return Ok(());
    }
    let acts_as = documents::user(document);
    let named = acts_as.name.is_none() || acts_as.name == user.name;
    if named && acts_as.roles.given().iter().all(|role| user.roles.contains(role)) {
        return Ok(());
    }
    Err(Error::forbidden("The member `user_ctx` may name no other user and no roles that you do not have."))
}

fn is_owner_of_old(
    database: &Arc<Database>,
    id: &str,
    user: &UserContext,
    waiting: Waiting<'_>,
) -> Result<bool, Error> {
    let view = database.read_as(&Reader::Administrator, waiting)?;
    let Some(head) = view.head(id)? else { return Ok(true) };
    let mut old = Vec::new();
    if !view.write_document(&mut old, id, &head.rev, head.stored, |_| {})? {
        return Ok(false);
    }
    let old = Json::trusted(old);
    let owner = old.value().get(OWNER).and_then(Value::as_str).map(Cow::into_owned);
    // After a deletion any user may use the id.
    Ok(head.stored.deleted || owner == user.name)
}

fn with_owner(document: Value<'_>, name: Option<&str>) -> Json {
    let mut out = b"{".to_vec();
    for (key, value) in document.members().filter(|(key, _)| !key.is_string(OWNER)) {
        out.extend_from_slice(key.raw());
        out.push(b':');
        out.extend_from_slice(value.raw());
        out.push(b',');
    }
    write_string(&mut out, OWNER);
    out.push(b':');
    match name {
        Some(name) => write_string(&mut out, name),
        None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
    Json::trusted(out)
}
