//! Values that other layers derive from design documents.

use std::any::Any;
use std::sync::Arc;

use crate::{Database, DatabaseError, ReadView, Reader, Waiting};

impl Database {
    /// Returns the value that `make` derives from the design documents, together with its approximate size in bytes.
    /// The result is cached until a design document changes; errors of `make` are not. `name` distinguishes values of
    /// the same type.
    pub fn of_designs<T, E>(
        self: &Arc<Self>,
        name: &str,
        waiting: Waiting<'_>,
        make: impl FnOnce(&ReadView<'_>) -> Result<(T, usize), E>,
    ) -> Result<Arc<T>, E>
    where
        T: Any + Send + Sync,
        E: From<DatabaseError>,
    {
        if self.is_closed() {
            return Err(DatabaseError::NotFound.into());
        }
        if let Some(made) = self.designs.find(name, self.design_seq()) {
            return Ok(made);
        }
        let view = self.read_as(&Reader::Administrator, waiting)?;
        let (thing, bytes) = make(&view)?;
        let thing = Arc::new(thing);
        self.designs.keep(name, view.design_seq()?, &thing, bytes + size_of::<T>() + name.len());
        Ok(thing)
    }
}
