//! [`Catalog::salvage`]: rebuilds a database from its readable data, with new update sequences and a new instance.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::ops::RangeInclusive;
use std::sync::Arc;

use settee_model::Rev;
use settee_model::json::Json;
use settee_storage::{Batch, CommitToken, Durability, Keyspace, Outcome, Shard, StorageError};

use crate::access::{AccessControl, AccessList};
use crate::attachment::{Attachment, ContentEncoding, Form, from_io};
use crate::catalog::{Catalog, validate_name};
use crate::database::Database;
use crate::entry::{CATALOG, Entry, Layout};
use crate::record::DocRecord;
use crate::stored::{StoredChange, StoredDatabase, databases};
use crate::update::{Compression, NewAttachment, NewAttachments, Upload};
use crate::{DatabaseError, DocUpdate, EditMode, Result, Work, keys};

/// A part of a database that could not be salvaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostData {
    /// Id of the document, if it could be read.
    pub document: Option<String>,
    /// Description of the lost parts.
    pub description: String,
}

/// Outcome of the salvage of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvagedDatabase {
    /// Number of salvaged documents.
    pub documents: u64,
    /// Number of salvaged leaf revisions.
    pub revisions: u64,
    /// Parts that were lost.
    pub losses: Vec<LostData>,
}

const BATCH_REVISIONS: usize = 500;
const BATCH_BYTES: usize = 4 << 20;

const COPIED: [&[u8]; 3] = [keys::REVS_LIMIT, keys::SECURITY, keys::PURGED_INFOS_LIMIT];

impl Catalog {
    /// Rebuilds the database `name` from its readable data and drops the old one. `instance` must be random. Fails with
    /// [`DatabaseError::NotFound`] if no such database exists.
    pub fn salvage(&self, name: &str, instance: u64) -> Result<SalvagedDatabase> {
        let (found, _) = databases(self.engine().as_ref());
        let entry = found.into_iter().find(|(known, _)| known == name).ok_or(DatabaseError::NotFound)?.1;
        let old = StoredDatabase::open(self.engine().as_ref(), entry.shard)?;
        let entry = Entry { shard: self.allocate_shard(entry.shard)?, instance, ..entry };
        let mut salvaged = SalvagedDatabase::default();
        copy_settings(&old, self, entry.shard, &mut salvaged)?;
        let database = self.open_detached(name, &entry)?;
        let mut salvage = Salvage { old: &old, database: &database, salvaged, updates: Vec::new(), bytes: 0 };
        salvage.documents()?;
        let salvaged = salvage.salvaged;
        let mut shards = vec![old.shard];
        shards.extend(old.owned_shards().unwrap_or_default().into_iter().map(|(_, shard)| shard));
        self.replace(name, &entry, &shards)?;
        Ok(salvaged)
    }

