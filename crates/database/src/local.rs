//! Local documents, for example checkpoints of replicators. They have no revision tree and no sequence entry.

use settee_model::json::Json;
use settee_storage::codec::{Reader, put_varint};

use crate::Result;

/// A local document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalDocument {
    /// Number N of the revision `0-N`.
    pub rev: u64,
    /// Members of the document without those whose names start with an underscore.
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
