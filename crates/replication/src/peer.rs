//! [`Peer`]: a database that is spoken to by the protocol.

use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::spec::Tuning;
use crate::transport::{Transport, TransportError};

/// A database at the other end of a [`Transport`].
#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    transport: Arc<dyn Transport>,
    tuning: Tuning,
}

/// Why a peer did not do what it was asked, after all tries.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The database is not there.
    #[error("db_not_found: could not open {0}")]
    DbNotFound(String),
    /// The peer does not let us.
    #[error("unauthorized: unauthorized to access or create database {0}")]
    Unauthorized(String),
    /// The peer does not let us do this.
    #[error("{method} {url}: {status} {error}: {reason}")]
    Status {
        /// The method of the request.
        method: String,
        /// Its URL without credentials.
        url: String,
        /// The status of the answer.
        status: u16,
        /// `error` of the answer.
        error: String,
        /// `reason` of the answer.
        reason: String,
    },
    /// The exchange did not come about.
    #[error("{method} {url}: {error}")]
    Transport {
        /// The method of the request.
        method: String,
        /// Its URL without credentials.
        url: String,
        /// What went wrong.
        error: TransportError,
    },
    /// The answer is none of this protocol.
    #[error("{method} {url}: the answer is not understood: {what}")]
    Protocol {
        /// The method of the request.
        method: String,
        /// Its URL without credentials.
        url: String,
        /// What is wrong.
        what: String,
    },
}

impl Peer {
    /// A peer at `endpoint`, reached by `transport`. Nothing is sent yet.
    #[must_use]
    pub fn new(endpoint: Endpoint, transport: Arc<dyn Transport>, tuning: &Tuning) -> Self {
        Self { inner: Arc::new(Inner { endpoint, transport, tuning: tuning.clone() }) }
    }

    /// Where it is.
    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }
}
