//! Local documents: they have no history, no conflicts, no place in the changes feed, and are not
//! replicated. Replicators keep their checkpoints in them.

use settee_model::json::Json;
use settee_storage::codec::{Reader, put_varint};

use crate::Result;

/// A local document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDocument {
    /// N of its revision `0-N`.
    pub rev: u64,
    /// Its members without those that begin with an underscore.
    pub body: Json,
}

impl LocalDocument {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.rev);
        out.extend_from_slice(self.body.as_bytes());
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "local document");
        let rev = reader.varint()?;
        Ok(Self { rev, body: Json::trusted(reader.rest().to_vec()) })
    }
}