    /// Removes the indexes whose shards are in `damaged`, or all for `None`, and returns their number.
    pub fn remove_indexes(&self, name: &str, damaged: Option<&[RangeInclusive<u64>]>) -> Result<usize> {
        let database = self.database(name)?;
        let stored = StoredDatabase::open(self.engine().as_ref(), database.shard())?;
        let mut removed = 0;
        for (key, shard) in stored.owned_shards()? {
            if damaged.is_none_or(|damaged| damaged.iter().any(|range| range.contains(&shard.0))) {
                database.update(Work::Attach { key, value: None })?;
                self.drop_shard(shard)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Restores the names of databases in those of `shards` to which the catalog does not refer, according to `known`.
    /// Drops shards that belong to no database, and reserves all numbers in `shards`. Returns the names, each with true
    /// if it was in `known`.
    pub fn adopt(
        &self,
        shards: &[u64],
        known: &BTreeMap<u64, (String, Layout)>,
        instance: u64,
    ) -> Result<Vec<(String, bool)>> {
        let (found, _) = databases(self.engine().as_ref());
        self.reserve_shards(shards.iter().max().copied().unwrap_or_default())?;
        let mut used: BTreeSet<Shard> = BTreeSet::from([CATALOG]);
        for (_, entry) in &found {
            used.insert(entry.shard);
            let owned = StoredDatabase::open(self.engine().as_ref(), entry.shard)?.owned_shards();
            used.extend(owned.unwrap_or_default().into_iter().map(|(_, shard)| shard));
        }
        let mut names = Vec::new();
        for shard in shards.iter().copied().map(Shard).filter(|shard| !used.contains(shard)) {
            let stored = StoredDatabase::open(self.engine().as_ref(), shard)?;
            let has_documents = match stored.scan(Keyspace::Documents) {
                Err(DatabaseError::NotFound) => continue,
                documents => documents?.next()?.is_some(),
            };
            let is_named = known.contains_key(&shard.0);
            if !has_documents && !is_named {
                self.drop_shard(shard)?;
                continue;
            }
            let is_taken = |name: &str| found.iter().any(|(taken, _)| taken == name);
            let (name, layout) = match known.get(&shard.0) {
                Some((name, layout)) if !is_taken(name) && validate_name(name).is_ok() => (name.clone(), *layout),
                _ => (format!("salvaged-{}", shard.0), Layout::Whole),
            };
            // Without the entry of the database only its shard shows that lists restrict access.
            let access = match stored.get(Keyspace::Catalog, keys::ACCESS_CONTROL)? {
                Some(_) => AccessControl::PerDocument,
                None => AccessControl::PerDatabase,
            };
            self.enter(&name, &Entry { shard, instance, created_ms: 0, layout, q: 1, access })?;
            names.push((name, is_named));
        }
        Ok(names)
    }
}

fn copy_settings(old: &StoredDatabase, catalog: &Catalog, new: Shard, salvaged: &mut SalvagedDatabase) -> Result<()> {
    let mut batch = Batch::new();
    for key in COPIED {
        if let Ok(Some(value)) = old.get(Keyspace::Catalog, key) {
            batch.put(Keyspace::Catalog, key, &value);
        }
    }
    match old.scan(Keyspace::Local) {
        Ok(mut cursor) => loop {
            match cursor.next() {
                Ok(Some((key, value))) => batch.put(Keyspace::Local, key, value),
                Ok(None) => break,
                Err(error) => {
                    salvaged.losses.push(LostData { document: None, description: format!("local documents: {error}") });
                    break;
                }
            }
        },
        Err(error) => {
            salvaged.losses.push(LostData { document: None, description: format!("local documents: {error}") });
        }
    }
    if batch.is_empty() {
        return Ok(());
    }
    let state = catalog.engine().snapshot(new)?.state()?;
    match catalog.engine().commit(new, state.version, CommitToken(1), batch, Durability::Buffered)? {
        Outcome::Committed(_) => Ok(()),
        Outcome::Conflict(_) | Outcome::Unknown => Err(StorageError::Io("another writer exists".to_owned()).into()),
    }
}

struct Salvage<'a> {
    old: &'a StoredDatabase,
    database: &'a Arc<Database>,
    salvaged: SalvagedDatabase,
    updates: Vec<DocUpdate>,
    bytes: usize,
}

impl Salvage<'_> {
    /// Salvages the documents in the changes feed first, in its order.
    fn documents(&mut self) -> Result<()> {
        let old = self.old;
        let mut cursor = old.scan(Keyspace::Sequence)?;
        while let Some((key, bytes)) = cursor.next()? {
            let change = keys::decode_sequence(key).and_then(|seq| StoredChange::decode(seq, bytes));
            match change {
                Ok(change) => self.change(&change)?,
                Err(error) => self.record_loss(None, format!("a change: {error}")),
            }
        }
        let mut cursor = old.scan(Keyspace::Documents)?;
        while let Some((id, bytes)) = cursor.next()? {
            let record = old.decode_record(id, bytes);
            let id = String::from_utf8_lossy(id).into_owned();
            match record {
                Ok(record) => {
                    let change = old.change(record.seq).ok().flatten();
                    if change.is_none_or(|change| change.id != id) {
                        self.record_loss(Some(&id), "its last change is unknown");
                        self.record(&id, &record)?;
                    }
                }
                Err(error) => self.record_loss(Some(&id), error.to_string()),
            }
        }
        self.commit()
    }

    fn record_loss(&mut self, document: Option<&str>, description: impl Into<String>) {
        self.salvaged.losses.push(LostData { document: document.map(str::to_owned), description: description.into() });
    }

    fn change(&mut self, change: &StoredChange) -> Result<()> {
        match self.old.record(&change.id) {
            Ok(Some(record)) if record.seq == change.seq => self.record(&change.id, &record),
            Ok(Some(record)) if record.seq > change.seq => Ok(()),
            found => {
                if let Ok(Some(record)) = found {
                    self.record(&change.id, &record)?;
                    self.salvaged.documents -= 1;
                }
                self.record_loss(Some(&change.id), "its older revisions and conflicts");
                self.salvaged.documents += 1;
                self.leaf(&change.id, vec![change.rev.clone()], change.stored)
            }
        }
    }

    fn record(&mut self, id: &str, record: &DocRecord) -> Result<()> {
        self.salvaged.documents += 1;
        for leaf in record.tree.leaves() {
            let node = record.tree.node(leaf);
            let path = record.tree.history(leaf).map(|node| record.tree.node(node).rev.clone()).collect();
            match node.value {
                Some(stored) => self.leaf(id, path, stored)?,
                None => self.record_loss(Some(id), format!("the body of revision {}", node.rev)),
            }
        }
        Ok(())
    }

    fn leaf(&mut self, id: &str, path: Vec<Rev>, stored: crate::Stored) -> Result<()> {
        let rev = path.first().map(ToString::to_string).unwrap_or_default();
        let revision = match self.old.revision(stored) {
            Ok(revision) => revision,
            Err(error) => {
                self.record_loss(Some(id), format!("revision {rev}: {error}"));
                return Ok(());
            }
        };
        let mut list = Vec::new();
        for attachment in &revision.attachments {
            match self.attachment(attachment)? {
                Some(new) => list.push(new),
                None => self.record_loss(Some(id), format!("the attachment {:?} of revision {rev}", attachment.name)),
            }
        }
        let Ok(body) = Json::parse(revision.body()) else {
            self.record_loss(Some(id), format!("revision {rev} is no JSON"));
            return Ok(());
        };
        if stored.deleted && stored.access > 0 && AccessList::of_body(&body) == Ok(None) {
            self.record_loss(Some(id), format!("the access list of the deletion {rev}"));
        }
        self.bytes += body.as_bytes().len();
        let (mode, attachments) = (EditMode::Replicated, NewAttachments::new(self.database, list)?);
        self.updates.push(DocUpdate::replicated(id.to_owned(), stored.deleted, body, mode, path, attachments));
        self.salvaged.revisions += 1;
        if self.updates.len() >= BATCH_REVISIONS || self.bytes >= BATCH_BYTES { self.commit() } else { Ok(()) }
    }

    fn attachment(&self, attachment: &Attachment) -> Result<Option<NewAttachment>> {
        let Ok(content) = self.old.content(attachment) else { return Ok(None) };
        let compression = match attachment.encoding {
            ContentEncoding::Identity => Compression::None,
            ContentEncoding::Gzip => Compression::Gzipped { length: Some(attachment.length) },
        };
        let mut upload = Upload::new(self.database, compression);
        let (mut reader, mut piece) = (content.reader(Form::Stored), vec![0; 64 << 10]);
        loop {
            match reader.read(&mut piece).map_err(from_io) {
                Ok(0) => break,
                Ok(length) => upload.write(&piece[..length])?,
                Err(_) => return Ok(None),
            }
        }
        let uploaded = upload.finish()?;
        if uploaded.content != attachment.content {
            return Ok(None);
        }
        let Attachment { name, content_type, revpos, .. } = attachment.clone();
        Ok(Some(NewAttachment::uploaded(name, content_type, Some(revpos), uploaded)))
    }

    fn commit(&mut self) -> Result<()> {
        self.bytes = 0;
        for work in DocUpdate::into_works(std::mem::take(&mut self.updates)) {
            self.database.update(work)?;
        }
        Ok(())
    }
}
