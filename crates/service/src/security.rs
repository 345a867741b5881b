//! [`Security`]: the members and administrators of a database according to its security object.
//!
//! A malformed object is refused when it is set. If one is stored nevertheless, for example by an earlier version, only
//! server administrators can access the database.

use std::sync::Arc;

use settee_auth::UserContext;
use settee_database::{AccessControl, Database, Member, Reader};
use settee_model::json::{Json, Value};

use crate::Error;

/// In force for a database without a security object.
const CLOSED: &[u8] = br#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Security(Json);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(clippy::enum_variant_names, reason = "each says what is missing")]
pub enum MalformedSecurity {
    #[error("Request body must be a JSON object")]
    NoObject,
    #[error("{0} must be a JSON object")]
    NoGroup(&'static str),
    #[error("{0} must be a JSON list of strings")]
    NoList(&'static str),
}

impl Security {
    /// Fails if the object is malformed. The groups are optional, and their members must be lists of names and roles.
    pub fn parse(json: Json) -> Result<Self, MalformedSecurity> {
        if !json.value().is_object() {
            return Err(MalformedSecurity::NoObject);
        }
        let members = members(json.value());
        for (name, group) in [("admins", json.value().get("admins")), ("members", members)] {
            let Some(group) = group else { continue };
            if !group.is_object() {
                return Err(MalformedSecurity::NoGroup(name));
            }
            for list in ["names", "roles"] {
                let is_list = |list: Value<'_>| list.is_array() && list.elements().all(|item| item.as_str().is_some());
                if !group.get(list).is_none_or(is_list) {
                    return Err(MalformedSecurity::NoList(list));
                }
            }
        }
        Ok(Self(json))
    }

    /// Returns the security object in force for a database. The object is cached, but each call validates it
    /// completely.
    pub fn of(database: &Arc<Database>) -> Result<Self, Error> {
        Ok(Self::in_force(database, security(database)?))
    }

    pub(crate) fn in_force(database: &Arc<Database>, object: Json) -> Self {
        Self::parse(object).unwrap_or_else(|error| {
            tracing::error!(database = database.name(), reason = %error,
                "the security object is invalid: only server administrators may use the database until it is replaced");
            Self::closed()
        })
    }

    fn closed() -> Self {
        Self(Json::trusted(CLOSED.to_vec()))
    }

    #[must_use]
    pub fn names_admin(&self, user: &UserContext) -> bool {
        self.0.value().get("admins").is_some_and(|admins| names(admins, user))
    }

    /// Returns true if `user` is a member. Without named members every user is one.
    #[must_use]
    pub fn names_member(&self, user: &UserContext) -> bool {
        let is_empty = |group: Value<'_>, list| group.get(list).is_none_or(|list| list.elements().next().is_none());
        members(self.0.value())
            .is_none_or(|group| (is_empty(group, "names") && is_empty(group, "roles")) || names(group, user))
    }

    #[must_use]
    pub fn into_json(self) -> Json {
        self.0
    }
}

/// Returns the security object as clients and functions see it: the one that was set, or one that admits only
/// administrators.
pub fn security(database: &Arc<Database>) -> Result<Json, Error> {
    Ok(database.security()?.unwrap_or_else(|| Security::closed().into_json()))
}

/// Includes server administrators.
pub fn administers(database: &Arc<Database>, user: &UserContext) -> Result<bool, Error> {
    Ok(user.is_admin() || Security::of(database)?.names_admin(user))
}

/// Returns the user on whose behalf documents of `database` are read or written. In a database with per-document access
/// a user without administrator rights is restricted.
pub fn reader(database: &Arc<Database>, user: &UserContext) -> Result<Reader, Error> {
    if database.access() == AccessControl::PerDatabase || administers(database, user)? {
        return Ok(Reader::Administrator);
    }
    Ok(Reader::Member(Member::new(user.name.as_deref(), user.roles.iter().cloned())))
}

/// CouchDB 1.0 called the group `readers`.
fn members(security: Value<'_>) -> Option<Value<'_>> {
    security.get("members").or_else(|| security.get("readers"))
}

fn names(group: Value<'_>, user: &UserContext) -> bool {
    let has = |list: &str, wanted: &str| {
        group.get(list).is_some_and(|list| list.elements().any(|item| item.as_str().as_deref() == Some(wanted)))
    };
    user.name.as_deref().is_some_and(|name| has("names", name)) || user.roles.iter().any(|role| has("roles", role))
}
