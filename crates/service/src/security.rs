//! [`Security`]: who may use a database and who may change it, as its security object says.
//!
//! Only an object that is understood as a whole says anything: what makes no sense is refused when it is set, and what
//! stands there all the same, from another time or by another way, opens the database to nobody. Which request needs what is
//! not decided here.

use std::sync::Arc;

use settee_auth::UserContext;
use settee_database::Database;
use settee_model::json::{Json, Value};

use crate::Error;

/// The security object of a database that was never given one.
const CLOSED: &[u8] = br#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;

/// A security object that is understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Security(Json);

/// Why an object is none of security.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(clippy::enum_variant_names, reason = "each says what is missing")]
pub enum MalformedSecurity {
    /// It is no object at all.
    #[error("Request body must be a JSON object")]
    NoObject,
    /// A group of users is no object.
    #[error("{0} must be a JSON object")]
    NoGroup(&'static str),
    /// A list of a group is none, or has other members than strings.
    #[error("{0} must be a JSON list of strings")]
    NoList(&'static str),
}

impl Security {
    /// Takes an object whose groups, as far as it has them, are lists of names and roles.
    ///
    /// # Errors
    /// When it makes no sense.
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

    /// The security object that is in force for a database. It is in memory, and looked through as a whole.
    ///
    /// # Errors
    /// When the database was deleted.
    pub fn of(database: &Arc<Database>) -> Result<Self, Error> {
        Ok(Self::in_force(database, security(database)?))
    }

    /// The one that such an object of a database stands for.
    pub(crate) fn in_force(database: &Arc<Database>, object: Json) -> Self {
        Self::parse(object).unwrap_or_else(|error| {
            tracing::error!(database = database.name(), reason = %error,
                "the security object makes no sense: only server administrators may use the database until it is set anew");
            Self::closed()
        })
    }

    fn closed() -> Self {
        Self(Json::trusted(CLOSED.to_vec()))
    }

    /// Whether `user` administers the database.
    #[must_use]
    pub fn names_admin(&self, user: &UserContext) -> bool {
        self.0.value().get("admins").is_some_and(|admins| names(admins, user))
    }

    /// Whether `user` is a member. Where nobody is named, everybody is one.
    #[must_use]
    pub fn names_member(&self, user: &UserContext) -> bool {
        let is_empty = |group: Value<'_>, list| group.get(list).is_none_or(|list| list.elements().next().is_none());
        members(self.0.value())
            .is_none_or(|group| (is_empty(group, "names") && is_empty(group, "roles")) || names(group, user))
    }

    /// Its text.
    #[must_use]
    pub fn into_json(self) -> Json {
        self.0
    }
}

/// The security object of a database as clients and functions see it: as it was set, or closed to all but administrators.
///
/// # Errors
/// When the database was deleted.
pub fn security(database: &Arc<Database>) -> Result<Json, Error> {
    Ok(database.security()?.unwrap_or_else(|| Security::closed().into_json()))
}

/// Whether `user` is an administrator of `database`.
///
/// # Errors
/// When the database was deleted.
pub fn administers(database: &Arc<Database>, user: &UserContext) -> Result<bool, Error> {
    Ok(user.is_admin() || Security::of(database)?.names_admin(user))
}

/// The group of members. Version 1.0 called it `readers`.
fn members(security: Value<'_>) -> Option<Value<'_>> {
    security.get("members").or_else(|| security.get("readers"))
}

fn names(group: Value<'_>, user: &UserContext) -> bool {
    let has = |list: &str, wanted: &str| {
        group.get(list).is_some_and(|list| list.elements().any(|item| item.as_str().as_deref() == Some(wanted)))
    };
    user.name.as_deref().is_some_and(|name| has("names", name)) || user.roles.iter().any(|role| has("roles", role))
}
