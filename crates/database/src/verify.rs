//! [`verify`]: checks the consistency of a stored database, which it neither opens nor changes.

use std::collections::{BTreeSet, HashSet};
use std::io::Read as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use md5::{Digest as _, Md5};
use settee_model::json::Json;
use settee_storage::{Engine, Keyspace, Shard};
use sha2::Sha256;

use crate::access::verify::ExpectedRows;
use crate::attachment::{Attachment, Form};
use crate::entry::CATALOG;
use crate::local::LocalDocument;
use crate::meta::Meta;
use crate::record::Head;
use crate::stored::{StoredChange, StoredDatabase, databases};
use crate::update::load_writer;
use crate::{DatabaseError, Layout, Result};

const PROBLEMS_MAX: usize = 1000;

/// A database in the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// Name of the database.
    pub name: String,
    /// Shard of its documents.
    pub shard: Shard,
    /// Shards of its indexes, each with the remaining bytes of its record.
    pub indexes: Vec<(Shard, Vec<u8>)>,
}

/// An inconsistency of the stored data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Id of the affected document, if any.
    pub document: Option<String>,
    /// Description of the problem.
    pub description: String,
}

/// Result of the verification of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Number of verified documents.
    pub documents: u64,
    /// Number of attachment contents.
    pub attachments: u64,
    /// Size of the verified bodies and attachments.
    pub bytes: u64,
    /// Problems, of which at most a thousand are kept.
    pub problems: Vec<Problem>,
    /// Number of further problems.
    pub more: u64,
}

impl Verified {
    /// Returns true if no problem was found.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.problems.is_empty()
    }

    fn problem(&mut self, document: Option<&str>, description: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(Problem { document: document.map(str::to_owned), description: description.into() });
        } else {
            self.more += 1;
        }
    }
}

/// Returns all databases in the readable part of the catalog, and the error that ended the read.
#[must_use]
pub fn places(engine: &dyn Engine) -> (Vec<CatalogEntry>, Option<DatabaseError>) {
    let (found, read) = databases(engine);
    let places = found.into_iter().map(|(name, entry)| {
        let owned = StoredDatabase::open(engine, entry.shard).and_then(|stored| stored.owned_records());
        let indexes = owned.unwrap_or_default().into_iter().map(|(_, shard, rest)| (shard, rest)).collect();
        CatalogEntry { name, shard: entry.shard, indexes }
    });
    (places.collect(), read.err())
}

/// Returns the shards of the catalog, of all databases and of their indexes.
pub fn shards(engine: &dyn Engine) -> Result<BTreeSet<Shard>> {
    let (found, read) = databases(engine);
    read?;
    let mut shards = BTreeSet::from([CATALOG]);
    for (_, entry) in found {
        shards.insert(entry.shard);
        let owned = StoredDatabase::open(engine, entry.shard)?.owned_shards()?;
        shards.extend(owned.into_iter().map(|(_, shard)| shard));
    }
    Ok(shards)
}

/// Returns the names of all databases with the shards and the partitioning of their documents.
pub fn names(engine: &dyn Engine) -> Result<Vec<(String, Shard, Layout)>> {
    let (found, read) = databases(engine);
    read?;
    Ok(found.into_iter().map(|(name, entry)| (name, entry.shard, entry.layout)).collect())
}

/// Verifies the database in `shard`. `watch` gets the size of each document, and may stop the verification.
pub fn verify(engine: &dyn Engine, shard: Shard, watch: &mut dyn FnMut(u64) -> ControlFlow<()>) -> Verified {
    let stored = match StoredDatabase::open(engine, shard) {
        Ok(stored) => stored,
        Err(error) => {
            let mut found = Verified::default();
            found.problem(None, error.to_string());
            return found;
        }
    };
    let mut verifying = Verifying {
        stored,
        found: Verified::default(),
        contents: HashSet::new(),
        access: ExpectedRows::default(),
        counted: Meta::default(),
    };
    if verifying.documents(watch).is_continue() && verifying.changes(watch).is_continue() {
        verifying.access_indexes();
        verifying.local_documents();
        verifying.counters();
    }
    verifying.found
}

struct Verifying {
    stored: StoredDatabase,
    found: Verified,
    contents: HashSet<[u8; 32]>,
    access: ExpectedRows,
    counted: Meta,
}

