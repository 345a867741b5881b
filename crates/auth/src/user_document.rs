//! Documents of the users database: [`protect`] replaces a new password by its hash, [`public_part`] returns the public
//! members. This module checks neither ownership nor the rules for other members.

use regex::bytes::{Regex, RegexBuilder};
use settee_model::json::{Json, Value, write_string};

use crate::password::{Hashing, NewScheme};

pub const USER_PREFIX: &str = "org.couchdb.user:";

/// Maximum length of a password, because hashing a longer one would load the server.
const PASSWORD_MAX_BYTES: usize = 64 << 10;

/// Members that describe a hash; a new hash replaces them.
const HASH_MEMBERS: [&str; 7] =
    ["password_scheme", "pbkdf2_prf", "salt", "iterations", "derived_key", "password_sha", "preserve_salt"];

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PasswordRefused {
    /// The password is not a string (`forbidden`).
    #[error("Password value of '{0}' is invalid.")]
    NoText(String),
    /// The password violates a rule (`bad_request`).
    #[error("{0}")]
    Unfit(String),
    /// `[chttpd_auth] password_regexp` is malformed (`forbidden`).
    #[error("Server cannot hash passwords at this time.")]
    Misconfigured,
}

/// Rules for new passwords (`[chttpd_auth] password_regexp`).
#[derive(Clone, Debug)]
pub struct PasswordRules(Vec<Rule>);

#[derive(Clone, Debug)]
struct Rule {
    expression: Regex,
    reason: String,
}

#[must_use]
pub fn has_password(body: Value<'_>) -> bool {
    body.get("password").is_some_and(|password| !password.is_null())
}

/// Returns the body with the hash of its password instead of the password; `None` if it has no password. Fails if the
/// password is rejected. `salt` must be new. Deliberately slow.
pub fn protect(
    body: Value<'_>,
    hashing: &Hashing,
    rules: &PasswordRules,
    salt: &str,
) -> Result<Option<Json>, PasswordRefused> {
    let Some(password) = body.get("password").filter(|password| !password.is_null()) else {
        return Ok(None);
    };
    let shown = || PasswordRefused::NoText(String::from_utf8_lossy(password.raw()).into_owned());
    let password = password.as_str().ok_or_else(shown)?;
    rules.check(&password)?;
    Ok(Some(with_hash(body, hashing, password.as_bytes(), salt)))
}

