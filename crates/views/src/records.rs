//! [`IndexRecords`]: records of the shard of each index of a database, stored with the database.

use std::sync::Arc;

use settee_database::{Catalog, Database, OWNED_SHARDS, Work};
use settee_storage::Shard;

use crate::error::{Result, ViewError};
use crate::index::Signature;

/// Maximum number of retries while other processes assign and remove the shard concurrently.
const CONFLICT_RETRIES_MAX: u32 = 100;

/// Families of indexes, which are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Indexes of the views of a database.
    Views,
    /// Indexes of the searches of a database.
    Searches,
}

/// Records of the indexes of one family.
#[derive(Clone, Copy)]
pub struct IndexRecords<'a> {
    /// Source of new shards.
    pub catalog: &'a Catalog,
    /// Database of the indexes.
    pub database: &'a Arc<Database>,
    /// Family of the indexes.
    pub family: Family,
}

impl Family {
    const fn tail(self) -> &'static [u8] {
        match self {
            Self::Views => b"",
            Self::Searches => b"search",
        }
    }

    /// True if `tail`, the part of a record after its shard, is that of this family.
    #[must_use]
    pub fn is_record_tail(self, tail: &[u8]) -> bool {
        tail == self.tail()
    }

    fn decode(self, value: &[u8]) -> Result<Option<Shard>> {
        let (shard, tail) = value.split_first_chunk().ok_or(ViewError::Corrupt("shard of an index"))?;
        Ok(self.is_record_tail(tail).then_some(Shard(u64::from_be_bytes(*shard))))
    }
}

fn key(signature: Signature) -> Vec<u8> {
    [OWNED_SHARDS, signature.to_string().as_bytes()].concat()
}

impl IndexRecords<'_> {
    /// Returns signature and shard of each index of the family.
    pub fn all(&self) -> Result<Vec<(Signature, Shard)>> {
        let mut indexes = Vec::new();
        for (key, value) in self.database.read()?.attached_with_prefix(OWNED_SHARDS)? {
            let signature = key.strip_prefix(OWNED_SHARDS).and_then(Signature::parse);
            let signature = signature.ok_or(ViewError::Corrupt("signature of an index"))?;
            indexes.extend(self.family.decode(&value)?.map(|shard| (signature, shard)));
        }
        Ok(indexes)
    }

    /// Returns the shard of an index, if it has one.
    pub fn find(&self, signature: Signature) -> Result<Option<Shard>> {
        match self.database.read()?.attached(&key(signature))? {
            Some(value) => self.family.decode(&value),
            None => Ok(None),
        }
    }

    /// Assigns a shard to an index, or returns the existing one.
    pub fn add(&self, signature: Signature) -> Result<Shard> {
        for _ in 0..CONFLICT_RETRIES_MAX {
            if let Some(shard) = self.find(signature)? {
                return Ok(shard);
            }
            let shard = self.catalog.allocate_shard(self.database.shard())?;
            // If another process was first, the shard number remains unused.
            if self.put(signature, None, Some(shard))? {
                return Ok(shard);
            }
        }
        Err(ViewError::Contended)
    }

    /// Replaces the shard of an index, unless the index already has another one. A crash leaves a record of a dropped
    /// shard, which is replaced again.
    pub fn replace(&self, signature: Signature, shard: Shard) -> Result<()> {
        if self.find(signature)? != Some(shard) {
            return Ok(());
        }
        let new = self.catalog.replace_shard(shard)?;
        // If another process was first, it has removed the shard as well.
        self.put(signature, Some(shard), Some(new))?;
        self.catalog.drop_shard(shard)?;
        Ok(())
    }

    /// Removes an index and its shard, unless another process has replaced it. A crash in between leaves an empty
    /// index, which is rebuilt, and not an unreferenced shard.
    pub fn remove(&self, signature: Signature, shard: Shard) -> Result<()> {
        self.catalog.drop_shard(shard)?;
        self.put(signature, Some(shard), None)?;
        Ok(())
    }

    /// Returns false, and writes nothing, if the index does not have the shard `before`.
    fn put(&self, signature: Signature, before: Option<Shard>, shard: Option<Shard>) -> Result<bool> {
        let record = |shard: Shard| [&shard.0.to_be_bytes()[..], self.family.tail()].concat();
        let (before, value) = (before.map(record), shard.map(record));
        let outcomes = self.database.update(Work::Replace { key: key(signature), before, value })?;
        Ok(outcomes.is_empty())
    }
}