impl Verifying {
    fn documents(&mut self, watch: &mut dyn FnMut(u64) -> ControlFlow<()>) -> ControlFlow<()> {
        let stored = self.stored.clone();
        let mut cursor = match stored.scan(Keyspace::Documents) {
            Ok(cursor) => cursor,
            Err(error) => {
                self.found.problem(None, format!("the documents cannot be read: {error}"));
                return ControlFlow::Continue(());
            }
        };
        let mut last = String::new();
        loop {
            let (id, bytes) = match cursor.next() {
                Ok(Some((id, bytes))) => (String::from_utf8_lossy(id).into_owned(), bytes.to_vec()),
                Ok(None) => return ControlFlow::Continue(()),
                // The remaining documents are checked by their sequence entries.
                Err(error) => {
                    self.found.problem(None, format!("the documents after {last:?} cannot be listed: {error}"));
                    return ControlFlow::Continue(());
                }
            };
            self.found.documents += 1;
            let before = self.found.bytes;
            if let Err(error) = self.document(&id, &bytes) {
                self.found.problem(Some(&id), error.to_string());
            }
            watch(self.found.bytes - before)?;
            last = id;
        }
    }

    fn document(&mut self, id: &str, bytes: &[u8]) -> Result<()> {
        let (head, record) = (Head::decode(bytes)?, self.stored.decode_record(id.as_bytes(), bytes)?);
        if record.head().as_ref() != Some(&head) {
            return Err(DatabaseError::Corrupt("winning revision"));
        }
        self.counted.update_seq = self.counted.update_seq.max(head.seq);
        *(if head.stored.deleted { &mut self.counted.doc_del_count } else { &mut self.counted.doc_count }) += 1;
        match self.stored.change(head.seq)? {
            Some(StoredChange { id: named, rev, stored, .. }) => {
                if named != id || rev != head.rev || stored != head.stored {
                    self.found.problem(
                        Some(id),
                        format!(
                            "its entry {} in the order of updates describes another document or revision",
                            head.seq
                        ),
                    );
                }
            }
            None => self.found.problem(Some(id), format!("its entry {} in the order of updates is missing", head.seq)),
        }
        let snapshot = Arc::clone(&self.stored.snapshot);
        match self.access.missing_of(snapshot.as_ref(), id, &head)? {
            0 => {}
            missing => self.found.problem(Some(id), format!("the access indexes lack {missing} of its rows")),
        }
        for (index, node) in (0..).zip(record.tree.nodes()) {
            let Some(stored) = node.value else { continue };
            self.access.list(snapshot.as_ref(), stored.access)?;
            self.counted.body_bytes += u64::from(stored.size);
            self.counted.attachment_bytes += stored.attachments_length;
            if record.tree.is_leaf(index) {
                self.counted.leaf_bytes += u64::from(stored.size);
                self.counted.leaf_attachment_bytes += stored.attachments_length;
            }
            match self.stored.revision(stored) {
                Ok(revision) => {
                    self.found.bytes += stored.total_bytes() as u64;
                    if Json::parse(revision.body()).is_err() {
                        self.found.problem(Some(id), format!("revision {} is no JSON", node.rev));
                    }
                    for attachment in &revision.attachments {
                        self.attachment(id, attachment);
                    }
                }
                Err(error) => self.found.problem(Some(id), format!("revision {} cannot be read: {error}", node.rev)),
            }
        }
        Ok(())
    }

    fn attachment(&mut self, id: &str, attachment: &Attachment) {
        if !self.contents.insert(attachment.content.0) {
            return;
        }
        self.found.attachments += 1;
        self.counted.content_bytes += attachment.stored_length;
        let name = &attachment.name;
        match read_content(&self.stored, attachment) {
            Ok(true) => self.found.bytes += attachment.stored_length,
            Ok(false) => self.found.problem(Some(id), format!("the attachment {name:?} does not have its digest")),
            Err(error) => self.found.problem(Some(id), format!("the attachment {name:?} cannot be read: {error}")),
        }
    }

    fn changes(&mut self, watch: &mut dyn FnMut(u64) -> ControlFlow<()>) -> ControlFlow<()> {
        let stored = self.stored.clone();
        let (mut count, mut last) = (0_u64, 0);
        let mut cursor = match stored.scan(Keyspace::Sequence) {
            Ok(cursor) => cursor,
            Err(error) => {
                self.found.problem(None, format!("the order of updates cannot be read: {error}"));
                return ControlFlow::Continue(());
            }
        };
        loop {
            let change = match cursor.next() {
                Ok(Some((key, bytes))) => {
                    crate::keys::decode_sequence(key).and_then(|seq| StoredChange::decode(seq, bytes))
                }
                Ok(None) => break,
                Err(error) => {
                    self.found.problem(None, format!("changes after {last} cannot be read: {error}"));
                    return ControlFlow::Continue(());
                }
            };
            count += 1;
            match change {
                Ok(change) => {
                    last = change.seq;
                    self.change(&change);
                }
                Err(error) => self.found.problem(None, format!("a change after {last}: {error}")),
            }
            watch(0)?;
        }
        let documents = self.counted.doc_count + self.counted.doc_del_count;
        if count != documents {
            self.found.problem(None, format!("{documents} documents have {count} entries in the order of updates"));
        }
        ControlFlow::Continue(())
    }

