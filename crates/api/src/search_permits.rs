//! [`SearchPermits`]: limits the number of concurrent searches.

use std::sync::Arc;

use settee_settings::{Settings, search};
use settee_threads::Permits;

pub(crate) struct SearchPermits(Arc<Permits>);

impl SearchPermits {
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        Self(Permits::new(usize::try_from(search::MAX_SEARCHES.of(settings).max(1)).unwrap_or(usize::MAX)))
    }

    pub(crate) fn permits(&self) -> &Arc<Permits> {
        &self.0
    }
}
