//! Documents as clients send and receive them: [`Document`].
//! Parsing separates members with an underscore from the client's members in one pass; the body keeps the latter
//! unchanged and in order. The rules and error texts are those of CouchDB 3.5 (`couch_doc:from_json_obj`).

use crate::json::{Json, Value, write_string};
use crate::limits::MAX_DOC_ID_LEN;
use crate::rev::{InvalidRev, Rev, RevHash};

#[cfg(test)]
mod tests;

/// A document as a client sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Document {
    /// `_id`; passes [`validate_doc_id`].
    pub id: Option<String>,
    /// `_rev`, or the newest revision of `_revisions` if present.
    pub rev: Option<Rev>,
    /// `_deleted`
    pub deleted: bool,
    /// The other members, an object. Underscore names are `_access` and those of CouchDB's former replicator only.
    pub body: Json,
    /// `_attachments`, an object.
    pub attachments: Option<Json>,
    /// `_revisions`, if not empty.
    pub revisions: Option<Revisions>,
}

/// The member `_revisions`: a revision and its ancestors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Revisions {
    /// Generation of the newest revision.
    pub start: u64,
    /// Hashes, newest first; at least one, and at most one per generation from 0.
    pub hashes: Vec<RevHash>,
}

impl Revisions {
    /// Returns the revisions as a path for [`RevTree::merge`](crate::rev_tree::RevTree::merge).
    pub fn path(&self) -> Vec<Rev> {
        let generations = (0..=self.start).rev();
        self.hashes.iter().zip(generations).map(|(hash, generation)| Rev { generation, hash: hash.clone() }).collect()
    }
}

/// Cause of the rejection of a document. Displays CouchDB's reason.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DocumentError {
    /// Not an object (`bad_request`).
    #[error("Document must be a JSON object")]
    NotAnObject,
    /// `_rev` is not a revision id (`bad_request`).
    #[error(transparent)]
    InvalidRev(#[from] InvalidRev),
    /// The id is not allowed (`illegal_docid`).
    #[error(transparent)]
    IllegalId(#[from] IllegalId),
    /// A member that starts with an underscore is unknown or has the wrong type (`doc_validation`).
    #[error("Bad special document member: {0}")]
    BadMember(String),
    /// `_revisions` is malformed (`doc_validation`).
    #[error(transparent)]
    InvalidRevisions(#[from] InvalidRevisions),
}

/// CouchDB's error name for a [`DocumentError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DocumentErrorKind {
    /// `bad_request`
    BadRequest,
    /// `illegal_docid`
    IllegalDocid,
    /// `doc_validation`
    DocValidation,
}

impl DocumentError {
    /// Returns the error name.
    pub fn kind(&self) -> DocumentErrorKind {
        match self {
            DocumentError::NotAnObject | DocumentError::InvalidRev(_) => DocumentErrorKind::BadRequest,
            DocumentError::IllegalId(_) => DocumentErrorKind::IllegalDocid,
            DocumentError::BadMember(_) | DocumentError::InvalidRevisions(_) => DocumentErrorKind::DocValidation,
        }
    }
}

/// Cause of the rejection of a document id.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IllegalId {
    /// `_id` is not a string.
    #[error("Document id must be a string")]
    NotAString,
    /// The empty text.
    #[error("Document id must not be empty")]
    Empty,
    /// `_design/` or `_local/` without a name.
    #[error("Illegal document id `{0}`")]
    NoName(&'static str),
    /// An underscore without a reserved prefix.
    #[error("Only reserved document ids may start with underscore.")]
    Reserved,
    /// More than [`MAX_DOC_ID_LEN`] bytes.
    #[error("Document id is too long")]
    TooLong,
}

/// Cause of the rejection of `_revisions`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidRevisions {
    /// `start` is missing or not a generation.
    #[error("_revisions.start isn't an integer.")]
    Start,
    /// `start` exceeds [`MAX_STORED_GENERATION`](crate::limits::MAX_STORED_GENERATION).
    #[error("_revisions.start is too large.")]
    Generation,
    /// `ids` is missing or not an array.
    #[error("_revisions.ids isn't a array.")]
    Ids,
    /// An id is not a string.
    #[error("RevId isn't a string")]
    IdNotAString,
    /// An id of 32 characters is not hexadecimal.
    #[error("RevId isn't a valid hexadecimal")]
    IdNotHexadecimal,
    /// The oldest revision would have a generation below 1. CouchDB accepts this and stores negative generations.
    #[error("_revisions.ids is longer than _revisions.start allows.")]
    TooManyIds,
}

/// Rejects ids that no document can have.
pub fn validate_doc_id(id: &str) -> Result<(), DocumentError> {
    let illegal = match id {
        "" => IllegalId::Empty,
        "_design/" => IllegalId::NoName("_design/"),
        "_local/" => IllegalId::NoName("_local/"),
        _ if id.len() > MAX_DOC_ID_LEN => IllegalId::TooLong,
        _ if !id.starts_with('_') || id.starts_with("_design/") || id.starts_with("_local/") => return Ok(()),
        _ => IllegalId::Reserved,
    };
    Err(illegal.into())
}