    fn change(&mut self, change: &StoredChange) {
        let head = self.stored.get(Keyspace::Documents, change.id.as_bytes());
        let head = head.and_then(|bytes| bytes.map(|bytes| Head::decode(&bytes)).transpose());
        match head {
            Ok(Some(head)) if head.seq == change.seq => {}
            Ok(Some(head)) => {
                let description = format!("change {} is left over: its last one is {}", change.seq, head.seq);
                self.found.problem(Some(&change.id), description);
            }
            Ok(None) => self.found.problem(Some(&change.id), "the document is missing"),
            Err(error) => self.found.problem(Some(&change.id), error.to_string()),
        }
    }

    /// Rows are counted only if all documents could be read.
    fn access_indexes(&mut self) {
        if !self.found.is_good() {
            return;
        }
        match self.access.check_others(self.stored.snapshot.as_ref()) {
            Ok(problems) => problems.into_iter().for_each(|problem| self.found.problem(None, problem)),
            Err(error) => self.found.problem(None, format!("the access indexes cannot be read: {error}")),
        }
    }

    fn local_documents(&mut self) {
        let stored = self.stored.clone();
        let Ok(mut cursor) = stored.scan(Keyspace::Local) else {
            return self.found.problem(None, "the local documents cannot be read");
        };
        loop {
            match cursor.next() {
                Ok(Some((id, bytes))) => {
                    let body = LocalDocument::decode(bytes).map(|doc| Json::parse(doc.body.as_bytes()).is_ok());
                    if !matches!(body, Ok(true)) {
                        self.found.problem(Some(&String::from_utf8_lossy(id)), "the local document cannot be read");
                    }
                }
                Ok(None) => return,
                Err(error) => return self.found.problem(None, format!("local documents cannot be read: {error}")),
            }
        }
    }

    /// Counters are compared only if no other problem was found, because they cannot match otherwise.
    fn counters(&mut self) {
        let snapshot = self.stored.snapshot.as_ref();
        let (meta, writer) = match (Meta::read_with_state(snapshot).map(|(_, meta)| meta), load_writer(snapshot)) {
            (Ok(meta), Ok(writer)) => (meta, writer),
            (Err(error), _) | (_, Err(error)) => {
                return self.found.problem(None, format!("counters cannot be read: {error}"));
            }
        };
        if let Ok(Some(security)) = self.stored.get(Keyspace::Catalog, crate::keys::SECURITY)
            && Json::parse(&security).is_err()
        {
            self.found.problem(None, "the security object is no JSON");
        }
        if let Err(error) = self.stored.owned_shards() {
            self.found.problem(None, format!("the list of indexes cannot be read: {error}"));
        }
        if !self.found.is_good() {
            return;
        }
        let counted = &self.counted;
        for (name, stored, counted) in [
            ("documents", meta.doc_count, counted.doc_count),
            ("deleted documents", meta.doc_del_count, counted.doc_del_count),
            ("bytes of bodies", meta.body_bytes, counted.body_bytes),
            ("bytes of current bodies", meta.leaf_bytes, counted.leaf_bytes),
            ("bytes of attachments of all revisions", meta.attachment_bytes, counted.attachment_bytes),
            ("bytes of current attachments", meta.leaf_attachment_bytes, counted.leaf_attachment_bytes),
            ("bytes of contents", meta.content_bytes, counted.content_bytes),
            ("documents by id", writer.ranks.ids.total(), counted.doc_count),
            ("documents by update", writer.ranks.seqs.total(), counted.doc_count + counted.doc_del_count),
        ] {
            if stored != counted {
                self.found.problem(None, format!("the counter of {name} says {stored} instead of {counted}"));
            }
        }
        if meta.update_seq < counted.update_seq {
            self.found
                .problem(None, format!("the last update is {}, and there is {}", meta.update_seq, counted.update_seq));
        }
    }
}

pub(crate) fn read_content(stored: &StoredDatabase, attachment: &Attachment) -> Result<bool> {
    let mut reader = stored.content(attachment)?.reader(Form::Stored);
    let (mut sha, mut md5, mut piece) = (Sha256::new(), Md5::new(), vec![0; 64 << 10]);
    loop {
        let length = reader.read(&mut piece).map_err(crate::attachment::from_io)?;
        if length == 0 {
            break;
        }
        sha.update(&piece[..length]);
        md5.update(&piece[..length]);
    }
    Ok(<[u8; 32]>::from(sha.finalize()) == attachment.content.0
        && <[u8; 16]>::from(md5.finalize()) == attachment.digest)
}
