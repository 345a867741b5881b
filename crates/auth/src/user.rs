//! [`UserContext`]: name and roles of the user of a request, CouchDB's `userCtx`.

pub const ADMIN_ROLE: &str = "_admin";

pub const METRICS_ROLE: &str = "_metrics";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserContext {
    /// `None` without credentials, also in the admin party.
    pub name: Option<String>,
    pub roles: Vec<String>,
}

impl UserContext {
    pub fn anonymous() -> UserContext {
        UserContext::default()
    }

    pub fn admin(name: &str) -> UserContext {
        UserContext { name: Some(name.to_owned()), roles: vec![ADMIN_ROLE.to_owned()] }
    }

    /// Context of every client while the server has no admins: the admin role without a name, as in CouchDB.
    pub fn admin_party() -> UserContext {
        UserContext { name: None, roles: vec![ADMIN_ROLE.to_owned()] }
    }

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
