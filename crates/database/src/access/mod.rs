//! Per-document access: [`AccessList`] names the users and roles that may read and edit a revision, [`Reader`] is the
//! user on whose behalf documents are read or written.
//!
//! A document is visible to a member if the list of its winning revision grants access; of the other revisions, a
//! member sees those whose own list grants access as well. Revisions refer to their list by number ([`lists`]). Each
//! entry of a list has an index of its documents by id and by update sequence ([`index`]), which the commit of the
//! document maintains.

pub(crate) mod check;
pub(crate) mod index;
pub(crate) mod lists;
pub(crate) mod removal;

use settee_model::json::{Json, Value};
use settee_storage::codec::{Reader as Decoder, put_bytes};

use crate::Result;

/// Name of the member of a document that contains its list.
const MEMBER: &str = "_access";

/// Maximum number of entries, because each one is a row of two indexes.
const ENTRIES_MAX: usize = 100;

/// Maximum length of an entry in bytes, because it is part of keys.
const ENTRY_BYTES_MAX: usize = 256;

/// Role of every authenticated user in a database with per-document access.
pub const EVERY_USER: &str = "_users";

/// Granularity of the access rights of a database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessControl {
    /// Members read all documents.
    #[default]
    PerDatabase,
    /// Members read the documents whose list names them.
    PerDocument,
}

/// The user on whose behalf documents are read or written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reader {
    /// An administrator or the server itself: no restriction.
    #[default]
    Administrator,
    /// Another user of a database with per-document access.
    Member(Member),
}

/// A user without administrator rights, or an anonymous client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member {
    name: Option<String>,
    /// Ascending: the name and the roles.
    entries: Vec<String>,
}

impl Member {
    /// Creates a member. An anonymous client has no name and is named by no list.
    pub fn new(name: Option<&str>, roles: impl IntoIterator<Item = String>) -> Self {
        let mut entries: Vec<String> = match name {
            Some(name) => roles.into_iter().chain([name.to_owned(), EVERY_USER.to_owned()]).collect(),
            None => Vec::new(),
        };
        entries.retain(|entry| is_entry(entry));
        entries.sort_unstable();
        entries.dedup();
        Self { name: name.map(str::to_owned), entries }
    }

    /// Name of the user; `None` for an anonymous client.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    pub(crate) fn entries(&self) -> &[String] {
        &self.entries
    }

    pub(crate) fn is_granted_by(&self, list: &AccessList) -> bool {
        self.entries.iter().any(|entry| list.0.binary_search(entry).is_ok())
    }
}

/// The member `_access` of a document: names of users and roles, ascending. An empty list names administrators only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct AccessList(Vec<String>);

/// Error of a malformed `_access`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAccess {
    /// Not a list of names.
    #[error("`_access` must be a list of names of users and roles: strings of 1 to {ENTRY_BYTES_MAX} bytes")]
    Entry,
    /// Too many names.
    #[error("`_access` must contain at most {ENTRIES_MAX} names")]
    Length,
}

impl AccessList {
    /// Returns the list of a document with this body, or `None` if it has no `_access`.
    pub fn of_body(body: &Json) -> Result<Option<Self>, InvalidAccess> {
        let Some(value) = body.value().get(MEMBER) else { return Ok(None) };
        if !value.is_array() {
            return Err(InvalidAccess::Entry);
        }
        let entry = |value: Value<'_>| value.as_str().filter(|entry| is_entry(entry)).map(String::from);
        let mut entries = value.elements().map(entry).collect::<Option<Vec<String>>>().ok_or(InvalidAccess::Entry)?;
        entries.sort_unstable();
        entries.dedup();
        if entries.len() > ENTRIES_MAX { Err(InvalidAccess::Length) } else { Ok(Some(Self(entries))) }
    }

    pub(crate) fn entries(&self) -> &[String] {
        &self.0
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.0.iter().for_each(|entry| put_bytes(&mut out, entry.as_bytes()));
        out
    }

    fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Decoder::new(bytes, "access list");
        let mut entries = Vec::new();
        while !reader.is_at_end() {
            entries.push(reader.text()?.to_owned());
        }
        Ok(Self(entries))
    }
}

fn is_entry(entry: &str) -> bool {
    (1..=ENTRY_BYTES_MAX).contains(&entry.len())
}

/// Returns the key of a local document. Members have separate local documents; `None` for anonymous clients, which have
/// none.
pub(crate) fn local_key(reader: &Reader, id: &str) -> Option<Vec<u8>> {
    match reader {
        Reader::Administrator => Some(id.as_bytes().to_vec()),
        Reader::Member(member) => {
            let name = member.name()?;
            // The length separates the name from the id. The prefix is not one of ids.
            Some(format!("_local_of/{}/{name}/{id}", name.len()).into_bytes())
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<Option<Vec<String>>, InvalidAccess> {
        Ok(AccessList::of_body(&Json::parse(text.as_bytes()).unwrap())?.map(|list| list.0))
    }

    #[test]
    fn lists_are_sets_of_short_names() {
        assert_eq!(list("{}"), Ok(None));
        assert_eq!(list(r#"{"_access":[]}"#), Ok(Some(vec![])));
        assert_eq!(list(r#"{"_access":["b","a","b"]}"#), Ok(Some(vec!["a".to_owned(), "b".to_owned()])));
        for bad in ["null", "{}", "\"a\"", "[1]", "[\"\"]", "[[\"a\"]]", "[null]"] {
            assert_eq!(list(&format!(r#"{{"_access":{bad}}}"#)), Err(InvalidAccess::Entry), "{bad}");
        }
        let long = format!(r#"{{"_access":["{}"]}}"#, "x".repeat(257));
        assert_eq!(list(&long), Err(InvalidAccess::Entry));
        let names: Vec<String> = (0..101).map(|number| format!("\"{number}\"")).collect();
        assert_eq!(list(&format!(r#"{{"_access":[{}]}}"#, names.join(","))), Err(InvalidAccess::Length));
    }

    #[test]
    fn stored_lists_equal_the_given_ones() {
        for entries in [vec![], vec!["a"], vec!["a", "b\u{0}", "ü"]] {
            let list = AccessList(entries.into_iter().map(str::to_owned).collect());
            assert_eq!(AccessList::decode(&list.encode()).unwrap(), list);
        }
    }

    #[test]
    fn an_anonymous_client_is_named_by_no_list() {
        let member = Member::new(None, ["role".to_owned()]);
        assert!(member.entries().is_empty());
        assert_eq!(local_key(&Reader::Member(member), "_local/x"), None);
    }

    #[test]
    fn local_documents_of_different_members_have_different_keys() {
        let key = |name: &str, id: &str| local_key(&Reader::Member(Member::new(Some(name), [])), id).unwrap();
        assert_ne!(key("a", "_local/b/_local/c"), key("a/_local/b", "_local/c"));
        assert_ne!(key("a", "_local/c"), local_key(&Reader::Administrator, "_local/c").unwrap());
    }
}
