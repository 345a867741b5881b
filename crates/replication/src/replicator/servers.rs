//! [`Servers`]: distribution of replications between servers on the same databases. All read all documents, and one
//! holds the claim to each job, its preferred server. A transient replication runs on the server that received the
//! request, unless another server holds its claim.
//! A claim is advisory: if two servers run the same job for a moment, both write the same revisions.

pub trait Servers: Send + Sync {
    /// Returns true if this is permanently the only server.
    fn is_alone(&self) -> bool;

    /// Must be cheap.
    fn is_preferred(&self, job: &str) -> bool;

    /// Returns true if this server holds the claim to a job. Must be cheap.
    fn holds(&self, job: &str) -> bool;

    /// Returns false if another server holds the claim, or the claim cannot be determined. May block.
    fn claim(&self, job: &str) -> bool;

    fn release(&self, job: &str);

    fn held(&self) -> Vec<String>;

    /// Returns the names of all databases, if other servers may have created some since the last call. May block.
    fn new_databases(&self) -> Option<Vec<String>>;
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Servers for Alone {
    fn is_alone(&self) -> bool {
        true
    }

    fn is_preferred(&self, _: &str) -> bool {
        true
    }

    fn holds(&self, _: &str) -> bool {
        true
    }

    fn claim(&self, _: &str) -> bool {
        true
    }

    fn release(&self, _: &str) {}

    fn held(&self) -> Vec<String> {
        Vec::new()
    }

    fn new_databases(&self) -> Option<Vec<String>> {
        None
    }
}
