//! [`Account`]: the stored credentials of a user, from `[admins]` or from a document of the users database.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use settee_model::json::Value;

use crate::algorithm::Algorithm;
use crate::authenticator::AuthError;
use crate::password::{HashInput, Hashing, PasswordHash};
use crate::totp::Totp;
use crate::user::{ADMIN_ROLE, METRICS_ROLE, UserContext};

const ITERATIONS_DEFAULT: u64 = 10_000;

pub struct Account {
    name: String,
    roles: Vec<String>,
    salt: String,
    secret: Secret,
    /// Stored form of the password hash. Cached credentials depend on it, so a new password invalidates them.
    stored: String,
    origin: Origin,
    totp: Option<Totp>,
}

enum Secret {
    Hash(PasswordHash),
    Nothing,
    InvalidPrf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Admins,
    Document,
}

impl Account {
    /// `stored` is the value in `[admins]`. If it is plain text or a damaged hash, no password matches.
    #[must_use]
    pub fn of_admin(name: &str, stored: &str) -> Account {
        let secret = PasswordHash::parse(stored).map_or(Secret::Nothing, Secret::Hash);
        let salt = match &secret {
            Secret::Hash(hash) => hash.salt().to_owned(),
            Secret::Nothing | Secret::InvalidPrf => String::new(),
        };
        Account {
            name: name.to_owned(),
            roles: vec![ADMIN_ROLE.to_owned()],
            salt,
            secret,
            stored: stored.to_owned(),
            origin: Origin::Admins,
            totp: None,
        }
    }

    #[must_use]
    pub fn of_document(name: &str, document: Value<'_>) -> Account {
        let text = |member: &str| document.get(member).and_then(Value::as_str).unwrap_or_default().into_owned();
        let salt = text("salt");
        let scheme = document.get("password_scheme").and_then(Value::as_str).unwrap_or("simple".into()).into_owned();
        let (password_sha, derived_key) = (text("password_sha"), text("derived_key"));
        let prf = document.get("pbkdf2_prf").and_then(Value::as_str).unwrap_or("sha".into()).into_owned();
        let iterations = document.get("iterations").map_or(Some(ITERATIONS_DEFAULT), Value::as_u64).unwrap_or_default();
        let secret = match scheme.as_str() {
            "simple" => PasswordHash::of_simple(&password_sha, &salt).map_or(Secret::Nothing, Secret::Hash),
            "pbkdf2" => derived(&derived_key, &salt, &prf, iterations, HashInput::Password),
            "simple+pbkdf2" => derived(&derived_key, &salt, &prf, iterations, HashInput::SimpleHash),
            _ => Secret::Nothing,
        };
        Account {
            name: name.to_owned(),
            roles: roles(document),
            stored: [&scheme, &password_sha, &derived_key, &prf, &iterations.to_string(), &salt]
                .map(String::as_str)
                .join(","),
            salt,
            secret,
            origin: Origin::Document,
            totp: Totp::of_document(document),
        }
    }

    /// Adds the roles of `document`: an admin that also has a user document has the roles of both.
    #[must_use]
    pub fn with_roles_of(&self, document: Value<'_>) -> Account {
        let mut account = Account::of_admin(&self.name, &self.stored);
        account.roles.extend(roles(document));
        account
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Salt of the password hash, a part of the key of session cookies: a new password invalidates old sessions.
    #[must_use]
    pub fn salt(&self) -> &str {
        &self.salt
    }

    #[must_use]
    pub fn context(&self) -> UserContext {
        UserContext { name: Some(self.name.clone()), roles: self.roles.clone() }
    }

    #[must_use]
    pub fn has_password_of(&self, other: &Account) -> bool {
        self.stored == other.stored
    }

    #[must_use]
    pub fn totp(&self) -> Option<&Totp> {
        self.totp.as_ref()
    }

    /// Returns true if new passwords are hashed differently. Hashes of `[admins]` are never upgraded.
    #[must_use]
    pub fn needs_upgrade(&self, hashing: &Hashing) -> bool {
        match &self.secret {
            Secret::Hash(hash) => self.origin == Origin::Document && !hash.is_made_by(hashing),
            Secret::Nothing | Secret::InvalidPrf => false,
        }
    }

    pub(crate) fn hash(&self, iterations: &RangeInclusive<u32>) -> Result<&PasswordHash, AuthError> {
        let hash = match &self.secret {
            Secret::Hash(hash) => hash,
            Secret::Nothing => return Err(AuthError::Incorrect),
            Secret::InvalidPrf => return Err(AuthError::InvalidPrf),
        };
        match hash.iterations().map(NonZeroU32::get) {
            Some(rounds) if rounds < *iterations.start() => Err(AuthError::IterationsTooLow),
            Some(rounds) if rounds > *iterations.end() => Err(AuthError::IterationsTooHigh),
            _ => Ok(hash),
        }
    }

    pub(crate) fn stored(&self) -> &str {
        &self.stored
    }
}

impl std::fmt::Debug for Account {
    /// Omits hashes and salts, because they are secrets too.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Account").field("name", &self.name).field("roles", &self.roles).finish_non_exhaustive()
    }
}

