//! [`Database`]: one database file in the state of its newest header.

use std::collections::HashSet;
use std::path::Path;

use settee_model::Rev;
use xxhash_rust::xxh3::xxh3_128;

use crate::body::{Attachment, Contents, unpack, write_body};
use crate::btree::{Entry, Key, LostRange, Walk};
use crate::compress::read_term;
use crate::document::{DocInfo, LostDocument, Revision, parse_hash};
use crate::error::{DocumentError, FileError};
use crate::header::{Header, Purges};
use crate::json::write_json;
use crate::source::{FileSource, Source};
use crate::term::{Kind, Term};

pub struct Database {
    source: Box<dyn Source>,
    header: Header,
}

#[derive(Debug)]
pub enum Lost {
    Range(LostRange),
    Document(LostDocument),
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Lost::Range(range) => range.fmt(f),
            Lost::Document(document) => document.fmt(f),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalDocument {
    pub id: String,
    pub rev: u64,
    pub body: Vec<u8>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Purge {
    pub seq: u64,
    pub id: String,
    pub revs: Vec<Rev>,
}

impl Database {
    pub fn open(path: &Path) -> Result<Database, FileError> {
        let source = FileSource::open(path).map_err(|error| FileError::Io { position: 0, error })?;
        Database::new(Box::new(source))
    }

    pub fn new(source: Box<dyn Source>) -> Result<Database, FileError> {
        let header = Header::find(source.as_ref())?;
        Ok(Database { source, header })
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn documents<'d>(&'d self, after: Option<&str>) -> impl Iterator<Item = Result<DocInfo, Lost>> + use<'d> {
        let after = after.map(|after| Key::Text(after.as_bytes().to_vec()));
        self.walk(self.header.id_tree, after).map(|entry| {
            let entry = entry.map_err(Lost::Range)?;
            DocInfo::by_id(&entry.key, entry.value()).map_err(Lost::Document)
        })
    }

    pub fn changes(&self) -> impl Iterator<Item = Result<DocInfo, Lost>> {
        self.walk(self.header.seq_tree, None).map(|entry| {
            let entry = entry.map_err(Lost::Range)?;
            DocInfo::by_seq(&entry.key, entry.value()).map_err(Lost::Document)
        })
    }

    /// Visits the documents that exist in the tree by sequence only, because the tree by id is damaged. Those of
    /// CouchDB 1 are reported as lost. Takes memory for a hash of each readable id.
    pub fn recover(&self) -> impl Iterator<Item = Result<DocInfo, Lost>> {
        let hash = |id: &str| xxh3_128(id.as_bytes());
        let readable: HashSet<u128> = self.documents(None).flatten().map(|document| hash(&document.id)).collect();
        self.changes().filter(move |change| match change {
            Ok(DocInfo { id, .. }) | Err(Lost::Document(LostDocument { id, .. })) => !readable.contains(&hash(id)),
            Err(Lost::Range(_)) => true,
        })
    }

    pub fn contents(&self, leaf: &Revision) -> Result<Contents, DocumentError> {
        Contents::read(self.source.as_ref(), leaf.body.ok_or(DocumentError::NoBody)?)
    }

    /// Passes the stored data to `sink`. Length and MD5 are checked at the end, so after an error `sink` may have wrong
    /// data.
    pub fn attachment<E: From<DocumentError>>(
        &self,
        attachment: &Attachment,
        sink: impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        attachment.read(self.source.as_ref(), sink)
    }

    pub fn local_documents(&self) -> impl Iterator<Item = Result<LocalDocument, Lost>> {
        self.walk(self.header.local_tree, None).map(|entry| {
            let entry = entry.map_err(Lost::Range)?;
            local(&entry).map_err(|error| Lost::Document(LostDocument { id: entry.key.to_string(), rev: None, error }))
        })
    }

    pub fn security(&self) -> Result<Option<Vec<u8>>, DocumentError> {
        let Some(position) = self.header.security else { return Ok(None) };
        let term = read_term(self.source.as_ref(), position)?;
        write_body(term.root()).map(Some)
    }

    /// JSON object. A partitioned database has the member `partitioned`.
    pub fn props(&self) -> Result<Vec<u8>, DocumentError> {
        let Some(position) = self.header.props else { return Ok(b"{}".to_vec()) };
        let term = read_term(self.source.as_ref(), position)?;
        let mut out = b"{".to_vec();
        for member in term.root().list().ok_or(DocumentError::Malformed)? {
            let [name, value] = member.array().ok_or(DocumentError::Malformed)?;
            // Values that are not JSON, such as functions, are omitted.
            let mut text = Vec::new();
            if write_json(&mut text, name).is_ok() && {
                text.push(b':');
                write_json(&mut text, value).is_ok()
            } {
                if out.len() > 1 {
                    out.push(b',');
                }
                out.extend_from_slice(&text);
            }
        }
        out.push(b'}');
        Ok(out)
    }

    pub fn is_partitioned(&self) -> Result<bool, DocumentError> {
        let Some(position) = self.header.props else { return Ok(false) };
        let term = read_term(self.source.as_ref(), position)?;
        let mut members = term.root().list().into_iter().flatten().filter_map(Term::array::<2>);
        Ok(members.any(|[name, value]| name.is_atom("partitioned") && value.is_atom("true")))
    }

    pub fn purges(&self) -> Result<Vec<Result<Purge, Lost>>, FileError> {
        match self.header.purges {
            Purges::None => Ok(Vec::new()),
            Purges::Tree(root) => {
                Ok(self.walk(Some(root), None).map(|entry| purge(&entry.map_err(Lost::Range)?)).collect())
            }
            Purges::Last { position, seq } => {
                let term = read_term(self.source.as_ref(), position)?;
                let purges = term.root().list().into_iter().flatten();
                Ok(purges
                    .map(|pair| {
                        let [id, revs] = pair.array().ok_or_else(|| lost_purge(&Key::Number(seq)))?;
                        parse_purge(seq, id, revs).ok_or_else(|| lost_purge(&Key::Number(seq)))
                    })
                    .collect())
            }
        }
    }

    fn walk(&self, root: Option<u64>, after: Option<Key>) -> Walk<'_> {
        Walk::new(self.source.as_ref(), root, self.header.position, after)
    }
}

