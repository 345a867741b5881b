//! [`ReplicationId`]: the name of a replication, equal to the one that CouchDB gives it.

use crate::peer::Peer;
use crate::spec::Spec;

/// The id of a replication: under its base, checkpoints are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplicationId {
    /// 32 hexadecimal digits, by version 4 of the algorithm.
    pub base: String,
    /// `+continuous`, `+create_target`, both or nothing.
    pub extension: String,
    /// What versions 3, 2 and 1 would say, in this order.
    pub older: Vec<String>,
}

/// What of this server enters into the ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The uuid of the server (`[couchdb] uuid`).
    pub uuid: String,
    /// The name of the host, for ids of versions 1 and 2.
    pub hostname: String,
    /// The port, for ids of version 2.
    pub port: u16,
}

/// Why there is no id.
#[derive(Clone, Debug, thiserror::Error)]
pub enum IdError {
    /// The code of the filter function is part of the id and could not be read from the source. Worth another try later.
    #[error("{0}")]
    FilterFetch(String),
}

impl ReplicationId {
    /// The id of what `spec` asks for. Asks `source` for the code of a filter function, and for nothing otherwise.
    ///
    /// # Errors
    /// [`IdError::FilterFetch`].
    pub async fn compute(spec: &Spec, identity: &Identity, source: &Peer) -> Result<Self, IdError> {
        let _ = (spec, identity, source);
        Err(IdError::FilterFetch(String::new()))
    }
}

impl std::fmt::Display for ReplicationId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}{}", self.base, self.extension)
    }
}
