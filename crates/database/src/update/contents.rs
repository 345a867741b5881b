//! [`Contents`]: changes of the reference counts of attachment contents by one commit.
//!
//! A revision adds references to the contents of its attachments when it is stored, and removes them when its body is
//! removed. Contents without references are deleted in the same commit, and abandoned uploads too, a bounded number per
//! commit.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bytes::Bytes;
use settee_storage::{Batch, Direction, Expect, KeyRange, Keyspace, Snapshot};

use super::new_attachments::{NewAttachment, NewAttachments};
use super::uploaded::Source;
use super::work::{Stage, Work};
use crate::attachment::{Attachment, ContentId, ContentRecord, decode_all};
use crate::record::Stored;
use crate::{Database, DatabaseError, Result, keys};

const DISCARDED_CHUNKS: usize = if cfg!(test) { 40 } else { 16 << 10 };

impl Stage {
    /// Puts the chunks, with the mark of the upload if they include its first chunk. If the mark was removed since,
    /// another node has collected the upload: then nothing is stored, and the commit of the revision conflicts.
    pub(super) fn put(&self, context: ReadContext<'_>, contents: &Contents, batch: &mut Batch) -> Result<()> {
        if self.first == 0 {
            let owner = context.database.engine().members().this();
            batch.put(Keyspace::Attachments, &keys::upload(self.blob), &owner.0.to_be_bytes());
        } else if !contents.has(context, &keys::upload(self.blob))? {
            return Ok(());
        }
        put_chunks(batch, self.blob, self.first, self.chunks.iter().map(Bytes::as_ref));
        Ok(())
    }
}

#[derive(Default)]
pub(super) struct Named {
    /// Ascending, without duplicates.
    pub(super) keys: Vec<Vec<u8>>,
    blobs: Vec<u64>,
}

impl Named {
    pub(super) fn by(database: &Database, works: &[Work]) -> Self {
        let mut named = Self::default();
        for work in works {
            if let Work::Documents(updates) = work {
                let attachments = updates.iter().flat_map(|update| &update.attachments.list);
                attachments.for_each(|new| named.push(database, new));
            } else if let Work::Stage(stage) = work
                && stage.first > 0
            {
                named.keys.push(keys::upload(stage.blob).to_vec());
            }
        }
        named.keys.sort_unstable();
        named.keys.dedup();
        named
    }

    fn push(&mut self, database: &Database, new: &NewAttachment) {
        self.keys.push(keys::content(&new.attachment.content.0).to_vec());
        match &new.source {
            Source::Stored => {}
            Source::Staged(staged) => self.keys.push(keys::upload(staged.blob).to_vec()),
            Source::Memory(..) => {
                let blob = database.random_blob();
                self.keys.extend([keys::attachment_chunk(blob, 0).to_vec(), keys::upload(blob).to_vec()]);
                self.blobs.push(blob);
            }
        }
    }
}

#[derive(Default)]
pub(super) struct Contents {
    known: HashMap<Vec<u8>, Option<Vec<u8>>>,
    blobs: Vec<u64>,
    states: HashMap<ContentId, State>,
    fresh: HashMap<u64, Vec<Attachment>>,
    pub(super) freed: Vec<Stored>,
    pub(super) given_up: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContentBytes {
    pub(super) added: u64,
    pub(super) removed: u64,
}

struct State {
    before: Option<ContentRecord>,
    now: Option<ContentRecord>,
}

#[derive(Clone, Copy)]
pub(super) struct ReadContext<'a> {
    pub(super) database: &'a Database,
    pub(super) snapshot: &'a dyn Snapshot,
}

impl Contents {
    pub(super) fn new(named: Named, values: Vec<Option<Vec<u8>>>) -> Self {
        let Named { keys, blobs } = named;
        let known: HashMap<_, _> = keys.into_iter().zip(values).collect();
        let is_free = |key: &[u8]| known.get(key).is_some_and(Option::is_none);
        let is_unused = |blob: &u64| is_free(&keys::attachment_chunk(*blob, 0)) && is_free(&keys::upload(*blob));
        let blobs = blobs.into_iter().filter(is_unused).collect();
        Self { known, blobs, ..Self::default() }
    }

