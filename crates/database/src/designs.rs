//! [`OfDesigns`]: what layers above made of the design documents of a database that is in memory. It is good until a design
//! document changes, and goes with the database. What is made of them is up to those layers.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::{Database, DatabaseError, ReadView};

/// So many bytes are kept for a database, about, and for all of them together. What is beyond is made each time.
const DATABASE_BYTES: usize = 2 << 20;
const ALL_BYTES: usize = 64 << 20;

/// The part that was made so far.
pub(crate) struct OfDesigns {
    made: Mutex<Made>,
    /// Bytes that are kept for all databases.
    total: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Made {
    /// The update sequence of the newest change of a design document that went into it.
    design_seq: u64,
    /// By what it is, and the name that its maker gave it.
    things: HashMap<(TypeId, Box<str>), Arc<dyn Any + Send + Sync>>,
    bytes: usize,
}

impl OfDesigns {
    pub(crate) fn new(total: Arc<AtomicUsize>) -> Self {
        Self { made: Mutex::default(), total }
    }

    fn forget(&self, made: &mut Made) {
        self.total.fetch_sub(made.bytes, Ordering::Relaxed);
        *made = Made { design_seq: made.design_seq, ..Made::default() };
    }

    fn find<T: Any + Send + Sync>(&self, name: &str, design_seq: u64) -> Option<Arc<T>> {
        let made = self.made.lock();
        // What is newer is as good: it was committed before it was read.
        let key = (TypeId::of::<T>(), name.into());
        let found = made.things.get(&key).filter(|_| made.design_seq >= design_seq)?;
        Arc::clone(found).downcast().ok()
    }

    fn keep<T: Any + Send + Sync>(&self, name: &str, design_seq: u64, thing: &Arc<T>, bytes: usize) {
        let mut made = self.made.lock();
        if design_seq > made.design_seq {
            self.forget(&mut made);
            made.design_seq = design_seq;
        }
        let fits = made.bytes + bytes <= DATABASE_BYTES && self.total.load(Ordering::Relaxed) + bytes <= ALL_BYTES;
        if design_seq == made.design_seq && fits {
            let thing: Arc<dyn Any + Send + Sync> = Arc::<T>::clone(thing);
            if made.things.insert((TypeId::of::<T>(), name.into()), thing).is_none() {
                made.bytes += bytes;
                self.total.fetch_add(bytes, Ordering::Relaxed);
            }
        }
    }
}

impl Drop for OfDesigns {
    fn drop(&mut self) {
        self.total.fetch_sub(self.made.get_mut().bytes, Ordering::Relaxed);
    }
}

impl Database {
    /// The value that `make` derives from the design documents, and about how many bytes it has: as it was made before,
    /// unless one of them has changed since. What has a name is told from other things of its type.
    ///
    /// # Errors
    /// Those of `make`, which are not kept, and when the database was deleted or cannot be read.
    pub fn of_designs<T, E>(
        self: &Arc<Self>,
        name: &str,
        make: impl FnOnce(&ReadView) -> Result<(T, usize), E>,
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
        let view = self.read()?;
        let (thing, bytes) = make(&view)?;
        let thing = Arc::new(thing);
        self.designs.keep(name, view.design_seq()?, &thing, bytes + size_of::<T>() + name.len());
        Ok(thing)
    }
}
