//! [`UserContext`]: the name and roles a request acts under. How they were proven is not recorded here.

/// The role of server admins.
pub const ADMIN_ROLE: &str = "_admin";

/// The role of users who may read statistics.
pub const METRICS_ROLE: &str = "_metrics";

/// CouchDB's `userCtx`: who a request speaks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserContext {
    /// The user's name; `None` without credentials (also in the admin party).
    pub name: Option<String>,
    /// The user's roles; server admins have [`ADMIN_ROLE`].
    pub roles: Vec<String>,
}

impl UserContext {
    /// Nobody: no name, no roles.
    pub fn anonymous() -> UserContext {
        UserContext::default()
    }

    /// The server admin `name`.
    pub fn admin(name: &str) -> UserContext {
        UserContext { name: Some(name.to_owned()), roles: vec![ADMIN_ROLE.to_owned()] }
    }

    /// Everybody while the server has no admins: the role without a name, as CouchDB's admin party has it.
    pub fn admin_party() -> UserContext {
        UserContext { name: None, roles: vec![ADMIN_ROLE.to_owned()] }
    }

    /// Whether this is a server admin.
    pub fn is_admin(&self) -> bool {
        self.roles.iter().any(|role| role == ADMIN_ROLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_admin_role_makes_an_admin() {
        let user = |roles: &[&str]| UserContext {
            name: Some("u".to_owned()),
            roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        };
        for (context, expect) in [
            (UserContext::anonymous(), false),
            (UserContext::admin("a"), true),
            (UserContext::admin_party(), true),
            (user(&["admin", "_users"]), false),
            (user(&["x", "_admin"]), true),
        ] {
            assert_eq!(context.is_admin(), expect, "{context:?}");
        }
    }
}
