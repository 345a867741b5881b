//! [`Meta`]: the stored counters of a database, and its revision limit.

use settee_storage::codec::{Reader, put_varint};
use settee_storage::{Keyspace, Request, ShardState, Snapshot};

use crate::{DatabaseError, Result, keys};

/// CouchDB's default.
pub(crate) const DEFAULT_REVS_LIMIT: u64 = 1000;

/// Changes with every commit, so it is stored in the head of the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    pub(crate) update_seq: u64,
    pub(crate) doc_count: u64,
    pub(crate) doc_del_count: u64,
    pub(crate) leaf_bytes: u64,
    pub(crate) body_bytes: u64,
    /// An attachment is counted once for each leaf.
    pub(crate) leaf_attachment_bytes: u64,
    pub(crate) attachment_bytes: u64,
    /// Stored size of attachment contents, each counted once.
    pub(crate) content_bytes: u64,
    /// Update sequence of the latest change of a design document, including removals.
    pub(crate) design_seq: u64,
    pub(crate) purge_seq: u64,
    /// Number of the latest purge whose record was removed.
    pub(crate) purges_forgotten: u64,
    pub(crate) attached_seq: u64,
    /// Newest interval of the [`TimeSeq`](crate::time_seq::TimeSeq); 0 if the latest update has no recorded time.
    pub(crate) time_interval: u64,
    /// Number of access lists; the highest number of one.
    pub(crate) access_lists: u64,
}

impl Meta {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let counters = [self.update_seq, self.doc_count, self.doc_del_count, self.leaf_bytes, self.body_bytes];
        let attachments = [self.leaf_attachment_bytes, self.attachment_bytes, self.content_bytes];
        let numbers = [self.design_seq, self.purge_seq, self.purges_forgotten, self.attached_seq, self.time_interval];
        for value in counters.into_iter().chain(attachments).chain(numbers) {
            put_varint(out, value);
        }
        if self.access_lists > 0 {
            put_varint(out, self.access_lists);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "database counters");
        Ok(Self {
            update_seq: reader.varint()?,
            doc_count: reader.varint()?,
            doc_del_count: reader.varint()?,
            leaf_bytes: reader.varint()?,
            body_bytes: reader.varint()?,
            leaf_attachment_bytes: reader.varint()?,
            attachment_bytes: reader.varint()?,
            content_bytes: reader.varint()?,
            design_seq: reader.varint()?,
            purge_seq: reader.varint()?,
            purges_forgotten: reader.varint()?,
            // Counters of earlier versions end here or after one of the next ones.
            attached_seq: if reader.is_at_end() { 0 } else { reader.varint()? },
            time_interval: if reader.is_at_end() { 0 } else { reader.varint()? },
            access_lists: if reader.is_at_end() { 0 } else { reader.varint()? },
        })
    }

    pub(crate) fn leaves(&self) -> LeafBytes {
        LeafBytes { bodies: self.leaf_bytes, attachments: self.leaf_attachment_bytes }
    }

    pub(crate) fn count_leaves(&mut self, before: LeafBytes, now: LeafBytes) {
        self.leaf_bytes = (self.leaf_bytes + now.bodies).saturating_sub(before.bodies);
        self.leaf_attachment_bytes = (self.leaf_attachment_bytes + now.attachments).saturating_sub(before.attachments);
    }

    /// Also returns the commit that set the counters. The counters of a database without commits are zero.
    pub(crate) fn read_with_state(snapshot: &dyn Snapshot) -> Result<(ShardState, Self)> {
        let requests = [Request::State, Request::Head, Request::Get(Keyspace::Catalog, keys::META)];
        let replies: [_; 3] = snapshot.read(&requests)?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let [state, head, old] = replies;
        Ok((state.into_state()?, Self::of_records(head.into_value()?, old.into_value()?)?))
    }

    pub(crate) fn of_records(head: Option<Vec<u8>>, old: Option<Vec<u8>>) -> Result<Self> {
        head.or(old).map_or(Ok(Self::default()), |bytes| Self::decode(&bytes))
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeafBytes {
    pub(crate) bodies: u64,
    pub(crate) attachments: u64,
}

impl LeafBytes {
    pub(crate) fn total(self) -> u64 {
        self.bodies + self.attachments
    }
}

pub(crate) fn read_revs_limit(snapshot: &dyn Snapshot) -> Result<u64> {
    decode_revs_limit(snapshot.get(Keyspace::Catalog, keys::REVS_LIMIT)?)
}

pub(crate) fn decode_revs_limit(record: Option<Vec<u8>>) -> Result<u64> {
    match record {
        Some(bytes) => Ok(Reader::new(&bytes, "revs_limit").varint()?),
        None => Ok(DEFAULT_REVS_LIMIT),
    }
}