fn derived(key: &str, salt: &str, prf: &str, iterations: u64, over: HashInput) -> Secret {
    let Some(prf) = Algorithm::named(prf) else {
        return Secret::InvalidPrf;
    };
    // Iterations beyond the range are rejected like the greatest number.
    let iterations = NonZeroU32::new(u32::try_from(iterations).unwrap_or(u32::MAX));
    let hash = iterations.and_then(|iterations| PasswordHash::of_derived(key, salt, prf, iterations, over));
    hash.map_or(Secret::Nothing, Secret::Hash)
}

/// Ignores system roles, even if an admin wrote them, except for the role that permits reading statistics.
fn roles(document: Value<'_>) -> Vec<String> {
    let roles = document.get("roles").into_iter().flat_map(Value::elements).filter_map(Value::as_str);
    roles.filter(|role| !role.starts_with('_') || role == METRICS_ROLE).map(std::borrow::Cow::into_owned).collect()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::password::NewScheme;
    use settee_model::json::Json;

    const ANY: RangeInclusive<u32> = 1..=u32::MAX;

    fn account(text: &str) -> Account {
        Account::of_document("ann", Json::parse(text.as_bytes()).unwrap().value())
    }

    fn verdict(account: &Account, password: &str, iterations: RangeInclusive<u32>) -> Result<bool, AuthError> {
        account.hash(&iterations).map(|hash| hash.verify(password.as_bytes()))
    }

    #[test]
    fn all_schemes_of_documents() {
        for text in [
            r#"{"password_sha":"0f8912baf3c8178ad9ce5f9d5bd2a6ff5efcf1f0","salt":"pepper"}"#,
            r#"{"password_scheme":"simple","password_sha":"0f8912baf3c8178ad9ce5f9d5bd2a6ff5efcf1f0","salt":"pepper"}"#,
            r#"{"password_scheme":"pbkdf2","derived_key":"4f02371efaa4eff73a670a7b6ef69c47468db7d0","salt":"pepper","iterations":3}"#,
        ] {
            let account = account(text);
            assert_eq!(account.salt(), "pepper");
            assert_eq!(verdict(&account, "secret", ANY), Ok(true), "{text}");
            assert_eq!(verdict(&account, "wrong", ANY), Ok(false), "{text}");
        }
    }

    #[test]
    fn new_password_hashes_can_be_verified() {
        for (scheme, prf) in [
            (NewScheme::Simple, Algorithm::Sha1),
            (NewScheme::Pbkdf2, Algorithm::Sha1),
            (NewScheme::Pbkdf2, Algorithm::Sha256),
            (NewScheme::Pbkdf2, Algorithm::Sha512),
        ] {
            let hashing = Hashing { scheme, prf, iterations: NonZeroU32::new(3).unwrap() };
            let hash = hashing.hash(b"secret", "salt");
            let text = match scheme {
                NewScheme::Simple => format!(r#"{{"password_sha":"{hash}","salt":"salt"}}"#),
                NewScheme::Pbkdf2 => format!(
                    r#"{{"password_scheme":"pbkdf2","pbkdf2_prf":"{}","iterations":3,"derived_key":"{hash}","salt":"salt"}}"#,
                    prf.name()
                ),
            };
            let account = account(&text);
            assert_eq!(verdict(&account, "secret", ANY), Ok(true), "{text}");
            assert_eq!(verdict(&account, "Secret", ANY), Ok(false), "{text}");
            assert!(!account.needs_upgrade(&hashing), "{text}");
            let more = Hashing { scheme: NewScheme::Pbkdf2, prf, iterations: NonZeroU32::new(4).unwrap() };
            assert!(account.needs_upgrade(&more), "{text}");
        }
    }

    #[test]
    fn old_hashes_made_stronger() {
        let simple = Hashing { scheme: NewScheme::Simple, prf: Algorithm::Sha1, iterations: NonZeroU32::MIN };
        let pbkdf2 = Hashing { scheme: NewScheme::Pbkdf2, prf: Algorithm::Sha256, iterations: NonZeroU32::MIN };
        let key = pbkdf2.hash(simple.hash(b"secret", "s").as_bytes(), "s");
        let account = account(&format!(
            r#"{{"password_scheme":"simple+pbkdf2","pbkdf2_prf":"sha256","iterations":1,"derived_key":"{key}","salt":"s"}}"#
        ));
        assert_eq!(verdict(&account, "secret", ANY), Ok(true));
        assert_eq!(verdict(&account, "other", ANY), Ok(false));
        assert!(account.needs_upgrade(&pbkdf2));
    }

    #[test]
    fn refusals() {
        let pbkdf2 = |rest: &str| account(&format!(r#"{{"password_scheme":"pbkdf2","salt":"s",{rest}}}"#));
        let key = "00".repeat(20);
        for (account, expected) in [
            (account("{}"), AuthError::Incorrect),
            (account(r#"{"password_scheme":"other"}"#), AuthError::Incorrect),
            (pbkdf2(r#""derived_key":"xx""#), AuthError::Incorrect),
            (pbkdf2(&format!(r#""derived_key":"{key}","iterations":0"#)), AuthError::Incorrect),
            (pbkdf2(&format!(r#""derived_key":"{key}","iterations":"x""#)), AuthError::Incorrect),
            (pbkdf2(&format!(r#""derived_key":"{key}","pbkdf2_prf":"md4""#)), AuthError::InvalidPrf),
            (pbkdf2(&format!(r#""derived_key":"{key}","iterations":9"#)), AuthError::IterationsTooLow),
            (pbkdf2(&format!(r#""derived_key":"{key}","iterations":21"#)), AuthError::IterationsTooHigh),
            (pbkdf2(&format!(r#""derived_key":"{key}","iterations":99999999999"#)), AuthError::IterationsTooHigh),
            (Account::of_admin("a", "plain"), AuthError::Incorrect),
        ] {
            assert_eq!(account.hash(&(10..=20)).err(), Some(expected), "{account:?}");
        }
    }

    #[test]
    fn roles_of_both() {
        let document = Json::parse(br#"{"roles":["x",7,"y"]}"#).unwrap();
        assert_eq!(Account::of_document("u", document.value()).context().roles, ["x", "y"]);
        let both = Account::of_admin("a", "-hashed-x,y").with_roles_of(document.value());
        assert_eq!(both.context().roles, ["_admin", "x", "y"]);
    }

    #[test]
    fn no_document_gives_roles_of_the_system() {
        for (roles, expected) in [
            (r#"["_admin","x","_replicator","_metrics","admin","_"]"#, vec!["x", "_metrics", "admin"]),
            (r#"["\u005fadmin"]"#, vec![]),
            (r#""_admin""#, vec![]),
            (r#"{"_admin":"_admin"}"#, vec![]),
            ("null", vec![]),
        ] {
            let document = Json::parse(format!(r#"{{"roles":{roles}}}"#).as_bytes()).unwrap();
            let context = Account::of_document("u", document.value()).context();
            assert_eq!(context.roles, expected, "{roles}");
            assert!(!context.is_admin(), "{roles}");
        }
    }
}