    fn has(&self, context: ReadContext<'_>, key: &[u8]) -> Result<bool> {
        match self.known.get(key) {
            Some(value) => Ok(value.is_some()),
            None => Ok(context.snapshot.get(Keyspace::Attachments, key)?.is_some()),
        }
    }

    fn read_ahead(&mut self, context: ReadContext<'_>, mut keys: Vec<Vec<u8>>) -> Result<()> {
        keys.retain(|key| !self.known.contains_key(key));
        keys.sort_unstable();
        keys.dedup();
        let wanted: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let values = context.snapshot.multi_get(Keyspace::Attachments, &wanted)?;
        self.known.extend(keys.into_iter().zip(values));
        Ok(())
    }

    /// Returns true if all contents are available. A content is removed with the last revision that refers to it.
    pub(super) fn has_all(&mut self, context: ReadContext<'_>, attachments: &NewAttachments) -> Result<bool> {
        for NewAttachment { attachment, source, .. } in &attachments.list {
            let available = self.state(context, attachment)?.now.is_some()
                || match source {
                    Source::Stored => false,
                    Source::Memory(..) => true,
                    Source::Staged(staged) => self.has(context, &keys::upload(staged.blob))?,
                };
            if !available {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn take(
        &mut self,
        context: ReadContext<'_>,
        batch: &mut Batch,
        attachments: &NewAttachments,
        stored: Vec<Attachment>,
        body_seq: u64,
    ) -> Result<()> {
        for NewAttachment { attachment, source, .. } in &attachments.list {
            if let Some(now) = &mut self.state(context, attachment)?.now {
                now.references += 1;
                continue;
            }
            let blob = match source {
                Source::Stored => return Err(DatabaseError::Corrupt("attachment content")),
                Source::Staged(staged) => {
                    batch.delete(Keyspace::Attachments, &keys::upload(staged.blob));
                    staged.blob
                }
                Source::Memory(bytes) => {
                    let blob = self.blobs.pop().map_or_else(|| context.database.next_blob(), Ok)?;
                    put_chunks(batch, blob, 0, bytes.chunks(keys::ATTACHMENT_CHUNK_BYTES));
                    blob
                }
            };
            let record = ContentRecord { blob, references: 1, length: attachment.stored_length };
            self.state(context, attachment)?.now = Some(record);
        }
        self.fresh.insert(body_seq, stored);
        Ok(())
    }

    pub(super) fn finish(&mut self, context: ReadContext<'_>, batch: &mut Batch) -> Result<ContentBytes> {
        let (mut gone, mut stored) = (Vec::new(), Vec::new());
        for freed in std::mem::take(&mut self.freed) {
            match self.fresh.remove(&freed.body_seq) {
                Some(attachments) => gone.extend(attachments),
                None => stored.push(freed),
            }
        }
        gone.extend(read_attachments(context, &stored)?);
        self.read_ahead(context, gone.iter().map(|gone| keys::content(&gone.content.0).to_vec()).collect())?;
        for attachment in &gone {
            if let Some(now) = &mut self.state(context, attachment)?.now {
                now.references = now.references.saturating_sub(1);
            }
        }
        let mut bytes = ContentBytes::default();
        let mut scratch = Vec::new();
        let mut chunks_left = DISCARDED_CHUNKS;
        for (id, State { before, now }) in &self.states {
            bytes.removed += before.map_or(0, |before| before.length);
            bytes.added += now.filter(|now| now.references > 0).map_or(0, |now| now.length);
            let Some(record) = now.filter(|now| before.as_ref() != Some(now)) else { continue };
            let key = keys::content(&id.0);
            if record.references > 0 {
                scratch.clear();
                record.encode(&mut scratch);
                batch.put(Keyspace::Attachments, &key, &scratch);
                continue;
            }
            batch.delete(Keyspace::Attachments, &key);
            let Some(left) = chunks_left.checked_sub(record.chunks() as usize) else {
                batch.put(Keyspace::Attachments, &keys::upload(record.blob), b"");
                self.given_up.push(record.blob);
                continue;
            };
            chunks_left = left;
            for number in 0..record.chunks() {
                batch.delete(Keyspace::Attachments, &keys::attachment_chunk(record.blob, number));
            }
        }
        Ok(bytes)
    }

    fn state(&mut self, context: ReadContext<'_>, attachment: &Attachment) -> Result<&mut State> {
        match self.states.entry(attachment.content) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => {
                let before = match self.known.get(keys::content(&attachment.content.0).as_slice()) {
                    Some(known) => known.as_deref().map(ContentRecord::decode).transpose()?,
                    None => ContentRecord::read(context.snapshot, &attachment.content)?,
                };
                Ok(entry.insert(State { before, now: before }))
            }
        }
    }
}

fn read_attachments(context: ReadContext<'_>, revisions: &[Stored]) -> Result<Vec<Attachment>> {
    let chunks = |stored: &Stored| (stored.attachments_size as usize).div_ceil(keys::BODY_CHUNK_BYTES);
    let chunk_keys = |stored: &Stored| {
        let body_seq = stored.body_seq;
        (0..chunks(stored)).map(move |chunk| keys::body(body_seq, chunk as u16))
    };
    let wanted: Vec<_> = revisions.iter().flat_map(chunk_keys).collect();
    let wanted: Vec<&[u8]> = wanted.iter().map(<[u8; 10]>::as_slice).collect();
    let mut found = context.snapshot.multi_get(Keyspace::Bodies, &wanted)?.into_iter();
    let mut attachments = Vec::new();
    for stored in revisions {
        let mut record = Vec::new();
        for bytes in found.by_ref().take(chunks(stored)) {
            record.extend_from_slice(&bytes.ok_or(DatabaseError::Corrupt("attachments"))?);
        }
        let record = record.get(..stored.attachments_size as usize);
        attachments.extend(decode_all(record.ok_or(DatabaseError::Corrupt("attachments"))?)?);
    }
    Ok(attachments)
}

pub(super) fn discard(context: ReadContext<'_>, batch: &mut Batch, given_up: &[u64]) -> Result<Vec<u64>> {
    let mut done = Vec::new();
    let mut left = DISCARDED_CHUNKS;
    let marks: Vec<_> = given_up.iter().map(|&blob| keys::upload(blob)).collect();
    let marks: Vec<&[u8]> = marks.iter().map(<[u8; 9]>::as_slice).collect();
    for (&blob, mark) in given_up.iter().zip(context.snapshot.multi_get(Keyspace::Attachments, &marks)?) {
        // Without a mark the chunks belong to a revision.
        if mark.is_some() {
            let (start, end) = (keys::attachment_chunk(blob, 0), keys::attachment_chunk(blob + 1, 0));
            let range = KeyRange { start: Some(&start), end: Some(&end) };
            let mut chunks = context.snapshot.scan(Keyspace::Attachments, range, Direction::Forward, Expect::Few)?;
            while let Some((key, _)) = chunks.next()? {
                if left == 0 {
                    return Ok(done);
                }
                batch.delete(Keyspace::Attachments, key);
                left -= 1;
            }
            batch.delete(Keyspace::Attachments, &keys::upload(blob));
        }
        done.push(blob);
    }
    Ok(done)
}

fn put_chunks<'a>(batch: &mut Batch, blob: u64, first: u32, chunks: impl Iterator<Item = &'a [u8]>) {
    for (number, chunk) in (first..).zip(chunks) {
        batch.insert(Keyspace::Attachments, &keys::attachment_chunk(blob, number), chunk);
    }
}