fn local(entry: &Entry) -> Result<LocalDocument, DocumentError> {
    let Key::Text(id) = &entry.key else { return Err(DocumentError::Malformed) };
    let id = String::from_utf8(id.clone()).map_err(|_| DocumentError::NotUtf8)?;
    let [rev, body] = entry.value().array().ok_or(DocumentError::Malformed)?;
    let rev = match rev.kind() {
        Kind::Binary(digits) => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()),
        _ => rev.unsigned(),
    };
    let unpacked = unpack(body, 0)?;
    let body = write_body(unpacked.as_ref().map_or(body, |tape| tape.root()))?;
    Ok(LocalDocument { id, rev: rev.ok_or(DocumentError::Malformed)?, body })
}

fn purge(entry: &Entry) -> Result<Purge, Lost> {
    let lost = || lost_purge(&entry.key);
    let [_uuid, id, revs] = entry.value().array().ok_or_else(lost)?;
    let Key::Number(seq) = entry.key else { return Err(lost()) };
    parse_purge(seq, id, revs).ok_or_else(lost)
}

fn parse_purge(seq: u64, id: Term<'_>, revs: Term<'_>) -> Option<Purge> {
    let id = String::from_utf8(id.binary()?.to_vec()).ok()?;
    let rev = |rev: Term<'_>| {
        let [generation, hash] = rev.array()?;
        Some(Rev::new(generation.unsigned()?, parse_hash(hash)?))
    };
    Some(Purge { seq, id, revs: revs.list()?.map(rev).collect::<Option<_>>()? })
}

fn lost_purge(key: &Key) -> Lost {
    Lost::Document(LostDocument { id: format!("the purge {key}"), rev: None, error: DocumentError::Malformed })
}
