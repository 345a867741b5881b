//! The HTTP interface: CouchDB's requests and responses.
//!
//! [`serve`] accepts connections and passes each request through four stages: `router` finds the resource and
//! its declared permission, `access` authorizes the user, the handler in `routes` calls the domain once, and
//! `respond` encodes the result. Only this crate and [`settee_edge`], which has the connections, handle status codes and
//! headers. Storage, documents, views and passwords belong to other crates; blocking work runs behind `bridge`.

mod attachments;
mod auth_policy;
mod authentication;
mod body;
mod bridge;
mod browser;
mod catch_up;
mod error;
mod failures;
mod forwarding;
mod head;
mod in_process;
mod jsonp;
mod limits;
mod metrics;
mod node;
mod nodes;
mod observe;
mod operation;
mod params;
mod path;
mod peers;
mod policy;
mod reads;
mod redactor;
mod replication;
mod request;
mod respond;
mod revision;
mod router;
mod routes;
mod search_permits;
mod searching;
mod sequence;
mod stages;
#[cfg(test)]
mod tests;

pub use auth_policy::violation;
pub use authentication::fetch::{FetchError, KeyFetcher};
pub use authentication::jwt::KeyReader;
pub use error::Error;
pub use metrics::SlowRequest;
pub use node::{Identity, Node, NodeDependencies, Platform};
pub use observe::ACCESS_LOG;
pub use operation::{
    Attribute, BackupAttempt, BackupProgress, BackupSize, BackupState, Backups, LogLines, Operation, Parent,
    ProcessFigures, Span, Tracer,
};
pub use peers::PeerClient;
pub use replication::{Replication, ReplicationDependencies};
pub use stages::serve;
