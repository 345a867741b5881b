//! [`Claims`]: assigns replications to the nodes of a cluster.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use settee_database::Catalog;
use settee_database::members::{Claim, Members, preferred};
use settee_replication::{Alone, Servers};

pub(super) struct Claims {
    catalog: Arc<Catalog>,
    claims: Mutex<HashMap<String, Claim>>,
    /// True if another node may have created a database since.
    is_stale: Arc<AtomicBool>,
}

impl Claims {
    pub(super) fn of(catalog: &Arc<Catalog>) -> Arc<dyn Servers> {
        if catalog.engine().members().is_sole() {
            return Arc::new(Alone);
        }
        let is_stale = Arc::new(AtomicBool::new(false));
        let marked = Arc::clone(&is_stale);
        catalog.on_foreign_change(move || marked.store(true, Ordering::Release));
        Arc::new(Self { catalog: Arc::clone(catalog), claims: Mutex::default(), is_stale })
    }

    fn members(&self) -> &dyn Members {
        self.catalog.engine().members()
    }
}

fn key(job: &str) -> String {
    format!("replication/{job}")
}

impl Servers for Claims {
    fn is_alone(&self) -> bool {
        false
    }

    fn is_preferred(&self, job: &str) -> bool {
        let members = self.members();
        preferred(&members.live(), &key(job)).is_some_and(|node| node.id == members.this())
    }

    fn holds(&self, job: &str) -> bool {
        self.claims.lock().get(job).is_some_and(|claim| self.members().holds(claim))
    }

    fn claim(&self, job: &str) -> bool {
        match self.members().claim(&key(job)) {
            Ok(Some(claim)) => {
                let mut claims = self.claims.lock();
                // A concurrent claim of this server may have replaced this one.
                if claims.get(job).is_none_or(|held| held.epoch < claim.epoch) {
                    claims.insert(job.to_owned(), claim);
                }
                true
            }
            Ok(None) => false,
            Err(error) => {
                tracing::warn!(id = job, %error, "a replication cannot be claimed");
                false
            }
        }
    }

    fn release(&self, job: &str) {
        let Some(claim) = self.claims.lock().remove(job) else { return };
        if let Err(error) = self.members().release(&claim) {
            tracing::warn!(id = job, %error, "the claim to a replication ends with this server");
        }
    }

    fn held(&self) -> Vec<String> {
        self.claims.lock().keys().cloned().collect()
    }

    fn new_databases(&self) -> Option<Vec<String>> {
        if !self.is_stale.swap(false, Ordering::AcqRel) {
            return None;
        }
        match self.catalog.names() {
            Ok(names) => Some(names),
            Err(error) => {
                tracing::warn!(%error, "the databases that other servers made cannot be listed");
                self.is_stale.store(true, Ordering::Release);
                None
            }
        }
    }
}
