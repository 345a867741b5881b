//! Replication: copies documents and their revisions between databases of CouchDB, PouchDB and this server.
//!
//! The replicator is a *client of the HTTP protocol* ([`Transport`]), also for local databases. A [`Spec`] describes a
//! replication, a [`Peer`] is one of its two databases, and a [`Session`] runs it.

mod checkpoint;
mod counters;
pub mod documents;
mod endpoint;
mod id;
pub mod net;
mod peer;
mod replicator;
mod report;
mod rows;
pub mod scheduler;
mod session;
mod spec;
#[cfg(test)]
mod testing;
mod transport;
mod tuning;

pub use crate::counters::{Counter, Counters, Tally};
pub use crate::endpoint::{Auth, Endpoint, EndpointError, Local, Remote, Roles, User};
pub use crate::id::{IdError, Identity, ReplicationId};
pub use crate::peer::plain::{Download, List, Reply, RequestMethod};
pub use crate::peer::{Peer, PeerError};
pub use crate::replicator::show::{JobState, TaskState};
pub use crate::replicator::{Alone, Dependencies, ReplicateError, Replicated, Replicator, Servers, Settings};
pub use crate::session::{Control, Failure, Outcome, Places, Progress, Services, Session, Statistics};
pub use crate::spec::{CancelTarget, Filter, Request, Spec, SpecError};
pub use crate::transport::{
    Body, BoxFuture, Connect, Direct, LongLived, Transport, TransportError, empty_body, foreign_body, full_body,
    shared_body,
};
pub use crate::tuning::{SocketOptions, Tuning};