/// Returns the body with the hash of `password`, which must be its current password. Deliberately slow.
#[must_use]
pub fn with_hash(body: Value<'_>, hashing: &Hashing, password: &[u8], salt: &str) -> Json {
    let hash = hashing.hash(password, salt);
    let mut out = Vec::new();
    match hashing.scheme {
        NewScheme::Simple => {
            out.extend_from_slice(br#"{"password_scheme":"simple","salt":"#);
            write_string(&mut out, salt);
            out.extend_from_slice(format!(r#","password_sha":"{hash}""#).as_bytes());
        }
        NewScheme::Pbkdf2 => {
            let (prf, iterations) = (hashing.prf.name(), hashing.iterations);
            out.extend_from_slice(format!(r#"{{"password_scheme":"pbkdf2","pbkdf2_prf":"{prf}","salt":"#).as_bytes());
            write_string(&mut out, salt);
            out.extend_from_slice(format!(r#","iterations":{iterations},"derived_key":"{hash}""#).as_bytes());
        }
    }
    for (name, value) in body.members() {
        let replaced = |name: &str| name == "password" || HASH_MEMBERS.contains(&name);
        if !name.as_str().is_some_and(|name| replaced(&name)) {
            out.push(b',');
            write_member(&mut out, name, value);
        }
    }
    out.push(b'}');
    Json::trusted(out)
}

/// `fields` are the names in `[chttpd_auth] public_fields`. Returns `None` if the document has none of them; id and
/// revision are included but do not count.
#[must_use]
pub fn public_part(document: Value<'_>, fields: &str) -> Option<Json> {
    let fields: Vec<&str> = fields.split(',').map(str::trim).filter(|field| !field.is_empty()).collect();
    let mut out = b"{".to_vec();
    let mut found = false;
    for (name, value) in document.members() {
        let Some(text) = name.as_str() else { continue };
        let is_public = fields.contains(&text.as_ref());
        found |= is_public && !text.starts_with('_');
        if is_public || text == "_id" || text == "_rev" {
            if out.len() > 1 {
                out.push(b',');
            }
            write_member(&mut out, name, value);
        }
    }
    out.push(b'}');
    found.then(|| Json::trusted(out))
}

fn write_member(out: &mut Vec<u8>, name: Value<'_>, value: Value<'_>) {
    out.extend_from_slice(name.raw());
    out.push(b':');
    out.extend_from_slice(value.raw());
}

impl PasswordRules {
    /// Parses a list in Erlang's notation, of expressions and of pairs of an expression and a reason, as in `["[a-z]",
    /// {".{10,}", "At least ten characters."}]`. An empty text means no rules. Fails if the list or an expression is
    /// malformed.
    pub fn parse(setting: &str) -> Result<PasswordRules, PasswordRefused> {
        if setting.trim().is_empty() {
            return Ok(PasswordRules(Vec::new()));
        }
        let mut terms = Terms(setting);
        let rules = terms.list().filter(|_| terms.0.trim_matches(['.', ' ']).is_empty());
        let rules = rules.ok_or(PasswordRefused::Misconfigured)?.into_iter().map(|(expression, reason)| {
            // CouchDB matches bytes: classes such as `\w` are those of ASCII.
            let expression = RegexBuilder::new(&expression).unicode(false).build();
            let expression = expression.map_err(|_| PasswordRefused::Misconfigured)?;
            Ok(Rule { expression, reason })
        });
        Ok(PasswordRules(rules.collect::<Result<_, _>>()?))
    }

    fn check(&self, password: &str) -> Result<(), PasswordRefused> {
        const UNFIT: &str = "Password does not conform to requirements.";
        if password.len() > PASSWORD_MAX_BYTES {
            return Err(PasswordRefused::Unfit(UNFIT.to_owned()));
        }
        let broken = self.0.iter().find(|rule| !rule.expression.is_match(password.as_bytes()));
        broken.map_or(Ok(()), |rule| {
            let gap = if rule.reason.is_empty() { "" } else { " " };
            Err(PasswordRefused::Unfit(format!("{UNFIT}{gap}{}", rule.reason)))
        })
    }
}

struct Terms<'a>(&'a str);

impl Terms<'_> {
    fn accept(&mut self, symbol: char) -> bool {
        match self.0.trim_start().strip_prefix(symbol) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn list(&mut self) -> Option<Vec<(String, String)>> {
        let mut rules = Vec::new();
        if !self.accept('[') {
            return None;
        }
        if self.accept(']') {
            return Some(rules);
        }
        loop {
            rules.push(self.rule()?);
            if self.accept(']') {
                return Some(rules);
            }
            if !self.accept(',') {
                return None;
            }
        }
    }

    fn rule(&mut self) -> Option<(String, String)> {
        if !self.accept('{') {
            return Some((self.text()?, String::new()));
        }
        let expression = self.text()?;
        let reason = if self.accept(',') { self.text()? } else { String::new() };
        self.accept('}').then_some((expression, reason))
    }

    fn text(&mut self) -> Option<String> {
        if !self.accept('"') {
            return None;
        }
        let mut text = String::new();
        let mut symbols = self.0.char_indices();
        while let Some((index, symbol)) = symbols.next() {
            match symbol {
                '"' => {
                    self.0 = &self.0[index + 1..];
                    return Some(text);
                }
                '\\' => text.push(match symbols.next()?.1 {
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    's' => ' ',
                    other => other,
                }),
                other => text.push(other),
            }
        }
        None
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
