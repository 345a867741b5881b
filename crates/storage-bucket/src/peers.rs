//! [`Peers`]: messages to the other processes of a store. The server implements it, because it has the HTTP client.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

/// Sends messages to other processes.
pub trait Peers: Send + Sync {
    /// Sends a message and returns the answer.
    fn call(&self, call: PeerCall) -> BoxFuture<'static, Result<Bytes, PeerError>>;
}

/// A message to another process.
#[derive(Clone)]
pub struct PeerCall {
    /// Root of the HTTP interface of the receiver.
    pub address: String,
    /// Secret of the store, by which the receiver authenticates the message.
    pub secret: [u8; 32],
    /// The message.
    pub body: Bytes,
    /// Time within which the receiver must answer.
    pub timeout: Duration,
}

impl fmt::Debug for PeerCall {
    /// Contains no secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerCall").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerError {
    /// Nothing listens at the address: the message was not received.
    Refused(String),
    /// The message may have been received.
    Failed(String),
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) | Self::Failed(why) => f.write_str(why),
        }
    }
}