impl Document {
    /// Parses a document, which must have passed [`compact`](crate::json::compact). The first invalid member determines
    /// the error.
    pub fn parse(value: Value<'_>) -> Result<Document, DocumentError> {
        if !value.is_object() {
            return Err(DocumentError::NotAnObject);
        }
        let mut parts = Parts::default();
        let text = value.raw();
        let mut body = BodyWriter::new(text);
        for (name, member) in value.members() {
            // An escape can hide the underscore of a name.
            let special = match name.raw().get(1) {
                Some(b'_' | b'\\') => match name.as_str() {
                    Some(name) if name.starts_with('_') => parts.special(&name, member)?,
                    _ => Special::Body,
                },
                _ => Special::Body,
            };
            match special {
                Special::Body => body.keep(name, member),
                Special::Taken => body.skip(name, member),
            }
        }
        let body = Json::trusted(body.finish());
        let Parts { id, rev, deleted, attachments, revisions, has_revisions: _ } = parts;
        Ok(Document { id, rev, deleted, body, attachments, revisions })
    }

    /// Appends a document as clients read it: `_id`, `_rev`, the members of `body`, `_deleted` if true, and `extra`.
    pub fn write_json<'r>(
        out: &mut Vec<u8>,
        id: &str,
        rev: impl Into<Option<&'r Rev>>,
        deleted: bool,
        extra: impl FnOnce(&mut Vec<u8>),
        body: &[u8],
    ) {
        out.reserve(body.len() + id.len() + 64);
        out.extend_from_slice(b"{\"_id\":");
        write_string(out, id);
        if let Some(rev) = rev.into() {
            out.extend_from_slice(b",\"_rev\":");
            rev.write_json(out);
        }
        if let [b'{', members @ .., b'}'] = body
            && !members.is_empty()
        {
            out.push(b',');
            out.extend_from_slice(members);
        }
        if deleted {
            out.extend_from_slice(b",\"_deleted\":true");
        }
        extra(out);
        out.push(b'}');
    }
}

enum Special {
    Body,
    Taken,
}

#[derive(Default)]
struct Parts {
    id: Option<String>,
    rev: Option<Rev>,
    deleted: bool,
    attachments: Option<Json>,
    revisions: Option<Revisions>,
    has_revisions: bool,
}

impl Parts {
    fn special(&mut self, name: &str, member: Value<'_>) -> Result<Special, DocumentError> {
        match name {
            "_id" => {
                let id = member.as_str().ok_or(IllegalId::NotAString)?;
                validate_doc_id(&id)?;
                self.id = Some(id.into_owned());
            }
            // `_revisions` takes precedence, even without ids: `_rev` is then not even parsed.
            "_rev" if self.has_revisions => {}
            "_rev" => self.rev = Some(Rev::parse(&member.as_str().ok_or(InvalidRev::Format)?)?),
            "_deleted" => self.deleted = member.as_bool().ok_or_else(|| bad_member(name))?,
            "_attachments" if member.is_object() => self.attachments = Some(Json::trusted(member.raw().to_vec())),
            "_revisions" if member.is_object() => {
                self.has_revisions = true;
                self.revisions = parse_revisions(member)?;
                self.rev = self.revisions.as_ref().and_then(|revisions| revisions.path().into_iter().next());
            }
            "_revs_info" | "_local_seq" | "_conflicts" | "_deleted_conflicts" => {}
            // CouchDB reserves it for a future feature.
            "_access"
            | "_replication_state"
            | "_replication_state_time"
            | "_replication_state_reason"
            | "_replication_id"
            | "_replication_stats" => return Ok(Special::Body),
            _ => return Err(bad_member(name)),
        }
        Ok(Special::Taken)
    }
}

fn bad_member(name: &str) -> DocumentError {
    DocumentError::BadMember(name.to_owned())
}

fn parse_revisions(value: Value<'_>) -> Result<Option<Revisions>, InvalidRevisions> {
    let start = value.get("start").and_then(Value::as_u64).ok_or(InvalidRevisions::Start)?;
    if start > crate::limits::MAX_STORED_GENERATION {
        return Err(InvalidRevisions::Generation);
    }
    let ids = value.get("ids").filter(|ids| ids.is_array()).ok_or(InvalidRevisions::Ids)?;
    let hashes = ids
        .elements()
        .map(|id| {
            let id = id.as_str().ok_or(InvalidRevisions::IdNotAString)?;
            RevHash::parse(&id).map_err(|_| InvalidRevisions::IdNotHexadecimal)
        })
        .collect::<Result<Vec<_>, _>>()?;
    match hashes.len() as u64 {
        0 => Ok(None),
        // Some clients start with generation 0, which is that of local documents.
        ids if ids > start + 1 => Err(InvalidRevisions::TooManyIds),
        _ => Ok(Some(Revisions { start, hashes })),
    }
}

struct BodyWriter<'t> {
    text: &'t [u8],
    out: Vec<u8>,
    /// Start of the members that stay and are not copied yet; they end at `at`.
    run: usize,
    at: usize,
}

impl<'t> BodyWriter<'t> {
    fn new(text: &'t [u8]) -> Self {
        let mut out = Vec::with_capacity(text.len());
        out.push(b'{');
        BodyWriter { text, out, run: 1, at: 1 }
    }

    fn keep(&mut self, name: Value<'_>, member: Value<'_>) {
        self.at += name.raw().len() + member.raw().len() + 2;
    }

    fn skip(&mut self, name: Value<'_>, member: Value<'_>) {
        self.out.extend_from_slice(&self.text[self.run..self.at]);
        self.keep(name, member);
        self.run = self.at;
    }

    fn finish(mut self) -> Vec<u8> {
        let end = self.text.len() - 1;
        self.out.extend_from_slice(self.text.get(self.run..end).unwrap_or_default());
        if self.out.last() == Some(&b',') {
            self.out.pop();
        }
        self.out.push(b'}');
        self.out
    }
}
