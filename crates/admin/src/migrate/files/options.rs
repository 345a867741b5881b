//! [`Options`] of the import of each database.

use tokio::sync::Semaphore;

pub(crate) struct Options {
    pub(crate) has_design: bool,
    pub(crate) from_start: bool,
    pub(crate) databases: Semaphore,
    pub(crate) readers: Semaphore,
}
