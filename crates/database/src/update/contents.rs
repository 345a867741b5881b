//! Counting who refers to the bytes of attachments: [`Contents`] holds what one commit changes of that.
//!
//! A revision takes the bytes of its attachments when it is stored and gives them up when its body is removed. Bytes
//! that nobody refers to any more go in the same commit. So do uploads that were abandoned meanwhile, a bounded number
//! at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use bytes::Bytes;
use settee_storage::{Batch, Direction, Expect, KeyRange, Keyspace, Snapshot};

use crate::attachment::{Attachment, ContentId, ContentRecord, NewAttachment, NewAttachments, Source, decode_all};
use crate::record::Stored;
use crate::{Database, DatabaseError, Result, keys};

/// The number of chunks of abandoned uploads that one commit removes.
const DISCARDED_CHUNKS: usize = if cfg!(test) { 40 } else { 16 << 10 };

/// Some chunks of an upload.
#[derive(Clone, Debug)]
pub struct Stage {
    pub(crate) blob: u64,
    /// The number of the first one.
    pub(crate) first: u32,
    pub(crate) chunks: Vec<Bytes>,
}

impl Stage {
    pub(super) fn size_bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len() + 32).sum()
    }

    /// Puts the chunks, and the mark of an upload with the first of them. If the mark was removed since, another node
    /// has collected the upload: then nothing is put, and no revision will find it.
    pub(super) fn put(&self, context: ReadContext<'_>, batch: &mut Batch) -> Result<()> {
        if self.first == 0 {
            batch.put(Keyspace::Attachments, &keys::upload(self.blob), b"");
        } else if !context.has(&keys::upload(self.blob))? {
            return Ok(());
        }
        put_chunks(batch, self.blob, self.first, self.chunks.iter().map(Bytes::as_ref));
        Ok(())
    }
}

/// The changes of a commit.
#[derive(Default)]
pub(super) struct Contents {
    states: HashMap<ContentId, State>,
    /// Attachments of revisions that this commit stores, by body sequence.
    fresh: HashMap<u64, Vec<Attachment>>,
    /// Revisions with attachments whose bodies this commit removes.
    pub(super) freed: Vec<Stored>,
}

/// How the stored bytes of attachments change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContentBytes {
    pub(super) added: u64,
    pub(super) removed: u64,
}

struct State {
    before: Option<ContentRecord>,
    now: Option<ContentRecord>,
}

/// Where a [`Contents`] looks.
#[derive(Clone, Copy)]
pub(super) struct ReadContext<'a> {
    pub(super) database: &'a Database,
    pub(super) snapshot: &'a dyn Snapshot,
}

impl ReadContext<'_> {
    fn has(&self, key: &[u8]) -> Result<bool> {
        Ok(self.snapshot.get(Keyspace::Attachments, key)?.is_some())
    }
}

impl Contents {
    /// Whether the bytes of all attachments are there. Bytes that were there may have gone with the last revision
    /// that had them.
    pub(super) fn has_all(&mut self, context: ReadContext<'_>, attachments: &NewAttachments) -> Result<bool> {
        for NewAttachment { attachment, source, .. } in &attachments.list {
            let available = self.state(context, attachment)?.now.is_some()
                || match source {
                    Source::Stored => false,
                    Source::Memory(..) => true,
                    Source::Staged(staged) => context.has(&keys::upload(staged.blob))?,
                };
            if !available {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Takes the bytes of the attachments of the revision whose body will lie under `body_seq`.
    pub(super) fn take(
        &mut self,
        context: ReadContext<'_>,
        batch: &mut Batch,
        attachments: &NewAttachments,
        stored: Vec<Attachment>,
        body_seq: u64,
    ) -> Result<()> {
        for NewAttachment { attachment, source, .. } in &attachments.list {
            let state = self.state(context, attachment)?;
            if let Some(now) = &mut state.now {
                now.references += 1;
                continue;
            }
            let blob = match source {
                Source::Stored => return Err(DatabaseError::Corrupt("attachment content")),
                Source::Staged(staged) => {
                    batch.delete(Keyspace::Attachments, &keys::upload(staged.blob));
                    staged.blob
                }
                Source::Memory(_, bytes) => {
                    let blob = context.database.next_blob()?;
                    put_chunks(batch, blob, 0, bytes.chunks(keys::ATTACHMENT_CHUNK_BYTES));
                    blob
                }
            };
            state.now = Some(ContentRecord { blob, references: 1, length: attachment.stored_length });
        }
        self.fresh.insert(body_seq, stored);
        Ok(())
    }

    /// Completes the batch.
    pub(super) fn finish(&mut self, context: ReadContext<'_>, batch: &mut Batch) -> Result<ContentBytes> {
        for stored in std::mem::take(&mut self.freed) {
            let attachments = match self.fresh.remove(&stored.body_seq) {
                Some(attachments) => attachments,
                None => read_attachments(context, stored)?,
            };
            for attachment in &attachments {
                if let Some(now) = &mut self.state(context, attachment)?.now {
                    now.references = now.references.saturating_sub(1);
                }
            }
        }
        let mut bytes = ContentBytes::default();
        let mut scratch = Vec::new();
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
                let before = ContentRecord::read(context.snapshot, &attachment.content)?;
                Ok(entry.insert(State { before, now: before }))
            }
        }
    }
}

/// The attachments of a revision that was stored by an earlier commit.
fn read_attachments(context: ReadContext<'_>, stored: Stored) -> Result<Vec<Attachment>> {
    let mut record = Vec::new();
    let wanted = stored.attachments_size as usize;
    for chunk in 0..wanted.div_ceil(keys::BODY_CHUNK_BYTES) {
        let key = keys::body(stored.body_seq, chunk as u16);
        let bytes = context.snapshot.get(Keyspace::Bodies, &key)?;
        record.extend_from_slice(&bytes.ok_or(DatabaseError::Corrupt("attachments"))?);
    }
    decode_all(record.get(..wanted).ok_or(DatabaseError::Corrupt("attachments"))?)
}

/// Removes the chunks of some abandoned uploads, and says which ones are done with.
pub(super) fn discard(context: ReadContext<'_>, batch: &mut Batch, given_up: &[u64]) -> Result<Vec<u64>> {
    let mut done = Vec::new();
    let mut left = DISCARDED_CHUNKS;
    for &blob in given_up {
        // Without its mark it is no upload any more: a revision has taken the bytes.
        if context.has(&keys::upload(blob))? {
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
