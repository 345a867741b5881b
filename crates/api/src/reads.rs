//! Reads on behalf of a request, with its memory and its cancellation.

use std::sync::Arc;

use settee_database::{Memory, MemoryGrant, ReadClient, Tally};
use settee_edge::budget::Account;
use settee_threads::{Scope, yield_if_long};

pub(crate) struct ReadCounter(pub(crate) Arc<Tally>);

impl Scope for ReadCounter {
    fn during(self: Arc<Self>, work: &mut dyn FnMut()) {
        Arc::clone(&self.0).during(work);
    }
}

pub(crate) fn reader(account: &Arc<Account>) -> ReadClient {
    let memory: Arc<dyn Memory> = Arc::new(Reader(Arc::clone(account)));
    ReadClient { cancellation: account.cancellation().clone(), memory: Some(memory), pace: yield_if_long }
}

struct Reader(Arc<Account>);

impl Memory for Reader {
    fn take(&self, bytes: usize) -> Option<MemoryGrant> {
        Some(Box::new(self.0.hold_now(bytes).ok()?))
    }
}
