//! Searches on behalf of clients: their time limit and concurrency limit. A search occupies a processor, however small
//! its request is. The number of concurrent searches is therefore small, and no client holds all permits, so that other
//! clients get one immediately.

use std::sync::Arc;
use std::time::Duration;

use settee_edge::budget::Account;
use settee_search::{MemoryGrant, Requester, SearchLimits, Shortage};
use settee_settings::search;
use settee_threads::{Owner, Permit};
use tokio::runtime::Handle;

use crate::Error;
use crate::node::Node;
use crate::request::Request;

const CHECK_EVERY: Duration = Duration::from_millis(50);

pub(crate) struct Searches {
    node: Arc<Node>,
    owner: Option<Owner>,
    deadline_us: u64,
    timeout: Duration,
}

impl Searches {
    pub(crate) fn of(request: &Request) -> Self {
        let node = Arc::clone(&request.node);
        let timeout_ms = search::TIMEOUT_MS.of(node.settings.as_ref());
        let deadline_us = (node.operation.monotonic_us)().saturating_add(timeout_ms.saturating_mul(1_000));
        Self { owner: request.caller().owner, timeout: Duration::from_millis(timeout_ms), node, deadline_us }
    }

    /// Waits for a permit. No thread is occupied while the client waits.
    pub(crate) async fn permit(&self) -> Result<Permit, Error> {
        let permits = &self.node.search_permits.permits();
        let permit = tokio::time::timeout(self.timeout, permits.acquire(self.owner)).await;
        permit.map_err(|_| settee_search::Error::TimedOut.into())
    }

    pub(crate) fn permit_now(&self, limits: &SearchLimits) -> Result<Permit, Error> {
        let permits = &self.node.search_permits.permits();
        Handle::current().block_on(async {
            let mut acquiring = std::pin::pin!(permits.acquire(self.owner));
            loop {
                match tokio::time::timeout(CHECK_EVERY, acquiring.as_mut()).await {
                    Ok(permit) => return Ok(permit),
                    Err(_) => limits.check()?,
                }
            }
        })
    }

    pub(crate) fn limits(&self, account: &Arc<Account>) -> SearchLimits {
        SearchLimits::of(Arc::new(Searching {
            node: Arc::clone(&self.node),
            account: Arc::clone(account),
            deadline_us: self.deadline_us,
        }))
    }
}

struct Searching {
    node: Arc<Node>,
    account: Arc<Account>,
    deadline_us: u64,
}

impl Requester for Searching {
    fn has_gone(&self) -> bool {
        self.account.cancellation().is_cancelled()
    }

    fn is_late(&self) -> bool {
        settee_threads::yield_if_long();
        (self.node.operation.monotonic_us)() >= self.deadline_us
    }

    fn take(&self, bytes: usize) -> Result<MemoryGrant, Shortage> {
        match self.account.hold_now(bytes) {
            Ok(held) => Ok(Box::new(held)),
            Err(_) if self.account.held().saturating_add(bytes) > self.account.limit() => Err(Shortage::TooLarge),
            Err(_) => Err(Shortage::InUse),
        }
    }
}
